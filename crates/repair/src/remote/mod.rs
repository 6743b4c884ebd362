//! Repairing another process.
//!
//! The process is stopped ([`stop`](self::stop)) for each piece and runs in between. While it stands
//! nobody touches its memory, so pages simply go out and come back; an agent in the process makes
//! the calls, because the kernel moves pages only for their own process. What is done is written
//! into a [`Journal`] first: where we end, [`Remote::resume`] finishes.
//!
//! # Invariants
//! O1  pages are out only between the line `piece` and the line `whole` of the journal, and only
//!     while the process is in group-stop
//! O2  whether the swap was done shows in the process: the fresh mapping is at its first place or not

mod agent;
mod by_copy;
mod by_move;
mod descriptor;
mod executor;
mod fix;
mod injector;
mod move_back;
mod obstacles;
mod pages;
mod session;
mod stop;
mod target;
mod trust;

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use super::driver;
use super::fixes::{Fix, Fixed};
use super::journal::{self, Journal, Journals, State};
use super::plan::{self, Run};
use super::proc_status;
use super::report::count_mappings;
use super::{Options, Reason, RepairError, Report, Way};
use target::Target;
use vmarea_linux_sys::uffd::{self, Uffd};
use vmarea_process::mappings::{Mappings, Smaps};
use vmarea_process::processes::kernel_policy;
use vmarea_process::view::KernelView;

use agent::{clear_up, take_out};
use executor::{RemoteCopy, RemoteMove};
use move_back::bring_home;
use pages::Pages;
use session::Session;

/// What could be done to a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// Mappings in the range.
    pub mappings: u64,
    /// Mappings that would be left.
    pub after: u64,
    /// Runs of neighbours that could be one.
    pub runs: u64,
    /// Bytes of address space in them.
    pub bytes: u64,
    /// Some pages may be pinned, and nothing tells which: those stay apart when their turn comes.
    pub may_be_pinned: bool,
    /// What stays apart.
    pub kept: super::Kept,
}

/// A repair of another process.
#[derive(Debug)]
pub struct Remote {
    pid: i32,
    options: Options,
    journals: Journals,
    kernel: Option<KernelView>,
}

impl Remote {
    /// A repair of process `pid`; nothing is changed yet. `journals` is the folder for the journal;
    /// `None` for the usual one.
    ///
    /// # Errors
    /// Where there is no such process, or it cannot be repaired: each reason is its own.
    pub fn new(
        pid: i32,
        options: Options,
        journals: Option<PathBuf>,
    ) -> Result<Remote, RepairError> {
        let journals = Journals::of(pid, journals);
        Target::open(pid)?;
        Ok(Remote {
            pid,
            options,
            journals,
            kernel: KernelView::open().ok(),
        })
    }

    /// How pages come to another mapping: as was asked for, or else as the kernel can.
    pub fn way(&self) -> Way {
        let can_move = || match Uffd::open(uffd::FEATURE_MOVE) {
            Ok(_) => true,
            Err(error) => {
                let unknown = [libc::EINVAL, libc::ENOSYS].map(Some);
                !unknown.contains(&error.raw_os_error())
            }
        };
        let asked = self.options.way;
        asked.unwrap_or_else(|| if can_move() { Way::Move } else { Way::Copy })
    }

    /// What could be joined, and what is known to stay apart for as long as the process is as it is.
    fn plan(&self, range: &Range<u64>) -> Result<(Vec<Run>, super::Kept), RepairError> {
        let failed = RepairError::maps(self.pid);
        let mappings = Mappings::read(self.pid, self.kernel.as_ref(), Smaps::WithoutView);
        let mappings = mappings.map_err(failed)?.list;
        let (runs, mut kept) = plan::runs(&kernel_policy(), &mappings, range, &[]);
        // A device would go on writing to a page that was copied, and nothing tells which those are.
        let none_at_all = self.way() == Way::Copy && proc_status::may_be_pinned(self.pid);
        let registered = obstacles::registered(self.pid);
        let runs = obstacles::without(runs, &mut kept, |part| {
            let pinned = none_at_all || obstacles::touches(part, &registered);
            pinned.then_some(Reason::Pinned)
        });
        Ok((runs, kept))
    }

    /// What could be done in `range` (addresses), as far as it can be seen without trying.
    ///
    /// # Errors
    /// [`RepairError::Maps`].
    pub fn survey(&self, range: &Range<u64>) -> Result<Survey, RepairError> {
        let (runs, mut kept) = self.plan(range)?;
        let pages = Pages::of(self.pid)?;
        let memory = File::open(format!("/proc/{}/mem", self.pid))
            .map_err(|_| proc_status::ended_or(self.pid, RepairError::Forbidden(self.pid)))?;
        let mut copies = self.options.copy_pages;
        let runs = obstacles::without(runs, &mut kept, |part| {
            let shared = obstacles::shared(&pages, &memory, part, copies.saturating_add(1));
            match copies.checked_sub(shared) {
                Some(left) => copies = left,
                None => return Some(Reason::Shared),
            }
            None
        });
        let runs: Vec<Run> = runs.into_iter().filter(|run| run.parts.len() > 1).collect();
        let joined: usize = runs.iter().map(|run| run.parts.len() - 1).sum();
        Ok(Survey {
            mappings: kept.mappings,
            after: kept.mappings - joined as u64,
            runs: runs.len() as u64,
            bytes: runs.iter().map(|run| run.range.end - run.begin()).sum(),
            may_be_pinned: proc_status::may_be_pinned(self.pid),
            kept,
        })
    }

    /// Joins what can be joined in `range` (addresses).
    ///
    /// # Errors
    /// Those of holding the process; [`RepairError::Unfinished`] where an earlier repair of it was
    /// left in the middle.
    pub fn merge(&self, range: &Range<u64>) -> Result<Report, RepairError> {
        let begun = Instant::now();
        let (runs, kept) = self.plan(range)?;
        let mut report = Report {
            before: kept.mappings,
            after: kept.mappings,
            runs: runs.len() as u64,
            kept,
            ..Report::default()
        };
        if !runs.is_empty() {
            let mut session = Session::begin(self.pid, &self.options, &self.journals)?;
            let (pace, copies) = (session.pace, self.options.copy_pages);
            let done = match session.agent.way {
                Way::Move => {
                    let executor = &mut RemoteMove(&mut session);
                    driver::merge(executor, &runs, pace, copies, &mut report)
                }
                Way::Copy => {
                    let executor = &mut RemoteCopy(&mut session);
                    driver::merge(executor, &runs, pace, copies, &mut report)
                }
            };
            session.end(done)?;
            report.after = count_mappings(self.pid, range).map_err(RepairError::maps(self.pid))?;
        }
        report.total = begun.elapsed();
        Ok(report)
    }

    /// What the named repairs would do in `range`.
    ///
    /// # Errors
    /// [`RepairError::Maps`].
    pub fn survey_fixes(
        &self,
        range: &Range<u64>,
        fixes: &[Fix],
    ) -> Result<Vec<Fixed>, RepairError> {
        let would = |&fix| {
            let steps = fix::steps(self.pid, self.kernel.as_ref(), range, fix)?;
            Ok(Fixed {
                fix,
                places: steps.steps.len() as u64,
                apart: steps.apart,
                fewer: None,
            })
        };
        fixes.iter().map(would).collect()
    }

    /// Does the named repairs in `range`, and says what came of each; a place that the kernel refuses is
    /// left as it is.
    ///
    /// # Errors
    /// As [`Remote::merge`].
    pub fn fix(&self, range: &Range<u64>, fixes: &[Fix]) -> Result<Vec<Fixed>, RepairError> {
        let would = self.survey_fixes(range, fixes)?;
        if would.iter().all(|fixed| fixed.places == 0) {
            let nothing = |fixed| Fixed {
                fewer: Some(0),
                ..fixed
            };
            return Ok(would.into_iter().map(nothing).collect());
        }
        let mut session = Session::begin(self.pid, &self.options, &self.journals)?;
        let done: Result<Vec<_>, RepairError> = fixes
            .iter()
            .map(|&fix| fix::make(&mut session, self.kernel.as_ref(), range, fix))
            .collect();
        session.end(done)
    }

    /// Finishes what an earlier run has left in the middle. False where there was nothing.
    ///
    /// # Errors
    /// Those of holding the process; [`RepairError::Stranded`].
    pub fn resume(&self) -> Result<bool, RepairError> {
        let start = proc_status::start_time(self.pid)?;
        let Some((mut journal, mut state)) = self.journals.open(start)? else {
            return match Target::open(self.pid)?.has_agent() {
                true => Err(RepairError::AgentThere(self.pid)),
                false => Ok(false),
            };
        };
        let target = self.finish(&mut journal, &mut state);
        let cleared = target.and_then(|target| match state.agent {
            Some(agent) => clear_up(&target, &mut journal, agent),
            None => Ok(()),
        });
        match cleared {
            Ok(()) => journal.remove().map_err(journal::failed).map(|()| true),
            // Nothing is left to be finished.
            Err(error @ (RepairError::Ended(_) | RepairError::Replaced(_))) => {
                journal.remove().map_err(journal::failed)?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the process to where it runs on; its agent may still be there.
    fn finish(&self, journal: &mut Journal, state: &mut State) -> Result<Target, RepairError> {
        let (path, owner) = (journal.path().display().to_string(), journal.owner());
        let doubt = |why: String| {
            let path = path.clone();
            proc_status::ended_or(self.pid, RepairError::Journal { path, why })
        };
        trust::may_decide(self.pid, owner).map_err(doubt)?;
        let target = Target::open(self.pid)?;
        let has = |state: &State| state.agent.is_some_and(|agent| target.has(&agent));
        if state.agent.is_some() && !has(state) && !state.clearing {
            // Somebody has let it run on, and it runs another program now.
            return Err(proc_status::ended_or(
                self.pid,
                RepairError::Replaced(self.pid),
            ));
        }
        trust::check(self.pid, state).map_err(doubt)?;
        let is_gone = state.agent.is_some() && !has(state);
        if state.stopping.is_none() {
            return Ok(target);
        }
        // It may have become another program while it was looked at, or have changed.
        let check = || {
            trust::may_decide(self.pid, owner)
                .and_then(|()| trust::check(self.pid, &mut state.clone()))
                .map_err(doubt)
        };
        let held = target.stop_again(state, journal, check)?;
        if let (Some(agent), Some(piece)) = (state.agent, state.piece) {
            bring_home(&held, &agent, piece)?;
            journal.whole().map_err(journal::failed)?;
        }
        if let (Some(agent), Some(guard)) = (state.agent, state.guard) {
            fix::finish_guard(&held, &agent, guard)?;
            journal.guarded().map_err(journal::failed)?;
        }
        let mut cleared = Ok(());
        if let (Some(agent), true) = (state.agent, state.clearing) {
            if !is_gone {
                cleared = take_out(&held, journal, agent);
            }
            state.agent = None;
        }
        held.release(journal)?;
        cleared.map(|()| target)
    }
}

#[cfg(test)]
mod forged_journal;
#[cfg(test)]
mod test_process;
#[cfg(test)]
mod tests;
