//! Stops all threads of another process, and borrows one of them to make calls.
//!
//! The process is brought into group-stop before the first injected call. One thread, the borrowed
//! thread, may then run, but makes only the injected calls. If the repairing process ends early,
//! the kernel returns all threads to group-stop before the program executes another instruction.
//! The borrowed thread's original state is written to the [`Journal`] before the first call, so
//! that it can be restored.
//!
//! # Picture
//! ```text
//! seize, interrupt all ─▶ SIGSTOP to one: group-stop ─▶ registers into the journal ─▶ calls …
//!   … restore registers ─▶ SIGCONT, suppressed ─▶ detach all
//! ```
//! A process that was already stopped remains stopped at the end.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::injector::{SIGCONT_BIT, StoppedProcess};
use super::target::{STOP_TIMEOUT, Target};
use crate::RepairError;
use crate::journal::{self, Journal, Saved, State};
use crate::proc_status::{self, has_ended, tasks};
use vmarea_linux_sys::inject::{self, Seccomp, Wait};
use vmarea_linux_sys::own_process::Prompt;
use vmarea_linux_sys::ptrace::{self, Resume};

/// Maximum time for which the process runs between two pieces. Below this limit, the process runs
/// for as long as it was stopped.
pub(super) const LONGEST_REST: Duration = Duration::from_millis(500);

/// Maximum number of attempts to seize a thread.
const SEIZE_TRIES: u32 = 10;
const ALL_SIGNALS: u64 = u64::MAX;
/// Maximum number of attempts to stop a process, with a pause after each.
const TRIES: u32 = 60;
const REST: Duration = Duration::from_millis(25);

/// Stops a process, and retries if a thread does not stop. Such a thread most likely waits in
/// `vfork` for its child, which will soon execute a program.
///
/// # Errors
/// The errors of [`Target::stop`].
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

impl Target {
    /// Stops every thread, brings the process into group-stop, and borrows a thread.
    ///
    /// # Errors
    /// [`RepairError::Forbidden`], [`RepairError::Ended`], [`RepairError::Replaced`],
    /// [`RepairError::CannotStop`], [`RepairError::SharedMemory`]; nothing is stopped then.
    pub(super) fn stop(&self, journal: &mut Journal) -> Result<StoppedProcess<'_>, RepairError> {
        let prompt = Prompt::begin();
        let (threads, was_stopped) = self.stop_all()?;
        let tid = self.borrow_thread(&threads);
        let begun = self
            .is_same()
            .and_then(|()| {
                let begun = journal.stopping(was_stopped, self.syscall);
                begun.map_err(journal::failed)
            })
            .and_then(|()| match was_stopped {
                true => Ok(()),
                false => self.group_stop(tid),
            });
        if let Err(error) = begun {
            self.let_go(&threads);
            return Err(error);
        }
        let failed = |_| RepairError::Ended(self.pid);
        let saved = Saved {
            tid,
            mask: inject::mask(tid).map_err(failed)?,
            registers: inject::registers(tid).map_err(failed)?,
        };
        let held = StoppedProcess {
            target: self,
            threads,
            inner: proc_status::inner_ids(self.pid, tid),
            saved,
            was_stopped,
            _prompt: prompt,
        };
        if !saved.registers.is_64_bit() {
            held.release(journal)?;
            return Err(RepairError::Bits32(self.pid));
        }
        if let Err(cause) = journal.stopped(&saved) {
            held.release(journal)?;
            return Err(journal::failed(cause));
        }
        inject::set_mask(tid, ALL_SIGNALS).map_err(failed)?;
        Ok(held)
    }

    /// Selects the thread to borrow.
    ///
    /// The thread must not block the signal that ends the stop; otherwise, another thread would
    /// receive the signal.
    fn borrow_thread(&self, threads: &[i32]) -> i32 {
        let takes_it = |tid: &&i32| inject::mask(**tid).is_ok_and(|mask| mask & SIGCONT_BIT == 0);
        *threads.iter().find(takes_it).unwrap_or(&threads[0])
    }

    /// Checks that the process still has the address space that was opened. Also checks that no
    /// other process shares the address space. All threads must be stopped.
    fn is_same(&self) -> Result<(), RepairError> {
        // The descriptor refers to the address space, and remains open after the process has
        // replaced it.
        if self.memory.read_at(&mut [0], self.syscall).unwrap_or(0) == 0 {
            return Err(RepairError::Replaced(self.pid));
        }
        let last = proc_status::last_process();
        if let Some(other) = proc_status::shares_memory_since(self.pid, self.looked_at.get(), last)
        {
            return Err(RepairError::SharedMemory {
                pid: self.pid,
                other,
            });
        }
        self.looked_at.set(last);
        Ok(())
    }

    /// Takes over a process that an earlier run left stopped. While all threads are stopped,
    /// `check` verifies that this is still the process that the journal describes.
    ///
    /// # Errors
    /// The errors of [`Target::stop`] and of `check`; nothing is stopped then.
    pub(super) fn stop_again(
        &self,
        state: &State,
        journal: &mut Journal,
        check: impl FnOnce() -> Result<(), RepairError>,
    ) -> Result<StoppedProcess<'_>, RepairError> {
        let prompt = Prompt::begin();
        let (threads, stands) = self.stop_all()?;
        if let Err(error) = check() {
            self.let_go(&threads);
            return Err(error);
        }
        let ended = |_| RepairError::Ended(self.pid);
        let left = state.saved.filter(|saved| threads.contains(&saved.tid));
        let tid = left.map_or(threads[0], |saved| saved.tid);
        if !stands && let Err(error) = self.group_stop(tid) {
            self.let_go(&threads);
            return Err(error);
        }
        let now = Saved {
            tid,
            mask: inject::mask(tid).map_err(ended)?,
            registers: inject::registers(tid).map_err(ended)?,
        };
        // The process may have been resumed in between, in which case its current registers are its
        // own.
        let saved = left
            .filter(|left| left.registers.count == now.registers.count)
            .filter(|left| left.registers == now.registers || state.is_ours(now.registers.pc()))
            .unwrap_or(now);
        journal.stopped(&saved).map_err(journal::failed)?;
        inject::set_mask(tid, ALL_SIGNALS).map_err(ended)?;
        Ok(StoppedProcess {
            target: self,
            threads,
            saved,
            inner: proc_status::inner_ids(self.pid, tid),
            was_stopped: state.stopping == Some(true),
            _prompt: prompt,
        })
    }

    /// Seizes and stops threads until the list of threads contains no new thread. Also returns
    /// whether the process had been stopped before.
    fn stop_all(&self) -> Result<(Vec<i32>, bool), RepairError> {
        let mut threads: Vec<i32> = Vec::new();
        let mut was_stopped = false;
        loop {
            let mut asked = Vec::new();
            let stopped = self.stop_others(&mut threads, &mut asked);
            match stopped {
                Ok(stopped) => was_stopped |= stopped,
                Err(error) => {
                    let others = asked.iter().filter(|tid| !threads.contains(tid));
                    let all: Vec<i32> = threads.iter().chain(others).copied().collect();
                    self.let_go(&all);
                    return Err(error);
                }
            }
            if threads.is_empty() {
                return Err(RepairError::Ended(self.pid));
            }
            if asked.is_empty() {
                return Ok((threads, was_stopped));
            }
        }
    }

    /// Stops the threads that are not in `threads`, and adds them to `threads`. Every thread that
    /// was seized is also added to `asked`.
    ///
    /// All threads are asked to stop before this function waits for any of them, so they stop in
    /// parallel. Returns true if one of the threads was in a group-stop.
    fn stop_others(
        &self,
        threads: &mut Vec<i32>,
        asked: &mut Vec<i32>,
    ) -> Result<bool, RepairError> {
        for tid in tasks(self.pid)? {
            if !threads.contains(&tid) && self.ask(tid)? {
                asked.push(tid);
            }
        }
        let mut was_stopped = false;
        for &tid in asked.iter() {
            if let Some(stop) = self.wait_for(tid, self.stop_timeout.get())? {
                threads.push(tid);
                was_stopped |= stop == Wait::GroupStop;
            }
        }
        Ok(was_stopped)
    }

    /// Detaches threads that were asked to stop. Threads that have not stopped yet, or are running
    /// again, are recorded as late and detached later.
    fn let_go(&self, threads: &[i32]) {
        for &tid in threads {
            if inject::detach(tid).is_err() && !has_ended(self.pid, tid) {
                let _ = inject::interrupt(tid);
                self.late.borrow_mut().push(tid);
            }
        }
    }

    /// Sleeps for `time`, and detaches late threads as soon as they stop.
    pub(super) fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let late = self.late.take();
        for &tid in &late {
            let left = until.saturating_duration_since(Instant::now());
            // `let_go` below finds out whether the thread has stopped.
            let _ = self.wait_for(tid, left);
        }
        self.let_go(&late);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    /// Seizes one thread and asks it to stop; false if the thread has ended.
    fn ask(&self, tid: i32) -> Result<bool, RepairError> {
        let is_late = self.late.borrow().contains(&tid);
        if is_late {
            self.late.borrow_mut().retain(|&late| late != tid);
            return Ok(true);
        }
        for _ in 0..SEIZE_TRIES {
            let Err(error) = inject::seize(tid, self.seccomp) else {
                return Ok(inject::interrupt(tid).is_ok());
            };
            if error.raw_os_error() == Some(libc::ESRCH) || has_ended(self.pid, tid) {
                return Ok(false);
            }
            // The thread or its tracer is about to exit.
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.seccomp == Seccomp::Suspend && inject::seize(tid, Seccomp::None).is_ok() {
            // The thread is seized now, but continues when this process ends, which is soon.
            return Err(RepairError::Seccomp(self.pid));
        }
        Err(proc_status::ended_or(
            self.pid,
            RepairError::Forbidden(self.pid),
        ))
    }

    /// Waits until a thread has stopped; `None` if it has ended.
    fn wait_for(&self, tid: i32, stop_timeout: Duration) -> Result<Option<Wait>, RepairError> {
        loop {
            match inject::wait(tid, stop_timeout) {
                Some(stop @ (Wait::Trap | Wait::GroupStop)) => return Ok(Some(stop)),
                Some(Wait::Ended) => return Ok(None),
                // A signal arrived first. It is delivered, and the stop follows.
                Some(Wait::Signal(signal)) => {
                    let _ = ptrace::resume(tid, Resume::Continue, signal);
                }
                Some(Wait::Syscall) => {
                    let _ = ptrace::resume(tid, Resume::Continue, 0);
                }
                None => return Err(RepairError::CannotStop { pid: self.pid, tid }),
            }
        }
    }

    /// Brings the process into group-stop after all its threads have stopped.
    ///
    /// If the group-stop fails, it is undone. A stop that is not undone would take effect after
    /// this process has detached, and would never end.
    fn group_stop(&self, tid: i32) -> Result<(), RepairError> {
        self.try_group_stop(tid).or_else(|error| {
            let mask = inject::mask(tid).unwrap_or(ALL_SIGNALS);
            self.end_group_stop(tid, mask).and(Err(error))
        })
    }

    fn try_group_stop(&self, tid: i32) -> Result<(), RepairError> {
        let ended = |_| RepairError::Ended(self.pid);
        inject::signal_thread(self.pid, tid, libc::SIGSTOP).map_err(ended)?;
        ptrace::resume(tid, Resume::Continue, 0).map_err(ended)?;
        loop {
            match inject::wait(tid, self.stop_timeout.get()) {
                Some(Wait::GroupStop) => return Ok(()),
                Some(Wait::Signal(signal)) => {
                    ptrace::resume(tid, Resume::Continue, signal).map_err(ended)?;
                }
                Some(Wait::Trap | Wait::Syscall) => {
                    ptrace::resume(tid, Resume::Continue, 0).map_err(ended)?;
                }
                Some(Wait::Ended) => return Err(RepairError::Ended(self.pid)),
                None => return Err(RepairError::CannotStop { pid: self.pid, tid }),
            }
        }
    }

    /// Ends the group-stop, or discards a `SIGSTOP` that has not taken effect.
    ///
    /// Stop signals that other processes sent before or during the repair take effect at this
    /// point. `mask` is the signal mask of thread `tid`.
    ///
    /// # Errors
    /// [`RepairError::Ended`].
    pub(super) fn end_group_stop(&self, tid: i32, mask: u64) -> Result<(), RepairError> {
        let ended = |_| RepairError::Ended(self.pid);
        let pid = Pid::from_raw(self.pid).ok_or(RepairError::Ended(self.pid))?;
        let stops = proc_status::pending_stops(self.pid);
        kill_process(pid, Signal::CONT).map_err(ended)?;
        if mask & SIGCONT_BIT == 0 {
            self.swallow_sigcont(tid);
        }
        for signal in stops {
            kill_process(pid, signal).map_err(ended)?;
        }
        Ok(())
    }

    /// Suppresses the `SIGCONT` that ended the group-stop. The program sees the signal only if
    /// thread `tid` blocks it.
    fn swallow_sigcont(&self, tid: i32) {
        let mut signal = 0;
        for _ in 0..100 {
            // This fails if the thread runs, which is possible after an undone stop.
            let _ = ptrace::resume(tid, Resume::Continue, signal);
            signal = match inject::wait(tid, Duration::from_millis(20)) {
                Some(Wait::Signal(libc::SIGCONT)) | Some(Wait::Ended) => return,
                Some(Wait::Signal(signal)) => signal,
                Some(_) => 0,
                None => {
                    // Another thread received the signal. Thread `tid` runs, and must stop to be
                    // detached.
                    let _ = inject::interrupt(tid);
                    let _ = inject::wait(tid, STOP_TIMEOUT);
                    return;
                }
            };
        }
    }
}

#[cfg(test)]
mod tests;
