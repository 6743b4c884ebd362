//! A repair of a process, from the first stop to the last.
//!
//! The first stop maps the scratch area and sets the mark; the last one removes both. In between,
//! nothing of the repair needs to be remembered outside of the process: after each stop, the program
//! has all of its pages at their addresses.

use std::time::{Duration, Instant};

use vmarea_linux_sys::agent;
use vmarea_merge::types::VmRange;
use vmarea_process::kernel;
use vmarea_process::maps::{self, Query};
use vmarea_process::processes;

use super::frames;
use super::program::Program;
use super::scratch::{MOST_EXTENTS, MOST_PARTS, Scratch};
use super::stop::{LONGEST_REST, Stopped, stop_patiently};
use super::target::Target;
use crate::pace::Pace;
use crate::plan::{Limits, PAGE};
use crate::proc_status;
use crate::{Options, RepairError, Way};

/// Lower bound for the time that stopped threads wait for a thread that has not stopped yet.
const SHORTEST_STOP_TIMEOUT: Duration = Duration::from_millis(20);
/// Upper bound for the time that stopped threads wait for a thread that has not stopped yet.
const LONGEST_STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Number of attempts to sweep up after a killed repair, whose agent may still be at work.
const SWEEP_TRIES: u32 = 400;
const SWEEP_REST: Duration = Duration::from_millis(25);

/// A repair of a process.
pub(super) struct Session {
    pub(super) pid: i32,
    pub(super) target: Target,
    pub(super) scratch: Scratch,
    pub(super) way: Way,
    /// True if page offsets of emptied mappings follow from their addresses on this kernel.
    pub(super) in_place: bool,
    /// Limits the size of pieces.
    pub(super) pace: Pace,
    /// Number of mappings that the process may still add, as far as is known: a part that is out is
    /// one mapping more.
    pub(super) spare: u64,
    pub(super) query: Option<Query>,
}

impl Session {
    /// Sweeps up after a killed repair, maps the scratch area, and measures a stop.
    ///
    /// # Errors
    /// Errors of [`sweep`], and errors from stopping the process. Nothing of the repair remains
    /// in the process.
    pub(super) fn begin(
        target: Target,
        options: &Options,
        way: Way,
    ) -> Result<Session, RepairError> {
        if let Some(pause) = options.max_pause {
            target.set_stop_timeout((4 * pause).clamp(SHORTEST_STOP_TIMEOUT, LONGEST_STOP_TIMEOUT));
        }
        sweep(&target)?;
        let scratch = map_scratch(&mut stop_patiently(&target)?)?;
        let most = Limits {
            parts: MOST_PARTS,
            bytes: match way {
                Way::Move => scratch.piece_bytes(),
                Way::Copy => scratch.piece_bytes().min(MOST_EXTENTS as u64 * PAGE),
            },
            part_bytes: 0,
        };
        let mut session = Session {
            pid: target.pid,
            spare: spare_mappings(target.pid)?,
            query: Query::open(target.pid).ok(),
            target,
            scratch,
            way,
            in_place: kernel::rules().policy.rules.dontunmap.resets_pgoff,
            pace: Pace::new(options.max_pause, most, way, options.copy_pages),
        };
        match session.stop_time() {
            Ok(time) => {
                session.pace.set_base(time);
                Ok(session)
            }
            Err(error) => session.end(Err(error)),
        }
    }

    /// Removes what the repair has mapped. `done` is the result of the repair.
    pub(super) fn end<T>(self, done: Result<T, RepairError>) -> Result<T, RepairError> {
        let is_gone =
            |error: &RepairError| matches!(error, RepairError::Ended(_) | RepairError::Replaced(_));
        let ended = match &done {
            // The process has ended, and the scratch area with it.
            Err(error) if is_gone(error) => Ok(()),
            _ => sweep_own(&self.target, self.scratch.range()),
        };
        match ended {
            Err(error) if is_gone(&error) => done,
            ended => done.and_then(|done| ended.map(|()| done)),
        }
    }

    /// Measures how long a stop lasts if an agent does nothing in it.
    ///
    /// The result is the shortest of several attempts, because the machine may be busy. A process
    /// whose stops are long, because it has thousands of threads, is stopped only twice.
    fn stop_time(&mut self) -> Result<Duration, RepairError> {
        const TRIES: usize = 5;
        const MOST: Duration = Duration::from_millis(200);
        let (mut best, mut all) = (Duration::MAX, Duration::ZERO);
        for tried in 0..TRIES {
            if tried >= 2 && all > MOST {
                break;
            }
            let time = self.stop_once()?;
            (best, all) = (best.min(time), all + time);
            if all > MOST {
                std::thread::sleep(time.min(LONGEST_REST));
            }
        }
        Ok(best)
    }

    /// Returns how long the program did not run.
    fn stop_once(&mut self) -> Result<Duration, RepairError> {
        self.make_places()?;
        let begun = Instant::now();
        let mut stopped = stop_patiently(&self.target)?;
        find_free(self.pid, &mut self.scratch, self.query.as_mut())?;
        let mut program = Program::of_nothing(self.way);
        stopped.run(&self.scratch, &mut program, None)?;
        stopped.let_go();
        let time = begun.elapsed();
        program.read(&self.target, &self.scratch)?;
        program.outcome(&self.target).map(|_| time)
    }

    /// Makes sure that the scratch area has places for all threads. It is mapped anew if the program
    /// has started many.
    ///
    /// # Errors
    /// The errors of [`Session::begin`].
    pub(super) fn make_places(&mut self) -> Result<(), RepairError> {
        let threads = proc_status::tasks(self.pid)?.len();
        if threads + 32 > self.scratch.places() {
            sweep_own(&self.target, self.scratch.range())?;
            self.scratch = map_scratch(&mut stop_patiently(&self.target)?)?;
        }
        Ok(())
    }
}

/// Returns the number of mappings that a process may still add.
///
/// # Errors
/// [`RepairError::Maps`].
pub(super) fn spare_mappings(pid: i32) -> Result<u64, RepairError> {
    let count = maps::read(pid).map_err(RepairError::maps(pid))?.len() as u64;
    Ok(processes::max_map_count().saturating_sub(count))
}

/// Makes sure that the addresses for pieces are free. All threads must be stopped.
///
/// # Errors
/// [`RepairError::Maps`].
pub(super) fn find_free(
    pid: i32,
    scratch: &mut Scratch,
    query: Option<&mut Query>,
) -> Result<(), RepairError> {
    let list = || maps::read(pid).map_err(RepairError::maps(pid));
    let mappings = match query {
        Some(_) => Vec::new(),
        None => list()?,
    };
    if !scratch.is_free(query, &mappings) {
        scratch.choose_free(&list()?);
    }
    Ok(())
}

/// Maps the scratch area of a stopped process, after it has been recorded in the mark.
fn map_scratch(stopped: &mut Stopped<'_>) -> Result<Scratch, RepairError> {
    let target = stopped.target;
    let pid = target.pid;
    if let Some(mark) = target.mark() {
        let by = mark.at_work().flatten();
        return Err(RepairError::AtWork { pid, by });
    }
    let mappings = maps::read(pid).map_err(RepairError::maps(pid))?;
    let scratch = Scratch::choose(&mappings, stopped.threads.len());
    let scratch = scratch.ok_or(RepairError::NoRoom(pid))?;
    // Without a thread that can make calls, nothing is written.
    stopped.borrowed()?;
    let tid = stopped.any_thread()?;
    let forbidden = |_| proc_status::ended_or(pid, RepairError::Forbidden(pid));
    target.set_mark(tid, scratch.range()).map_err(forbidden)?;
    let mapped = map_parts(stopped, &scratch).and_then(|()| {
        let mut code = agent::agent().to_vec();
        code.resize(code.len().next_multiple_of(8), 0);
        let tid = stopped.any_thread()?;
        target
            .write_code(tid, &code, scratch.code.start)
            .map_err(forbidden)
    });
    if mapped.is_err() {
        remove(stopped, Some(scratch.range()))?;
    }
    mapped.map(|()| scratch)
}

fn map_parts(stopped: &mut Stopped<'_>, scratch: &Scratch) -> Result<(), RepairError> {
    let pid = stopped.target.pid;
    let (read, write, exec) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    for (range, prot, kind) in [
        (scratch.code, read | exec, libc::MAP_PRIVATE),
        // Shared memory is no data in the sense of RLIMIT_DATA.
        (scratch.table, read | write, libc::MAP_SHARED),
    ] {
        let (start, len) = (range.start, range.len_bytes());
        let kind = kind | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let args = [start, len, prot as u64, kind as u64, u64::MAX, 0];
        let at = stopped.call(libc::SYS_mmap, &args)?;
        if at != start.cast_signed() {
            return Err(match -at as i32 {
                libc::ENOMEM | libc::EAGAIN => RepairError::NoRoom(pid),
                libc::EPERM | libc::EACCES => RepairError::NoCode(pid),
                errno => RepairError::System {
                    what: "map memory in the process",
                    cause: std::io::Error::from_raw_os_error(errno),
                },
            });
        }
    }
    let (start, len) = (scratch.range().start, scratch.range().len_bytes());
    let advice = libc::MADV_DONTFORK as u64;
    stopped.call(libc::SYS_madvise, &[start, len, advice])?;
    Ok(())
}

/// Unmaps a range that the repair has mapped.
///
/// # Errors
/// [`RepairError::LeftBehind`] if the kernel keeps refusing; the errors of [`Stopped::call`].
pub(super) fn unmap(stopped: &mut Stopped<'_>, range: VmRange) -> Result<(), RepairError> {
    let mut result = 0;
    for _ in 0..8 {
        result = stopped.call(libc::SYS_munmap, &[range.start, range.len_bytes()])?;
        if result == 0 {
            return Ok(());
        }
    }
    Err(RepairError::LeftBehind {
        pid: stopped.target.pid,
        cause: std::io::Error::from_raw_os_error(-result as i32),
    })
}

/// Unmaps a scratch area, if there is one, and removes the mark.
fn remove(stopped: &mut Stopped<'_>, scratch: Option<VmRange>) -> Result<(), RepairError> {
    let pid = stopped.target.pid;
    if let Some(range) = scratch {
        unmap(stopped, range)?;
    }
    let tid = stopped.any_thread()?;
    let removed = stopped.target.remove_mark(tid);
    removed.map_err(|_| proc_status::ended_or(pid, RepairError::Forbidden(pid)))
}

/// Returns why a scratch area must stay: a thread is in a stub or in the area, or returns there from a
/// signal handler.
fn busy(stopped: &Stopped<'_>, scratch: VmRange) -> Option<RepairError> {
    let target = stopped.target;
    let pid = target.pid;
    let is_ours = |pc: u64| target.is_in_stub(pc) || scratch.contains(pc);
    let mut threads = stopped.threads.iter();
    // The stacks come second: while pages are out, reading them would wait.
    if threads.clone().any(|thread| is_ours(thread.registers.pc())) {
        return Some(RepairError::AtWork { pid, by: None });
    }
    let returns =
        threads.find(|thread| frames::return_to(&target.memory, &thread.registers, is_ours));
    returns.map(|thread| RepairError::InHandler {
        pid,
        tid: thread.tid,
    })
}

/// Removes the scratch area of this repair. Another program may trace the process for a moment.
///
/// # Errors
/// [`RepairError::LeftBehind`] if the process cannot be stopped; the errors of [`remove`].
fn sweep_own(target: &Target, range: VmRange) -> Result<(), RepairError> {
    let mut tries = 0;
    loop {
        let error = match stop_patiently(target) {
            Ok(mut stopped) => match busy(&stopped, range).filter(|_| target.has_parked.get()) {
                Some(error) => error,
                None => return remove(&mut stopped, Some(range)),
            },
            Err(error @ (RepairError::Ended(_) | RepairError::Replaced(_))) => return Err(error),
            Err(error) => error,
        };
        tries += 1;
        if tries == SWEEP_TRIES {
            return Err(RepairError::LeftBehind {
                pid: target.pid,
                cause: std::io::Error::other(error),
            });
        }
        target.rest(SWEEP_REST);
    }
}

/// Removes what a killed repair has left in the process; returns false if there is nothing. Waits
/// until an agent that is still at work has finished.
///
/// # Errors
/// [`RepairError::AtWork`] if the repair that left the mark still runs; [`RepairError::InHandler`];
/// errors from stopping the process.
pub(super) fn sweep(target: &Target) -> Result<bool, RepairError> {
    let mut error = None;
    for _ in 0..SWEEP_TRIES {
        let Some(mark) = target.mark() else {
            return Ok(false);
        };
        if let (Some(by), false) = (mark.at_work(), mark.is_own()) {
            return Err(RepairError::AtWork {
                pid: target.pid,
                by,
            });
        }
        let mut stopped = stop_patiently(target)?;
        // Another repair may have swept up, and begun, before the process stood still.
        if target.mark() != Some(mark) {
            continue;
        }
        error = busy(&stopped, mark.scratch);
        if error.is_some() {
            drop(stopped);
            std::thread::sleep(SWEEP_REST);
            continue;
        }
        let mappings = maps::read(target.pid).map_err(RepairError::maps(target.pid))?;
        let is_mapped = Scratch::is_mapped(mark.scratch, &mappings);
        return remove(&mut stopped, is_mapped.then_some(mark.scratch)).map(|()| true);
    }
    Err(error.unwrap_or(RepairError::AtWork {
        pid: target.pid,
        by: None,
    }))
}
