//! A repair of another process from its first stop to its last.
//!
//! What pieces need is put into the process once and taken out at the end. Deliberately absent: what
//! happens to a piece ([`executor`](super::executor)).

use std::ops::Range;
use std::time::{Duration, Instant};

use vmarea::values::VmRange;

use super::agent::{MOST_CALLS, clear_up, make_agent};
use super::bring_home::is_writable;
use super::injector::{Injector, StoppedProcess};
use super::pages::Pages;
use super::stop::Target;
use super::{Remote, journal_failed};
use crate::fixes::{self, Fix, Fixed, Step};
use crate::journal::{Agent, Journal};
use crate::pace::Pace;
use crate::piece::Room;
use crate::plan::Limits;
use crate::proc_status;
use crate::{RepairError, in_process};
use vmarea_process::maps::{self, Query};

/// Repairs between the first stop and the last.
pub(super) struct Session {
    pub(super) pid: i32,
    pub(super) target: Target,
    pub(super) journal: Journal,
    pub(super) agent: Agent,
    /// How large pieces may be.
    pub(super) pace: Pace,
}

impl Session {
    /// Puts into the process what pieces need.
    pub(super) fn begin(remote: &Remote) -> Result<Session, RepairError> {
        let pid = remote.pid;
        let target = Target::open(pid)?;
        let start = proc_status::start_time(pid)?;
        if remote.journal(start)?.is_some() {
            return Err(RepairError::Unfinished(pid));
        }
        let mut journal = match Journal::create(&remote.folder, pid, start) {
            // Another has begun in this moment.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(RepairError::AtWork { pid, by: None });
            }
            journal => journal.map_err(journal_failed)?,
        };
        if target.has_agent() {
            journal.remove().map_err(journal_failed)?;
            return Err(RepairError::AgentThere(pid));
        }
        if let Some(pause) = remote.options.max_pause {
            target.be_patient((4 * pause).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE));
        }
        let made = stop_patiently(&target, &mut journal).and_then(|held| {
            let made = make_agent(&target, &held, &mut journal, remote.options.way);
            let released = held.release(&mut journal);
            made.map(|agent| (agent, released))
        });
        let agent = match made {
            Ok((agent, Ok(()))) => agent,
            Ok((agent, Err(error))) => {
                end_journal(clear_up(&target, &mut journal, agent), journal)?;
                return Err(error);
            }
            Err(error) => {
                // Where something is left, so is the journal of it.
                if !matches!(error, RepairError::LeftBehind { .. }) {
                    let _ = journal.remove();
                }
                return Err(error);
            }
        };
        let most = Limits {
            parts: MOST_CALLS - 40,
            bytes: Room { range: agent.room }.piece_bytes(),
            part_bytes: 0,
        };
        let mut session = Session {
            pid,
            target,
            journal,
            agent,
            pace: Pace::new(remote.options.max_pause, most, agent.way),
        };
        match stop_time(&session.target, &mut session.journal) {
            Ok(time) => {
                session.pace.set_base(time);
                Ok(session)
            }
            Err(error) => session.end(Err(error)),
        }
    }

    /// One of the other repairs. The process stands while it is decided what to do and while it is
    /// done, so that what looked empty is empty; it is looked at beforehand to know whether there is
    /// anything. How many mappings fewer there are is counted.
    pub(super) fn fix(
        &mut self,
        remote: &Remote,
        range: &Range<u64>,
        fix: Fix,
    ) -> Result<Fixed, RepairError> {
        let mut done = Fixed {
            fix,
            places: 0,
            apart: 0,
            fewer: Some(0),
        };
        let steps = remote.fix_steps(range, fix)?;
        done.apart = steps.apart;
        if steps.steps.is_empty() {
            return Ok(done);
        }
        let count = || in_process::count(self.pid, range).map_err(RepairError::maps(self.pid));
        let held = stop_patiently(&self.target, &mut self.journal)?;
        let changed = remote.fix_steps(range, fix).and_then(|steps| {
            let before = count()?;
            done.apart = steps.apart;
            done.places = make_steps(&held, &self.agent, &mut self.journal, &steps.steps)?;
            done.fewer = Some(before.cast_signed() - count()?.cast_signed());
            Ok(())
        });
        if let Err(RepairError::LeftStopped { .. }) = changed {
            return changed.map(|()| done);
        }
        held.release(&mut self.journal)?;
        changed.map(|()| done)
    }

    /// Takes out of the process what was put into it; `done` is what came of the work.
    pub(super) fn end<T>(mut self, done: Result<T, RepairError>) -> Result<T, RepairError> {
        let ended = match done {
            // It waits for another run, which needs the journal and the agent.
            Err(RepairError::LeftStopped { .. }) => Ok(()),
            // Nobody is left to be cleared up.
            Err(RepairError::Ended(_) | RepairError::Replaced(_)) => {
                self.journal.remove().map_err(journal_failed)
            }
            _ => {
                let cleared = clear_up(&self.target, &mut self.journal, self.agent);
                end_journal(cleared, self.journal)
            }
        };
        match done {
            // All that was left behind has gone with the agent.
            Err(RepairError::LeftBehind { .. }) if ended.is_ok() => {
                Err(RepairError::NoRoom(self.pid))
            }
            done => done.and_then(|done| ended.map(|()| done)),
        }
    }
}

/// Makes the changes of a repair; says at how many places.
fn make_steps(
    held: &StoppedProcess<'_>,
    agent: &Agent,
    journal: &mut Journal,
    steps: &[Step],
) -> Result<u64, RepairError> {
    let mut changed = 0;
    for step in steps {
        if step.touch.is_some_and(|page| !held.target.touch(page)) {
            continue;
        }
        if let Some(guard) = step.guard {
            journal.guard(guard).map_err(journal_failed)?;
        }
        let mut calls = step.calls.clone();
        let done = held.run(agent, &mut calls, 0)?;
        changed += u64::from(done == calls.len());
        if let (Some(call), true) = (step.take_back, (1..calls.len()).contains(&done)) {
            let refused = (0..TRIES).all(|_| held.run(agent, &mut [call], 0).is_ok_and(|n| n == 0));
            if refused {
                let guard = step.guard.unwrap_or_default();
                return Err(RepairError::LeftStopped {
                    pid: held.pid(),
                    what: format!(
                        "the guard at {:#x} can be neither marked nor made again",
                        guard.start
                    ),
                    cause: std::io::Error::from_raw_os_error(calls[done].errno()),
                });
            }
        }
        if step.guard.is_some() {
            journal.guarded().map_err(journal_failed)?;
        }
    }
    Ok(changed)
}

/// Marks a guard page that another run has opened, unless it did not come to that.
pub(super) fn finish_guard(
    held: &StoppedProcess<'_>,
    agent: &Agent,
    guard: VmRange,
) -> Result<(), RepairError> {
    let pid = held.pid();
    let mappings = maps::read(pid).map_err(RepairError::maps(pid))?;
    let mut empty = true;
    Pages::of(pid)?.each(guard, |_, _| {
        empty = false;
        false
    })?;
    if is_writable(&mappings, guard) && empty {
        let mut calls = [fixes::mark(guard)];
        held.run(agent, &mut calls, 0)?;
        if calls[0].errno() != 0 {
            return Err(RepairError::LeftStopped {
                pid,
                what: format!("the guard at {:#x} cannot be marked", guard.start),
                cause: std::io::Error::from_raw_os_error(calls[0].errno()),
            });
        }
    }
    Ok(())
}

/// Removes the journal where nothing is left to be finished.
fn end_journal(cleared: Result<(), RepairError>, journal: Journal) -> Result<(), RepairError> {
    match cleared {
        Ok(()) | Err(RepairError::Ended(_) | RepairError::Replaced(_)) => {
            journal.remove().map_err(journal_failed).and(cleared)
        }
        error => error,
    }
}

/// How long the threads that stand wait for one that does not.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(20);
const LONGEST_PATIENCE: Duration = Duration::from_millis(500);
/// How often a process is tried to be stopped, with a rest in between.
const TRIES: u32 = 60;
const REST: Duration = Duration::from_millis(25);

/// Holds a process, again and again where a thread does not stop: it waits in `vfork` for its child,
/// most likely, and that will have become a program soon.
///
/// # Errors
/// As [`Target::stop`].
pub(super) fn stop_patiently<'t>(
    target: &'t Target,
    journal: &mut Journal,
) -> Result<StoppedProcess<'t>, RepairError> {
    let mut tries = 1;
    loop {
        match target.stop(journal) {
            Err(RepairError::CannotStop { .. } | RepairError::SharedMemory { .. })
                if tries < TRIES =>
            {
                tries += 1;
                target.rest(REST);
            }
            held => return held,
        }
    }
}

/// How long it takes to stop the process for nothing, or but for reading the list of its mappings where
/// one alone cannot be asked for; the best of a few, as a machine is busy at times.
fn stop_time(target: &Target, journal: &mut Journal) -> Result<Duration, RepairError> {
    const TRIES: usize = 10;
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let begun = Instant::now();
        let held = stop_patiently(target, journal)?;
        if Query::open(target.pid).is_err() {
            maps::read(target.pid).map_err(RepairError::maps(target.pid))?;
        }
        held.release(journal)?;
        best = best.min(begun.elapsed());
    }
    Ok(best)
}
