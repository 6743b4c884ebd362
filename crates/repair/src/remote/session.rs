//! State of a repair of another process, from the first stop of the process to the last.
//!
//! The agent is injected once and removed at the end. Pieces are handled by
//! [`executor`](super::executor).

use std::time::{Duration, Instant};

use super::agent::{MOST_CALLS, clear_up, make_agent};
use super::stop::LONGEST_REST;
use super::stop::stop_patiently;
use super::target::Target;
use crate::attributes::Attributes;
use crate::journal::{self, Agent, Journal, Journals};
use crate::pace::Pace;
use crate::piece::Room;
use crate::plan::Limits;
use crate::proc_status;
use crate::{Options, RepairError, Way};
use vmarea_process::maps::{self, Query};

/// A repair of a process, from the first stop of the process to the last.
pub(super) struct Session {
    pub(super) pid: i32,
    pub(super) target: Target,
    pub(super) journal: Journal,
    pub(super) agent: Agent,
    pub(super) attributes: Attributes,
    /// Limits the size of pieces.
    pub(super) pace: Pace,
}

impl Session {
    /// Begins a journal and injects the agent into the process.
    ///
    /// # Errors
    /// [`RepairError::Unfinished`], [`RepairError::AtWork`], [`RepairError::AgentThere`], and
    /// errors from stopping the process. No part of the repair remains in the process, unless the
    /// error says so.
    pub(super) fn begin(
        pid: i32,
        options: &Options,
        journals: &Journals,
    ) -> Result<Session, RepairError> {
        let target = Target::open(pid)?;
        let attributes = Attributes::open(&pid.to_string()).map_err(RepairError::maps(pid))?;
        let mut journal = begin_journal(&target, journals)?;
        if let Some(pause) = options.max_pause {
            target.set_stop_timeout((4 * pause).clamp(SHORTEST_STOP_TIMEOUT, LONGEST_STOP_TIMEOUT));
        }
        let (agent, journal) = match put_in(&target, &mut journal, options.way) {
            Ok((agent, Ok(()))) => (agent, journal),
            Ok((agent, Err(error))) => {
                end_journal(clear_up(&target, &mut journal, agent), journal)?;
                return Err(error);
            }
            Err(error) => {
                // If parts of the agent remain in the process, the journal is kept.
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
            attributes,
            pace: Pace::new(options.max_pause, most, agent.way, options.copy_pages),
        };
        match stop_time(&session.target, &mut session.journal) {
            Ok(time) => {
                session.pace.set_base(time);
                Ok(session)
            }
            Err(error) => session.end(Err(error)),
        }
    }

    /// Removes the agent from the process, unless another run needs it. `done` is the result of the
    /// repair.
    pub(super) fn end<T>(mut self, done: Result<T, RepairError>) -> Result<T, RepairError> {
        let ended = match done {
            // The process is left for another run, which needs the journal and the agent.
            Err(RepairError::LeftStopped { .. }) => Ok(()),
            // The process has ended, and the agent with it.
            Err(RepairError::Ended(_) | RepairError::Replaced(_)) => {
                self.journal.remove().map_err(journal::failed)
            }
            _ => {
                let cleared = clear_up(&self.target, &mut self.journal, self.agent);
                end_journal(cleared, self.journal)
            }
        };
        match done {
            // All remaining parts of the repair were removed with the agent.
            Err(RepairError::LeftBehind { .. }) if ended.is_ok() => {
                Err(RepairError::NoRoom(self.pid))
            }
            done => done.and_then(|done| ended.map(|()| done)),
        }
    }
}

/// Begins the journal for a process. Fails if the process contains parts of another repair.
fn begin_journal(target: &Target, journals: &Journals) -> Result<Journal, RepairError> {
    let pid = target.pid;
    let start = proc_status::start_time(pid)?;
    if journals.open(start)?.is_some() {
        return Err(RepairError::Unfinished(pid));
    }
    let journal = journals.create(start)?;
    if target.has_agent() {
        journal.remove().map_err(journal::failed)?;
        return Err(RepairError::AgentThere(pid));
    }
    Ok(journal)
}

/// Stops the process for the first time and injects the agent. Also returns the result of resuming
/// the process.
fn put_in(
    target: &Target,
    journal: &mut Journal,
    way: Option<Way>,
) -> Result<(Agent, Result<(), RepairError>), RepairError> {
    let held = stop_patiently(target, journal)?;
    let made = make_agent(target, &held, journal, way);
    let released = held.release(journal);
    made.map(|agent| (agent, released))
}

/// Removes the journal if nothing remains to be finished.
fn end_journal(cleared: Result<(), RepairError>, journal: Journal) -> Result<(), RepairError> {
    match cleared {
        Ok(()) | Err(RepairError::Ended(_) | RepairError::Replaced(_)) => {
            journal.remove().map_err(journal::failed).and(cleared)
        }
        error => error,
    }
}

/// Lower bound for the time that stopped threads wait for a thread that has not stopped yet.
const SHORTEST_STOP_TIMEOUT: Duration = Duration::from_millis(20);
/// Upper bound for the time that stopped threads wait for a thread that has not stopped yet.
const LONGEST_STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Measures how long a stop lasts if nothing is done while the process is stopped.
///
/// The measured time includes reading the list of mappings if single mappings cannot be queried.
/// The result is the shortest of several attempts, because the machine may be busy. A process whose
/// stops are long, because it has thousands of threads, is stopped only twice.
fn stop_time(target: &Target, journal: &mut Journal) -> Result<Duration, RepairError> {
    const TRIES: usize = 10;
    const MOST: Duration = Duration::from_millis(50);
    let (mut best, mut all) = (Duration::MAX, Duration::ZERO);
    for tried in 0..TRIES {
        if tried >= 2 && all > MOST {
            break;
        }
        let begun = Instant::now();
        let held = stop_patiently(target, journal)?;
        if Query::open(target.pid).is_err() {
            maps::read(target.pid).map_err(RepairError::maps(target.pid))?;
        }
        held.release(journal)?;
        let time = begun.elapsed();
        (best, all) = (best.min(time), all + time);
        if all > MOST {
            std::thread::sleep(time.min(LONGEST_REST));
        }
    }
    Ok(best)
}
