//! Keeps the mappings of a program and of its descendants merged, from outside.
//!
//! The keeper is a process in a session of its own that is nobody's child. The program itself takes
//! the place of vmarea, so nothing about the program differs from a start without vmarea.
//!
//! The keeper counts the mappings of each process at intervals long enough that counting takes at
//! most a fiftieth of one processor's time, and merges a process that has too many. Each merge that
//! does not help lengthens the wait before the next one, so that the keeper does not retry mappings
//! that cannot be merged; many new mappings end the wait early.
//!
//! # Picture
//! ```text
//! vmarea  ──forks──▶ keeper                 counts, and merges what has too many mappings
//!    │                 ▲ family: every process whose environment has the keeper's variable
//!    └──execve──▶ program ──fork, execve──▶ descendants
//! ```

mod backoff;
mod family;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use vmarea_linux_sys::own_session;

use self::backoff::Backoff;
use self::family::{Family, LOOKS};
use crate::proc_status;
use crate::{Options, Remote, RepairError};

/// Environment variable by which the keeper recognizes the program and its descendants.
pub const KEEP_VARIABLE: &str = "VMAREA_KEEP_MERGED";

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(60);
/// Time between two looks whether the program has ended.
const LOOK: Duration = Duration::from_millis(200);
/// Ratio of the counting interval to the time that counting takes.
const COUNTING: u32 = 50;
/// Number of merges in a row that fail for a cause that may pass, after which a process is given up.
const TRIES: u32 = 10;
const EVERYTHING: Range<u64> = 0..u64::MAX;

/// A process that is kept merged.
#[derive(Debug, Default)]
struct Kept {
    backoff: Backoff,
    /// Number of merges in a row that have failed.
    in_vain: u32,
    is_given_up: bool,
}

/// Starts the keeper for this process, which is about to execute a program with the returned value
/// of [`KEEP_VARIABLE`] in its environment. The keeper ends when no process has that variable.
///
/// # Errors
/// The errors of [`Remote::new`], as far as they show before the program runs; a
/// [`RepairError::System`] if no process can be started.
pub fn start_keeper(threshold: u64, options: Options) -> Result<OsString, RepairError> {
    let program = std::process::id().cast_signed();
    Remote::new(program, options)?;
    let value = family::value();
    let family = Family::new(program, &value);
    let started = own_session::start_detached(|| keep(family, threshold, options));
    started.map_err(RepairError::system("starting a process"))?;
    Ok(value)
}

fn keep(mut family: Family, threshold: u64, options: Options) {
    let mut kept: BTreeMap<i32, Kept> = BTreeMap::new();
    // A process that is just executing a program is recognized a moment later.
    let mut empty = 0;
    loop {
        let begun = processor_time();
        let members = family.members();
        empty = if members.is_empty() { empty + 1 } else { 0 };
        if empty > LOOKS {
            return;
        }
        kept.retain(|pid, _| members.contains(pid));
        // A process that cannot be read has ended, or belongs to another user.
        let counted = members.iter().map(|&pid| (pid, count(pid).unwrap_or(0)));
        let counted: Vec<_> = counted.collect();
        let counting = processor_time().saturating_sub(begun);
        for (pid, count) in counted.into_iter().filter(|(_, count)| *count > threshold) {
            kept.entry(pid).or_default().merge(pid, count, options);
        }
        let pause = (counting * COUNTING).clamp(SHORTEST, LONGEST);
        rest(pause, &members);
    }
}

/// Sleeps for `time`, or until all `members` have ended.
fn rest(time: Duration, members: &[i32]) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        sleep(left.min(LOOK));
        if left <= LOOK || members.iter().all(|&pid| proc_status::has_ended(pid, pid)) {
            return;
        }
    }
}

/// Returns the processor time of this process. On a busy machine, much more time passes.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

impl Kept {
    /// Merges process `pid`, which has `count` mappings, unless the last merge did not help.
    fn merge(&mut self, pid: i32, count: u64, options: Options) {
        let begun = Instant::now();
        if self.is_given_up || !self.backoff.allows(count, begun) {
            return;
        }
        match Remote::new(pid, options).and_then(|remote| remote.merge(&EVERYTHING)) {
            Ok(report) => {
                self.in_vain = 0;
                self.backoff.learn((report.before, report.after), begun);
            }
            Err(RepairError::Ended(_) | RepairError::Replaced(_) | RepairError::NoProcess(_)) => {}
            Err(error) => {
                self.in_vain += 1;
                self.backoff.learn((count, count), begun);
                let may_pass =
                    !error.is_permission() || matches!(error, RepairError::Traced { .. });
                if !may_pass || self.in_vain == TRIES {
                    self.is_given_up = true;
                    complain(pid, &error);
                }
            }
        }
    }
}

fn count(pid: i32) -> io::Result<u64> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    Ok(text.iter().filter(|&&byte| byte == b'\n').count() as u64)
}

fn complain(pid: i32, error: &RepairError) {
    // If nobody reads standard error any more, the message is lost.
    let _ = writeln!(
        io::stderr(),
        "vmarea: process {pid} is not kept merged: {error}"
    );
}

#[cfg(test)]
mod tests;
