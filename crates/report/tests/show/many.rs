//! Processes with tens of thousands of mappings: what a drawing keeps, and what it says about the rest.

use crate::drawing::assert_readable;
use vmarea::types::VmFlags;
use vmarea_process::maps::{MapName, MapsEntry};
use vmarea_process::unseen::Unseen;
use vmarea_process::view::ViewVma;
use vmarea_process::{Mapping, Mappings, Process, Source};
use vmarea_report::anatomy::{Anatomy, Fold, Symbols};
use vmarea_report::graph::kernel::{self, NamedVma};
use vmarea_report::graph::{Extent, Graph, Unattached, svg};
use vmarea_report::shown::Shown;
use vmarea_trace::event::{MmInfo, Perms};

const START: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;

/// Returns a page that is writable if its number is even, with an anon_vma of its own if it has one.
fn page(n: u64, anon_vma: u64, write: bool) -> Mapping {
    let (start, end) = (START + n * PAGE, START + (n + 1) * PAGE);
    let mut flags = VmFlags::READ | VmFlags::MAYREAD | VmFlags::MAYWRITE | VmFlags::MAYEXEC;
    flags.set(VmFlags::WRITE, write);
    Mapping {
        entry: MapsEntry {
            start,
            end,
            perms: Perms {
                read: true,
                write,
                ..Perms::default()
            },
            offset: 0,
            dev: 0,
            ino: 0,
            name: MapName::None,
        },
        flags: Some(flags),
        kernel: Some(ViewVma {
            start,
            end,
            pgoff: start / PAGE,
            flags: flags.bits(),
            anon_vma,
            root: anon_vma,
            chain_singular: true,
            policy: Some(0),
            ..ViewVma::default()
        }),
        resident: None,
        unseen: Unseen::empty(),
    }
}

fn shown(mappings: Vec<Mapping>) -> Shown {
    let mappings = Mappings {
        list: mappings,
        source: Source::Kernel,
        ..Mappings::default()
    };
    Shown {
        process: Process::of("a program".to_owned(), mappings),
        info: MmInfo::default(),
        when: "now".to_owned(),
        program: None,
    }
}

#[test]
fn sixty_thousand_mappings_in_one_box_say_why_they_are_apart() {
    let alternate = (0..40_000).map(|n| page(n, 0, n % 2 == 0));
    let separate = (40_000..60_000).map(|n| page(n, n, true));
    let shown = shown(alternate.chain(separate).collect());
    let anatomy = Anatomy::new(&shown, Fold::Small, Symbols::Skip);
    let counts = |of: &[vmarea_report::apart::Apart]| -> Vec<_> {
        let of = of.iter();
        of.map(|apart| (apart.reason, apart.boundaries, apart.removable))
            .collect()
    };
    let expected = [("protection", 40_000, 0), ("anon_vma", 19_999, 19_999)];
    assert_eq!(counts(&anatomy.apart), expected);
    let parts: Vec<_> = anatomy.parts.iter().filter(|p| p.mappings > 0).collect();
    assert_eq!(parts.len(), 1);
    assert_eq!(counts(&parts[0].apart), expected);
    assert_eq!(anatomy.sizes.len(), 1);
    assert_eq!(anatomy.sizes[0].mappings, 60_000);

    let drawing = anatomy.svg(&|bytes| format!("{bytes} bytes"));
    assert!(
        drawing.contains("apart: protection 40,000, anon_vma 19,999"),
        "{drawing}"
    );
    assert!(drawing.contains(">40,000<") && drawing.contains(">19,999<"));
    // The legend has the reasons that appear, and no other.
    assert!(!drawing.contains("different flags"));
    assert!(drawing.len() < 50_000, "{} bytes", drawing.len());
}

#[test]
fn a_strip_of_mixed_reasons_stays_small_and_readable() {
    let kind = |n: u64| (n * n / 7) % 5;
    let mappings = (0..60_000).map(|n| page(n, kind(n), kind(n) != 3));
    let anatomy = Anatomy::new(&shown(mappings.collect()), Fold::Small, Symbols::Skip);
    let drawing = anatomy.svg(&|bytes| format!("{bytes} bytes"));
    assert_readable(&drawing);
    assert!(drawing.len() < 300_000, "{} bytes", drawing.len());
}

fn live(mappings: &[Mapping]) -> Graph {
    let vmas = mappings.iter().map(|mapping| NamedVma {
        name: String::new(),
        vma: mapping.kernel.expect("all have one"),
    });
    let process = ("process 7 (a program)".to_owned(), None, vmas.collect());
    kernel::graph("process 7 (a program)", vec![process])
}

const DRAWN: Extent = Extent {
    processes: 8,
    vmas: 12,
    unattached: Unattached::Hide,
};

#[test]
fn a_drawing_of_twelve_of_sixty_thousand_vmas_says_so() {
    // Three VMAs below a hole have an anon_vma each, and so have 20,000 neighbours above it.
    let low = (0..3).map(|n| page(2 * n, n + 1, true));
    let high = (10..20_010).map(|n| page(n, n, true));
    let without = (20_010..60_018).map(|n| page(n, 0, n % 2 == 0));
    let mappings: Vec<_> = low.chain(high).chain(without).collect();
    let (part, left_out) = live(&mappings).select(DRAWN);
    // What is drawn are neighbours, not the lowest VMAs.
    assert_eq!(part.processes[0].vmas[0].start, START + 10 * PAGE);
    let said =
        "left out: 19,991 VMAs with an anon_vma, 40,008 VMAs without an anon_vma, 19,991 anon_vmas";
    assert_eq!(left_out.text().as_deref(), Some(said));
    let mut dot = Vec::new();
    part.write_dot(&mut dot, &left_out).unwrap();
    assert!(String::from_utf8(dot).unwrap().contains(said));
    let mut text = Vec::new();
    part.write_text(&mut text, &left_out).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("12 of 60,011 VMAs") && text.contains(said),
        "{text}"
    );
    let drawing = svg::sheet(&part, &left_out);
    assert_readable(&drawing);
    assert!(drawing.contains("12 of 60,011 VMAs") && drawing.contains(said));
}

#[test]
fn a_legend_explains_only_what_appears() {
    let graph = live(&[page(0, 1, true), page(1, 2, true)]);
    let (part, left_out) = graph.select(DRAWN);
    let drawing = svg::sheet(&part, &left_out);
    assert!(drawing.contains("its own anon_vma"));
    for absent in [
        "another in its chain",
        "to its parent",
        "to its root",
        "not visible",
    ] {
        assert!(!drawing.contains(absent), "{absent}: {drawing}");
    }
    let mut hidden = page(0, 1, true);
    hidden.kernel.as_mut().unwrap().root = 9;
    hidden.kernel.as_mut().unwrap().chain_singular = false;
    let (part, left_out) = live(&[hidden]).select(DRAWN);
    let drawing = svg::sheet(&part, &left_out);
    for present in [
        "another in its chain",
        "to its root",
        "more links, not visible",
    ] {
        assert!(drawing.contains(present), "{present}: {drawing}");
    }
}
