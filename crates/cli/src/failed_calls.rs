//! The memory calls that failed, as text: which, how often, where, why, and what would help.

use std::io::{self, Write};
use vmarea_explain::text::count;
use vmarea_replay::{FailedCall, FailedCalls, Options, Replayer};
use vmarea_trace::event::{Event, Header};

/// Number of kinds of failed calls that are listed.
const LISTED: usize = 10;

/// A replay for the failed calls only; ends at the first event that cannot be replayed.
pub struct Collector(Option<Replayer>);

impl Collector {
    /// Begins a replay of the trace with this header.
    pub fn new(header: &Header) -> Collector {
        Collector(Replayer::new(header, &Options::default()).ok())
    }

    /// Replays the next event.
    pub fn event(&mut self, event: &Event) {
        if let Some(replayer) = &mut self.0
            && replayer.event(event).is_err()
        {
            self.0 = None;
        }
    }

    /// Returns the failed calls; none if the trace could not be replayed.
    pub fn finish(self) -> Vec<FailedCalls> {
        let report = self.0.map(Replayer::finish);
        report.map_or_else(Vec::new, |report| report.failed_calls)
    }
}

/// Writes the failed calls, most frequent first; nothing if there are none.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn write(out: &mut dyn Write, failed: &[FailedCalls]) -> io::Result<()> {
    let all: u64 = failed.iter().map(|group| group.count).sum();
    if all == 0 {
        return Ok(());
    }
    writeln!(out, "failed memory calls: {}", count(all))?;
    let mut sorted: Vec<_> = failed.iter().collect();
    sorted.sort_by_key(|group| std::cmp::Reverse(group.count));
    for group in sorted.iter().take(LISTED) {
        one(out, group)?;
    }
    match sorted.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => writeln!(out, "  {more} kinds more are in the output of --json"),
    }
}

fn one(out: &mut dyn Write, group: &FailedCalls) -> io::Result<()> {
    let seconds = |call: &FailedCall| format!("{:.3} s", call.ns as f64 * 1e-9);
    let (first, last) = (seconds(&group.first), seconds(&group.last));
    let when = match group.count {
        1 => format!("once, after {first}"),
        n => format!("{} times, after {first} to {last}", count(n)),
    };
    let errno = group.errno.as_deref().unwrap_or("not moved");
    writeln!(out, "  {}: {errno}, {when}", group.call)?;
    let mut line = |name: &str, text: &str| writeln!(out, "    {name:<8} {text}");
    line("first", &group.first.text)?;
    if let Some(function) = &group.first.function {
        line("in", function)?;
    }
    line("because", group.reason.as_deref().unwrap_or("not known"))?;
    match group.remedy {
        Some(remedy) => line("remedy", remedy),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(ns: u64, function: Option<&str>) -> FailedCall {
        let mut call = FailedCall::new(ns, "munmap(0x1000, 4096) = -1 ENOMEM");
        call.function = function.map(str::to_owned);
        call
    }

    fn group(name: &str, count: u64) -> FailedCalls {
        FailedCalls {
            call: name.to_owned(),
            errno: Some("ENOMEM".to_owned()),
            count,
            first: call(31_000_000, Some("make_hole (hole.c:12)")),
            last: call(502_000_000, None),
            reason: Some("one mapping more".to_owned()),
            remedy: Some("have fewer"),
        }
    }

    fn text(failed: &[FailedCalls]) -> String {
        let mut out = Vec::new();
        write(&mut out, failed).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_failed_call_is_told_with_its_place_its_reason_and_its_remedy() {
        let unknown = FailedCalls {
            errno: None,
            reason: None,
            remedy: None,
            ..group("brk", 1)
        };
        let expected = "\
failed memory calls: 1,201
  munmap: ENOMEM, 1,200 times, after 0.031 s to 0.502 s
    first    munmap(0x1000, 4096) = -1 ENOMEM
    in       make_hole (hole.c:12)
    because  one mapping more
    remedy   have fewer
  brk: not moved, once, after 0.031 s
    first    munmap(0x1000, 4096) = -1 ENOMEM
    in       make_hole (hole.c:12)
    because  not known
";
        assert_eq!(text(&[unknown, group("munmap", 1200)]), expected);
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn a_long_list_says_how_much_it_leaves_out() {
        let many: Vec<_> = (0..13).map(|n| group("mmap", n + 1)).collect();
        let text = text(&many);
        assert_eq!(text.matches("mmap: ENOMEM").count(), LISTED);
        assert!(
            text.ends_with("  3 kinds more are in the output of --json\n"),
            "{text}"
        );
    }
}
