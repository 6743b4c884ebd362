//! Repairs another process.
//!
//! The process is stopped ([`stop`](self::stop)) for each piece and runs in between. The work is done
//! by a short-lived thread of the process itself, the agent, because the kernel does not move pages
//! on behalf of another process. While pages are out, nobody can use them: threads of the
//! program are parked, and a userfaultfd holds up everyone else. Whatever is killed meanwhile, the
//! agent finishes its piece alone.
//!
//! # Order of events
//! ```text
//! survey    Target::open ─▶ plan ─▶ obstacles
//! merge     plan ─▶ tracer: a child in a session of its own
//!           Session::begin: sweep up, first stop, mark, scratch area, a few stops to measure
//!           for each piece (executor):
//!             stop ─▶ program ─▶ agent: park, go, end ─▶ own registers ─▶ detach, rest
//!           Session::end: last stop, scratch area and mark removed
//! resume    sweep up after a killed repair: scratch area and mark removed
//! ```
//!
//! # Invariants
//! O1  Pages are out only while an agent runs, and every thread of the program is parked then.
//! O2  A thread of the program is changed by one step, setting its registers. Before it, nothing has
//!     happened; after it, the thread restores itself.
//! O3  Nothing outside of the process is needed to finish a piece or to sweep up.

mod agent;
mod executor;
mod fix;
mod frames;
mod image;
mod mark;
mod obstacles;
mod pages;
mod places;
mod program;
mod rseq;
mod scratch;
mod session;
mod stop;
mod target;
mod tracer;
mod vdso;
mod wire;

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use super::driver::{self, Progress};
use super::fixes::{Fix, Fixed};
use super::plan::{self, Run};
use super::proc_status;
use super::report::count_mappings;
use super::{KeptReason, Options, RepairError, Report, Way};
use target::Target;
use vmarea_linux_sys::uffd::{self, Uffd};
use vmarea_process::kernel;
use vmarea_process::mappings::{Mappings, Smaps};
use vmarea_process::pages::{LivePages, Pages, PinnedPages, registered};
use vmarea_process::plan::predict;
use vmarea_process::view::KernelView;
use vmarea_process::{Mapping, Remedy};

use executor::RemoteExecutor;
use session::Session;

/// Forecast of what a repair could do to a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// Number of mappings in the range.
    pub mappings: u64,
    /// Expected number of mappings after the repair.
    pub after: u64,
    /// Number of boundaries that the repair is expected to remove and that may nevertheless remain.
    pub may_remain: u64,
    /// Number of runs of neighbours that could be one mapping.
    pub runs: u64,
    /// Number of mappings in these runs.
    pub members: u64,
    /// Total size of the runs, in bytes.
    pub bytes: u64,
    /// Number of places that repairs which move no pages would change.
    pub changed: u64,
    /// Number of threads that each stop of the process stops.
    pub threads: u64,
    /// Number of shared pages that would be copied.
    pub copies: u64,
    /// True if some pages might be pinned. Only an attempt to move a page shows whether the page is
    /// pinned.
    pub may_be_pinned: bool,
    /// The boundaries that would not be joined, by reason.
    pub kept: super::Kept,
}

/// A repair of another process.
#[derive(Debug)]
pub struct Remote {
    pid: i32,
    options: Options,
    kernel: Option<KernelView>,
}

impl Remote {
    /// Prepares a repair of process `pid` without changing the process.
    ///
    /// # Errors
    /// A separate error for each reason why the process cannot be repaired, for example because it
    /// does not exist.
    pub fn new(pid: i32, options: Options) -> Result<Remote, RepairError> {
        if proc_status::process_of(pid) != pid {
            return Err(RepairError::NoProcess(pid));
        }
        let target = Target::open(pid)?;
        Ok(Remote {
            pid: target.pid,
            options,
            kernel: KernelView::open().ok(),
        })
    }

    /// Returns the method by which pages are transferred to the fresh mapping. This is the method
    /// that the options request, or otherwise the best method that the kernel supports.
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

    fn mappings(&self) -> Result<Vec<Mapping>, RepairError> {
        let kernel = self.kernel.as_ref();
        let mappings = Mappings::read(self.pid, kernel, Smaps::WithoutView);
        let list = mappings.map_err(RepairError::maps(self.pid))?.list;
        // The kernel view shows nothing of a process whose first thread has exited.
        match list.is_empty() && kernel.is_some() {
            true => Mappings::read(self.pid, None, Smaps::WithoutView)
                .map(|mappings| mappings.list)
                .map_err(RepairError::maps(self.pid)),
            false => Ok(list),
        }
    }

    /// Returns the runs that could be joined now, and the neighbours that could not.
    fn runs(&self, mappings: &[Mapping], range: &Range<u64>) -> (Vec<Run>, super::Kept) {
        let (runs, mut kept) = plan::runs(&kernel::rules().policy, mappings, range, &[]);
        // A device would continue to write to the old page after a copy, and the kernel does not
        // report pages to which a device writes.
        let none_at_all = self.way() == Way::Copy && proc_status::may_be_pinned(self.pid);
        let registered = registered(self.pid);
        let runs = obstacles::without(runs, &mut kept, |part| {
            let pinned = none_at_all || obstacles::touches(part, &registered);
            pinned.then_some(KeptReason::Pinned)
        });
        (runs, kept)
    }

    /// Predicts what the repairs `fixes`, followed by a merge, would do in the address range
    /// `range`. Obstacles that are detected only during a repair are counted in
    /// [`Survey::may_remain`] where they are likely.
    ///
    /// # Errors
    /// [`RepairError::Maps`], [`RepairError::Forbidden`], [`RepairError::Ended`].
    pub fn survey(&self, range: &Range<u64>, fixes: &[Fix]) -> Result<Survey, RepairError> {
        let failed = RepairError::maps(self.pid);
        let mut mappings = self.mappings()?;
        let pages = LivePages::open(self.pid).map_err(failed)?;
        let policy = kernel::rules().policy;
        let remedies: Vec<_> = fixes.iter().filter_map(|fix| fix.remedy()).collect();
        mappings.retain(|m| m.entry.end > range.start && m.entry.start < range.end);
        let before = mappings.len() as u64;
        let fixed = predict(&policy, &mappings, &remedies, 0, &pages);
        let copies = self.options.copy_pages;
        let may_be_pinned = proc_status::may_be_pinned(self.pid);
        let pages = match may_be_pinned && self.way() == Way::Copy {
            true => &PinnedPages as &dyn Pages,
            false => &pages,
        };
        let merged = predict(&policy, &fixed.mappings, &[Remedy::Merge], copies, pages);
        let (_, mut kept) = plan::runs(&policy, &fixed.mappings, range, &[]);
        for (reason, n) in [
            (KeptReason::Pinned, merged.pinned),
            (KeptReason::Shared, merged.shared),
        ] {
            if n > 0 {
                *kept.by_reason.entry(reason).or_default() += n;
            }
        }
        let may_remain = match may_be_pinned && self.way() == Way::Move {
            true => fixed.after() - merged.after(),
            false => merged.may_remain,
        };
        Ok(Survey {
            mappings: before,
            after: merged.after(),
            may_remain: fixed.may_remain + may_remain,
            runs: merged.runs,
            members: merged.members,
            bytes: merged.bytes,
            changed: fixed.changed,
            threads: proc_status::tasks(self.pid)?.len() as u64,
            copies: merged.copies,
            may_be_pinned,
            kept,
        })
    }

    /// Joins as many mappings as possible in the address range `range`.
    ///
    /// # Errors
    /// [`RepairError::Maps`]; errors from stopping the process and from starting the agent;
    /// [`RepairError::AtWork`] if another repair is at work; [`RepairError::PauseTooShort`];
    /// [`RepairError::Tracer`] if the tracing process was killed; [`RepairError::LeftBehind`], after
    /// which [`Remote::resume`] tries again. In all cases the process runs, with all its pages.
    pub fn merge(&self, range: &Range<u64>) -> Result<Report, RepairError> {
        self.merge_with(range, &mut |_| ControlFlow::Continue(()))
    }

    /// Same as [`Remote::merge`], and calls `progress` before the first piece and after each. If
    /// `progress` breaks, the merge ends there, and [`Report::left`] is the number of mappings that
    /// were not tried.
    ///
    /// # Errors
    /// The errors of [`Remote::merge`].
    pub fn merge_with(
        &self,
        range: &Range<u64>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Report, RepairError> {
        let begun = Instant::now();
        // Opened before the plan, which must not be carried out in another program (`execve`).
        let target = Target::open(self.pid)?;
        let (runs, kept) = self.runs(&self.mappings()?, range);
        let mut report = Report {
            before: kept.mappings,
            after: kept.mappings,
            runs: runs.len() as u64,
            kept,
            ..Report::default()
        };
        let of = runs.iter().map(|run| run.parts.len() as u64).sum();
        let start = Progress {
            mappings: 0,
            of,
            long_pauses: 0,
        };
        if of > 0 && progress(start).is_break() {
            report.left = of;
        } else if of > 0 {
            report = tracer::apart(self.pid, &mut |(_, done)| progress(done), |show| {
                let mut session = Session::begin(target, &self.options, self.way())?;
                let (pace, copies) = (session.pace, self.options.copy_pages);
                let executor = &mut RemoteExecutor(&mut session);
                let show = &mut |progress| show((None, progress));
                let done = driver::merge(executor, &runs, pace, copies, &mut report, show);
                session.end(done.map(|()| report))
            })?;
            report.after = count_mappings(self.pid, range).map_err(RepairError::maps(self.pid))?;
            if report.after == 0 {
                return Err(RepairError::Ended(self.pid));
            }
        }
        report.total = begun.elapsed();
        Ok(report)
    }

    /// Reports what the repairs `fixes` would do in `range`.
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
                places: steps.steps.len() as u64,
                apart: steps.apart,
                ..Fixed::nothing(fix)
            })
        };
        fixes.iter().map(would).collect()
    }

    /// Performs the repairs `fixes` in `range`, and returns the result of each repair. A place that
    /// the kernel refuses to change is left unchanged.
    ///
    /// # Errors
    /// The errors of [`Remote::merge`].
    pub fn fix(&self, range: &Range<u64>, fixes: &[Fix]) -> Result<Vec<Fixed>, RepairError> {
        self.fix_with(range, fixes, &mut |_, _| ControlFlow::Continue(()))
    }

    /// Same as [`Remote::fix`], and calls `progress` before the first stop of each repair and after
    /// each stop. If `progress` breaks, no further place is changed, and [`Fixed::left`] is the
    /// number of places that were not tried.
    ///
    /// # Errors
    /// The errors of [`Remote::merge`].
    pub fn fix_with(
        &self,
        range: &Range<u64>,
        fixes: &[Fix],
        progress: &mut dyn FnMut(Fix, Progress) -> ControlFlow<()>,
    ) -> Result<Vec<Fixed>, RepairError> {
        let would = self.survey_fixes(range, fixes)?;
        if would.iter().all(|fixed| fixed.places == 0) {
            let nothing = |fixed| Fixed {
                fewer: Some(0),
                ..fixed
            };
            return Ok(would.into_iter().map(nothing).collect());
        }
        let progress = &mut |(fix, done): tracer::Shown| match fix {
            Some(fix) => progress(fix, done),
            None => ControlFlow::Continue(()),
        };
        tracer::apart(self.pid, progress, |show| {
            let mut session = Session::begin(Target::open(self.pid)?, &self.options, self.way())?;
            let fits = session.pace.check();
            let done = fits.and_then(|()| {
                let fix = |&fix| {
                    let show = &mut |done| show((Some(fix), done));
                    fix::make(&mut session, self.kernel.as_ref(), range, fix, show)
                };
                fixes.iter().map(fix).collect()
            });
            session.end(done)
        })
    }

    /// Removes what a killed repair has left in the process; returns false if there is nothing. The
    /// process runs meanwhile, with all its pages.
    ///
    /// # Errors
    /// Errors from stopping the process; [`RepairError::AtWork`] if the repair still runs;
    /// [`RepairError::LeftBehind`] if the kernel refuses to unmap something.
    pub fn resume(&self) -> Result<bool, RepairError> {
        let goes_on = &mut |_| ControlFlow::Continue(());
        tracer::apart(self.pid, goes_on, |_| {
            session::sweep(&Target::open(self.pid)?)
        })
    }
}

#[cfg(test)]
mod test_process;
#[cfg(test)]
mod tests;
