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
use vmarea_process::rights;

use self::backoff::Backoff;
use self::family::{Family, Member, has_ended};
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
/// Number of merges in a row that fail for a cause that may pass, after which this is reported.
const TRIES: u32 = 10;
/// Number of looks without a process of the family after which the keeper ends: a process that is
/// just executing a program is recognized a moment later.
const LOOKS: u32 = 4;
const EVERYTHING: Range<u64> = 0..u64::MAX;

/// How the merges of a process went.
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
    may_be_traced(program)?;
    let value = family::value();
    let family = Family::new(program, &value);
    let started = own_session::start_detached(|| keep(family, threshold, options));
    started.map_err(RepairError::system("start a process"))?;
    Ok(value)
}

/// Checks whether another process, which is not an ancestor, may trace the program.
///
/// # Errors
/// [`RepairError::Forbidden`], [`RepairError::Seccomp`].
fn may_be_traced(program: i32) -> Result<(), RepairError> {
    let may_trace = match rights::ptrace_scope().as_str() {
        "" | "0" => true,
        "3" => false,
        _ => proc_status::has_capability(program, proc_status::CAP_SYS_PTRACE),
    };
    if !may_trace {
        return Err(RepairError::Forbidden(program));
    }
    let is_filtered = proc_status::read_status(program)?.is_filtered();
    match is_filtered && !proc_status::has_capability(program, proc_status::CAP_SYS_ADMIN) {
        true => Err(RepairError::Seccomp(program)),
        false => Ok(()),
    }
}

fn keep(mut family: Family, threshold: u64, options: Options) {
    let mut kept: BTreeMap<Member, Kept> = BTreeMap::new();
    let (mut empty, mut speaks) = (0, true);
    loop {
        let begun = processor_time();
        let members = family.members();
        empty = if members.is_empty() { empty + 1 } else { 0 };
        if empty == LOOKS {
            return;
        }
        if speaks && family.has_lost_program() {
            // A descendant must not keep the reader of the program's output waiting.
            own_session::leave_standard_error();
            speaks = false;
        }
        kept.retain(|member, _| members.contains(member));
        // A process that cannot be read has ended, or belongs to another user.
        let counted = members
            .iter()
            .map(|&member| (member, count(member.0).unwrap_or(0)));
        let counted: Vec<_> = counted.collect();
        let counting = processor_time().saturating_sub(begun);
        for (member, count) in counted.into_iter().filter(|(_, count)| *count > threshold) {
            if !has_ended(member) {
                kept.entry(member)
                    .or_default()
                    .merge(member.0, count, options);
            }
        }
        let pause = (counting * COUNTING).clamp(SHORTEST, LONGEST);
        rest(pause, &members);
    }
}

/// Sleeps for `time`, or until all `members` have ended.
fn rest(time: Duration, members: &[Member]) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        sleep(left.min(LOOK));
        if left <= LOOK || members.iter().all(|&member| has_ended(member)) {
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
            Err(RepairError::Ended(_) | RepairError::NoProcess(_)) => {}
            Err(RepairError::Replaced(_)) => *self = Kept::default(),
            Err(error) => {
                self.in_vain = self.in_vain.saturating_add(1);
                self.backoff.learn((count, count), begun);
                let may_pass =
                    !error.is_permission() || matches!(error, RepairError::Traced { .. });
                self.is_given_up = !may_pass;
                if !may_pass || self.in_vain == TRIES {
                    complain(pid, &error);
                }
            }
        }
    }
}

fn count(pid: i32) -> io::Result<u64> {
    let tid = proc_status::thread_with_memory(pid);
    let text = std::fs::read(format!("/proc/{tid}/maps"))?;
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
