//! Text summary of a report, at most 58 lines of 80 columns.

use super::plan::{Plan, Stage};
use super::recorded::OLDER;
use super::rows::{Table, printable};
use super::{ReasonCount, Report};
use std::io::{self, Write};
use vmarea_process::Source;

/// Maximum number of lines in a summary.
pub const MAX_LINES: usize = 58;
/// Maximum number of reasons that are shown on a line of their own.
const REASONS: usize = 6;
/// Maximum length of a name in characters.
const NAME: usize = 40;
/// Maximum length of a line in characters.
const WIDTH: usize = 80;
/// Width of the columns before the explanation of a reason.
const REASON_COLUMNS: usize = 12 + 1 + 9 + 1 + 7 + 1 + 9 + 2;
/// Number of threads from which on the cost of stopping them is shown.
const MANY_THREADS: u64 = 50;
/// A further repair is told if it saves at least one mapping of so many.
const LEAST_SAVED: u64 = 100;
/// Number of mappings from which on the flags that keep them separate are explained.
const LEAST_FLAGS: u64 = 50;
/// Number of mappings from which on the way to the code that makes them is named.
const LEAST_TO_RECORD: u64 = 500;
/// Minimum width of a detail; a narrower one is left out.
const LEAST_DETAIL: usize = 8;

// The output stream removes these sequences if colour is disabled.
pub(super) const STRONG: &str = "\x1b[1m";
pub(super) const PLAIN: &str = "\x1b[0m";

/// Formats a count with thousands separators.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 address space`, `2 address spaces`.
pub fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 * 1e-6;
    match ms {
        ms if ms < 0.1 => "less than 0.1 ms".to_owned(),
        ms if ms < 10.0 => format!("about {ms:.1} ms"),
        ms if ms < 10_000.0 => format!("about {ms:.0} ms"),
        ms => format!("about {:.0} s", ms * 1e-3),
    }
}

impl Report {
    /// Writes the summary; `size` formats a number of bytes.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_text(&self, out: &mut dyn Write, size: &dyn Fn(u64) -> String) -> io::Result<()> {
        let name = shorten(&printable(&self.name), NAME);
        let whose = match self.pid {
            Some(pid) => format!("process {pid} ({name})"),
            None => name,
        };
        writeln!(
            out,
            "{STRONG}{whose}: {} mappings{PLAIN}",
            count(self.mappings)
        )?;
        write_wrapped(out, &format!("{}; {}", self.of_limit(), self.mergeable()))?;
        if self.looked_at != self.mappings {
            writeln!(out, "in this range: {} mappings", count(self.looked_at))?;
        }
        self.write_limit(out)?;
        if let Some(room) = &self.room {
            room.write_text(out, size)?;
        }
        self.write_failed(out)?;
        writeln!(out)?;
        self.write_reasons(out)?;
        self.write_flags(out)?;
        self.write_causes(out)?;
        for finding in &self.findings {
            write_wrapped(out, &format!("! {}", finding.text))?;
        }
        write_wrapped(out, &self.how_seen())?;
        writeln!(out)?;
        out.write_all(STRONG.as_bytes())?;
        write_wrapped(out, &self.advice.text)?;
        out.write_all(PLAIN.as_bytes())?;
        if let Some(command) = &self.advice.command {
            writeln!(out, "  {command}")?;
        }
        self.write_plan(out, size)?;
        self.write_prevention(out)?;
        self.write_functions(out)?;
        self.write_next_step(out)?;
        match &self.since {
            Some(growth) => {
                writeln!(out)?;
                growth.write_text(out)
            }
            None => Ok(()),
        }
    }

    /// Says how near the limit is, as far as that is known.
    fn of_limit(&self) -> String {
        match (self.percent_of_limit(), self.limit) {
            (Some(percent), Some(limit)) => {
                format!("{percent:.1} % of the limit of {}", count(limit))
            }
            _ if self.incomplete => "no verdict on the limit: mappings may be missing".to_owned(),
            _ => "the limit is not in the list; --limit N states it".to_owned(),
        }
    }

    /// Says how many mappings could be merged, as far as that is known.
    fn mergeable(&self) -> String {
        let most = if self.source.hides_anon_vmas() && self.joinable > 0 {
            "at most "
        } else {
            ""
        };
        format!("{most}{} could be merged", count(self.joinable))
    }

    /// Names the command that finds the code, if a running process has many mappings.
    fn write_next_step(&self, out: &mut dyn Write) -> io::Result<()> {
        let (Some(pid), Some(_)) = (self.pid, &self.plan) else {
            return Ok(());
        };
        if self.mappings < LEAST_TO_RECORD {
            return Ok(());
        }
        // Lines of their own, so that where they break does not depend on the number of the process.
        writeln!(out)?;
        let new = "the code that makes new ones:";
        writeln!(out, "{new} vmarea explain -p {pid} --record 30s --stacks")?;
        writeln!(
            out,
            "that of all, from the program's start: vmarea explain --stacks -- CMD"
        )
    }

    fn write_reasons(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{:<12} {:>9} {:>7} {:>9}  why a mapping is separate",
            "REASON", "MAPPINGS", "SHARE", "MERGEABLE"
        )?;
        let (own, others) = self.reasons.split_at(self.reasons.len().min(REASONS));
        for reason in own {
            let detail = match reason.made_by.first() {
                Some(made) if made.call != OLDER => {
                    format!("by {}: {}", made.call, count(made.mappings))
                }
                _ => printable(&reason.detail),
            };
            let likely = match reason.certain < reason.mappings {
                true => "likely: ",
                false => "",
            };
            let words = format!("{likely}{}", reason.words);
            let left = (WIDTH - REASON_COLUMNS).saturating_sub(words.chars().count() + 3);
            let what = match fitting(&detail, left) {
                Some(detail) => format!("{words} ({detail})"),
                None => words,
            };
            self.write_reason(out, reason.reason, reason, &what)?;
        }
        if !others.is_empty() {
            let sum = |of: fn(&ReasonCount) -> u64| others.iter().map(of).sum();
            let rest = ReasonCount {
                reason: "others",
                mappings: sum(|r| r.mappings),
                certain: sum(|r| r.certain),
                joinable: sum(|r| r.joinable),
                words: "",
                detail: String::new(),
                made_by: Vec::new(),
            };
            let names: Vec<_> = others.iter().map(|r| r.reason).collect();
            self.write_reason(out, "others", &rest, &names.join(", "))?;
        }
        writeln!(
            out,
            "{:<12} {:>9} {:>7} {:>9}  including the first mapping",
            "all",
            count(self.looked_at),
            percent(self.looked_at, self.looked_at),
            count(self.joinable),
        )
    }

    /// Writes which flags keep many mappings separate, and what to do about it.
    fn write_flags(&self, out: &mut dyn Write) -> io::Result<()> {
        let flags = self.reasons.iter().find(|reason| reason.reason == "flags");
        let Some(reason) = flags else { return Ok(()) };
        let stay = reason.mappings - reason.joinable;
        let is_advice = reason.detail.contains("MADV_");
        if !is_advice || stay < LEAST_FLAGS || stay * 20 < self.looked_at {
            return Ok(());
        }
        let stacks = match reason.detail.contains("MADV_NOHUGEPAGE") {
            true => " (Linux 6.7 and later also sets it for each stack, because of MAP_STACK)",
            false => "",
        };
        let text = format!(
            "! flags that differ most often, {}{stacks}: call madvise for the whole of adjacent memory, \
             or for none of it",
            printable(&reason.detail)
        );
        write_wrapped(out, &text)
    }

    fn write_reason(
        &self,
        out: &mut dyn Write,
        name: &str,
        reason: &ReasonCount,
        what: &str,
    ) -> io::Result<()> {
        writeln!(
            out,
            "{name:<12} {:>9} {:>7} {:>9}  {}",
            count(reason.mappings),
            percent(reason.mappings, self.looked_at),
            count(reason.joinable),
            shorten(what, WIDTH - REASON_COLUMNS),
        )
    }

    /// Writes the safe repair's cost, the repairs that are not safe, and the stopgap.
    fn write_plan(&self, out: &mut dyn Write, size: &dyn Fn(u64) -> String) -> io::Result<()> {
        let Some(plan) = &self.plan else {
            return Ok(());
        };
        let is_advised = |stage: &&Stage| stage.command == self.advice.command;
        if let Some(stage) = plan
            .stages()
            .filter(is_advised)
            .find(|s| s.command.is_some())
        {
            write_cost(out, stage, size)?;
            let cost = &stage.cost;
            if cost.threads >= MANY_THREADS {
                writeln!(
                    out,
                    "  each step stops its {} threads, which takes {}",
                    count(cost.threads),
                    milliseconds(cost.stop_ns)
                )?;
            }
        }
        let is_worth_a_line = |stage: &&Stage| stage.saved() * LEAST_SAVED >= self.mappings;
        let others = plan.stages().filter(|stage| !is_advised(stage));
        let others = others.filter(is_worth_a_line);
        for stage in others.filter(|_| !self.source.hides_anon_vmas()) {
            let Some(command) = &stage.command else {
                continue;
            };
            let (before, after) = (count(stage.before), count(stage.after));
            let text = match stage.risk {
                None => format!("safe: {before} mappings become {after}"),
                Some(risk) => format!(
                    "not safe ({}): {risk}; then {before} mappings become {after}",
                    stage.fixes.join(", ")
                ),
            };
            write_wrapped(out, &text)?;
            writeln!(out, "  {command}")?;
            write_cost(out, stage, size)?;
        }
        self.write_stopgap(out, plan, size)
    }

    /// Writes what a higher limit costs, if the process uses half of its limit.
    fn write_stopgap(
        &self,
        out: &mut dyn Write,
        plan: &Plan,
        size: &dyn Fn(u64) -> String,
    ) -> io::Result<()> {
        let is_far = |limit| self.mappings.saturating_mul(2) < limit;
        if self.incomplete || self.limit.is_none_or(is_far) {
            return Ok(());
        }
        let stopgap = &plan.stopgap;
        let cost = format!(
            "the new mappings use up to {} of kernel memory, and each fork copies them",
            size(stopgap.kernel_bytes_at_most)
        );
        if is_same(&self.advice.command, &stopgap.command) {
            return write_wrapped(out, &format!("  {cost}"));
        }
        write_wrapped(out, &format!("stopgap: a higher limit; {cost}"))?;
        writeln!(out, "  {}", stopgap.command)
    }

    fn how_seen(&self) -> String {
        let mut text = match (self.source, &self.without_view) {
            (Source::Kernel, _) => "Read from the kernel's own view (BPF).".to_owned(),
            (Source::Replay, _) => "Read from a replayed recording.".to_owned(),
            (_, Some(why)) => format!("Reasons that /proc hides are likely, not certain: {why}."),
            (Source::Maps, None) => {
                "Reasons that a list of mappings hides are likely, not certain.".to_owned()
            }
            (Source::Smaps, None) => {
                "smaps hides anon_vma and page offset: reasons that depend on them are likely, not certain.".to_owned()
            }
        };
        if let Some(format) = &self.format {
            text = format!("{}. {text}", format.text);
        }
        if self.rules.as_ref().is_some_and(|rules| !rules.verified) {
            text += " The rules of this kernel are not verified: reasons that depend on rules that were not probed either are likely.";
        }
        if self.changed > 0 {
            text += &format!(" {} mappings changed meanwhile.", count(self.changed));
        }
        text
    }

    /// Returns the reasons as a table.
    pub fn reasons_table(&self) -> Table {
        let row = |reason: &ReasonCount| {
            let numbers = [reason.mappings, reason.certain, reason.joinable];
            let mut cells = vec![reason.reason.to_owned()];
            cells.extend(numbers.iter().map(u64::to_string));
            cells.push(reason.words.to_owned());
            cells.push(reason.detail.clone());
            cells
        };
        Table {
            headings: vec![
                "REASON",
                "MAPPINGS",
                "CERTAIN",
                "MERGEABLE",
                "MEANING",
                "DETAIL",
            ],
            rows: self.reasons.iter().map(row).collect(),
        }
    }
}

fn is_same(advised: &Option<String>, command: &str) -> bool {
    advised.as_deref() == Some(command)
}

/// Writes text in lines of at most [`WIDTH`] characters, broken between words.
pub(super) fn write_wrapped(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let mut width = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if width > 0 && width + 1 + len > WIDTH {
            write!(out, "\n  {word}")?;
            width = 2 + len;
        } else if width > 0 {
            write!(out, " {word}")?;
            width += 1 + len;
        } else {
            write!(out, "{word}")?;
            width = len;
        }
    }
    writeln!(out)
}

/// Truncates text that is too long, keeping the beginning.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

fn write_cost(out: &mut dyn Write, stage: &Stage, size: &dyn Fn(u64) -> String) -> io::Result<()> {
    let cost = &stage.cost;
    let moved = match cost.bytes_at_most {
        0 => "nothing".to_owned(),
        bytes => format!("at most {}", size(bytes)),
    };
    writeln!(
        out,
        "  {moved} to move, {}, {} at once (idle machine)",
        milliseconds(cost.total_ns),
        milliseconds(cost.pause_ns)
    )
}

/// Returns a detail in at most `width` characters: whole, without the arguments of a call, or without its
/// number. A path keeps its end, which says more than its beginning.
fn fitting(detail: &str, width: usize) -> Option<String> {
    if detail.is_empty() || width < LEAST_DETAIL {
        return None;
    }
    if detail.contains('/') {
        return Some(clip(detail, width));
    }
    let (call, number) = match detail.rsplit_once(": ") {
        Some((call, number)) => (call, format!(": {number}")),
        None => (detail, String::new()),
    };
    let name = call.split('(').next().unwrap_or(call);
    let choices = [
        detail.to_owned(),
        format!("{name}{number}"),
        name.to_owned(),
    ];
    choices.into_iter().find(|one| one.chars().count() <= width)
}

pub(super) fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    // The end of a path is more informative than its beginning.
    let skip = text.chars().count() - width + 1;
    std::iter::once('…')
        .chain(text.chars().skip(skip))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{List, explain};
    use super::{MAX_LINES, Source, count};
    use crate::plan::Stage;
    use crate::room;
    use vmarea_process::Process;

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(12_345_678), "12,345,678");
    }

    /// Builds a list of mappings that has every possible reason, remedy and finding.
    fn everything() -> String {
        let mut text = String::new();
        let mut at = 0x1000_0000u64;
        let mut add = |gap: u64, rest: &str| {
            at += gap;
            text += &format!("{at:x}-{:x} {rest}\n", at + 0x1000);
            at += 0x1000;
        };
        for n in 0..2_000 {
            add(0x1000, "rw-p 00000000 00:00 0");
            add(0, "rw-p 00000000 00:00 0");
            add(0, "---p 00000000 00:00 0");
            add(0, "---p 00000000 00:00 0");
            add(0, "r--p 00000000 00:00 0");
            add(0, &format!("r--p 00000000 08:01 {n} /tmp/{n} (deleted)"));
            add(0, &format!("r--p 00003000 08:01 {n} /tmp/{n} (deleted)"));
            add(0, "r--p 00000000 00:00 0 [vvar]");
            add(0, "r--p 00000000 00:00 0 [anon:a]");
            add(0, "r--p 00000000 00:00 0 [anon:b]");
            add(0, "r--s 00000000 00:01 7 /dev/driver");
            add(0, "rw-s 00000000 00:01 8 /SYSV00000000 (deleted)");
            add(0, "rw-s 00001000 00:01 8 /SYSV00000000 (deleted)");
        }
        text
    }

    #[test]
    fn a_detail_is_whole_or_shorter_but_never_cut() {
        let of = |detail, width| super::fitting(detail, width).unwrap_or_default();
        assert_eq!(of("rw-p ---p: 1,504", 16), "rw-p ---p: 1,504");
        assert_eq!(of("rw-p ---p: 1,504", 15), "rw-p ---p");
        assert_eq!(of("by mmap(PROT_READ): 12", 20), "by mmap: 12");
        assert_eq!(of("by mmap(PROT_READ): 12", 10), "by mmap");
        assert_eq!(of("by mmap(PROT_READ)", 15), "by mmap");
        assert_eq!(of("commit charge", 12), "");
        assert_eq!(of("/usr/lib/libc.so.6", 10), "…libc.so.6");
    }

    #[test]
    fn a_repair_that_saves_next_to_nothing_is_not_told() {
        let process = Process::from_text("all".to_owned(), everything().as_bytes()).unwrap();
        let told = |after| {
            let mut report = explain(&process, List::Summary);
            report.source = Source::Kernel;
            let all = report.mappings;
            let plan = report.plan.as_mut().unwrap();
            plan.not_safe = vec![Stage {
                fixes: vec!["guards"],
                risk: Some("it matters"),
                command: Some("vmarea merge --fix guards".to_owned()),
                before: all,
                after: all - after,
                ..plan.safe.clone()
            }];
            let mut out = Vec::new();
            let size = |bytes: u64| bytes.to_string();
            report.write_text(&mut out, &size).unwrap();
            String::from_utf8(out).unwrap().contains("--fix guards")
        };
        let all = process.mappings.len() as u64;
        assert!(told(all / 100 + 1) && !told(all / 100 - 1));
    }

    #[test]
    fn a_summary_never_has_more_lines_than_it_may() {
        let mut process = Process::from_text("all".to_owned(), everything().as_bytes()).unwrap();
        process.without_view = Some("no permission".to_owned());
        process.changed = 5;
        process.total += 1;
        let mut report = explain(&process, List::Summary);
        assert!(
            report.reasons.len() > super::REASONS,
            "{:?}",
            report.reasons
        );
        // A list that is parsed from text cannot produce every remedy.
        let plan = report.plan.as_mut().unwrap();
        let one = plan.safe.clone();
        plan.not_safe = (0..4)
            .map(|_| Stage {
                risk: Some(
                    "the longest risk that a repair can have, in so many words that the \
                            line must be broken",
                ),
                fixes: vec!["flags", "guards", "copy"],
                command: Some("vmarea merge -p 1234567 --fix flags,guards --apply".to_owned()),
                before: 65_530,
                after: 1,
                ..one.clone()
            })
            .collect();
        report.limit = Some(65_530);
        report.incomplete = false;
        report.mappings = 65_530;
        // Everything is scarce.
        report.room = Some(room::room(
            &process.mappings,
            Some(process.mappings.len() as u64),
        ));
        let room = report.room.as_mut().unwrap();
        (room.mapped_bytes, room.low_2g_free) = (room.address_space_bytes, 0);
        report.pid = Some(1_234_567);
        let mut out = Vec::new();
        let size = |bytes: u64| bytes.to_string();
        report.write_text(&mut out, &size).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().count() <= MAX_LINES, "{text}");
        assert!(
            text.contains("vmarea explain -p 1234567 --record 30s --stacks\n"),
            "{text}"
        );
        assert!(text.ends_with("vmarea explain --stacks -- CMD\n"), "{text}");
        let plain = text.replace(super::STRONG, "").replace(super::PLAIN, "");
        for line in plain.lines() {
            assert!(line.chars().count() <= super::WIDTH, "{line}");
        }
    }
}
