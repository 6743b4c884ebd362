//! The skeleton of the pictures, which the script fills: controls, canvases, and their sections.
//!
//! Everything that only the script can fill is hidden until it runs.

use super::facts::Peak;
use maud::{Markup, html};

/// Returns the map of the address space over time with its controls.
pub(super) fn over_time(still: bool) -> Markup {
    let heading = if still {
        "The address space"
    } else {
        "The address space over time"
    };
    html! {
        noscript { p.note { "The pictures need JavaScript. The tables are complete without it." } }
        section #over-time .scripted hidden {
            h2 { (heading) }
            (toolbar(still))
            ul #legend .legend aria-label="Colours of the mappings, with their number at this moment" {}
            @if !still {
                p.note.glyphs {
                    span.merge { "▲" } " merge  " span.split { "▮" } " split  " span.refusal { "●" } " refusal  "
                    span.failure { "✕" } " failed call; the vertical line is the chosen moment"
                }
            }
            div #plots {
                @if !still { canvas #lanes .lanes {} }
                div.map-frame {
                    canvas #map {}
                    canvas #map-over tabindex="0" role="application"
                        aria-roledescription="map of an address space" aria-describedby="map-text map-keys" {}
                }
                @if !still {
                    div.slider { label for="moment" { "Moment" } input #moment type="range" min="0" step="1"; }
                    canvas #counts role="img" {}
                    ul #policies .legend aria-label="Number of mappings under each policy, at this moment" {}
                }
            }
            p #readout .readout { }
            p #spoken .unseen aria-live="polite" {}
            p #map-text .unseen {}
            details {
                summary { "How to read and steer this picture" }
                (legend_text(still))
            }
        }
    }
}

fn toolbar(still: bool) -> Markup {
    html! {
        div.toolbar role="toolbar" aria-label="Controls of the picture" {
            label #space-label { "Process " select #space {} }
            label { "Colour "
                select #colour {
                    option value="kind" { "kind of memory" }
                    option value="reason" { "why apart from below" }
                    option value="site" { "call that made it" }
                    option value="family" { "family of anon_vmas" }
                }
            }
            label { "Addresses "
                select #axis {
                    option value="runs" { "gaps left out" }
                    option value="bytes" { "to scale" }
                    option value="even" { "equal rows" }
                }
            }
            span.group role="group" aria-label="Zoom" {
                button #in type="button" title="Zoom in (+)" { "+" span.unseen { " zoom in" } }
                button #out type="button" title="Zoom out (-)" { "−" span.unseen { " zoom out" } }
                @if !still {
                    button #wider type="button" title="Show more time" { "◂▸" span.unseen { " more time" } }
                    button #closer type="button" title="Show less time" { "▸◂" span.unseen { " less time" } }
                }
                button #whole type="button" title="Show everything (0)" { "all" }
            }
            @if !still {
                span.group role="group" aria-label="Moments" {
                    button #to-peak type="button" title="Go to the peak (p)" { "peak" }
                    button #previous-merge type="button" title="Go to the merge before (Shift+m)" { "◂ merge" }
                    button #next-merge type="button" title="Go to the next merge (m)" { "merge ▸" }
                }
            }
            button #unmark type="button" disabled title="Remove the highlight (Escape)" { "unmark" }
        }
    }
}

fn legend_text(still: bool) -> Markup {
    html! {
        p {
            "Each band is a mapping. High addresses are at the top. "
            @if !still { "Time runs to the right, one step for each system call. The vertical line is the moment that the other sections show. " }
            "With “gaps left out”, free addresses take a thin strip, each connected run of mappings is drawn to scale "
            "inside, and larger runs are higher, but not in proportion. Where many mappings share a pixel, the colour is that "
            "of the most frequent kind, and darker (in the dark theme, lighter) the more there are."
        }
        p #map-keys {
            "Keys in the picture: left and right move to the change before or after, up and down to the mapping above or "
            "below, + and − zoom, Shift with an arrow key moves the view, 0 shows everything, Enter marks the mappings of the same call, "
            "Escape removes the mark. "
            @if !still { "m and Shift+m go to the next merge and back, p to the peak. " }
            "With the mouse: click to choose, drag to move, and, after a click, turn the wheel to zoom (with Shift: only "
            "addresses, with Alt: only time)."
        }
    }
}

/// Returns the section of the reasons why neighbours are apart.
pub(super) fn apart(peak: &Peak<'_>) -> Markup {
    html! {
        section #apart {
            h2 { "Why neighbours are apart" }
            div.scripted hidden {
                p.note { "At the chosen moment, from the lowest address on the left to the highest on the right, all mappings equally wide. "
                    "A colour is the reason why a mapping is apart from the one below it. Choose a reason to mark its mappings." }
                canvas #strip role="img" {}
                ul #reasons .legend aria-label="Reasons, with their number of boundaries" {}
                h3 { "By size of the mapping" }
                figure { canvas #sizes role="img" {} figcaption #sizes-text {} }
                h3 #joinable-heading { "What could be merged" }
                div #joinable {}
            }
            (peak.apart())
        }
    }
}

/// Returns the section of the calls that made the mappings.
pub(super) fn who(peak: &Peak<'_>, stacks: bool, still: bool) -> Markup {
    html! {
        section #who {
            h2 { "Who made the mappings" }
            @if !stacks {
                p.note { "There are no call stacks, so the picture shows calls, not functions." }
            }
            div.scripted hidden {
                @if !still {
                    fieldset.choice { legend { "Count" }
                        label { input type="radio" name="flame" value="moment" checked; " mappings at the moment" }
                        label { input type="radio" name="flame" value="interval"; " mappings made in the shown interval" }
                    }
                }
                p.note { "Width is the number of mappings. Choose a frame to mark its mappings in the picture above; choose it again to remove the mark. "
                    "If a call splits a mapping, the kernel keeps it for one piece and makes a new one for the other: that one was made by "
                    "the call, and the guard page below it can be older." }
                div #flame .flame role="group" aria-label="Flame graph of the calls that made the mappings" {}
                p #flame-text .readout {}
            }
            (peak.who())
        }
    }
}

/// Returns the section of VMAs and anon_vmas.
pub(super) fn graph() -> Markup {
    html! {
        section #graph .scripted hidden {
            h2 { "VMAs, chains and anon_vmas" }
            p.note {
                "At the chosen moment, one box for each family: the anon_vmas that descend from one root by fork, and the "
                "VMAs that are linked to them. A solid line is a VMA's own anon_vma, a dashed line another link of its chain. "
                "VMAs of different families never merge under Linux's rules. Families of equal shape share a box."
            }
            div #families .families {}
            p #families-text .note {}
        }
    }
}

/// Returns the section with the list of the mappings.
pub(super) fn mappings() -> Markup {
    html! {
        section #mappings .scripted hidden {
            h2 { "All mappings at the chosen moment" }
            div.toolbar {
                label { "Find " input #find type="search" autocomplete="off"; }
                span #found .note role="status" {}
            }
            div #list {}
        }
    }
}
