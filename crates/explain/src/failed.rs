//! The memory calls that failed in a recording, as `explain` tells them.

use super::Report;
use super::made_by::Traced;
use super::text::{count, write_wrapped};
use std::io::{self, Write};
use vmarea_replay::FailedCalls;

/// Errors of calls by which programs try what a kernel or a processor may not have.
const TRIED: [&str; 4] = ["EINVAL", "ENOSPC", "ENOSYS", "EOPNOTSUPP"];
/// Number of kinds of failed calls that a summary names.
const NAMED: usize = 2;

impl Traced<'_> {
    /// Returns the failed calls, with the functions that made them.
    pub(super) fn failed_calls(&self) -> Vec<FailedCalls> {
        let mut failed = self.recorded.failed_calls.clone();
        self.recorded.places.name(&mut failed, self.stacks);
        failed
    }
}

impl Report {
    /// Writes the failed calls whose reason is known, most frequent first and as many as a summary
    /// has room for.
    pub(super) fn write_failed(&self, out: &mut dyn Write) -> io::Result<()> {
        let is_told = |group: &&FailedCalls| {
            let errno = group.errno.as_deref();
            group.reason.is_some() && !errno.is_some_and(|errno| TRIED.contains(&errno))
        };
        let mut known: Vec<_> = self.failed_calls.iter().filter(is_told).collect();
        known.sort_by_key(|group| std::cmp::Reverse(group.count));
        for group in known.iter().take(NAMED) {
            let times = match group.count {
                1 => "once".to_owned(),
                n => format!("{} times", count(n)),
            };
            let result = match &group.errno {
                Some(errno) => format!("failed with {errno}"),
                None => "did not move the break".to_owned(),
            };
            let function = &group.first.function;
            let place = function.as_ref().map(|f| format!(" in {f}"));
            let text = format!(
                "{} {result} {times}{}: {}; {}",
                group.call,
                place.unwrap_or_default(),
                group.reason.as_deref().unwrap_or_default(),
                group.remedy.unwrap_or_default()
            );
            write_wrapped(out, &text)?;
        }
        Ok(())
    }
}
