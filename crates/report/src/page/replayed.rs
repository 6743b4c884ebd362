//! The page of a replayed recording.

use super::data::{Names, pictures};
use super::facts::Peak;
use super::parts::{Align, Cell, Heading, count, percent, plural, remarks, table};
use super::{document, explorer};
use crate::timeline::Timeline;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};
use vmarea_replay::{FailedCalls, PolicyReport, Report};
use vmarea_trace::event::{FaultSource, Header};

/// What the page of a replayed recording shows.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// Header of the recording.
    pub header: &'a Header,
    /// Result of the replay.
    pub report: &'a Report,
    /// The mappings over time.
    pub timeline: &'a Timeline,
    /// Functions of the call stacks, if they were recorded.
    pub names: &'a Names,
    /// Why the recording ends early, if it does.
    pub torn: Option<&'a str>,
}

impl Replayed<'_> {
    /// Returns the page.
    pub fn page(&self) -> String {
        let limit = self.header.settings.get("vm.max_map_count");
        let limit = limit.and_then(|text| text.trim().parse().ok());
        let command = self.header.command.join(" ");
        let peak = Peak::of(self.timeline, self.names, limit);
        let body = html! {
            header {
                p.kind { "vmarea: a recorded program" }
                h1 { code { (command) } }
                p.note {
                    "Linux " (self.header.kernel_release) ", " (self.header.machine) "; "
                    (count(self.report.calls)) " calls and " (count(self.report.faults)) " page faults in "
                    (plural(self.report.verify.processes, "address space"))
                }
            }
            @if let Some(peak) = &peak {
                (peak.tiles())
                (remarks("What is missing", &self.missing()))
                (explorer::over_time(false))
                (explorer::apart(peak))
                (explorer::who(peak, !self.names.is_empty(), false))
                (explorer::graph())
                section #events { h2 { "What happened" } (peak.happened()) }
                (explorer::mappings())
            } @else {
                (remarks("What is missing", &self.missing()))
                p { "The recording contains no address space, so there is nothing to draw." }
            }
            (failed(&self.report.failed_calls))
            (policies(self.report))
            (verified(self.report))
            (remarks("Remarks of the recorder and of the replay", &self.report.notes))
        };
        let title = format!("vmarea: {command}");
        let pictures = peak.map(|_| pictures(self.timeline, self.names, limit));
        document(&title, &body, pictures.as_ref())
    }

    /// Says what a reader might expect on the page but the recording does not have.
    fn missing(&self) -> Vec<String> {
        let left_out = self.timeline.left_out;
        let mut missing = Vec::new();
        if let Some(why) = self.torn {
            missing.push(format!(
                "The recording is torn: {why}. The page shows what comes before."
            ));
        }
        match self.header.faults {
            FaultSource::Tracepoints => {}
            FaultSource::SoftwareUser => missing.push(
                "Page faults in kernel mode are missing, so reasons that depend on a first write (anon_vma) are uncertain."
                    .to_owned(),
            ),
            FaultSource::None => missing.push(
                "The recording has no page faults, so the page cannot say which mappings were written to: the reason \
                 anon_vma, the families and merges that depend on them are uncertain."
                    .to_owned(),
            ),
        }
        if self.report.lost > 0 {
            missing.push(format!(
                "{} samples were lost during the recording.",
                count(self.report.lost)
            ));
        }
        if left_out.bands > 0 {
            missing.push(format!(
                "Thinned: {} mappings that existed for at most {} are not drawn. All counts over time include them.",
                count(left_out.bands),
                plural(left_out.steps.into(), "step")
            ));
        }
        if left_out.marks > 0 {
            missing.push(format!(
                "Thinned: {} marks were joined with a neighbour of the same kind; the sums are complete.",
                count(left_out.marks)
            ));
        }
        if left_out.spaces > 0 {
            missing.push(format!(
                "{} smaller address spaces are not drawn.",
                count(left_out.spaces)
            ));
        }
        missing
    }
}

/// Returns the memory calls that failed, in the order of the first of each kind; nothing without any.
fn failed(calls: &[FailedCalls]) -> Markup {
    let headings = [
        ("call", Align::Left),
        ("result", Align::Left),
        ("times", Align::Right),
        ("because", Align::Left),
        ("remedy", Align::Left),
        ("first", Align::Left),
        ("in", Align::Left),
        ("after", Align::Right),
    ];
    let row = |group: &FailedCalls| {
        let text = |text: Option<&str>, other: &str| Cell::Text(text.unwrap_or(other).to_owned());
        vec![
            Cell::Code(group.call.clone()),
            text(group.errno.as_deref(), "not moved"),
            Cell::Count(group.count),
            text(group.reason.as_deref(), "not known"),
            text(group.remedy, ""),
            Cell::Code(group.first.text.clone()),
            text(group.first.function.as_deref(), ""),
            Cell::Figure(format!("{:.3} s", group.first.ns as f64 * 1e-9)),
        ]
    };
    let rows: Vec<_> = calls.iter().map(row).collect();
    html! {
        @if !rows.is_empty() {
            section #failed {
                h2 { "Memory calls that failed" }
                (table("Memory calls that failed, by call, result and reason, with the first of each kind", &headings, &rows))
            }
        }
    }
}

fn policies(report: &Report) -> Markup {
    let headings = [
        ("policy", Align::Left),
        ("peak, one process", Align::Right),
        ("peak, all", Align::Right),
        ("when processes end", Align::Right),
        ("merges", Align::Right),
        ("refusals", Align::Right),
        ("splits", Align::Right),
        ("lookups", Align::Right),
        ("hits of a one-entry cache", Align::Right),
    ];
    let row = |(name, policy): (&String, &PolicyReport)| {
        vec![
            Cell::Code(name.clone()),
            Cell::Count(policy.vmas_peak_single),
            Cell::Count(policy.vmas_peak),
            Cell::Count(policy.vmas_exit),
            Cell::Count(policy.merges.values().sum()),
            Cell::Count(policy.refusals.values().sum()),
            Cell::Count(policy.splits),
            Cell::Count(policy.lookups),
            Cell::Figure(percent(policy.last_used_hits, policy.lookups)),
        ]
    };
    let rows: Vec<_> = report.policies.iter().map(row).collect();
    html! {
        section #by-policy {
            h2 { "Under each policy" }
            p.note {
                "A policy is a set of rules for merging: " code { "linux" } " those of the recorded kernel, " code { "linux-5.10" }
                " those of an older one, " code { "thesis" } " those of Matěna's “VMA merging in Linux”, " code { "vmarea" }
                " every merge that this project can justify. The counts are of all processes, also of those that are not drawn."
            }
            (table("Mappings, merges, refusals and lookups under each policy", &headings, &rows))
            (by_name("Refusals by reason", report, |policy| &policy.refusals))
            (by_name("Merges by kind", report, |policy| &policy.merges))
        }
    }
}

/// Returns a table with a row for each name and a column for each policy.
fn by_name(
    caption: &str,
    report: &Report,
    counts: impl Fn(&PolicyReport) -> &BTreeMap<String, u64>,
) -> Markup {
    let names: BTreeSet<&String> = report
        .policies
        .values()
        .flat_map(|p| counts(p).keys())
        .collect();
    let policies: Vec<_> = report.policies.iter().collect();
    let mut headings: Vec<Heading<'_>> = vec![("", Align::Left)];
    headings.extend(
        policies
            .iter()
            .map(|(name, _)| (name.as_str(), Align::Right)),
    );
    let row = |name: &String| {
        let cells = policies
            .iter()
            .map(|(_, policy)| Cell::Count(counts(policy).get(name).copied().unwrap_or(0)));
        std::iter::once(Cell::Code(name.clone()))
            .chain(cells)
            .collect::<Vec<_>>()
    };
    let rows: Vec<_> = names.into_iter().map(row).collect();
    html! { @if !rows.is_empty() { (table(caption, &headings, &rows)) } }
}

fn verified(report: &Report) -> Markup {
    let verify = &report.verify;
    let headings = [("difference", Align::Left), ("times", Align::Right)];
    let rows = report
        .differences
        .iter()
        .map(|group| vec![Cell::Text(group.cause.clone()), Cell::Count(group.count)]);
    const REASONS: [Heading<'_>; 3] = [
        ("reason", Align::Left),
        ("undecided", Align::Right),
        ("resyncs", Align::Right),
    ];
    let reasons = verify.reasons.iter().map(|(reason, unsettled)| {
        let counts = [unsettled.undecided, unsettled.resyncs].map(Cell::Count);
        let name = Cell::Text(reason.clone());
        std::iter::once(name).chain(counts).collect::<Vec<_>>()
    });
    html! {
        section #verified {
            h2 { "Compared with the kernel" }
            p {
                (count(verify.vmas_compared)) " VMAs and " (count(verify.results_compared)) " results were compared: "
                @if verify.differences == 0 { "no differences" }
                @else { strong { (count(verify.differences)) " differences" } ", so the reasons and counts here may be wrong" }
                ", " (count(verify.undecided)) " undecided, "
                (plural(verify.resyncs, "resync")) "."
            }
            @if !verify.reasons.is_empty() {
                (table("Undecided results, and lists imported again, by reason", &REASONS, &reasons.collect::<Vec<_>>()))
            }
            @if !report.differences.is_empty() {
                (table("Differences from the kernel, by cause", &headings, &rows.collect::<Vec<_>>()))
            }
        }
    }
}
