//! Repairs the calling process while its other threads run.
//!
//! A thread that touches a page while the page is being moved waits until the move is complete. A
//! thread that touches a page that is moved out waits until the piece is complete. The thread that
//! works on the piece uses only its own stack, registers and shared memory: any other memory could
//! be in the middle of a move. A second thread handles the userfaultfd events ([`watch`]). The
//! caller guarantees that no other thread changes the mappings of the range meanwhile, or discards
//! its pages; other threads may read, write and fork, and may map memory elsewhere.
//!
//! # Order of events
//! ```text
//! executor     opens descriptors; for each piece, builds the table of calls
//! fork_gate    blocks forks by the C library until the piece is complete
//! work         pages out, swap, pages back; moves are made under the lock of `shared`
//!   watch        reads events in parallel, and completes `children` of forks, which may change
//!                where their pages belong (`page_locations`)
//! move_back    moves each page back to its address, whether the piece was joined or not
//! ```
//!
//! # Invariants
//! W1  Between `Shared::begin` and `Shared::end` the working thread allocates nothing, takes no
//!     lock of the program and handles no signal.
//! W2  A piece ends either joined or unchanged, and not before every page is at its address and
//!     every child that was forked meanwhile has its pages.
//! W3  The scratch area belongs to the repair from its reservation to its release: if another
//!     mapping may be in it, it is abandoned.

mod children;
mod executor;
mod fork_gate;
mod futex_lock;
mod move_back;
mod page_locations;
mod shared;
#[cfg(test)]
mod tests;
mod watch;
mod work;

use std::io;
use std::ops::{ControlFlow, Range};
use std::panic::resume_unwind;
use std::ptr;
use std::thread;
use std::time::Instant;

use super::driver;
use super::pace::Pace;
use super::plan::{self, Limits, PAGE};
use super::report::count_mappings;
use super::{MadviseFlags, Options, RepairError, Report, Way};
use vmarea_linux_sys::own_process::{self, NoSignals};
use vmarea_process::kernel;
use vmarea_process::mappings::{Mappings, Smaps};
use vmarea_process::view::KernelView;

use executor::InProcess;

/// Joins neighbouring mappings of the calling process in `range` if they could be one mapping.
///
/// The caller must own the range: until the call has returned, no other thread unmaps, maps over,
/// moves, protects or discards (`madvise`) any part of it. Reading, writing and forking are allowed.
///
/// A separate thread with a private descriptor table does the work, so the program can close any of
/// its descriptors in the meantime. The thread allocates memory: do not call this function while
/// holding a lock that the allocator needs. The function is meant for a single repair; a caller
/// that repairs repeatedly should keep a [`Merger`].
///
/// # Errors
/// See [`Merger::new`] and [`Merger::merge`]; a [`RepairError::System`] if no thread can be
/// started.
pub fn merge_range(range: Range<u64>, options: Options) -> Result<Report, RepairError> {
    let work = move || {
        // If a sandbox forbids a private descriptor table, the thread shares the program's
        // descriptors.
        let _ = own_process::separate_descriptors();
        Merger::new(options)?.merge(range)
    };
    // The new thread inherits this mask, so that signals are delivered to the program's threads.
    let quiet = NoSignals::begin();
    let thread = started(work);
    drop(quiet);
    let thread = thread.map_err(RepairError::system("start a thread"))?;
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Starts a thread, and retries on failure: no thread can be started while another thread executes
/// `execve`, which may still fail.
fn started<T: Send + 'static>(
    work: impl FnOnce() -> T + Clone + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
    const TRIES: u32 = 3_000;
    let start = || {
        thread::Builder::new()
            .name("vmarea".to_owned())
            .spawn(work.clone())
    };
    for round in 0..TRIES {
        match start() {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => own_process::rest(round),
            thread => return thread,
        }
    }
    start()
}

/// Checks whether this process can repair itself.
///
/// # Errors
/// [`RepairError::Userfaultfd`], [`RepairError::TooOld`].
pub fn can_repair_itself() -> Result<(), RepairError> {
    executor::can_watch()
}

/// Repairs the calling process; can be used any number of times.
///
/// The caller of [`Merger::merge`] must own the range, as for [`merge_range`].
///
/// The program must not close the descriptors of the thread that uses the `Merger`: see
/// [`separate_descriptors`](crate::separate_descriptors).
#[derive(Debug)]
pub struct Merger {
    options: Options,
    kernel: Option<KernelView>,
    executor: InProcess,
}

impl Merger {
    /// Opens the descriptors of a repair and starts the watcher thread.
    ///
    /// # Errors
    /// [`RepairError::Userfaultfd`], [`RepairError::TooOld`], or a [`RepairError::System`] that
    /// names the failed operation.
    pub fn new(options: Options) -> Result<Merger, RepairError> {
        let executor = InProcess::new()?;
        let kernel = match options.madvise_flags {
            MadviseFlags::Unset => None,
            // Without permission to load BPF programs, the data is read from `smaps`.
            MadviseFlags::Read => KernelView::open().ok(),
        };
        Ok(Merger {
            options,
            kernel,
            executor,
        })
    }

    /// Joins neighbouring mappings in the address range `range` if they could be one mapping. The
    /// caller must own the range, as for [`merge_range`].
    ///
    /// Returns only when every page is at its address, no matter how long the kernel lacks the
    /// memory to move a page back. Mappings that cannot be joined are not an error; the report
    /// counts them.
    ///
    /// # Errors
    /// [`RepairError::BadRange`], [`RepairError::PauseTooShort`], [`RepairError::Maps`], and a
    /// [`RepairError::System`] if no address space can be reserved.
    pub fn merge(&mut self, range: Range<u64>) -> Result<Report, RepairError> {
        if range.is_empty() || !range.start.is_multiple_of(PAGE) || !range.end.is_multiple_of(PAGE)
        {
            return Err(RepairError::BadRange(range.start, range.end));
        }
        let begun = Instant::now();
        let pid = std::process::id().cast_signed();
        let failed = |cause| RepairError::Maps { pid, cause };
        let mappings = self.mappings().map_err(failed)?.list;
        let [stack, local] = own_process::places();
        // The caller may have stored the merger in memory that it merges.
        let first = ptr::from_ref(self) as u64;
        let last = first + size_of::<Merger>() as u64 - 1;
        // The program may not expect a fork, so nothing is probed.
        let policy = kernel::rules_by_version().policy;
        let exclude = [stack, local, fork_gate::address(), first, last];
        let (runs, kept) = plan::runs(&policy, &mappings, &range, &exclude);
        let mut report = Report {
            before: kept.mappings,
            runs: runs.len() as u64,
            kept,
            ..Report::default()
        };
        let most = Limits {
            parts: executor::TABLE_PARTS,
            bytes: self.executor.room()?.piece_bytes(),
            part_bytes: 0,
        };
        let copies = self.options.copy_pages;
        let pace = Pace::new(self.options.max_pause, most, Way::Move, copies);
        let forks_before = self.executor.forks();
        let begun_pass = self.executor.begin_pass(self.options.madvise_flags);
        begun_pass.map_err(failed)?;
        driver::merge(
            &mut self.executor,
            &runs,
            pace,
            copies,
            &mut report,
            &mut |_| ControlFlow::Continue(()),
        )?;
        report.forks = self.executor.forks() - forks_before;
        report.after = count_mappings(own_process::thread_id(), &range).map_err(failed)?;
        report.total = begun.elapsed();
        Ok(report)
    }

    /// Reads the mappings of this process. If its first thread has exited, only the directories of
    /// its other threads in `/proc` show them, and the kernel view shows nothing.
    fn mappings(&self) -> io::Result<Mappings> {
        let thread = own_process::thread_id();
        if self.options.madvise_flags == MadviseFlags::Unset {
            return Mappings::without_advice(thread);
        }
        let pid = std::process::id().cast_signed();
        let read = |kernel| Mappings::read(pid, Some(kernel), Smaps::WithoutView).ok();
        let seen = self.kernel.as_ref().and_then(read);
        let seen = seen.filter(|mappings| !mappings.list.is_empty());
        seen.map_or_else(|| Mappings::read(thread, None, Smaps::WithoutView), Ok)
    }
}
