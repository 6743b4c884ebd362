//! Repairing the calling process while its other threads run.
//!
//! A thread that touches a page on its way waits for it; one that touches a hole waits for the end
//! of the piece. The work on a piece is done by one thread that meanwhile uses nothing but its own
//! stack, registers and shared memory: whatever else it touched could be on its way. A second one
//! answers the kernel's events ([`watch`](self::watch)).
//!
//! # Order of events
//! ```text
//! executor     opens what a repair needs; for each piece writes down its calls
//! fork_gate    keeps forks by the C library out until the piece is whole
//! work         pages out, swap, pages back; moves are made under the lock of `shared`
//!   watch        meanwhile answers events, by the table in `phase`: completes `children`, notes
//!                where pages belong (`page_locations`)
//! move_back    each page that is out comes to where it belongs, joined or not
//! unwatch      what the program has made of the piece is watched no more
//! ```
//!
//! # Invariants
//! W1  between `Shared::begin` and `Shared::end` no allocation, no lock of the program, no signal
//! W2  a piece ends joined or as it was, and not before every page is home; what the program itself
//!     dropped or moved meanwhile stays dropped or moved
//! W3  the room is ours from its reservation to its release: where that is in doubt it is left as it is

mod children;
mod executor;
mod fork_gate;
mod futex_lock;
mod move_back;
mod page_locations;
mod phase;
mod shared;
#[cfg(test)]
mod tests;
mod unwatch;
mod watch;
mod work;

use std::ops::Range;
use std::time::Instant;

use super::driver;
use super::pace::Pace;
use super::plan::{self, Limits, PAGE};
use super::report::count_mappings;
use super::{Hidden, Options, RepairError, Report, Way};
use vmarea_linux_sys::own_process;
use vmarea_process::mappings::{Mappings, Smaps};
use vmarea_process::processes::kernel_policy;
use vmarea_process::view::KernelView;

use executor::InProcess;

/// Joins neighbours in `range` of the calling process that need not be apart.
///
/// For one repair; who repairs again and again keeps a [`Merger`].
///
/// # Errors
/// See [`Merger::new`] and [`Merger::merge`].
pub fn merge_range(range: Range<u64>, options: Options) -> Result<Report, RepairError> {
    Merger::new(options)?.merge(range)
}

/// Tells whether this process (and a program that it becomes) may be repaired from within.
///
/// # Errors
/// [`RepairError::Userfaultfd`], [`RepairError::TooOld`].
pub fn can_repair_itself() -> Result<(), RepairError> {
    executor::can_watch()
}

/// Repairs the calling process, as often as it is asked to.
#[derive(Debug)]
pub struct Merger {
    options: Options,
    kernel: Option<KernelView>,
    executor: InProcess,
}

impl Merger {
    /// Opens what a repair needs, and starts the thread that watches.
    ///
    /// # Errors
    /// [`RepairError::Userfaultfd`], [`RepairError::TooOld`], or a [`RepairError::System`] that
    /// says what could not be had.
    pub fn new(options: Options) -> Result<Merger, RepairError> {
        let executor = InProcess::new(&options)?;
        let kernel = match options.hidden {
            Hidden::Plain => None,
            // Without the permission for it, `smaps` says what is needed.
            Hidden::Read => KernelView::open().ok(),
        };
        Ok(Merger {
            options,
            kernel,
            executor,
        })
    }

    /// Joins neighbours in `range` (addresses) that need not be apart.
    ///
    /// # Errors
    /// [`RepairError::BadRange`], [`RepairError::PauseTooShort`], [`RepairError::Maps`], and a
    /// [`RepairError::System`] where no address space can be had. What merely stays apart is in the
    /// report. It does not return while a page is away from its place, however long the kernel has no
    /// memory to bring it back.
    pub fn merge(&mut self, range: Range<u64>) -> Result<Report, RepairError> {
        if range.is_empty() || !range.start.is_multiple_of(PAGE) || !range.end.is_multiple_of(PAGE)
        {
            return Err(RepairError::BadRange(range.start, range.end));
        }
        let begun = Instant::now();
        let pid = std::process::id() as i32;
        let failed = |cause| RepairError::Maps { pid, cause };
        let mappings = match self.options.hidden {
            Hidden::Plain => Mappings::without_advice(pid),
            Hidden::Read => Mappings::read(pid, self.kernel.as_ref(), Smaps::WithoutView),
        };
        let mappings = mappings.map_err(failed)?.list;
        let [stack, local] = own_process::places();
        let exclude = [stack, local, fork_gate::address()];
        let (runs, kept) = plan::runs(&kernel_policy(), &mappings, &range, &exclude);
        let mut report = Report {
            before: kept.mappings,
            runs: runs.len() as u64,
            kept,
            ..Report::default()
        };
        let most = Limits {
            parts: executor::MOST_PARTS,
            bytes: self.executor.room()?.piece_bytes(),
            part_bytes: 0,
        };
        let pace = Pace::new(self.options.max_pause, most, Way::Move);
        let forks_before = self.executor.forks();
        let copies = self.options.copy_pages;
        driver::merge(&mut self.executor, &runs, pace, copies, &mut report)?;
        report.forks = self.executor.forks() - forks_before;
        report.after = count_mappings(pid, &range).map_err(failed)?;
        report.total = begun.elapsed();
        Ok(report)
    }
}
