//! A repair of another process from its first stop to its last.
//!
//! What pieces need is put into the process once and taken out at the end. Deliberately absent: what
//! happens to a piece ([`executor`](super::executor)).

use std::time::{Duration, Instant};

use super::agent::{MOST_CALLS, clear_up, make_agent};
use super::stop::stop_patiently;
use super::target::Target;
use crate::journal::{self, Agent, Journal, Journals};
use crate::pace::Pace;
use crate::piece::Room;
use crate::plan::Limits;
use crate::proc_status;
use crate::{Options, RepairError, Way};
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
    /// Begins a journal and puts the agent into the process.
    ///
    /// # Errors
    /// [`RepairError::Unfinished`], [`RepairError::AtWork`], [`RepairError::AgentThere`], and those of
    /// stopping the process. Nothing is left in it, unless the error says so.
    pub(super) fn begin(
        pid: i32,
        options: &Options,
        journals: &Journals,
    ) -> Result<Session, RepairError> {
        let target = Target::open(pid)?;
        let mut journal = begin_journal(&target, journals)?;
        if let Some(pause) = options.max_pause {
            target.be_patient((4 * pause).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE));
        }
        let (agent, journal) = match put_in(&target, &mut journal, options.way) {
            Ok((agent, Ok(()))) => (agent, journal),
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
            pace: Pace::new(options.max_pause, most, agent.way),
        };
        match stop_time(&session.target, &mut session.journal) {
            Ok(time) => {
                session.pace.set_base(time);
                Ok(session)
            }
            Err(error) => session.end(Err(error)),
        }
    }

    /// Takes out of the process what was put into it; `done` is what came of the work.
    pub(super) fn end<T>(mut self, done: Result<T, RepairError>) -> Result<T, RepairError> {
        let ended = match done {
            // It waits for another run, which needs the journal and the agent.
            Err(RepairError::LeftStopped { .. }) => Ok(()),
            // Nobody is left to be cleared up.
            Err(RepairError::Ended(_) | RepairError::Replaced(_)) => {
                self.journal.remove().map_err(journal::failed)
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

/// Begins the journal of a process in which there is nothing of another repair.
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

/// Stops the process for the first time and puts the agent into it; says as well whether the process
/// could be let run on.
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

/// Removes the journal where nothing is left to be finished.
fn end_journal(cleared: Result<(), RepairError>, journal: Journal) -> Result<(), RepairError> {
    match cleared {
        Ok(()) | Err(RepairError::Ended(_) | RepairError::Replaced(_)) => {
            journal.remove().map_err(journal::failed).and(cleared)
        }
        error => error,
    }
}

/// How long the threads that stand wait for one that does not.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(20);
const LONGEST_PATIENCE: Duration = Duration::from_millis(500);
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
