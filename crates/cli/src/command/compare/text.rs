//! The result of `vmarea compare` as text.

use super::{Document, OfTrace};
use std::collections::BTreeMap;
use std::io::{self, Write};
use vmarea_explain::text::count;
use vmarea_replay::compare::{Compared, Parting, VMA_BYTES};
use vmarea_terminal::table::ruled_columns;

/// Heights of a bar, lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Writes the details of each trace, and a summary if there are several. Of several traces, those on
/// which the policies never part have one line each.
pub(super) fn write(out: &mut dyn Write, document: &Document, most: usize) -> io::Result<()> {
    let several = document.traces.len() > 1;
    let mut empty_line = false;
    for trace in &document.traces {
        let in_brief = several && trace.compared.first.is_none();
        if empty_line && !in_brief {
            writeln!(out)?;
        }
        if in_brief {
            never_part(out, trace)?;
        } else {
            of_trace(out, trace, most)?;
            writeln!(out)?;
        }
        empty_line = in_brief;
    }
    if several {
        summary(out, document)?;
    }
    Ok(())
}

fn never_part(out: &mut dyn Write, trace: &OfTrace) -> io::Result<()> {
    let compared = &trace.compared;
    let [a, b] = &compared.policies;
    let part = if trace.complete { "" } else { ", not complete" };
    writeln!(
        out,
        "{}: {} calls{part}; {} and {} never part",
        trace.trace,
        count(compared.calls),
        a.name,
        b.name
    )?;
    notes(out, compared)
}

fn notes(out: &mut dyn Write, compared: &Compared) -> io::Result<()> {
    for note in &compared.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn of_trace(out: &mut dyn Write, trace: &OfTrace, most: usize) -> io::Result<()> {
    let compared = &trace.compared;
    let part = if trace.complete { "" } else { ", not complete" };
    writeln!(
        out,
        "{}: {} calls{part}",
        trace.trace,
        count(compared.calls)
    )?;
    let names = [0, 1].map(|side: usize| compared.policies[side].name.as_str());
    counts(out, compared)?;
    match &compared.first {
        None => writeln!(out, "{} and {} never part", names[0], names[1])?,
        Some(first) => {
            parting(out, first, names)?;
            differences(out, compared, names, most)?;
        }
    }
    over_time(out, compared, names)?;
    notes(out, compared)
}

fn counts(out: &mut dyn Write, compared: &Compared) -> io::Result<()> {
    let headings = [
        "policy",
        "VMAs\npeak",
        "VMAs\nexit",
        "KiB of VMAs\nat the peak",
        "merges",
        "merges that\nonly it makes",
    ];
    let mut table = ruled_columns(&headings, 1);
    for side in &compared.policies {
        let sum = |counts: &BTreeMap<String, u64>| count(counts.values().sum());
        table.add_row([
            side.name.clone(),
            count(side.vmas_peak),
            count(side.vmas_exit),
            format!("{:.1}", side.bytes_peak as f64 / 1024.0),
            sum(&side.merges),
            sum(&side.only_merges),
        ]);
    }
    writeln!(out, "{table}")?;
    for side in &compared.policies {
        let kinds = side.only_merges.iter();
        let kinds: Vec<_> = kinds
            .map(|(kind, n)| format!("{} {kind}", count(*n)))
            .collect();
        if !kinds.is_empty() {
            writeln!(out, "only {} makes: {}", side.name, kinds.join(", "))?;
        }
    }
    writeln!(
        out,
        "a VMA takes {VMA_BYTES} bytes (vm_area_struct of Linux 6.18)"
    )
}

fn parting(out: &mut dyn Write, first: &Parting, names: [&str; 2]) -> io::Result<()> {
    writeln!(
        out,
        "\nfirst difference: call {}, mm {}, {} at {:x}",
        count(first.number),
        first.mm,
        first.place,
        first.address
    )?;
    writeln!(out, "  {}", first.call)?;
    did(out, &first.did, names)
}

fn did(out: &mut dyn Write, did: &[String; 2], names: [&str; 2]) -> io::Result<()> {
    for (name, did) in names.into_iter().zip(did) {
        writeln!(out, "    {name}: {did}")?;
    }
    Ok(())
}

fn differences(
    out: &mut dyn Write,
    compared: &Compared,
    names: [&str; 2],
    most: usize,
) -> io::Result<()> {
    let all = compared.differences.len();
    writeln!(
        out,
        "\n{} calls differ; kinds of difference: {}",
        count(compared.differing_calls),
        count(all as u64)
    )?;
    for group in compared.differences.iter().take(most) {
        writeln!(
            out,
            "{:>7} × {}, {}; first call {} at {:x}",
            count(group.count),
            group.call,
            group.place,
            count(group.first_call),
            group.first_address
        )?;
        did(out, &group.did, names)?;
    }
    if all > most {
        writeln!(
            out,
            "{} more; --differences {all} shows all of them",
            count((all - most) as u64)
        )?;
    }
    Ok(())
}

fn over_time(out: &mut dyn Write, compared: &Compared, names: [&str; 2]) -> io::Result<()> {
    let [a, b] = &compared.over_time.vmas;
    let highest = a.iter().chain(b).copied().max().unwrap_or(0);
    if highest == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "\nVMAs over time: {} calls per column, full height {}",
        count(compared.over_time.calls_per_point),
        count(highest)
    )?;
    for (name, points) in names.into_iter().zip([a, b]) {
        writeln!(out, "  {name}\n  {}", bars(points, highest))?;
    }
    Ok(())
}

/// Draws one bar for each point.
fn bars(points: &[u64], highest: u64) -> String {
    let last = BARS.len() as u64 - 1;
    let bar = |&vmas: &u64| BARS[(vmas * last).div_ceil(highest.max(1)) as usize];
    points.iter().map(bar).collect()
}

/// Writes one row for each trace, and one for all of them. The policies are A and B, because their
/// names can be long.
fn summary(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    for (letter, policy) in ["A", "B"].into_iter().zip(&document.policies) {
        writeln!(out, "{letter}: {policy}")?;
    }
    let headings = [
        "trace",
        "first\ndifference",
        "calls\nthat differ",
        "peak\nA",
        "peak\nB",
        "exit\nA",
        "exit\nB",
    ];
    let mut table = ruled_columns(&headings, 1);
    let mut sums = [0; 5];
    for trace in &document.traces {
        let compared = &trace.compared;
        let [a, b] = &compared.policies;
        let counts = [
            compared.differing_calls,
            a.vmas_peak,
            b.vmas_peak,
            a.vmas_exit,
            b.vmas_exit,
        ];
        let first = compared.first.as_ref();
        let first = first.map_or_else(|| "-".to_owned(), |first| count(first.number));
        table.add_row(row(name(&trace.trace), first, &counts));
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    table.add_row(row("all", String::new(), &sums));
    writeln!(out, "{table}")
}

fn row(name: &str, first: String, counts: &[u64]) -> Vec<String> {
    let counts = counts.iter().map(|&n| count(n));
    [name.to_owned(), first].into_iter().chain(counts).collect()
}

/// Returns the name of a trace without its folder and extension.
fn name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".vmtrace").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn bars_are_as_high_as_their_share() {
        assert_eq!(super::bars(&[0, 1, 50, 100], 100), "▁▂▅█");
        assert_eq!(
            super::bars(&[u64::from(u32::MAX)], u64::from(u32::MAX)),
            "█"
        );
    }
}
