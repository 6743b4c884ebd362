//! Runs calls and the agent in a stopped process.
//!
//! One thread is borrowed for a single call at a time, through the call stub. Its first use maps the
//! scratch area; later it starts the agent. While pages are out, every thread is parked: if this
//! process is killed, the threads wait in their stubs until the agent has finished.
//!
//! # Picture
//! ```text
//! borrowed ─▶ call stub: clone ─▶ own registers      agent (stopped)
//! all threads ─▶ park stubs                          go ─▶ runs ─▶ ends
//! all threads ◀─ own registers
//! ```

use std::time::{Duration, Instant};

use vmarea_linux_sys::agent::{self, CLONE_FLAGS, Restored};
use vmarea_linux_sys::inject::{self, Wait};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::ptrace::{self, Resume, SyscallStop};

use super::program::{self, Program};
use super::scratch::Scratch;
use super::stop::{Stopped, Thread, WORK_TIMEOUT};
use super::target::Target;
use crate::RepairError;

/// Number of looks at a running agent without a rest in between, and the rest after them.
const LOOKS: u32 = 200;
const REST: Duration = Duration::from_micros(50);
/// Time after which a `clone` that has not started a thread may have failed.
const FAILS_AFTER: Duration = Duration::from_millis(20);

/// Results with which the kernel repeats a call.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

/// Called at each system-call stop of a running agent; tests change results there.
pub(super) type AtCall<'a> = &'a mut dyn FnMut(i32);

impl Target {
    /// Runs a thread through the call stub, up to the exit from call `nr`. Returns the result, and the
    /// thread that was started.
    fn result_of(&self, tid: i32, nr: i64) -> Result<(i64, Option<i32>), RepairError> {
        let (mut inside, mut started) = (false, None);
        loop {
            let stop = self.follow(tid, Resume::UntilSyscall, |stop| {
                matches!(stop, Wait::Syscall | Wait::Clone)
            })?;
            if stop == Wait::Clone {
                started = self::started(tid);
                continue;
            }
            let at_stub = inject::registers(tid).is_ok_and(|r| self.is_in_stub(r.pc()));
            let ended = |_| self.gone();
            match ptrace::syscall_stop(tid).map_err(ended)?.1 {
                SyscallStop::Entry { nr: entered, .. } => {
                    inside = at_stub && entered.cast_signed() == nr;
                }
                // The kernel repeats a call that a signal has interrupted.
                SyscallStop::Exit { ret } if inside && !RESTARTS.contains(&ret) => {
                    return Ok((ret, started));
                }
                _ => {}
            }
        }
    }

    /// Runs a thread through the call stub, with a single stop, until it has started another thread.
    /// `None` if the call has failed; the thread then has its own registers again, and has run on.
    fn started_by(&self, tid: i32) -> Result<Option<i32>, RepairError> {
        let ended = |_| self.gone();
        let mut signal = 0;
        loop {
            ptrace::resume(tid, Resume::Continue, signal).map_err(ended)?;
            signal = 0;
            let stop = inject::wait(tid, FAILS_AFTER).map_or_else(
                || {
                    inject::interrupt(tid).map_err(ended)?;
                    let pid = self.pid;
                    inject::wait(tid, WORK_TIMEOUT).ok_or(RepairError::CannotStop { pid, tid })
                },
                Ok,
            );
            match stop? {
                Wait::Clone => return Ok(started(tid)),
                Wait::Ended => return Err(RepairError::Ended(self.pid)),
                Wait::Signal(arrived) => signal = arrived,
                _ => {
                    let registers = inject::registers(tid).map_err(ended)?;
                    if !self.is_in_stub(registers.pc()) {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

impl Stopped<'_> {
    fn ended(&self) -> RepairError {
        RepairError::Ended(self.target.pid)
    }

    /// Returns the thread that makes calls: one that runs 64-bit code, preferably one whose calls are
    /// not dispatched to the program.
    ///
    /// # Errors
    /// [`RepairError::Bits32`] if there is none.
    pub(super) fn borrowed(&self) -> Result<usize, RepairError> {
        let plain = |thread: &Thread| thread.dispatch.mode == 0 && thread.can_run_stub();
        let found = self.threads.iter().position(plain);
        found
            .or_else(|| self.threads.iter().position(Thread::can_run_stub))
            .ok_or(RepairError::Bits32(self.target.pid))
    }

    /// Returns a stopped thread.
    ///
    /// # Errors
    /// [`RepairError::Ended`] if there is none.
    pub(super) fn any_thread(&self) -> Result<i32, RepairError> {
        let first = self.threads.first().ok_or_else(|| self.ended())?;
        Ok(first.tid)
    }

    /// Makes one call in the process, and returns its result.
    ///
    /// # Errors
    /// [`RepairError::Ended`]; [`RepairError::CannotStop`] if the thread does not return from the
    /// call.
    pub(super) fn call(&mut self, nr: i64, args: &[u64]) -> Result<i64, RepairError> {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let stub = |restored: &Restored| agent::call_stub(restored, nr, all, 0, 0);
        Ok(self.borrow(nr, stub)?.0)
    }

    /// Starts the agent, which is traced and stopped.
    fn start_agent(&mut self, scratch: &Scratch) -> Result<i32, RepairError> {
        let nr = libc::SYS_clone;
        let args = [CLONE_FLAGS, 0, 0, 0, 0, 0];
        let (child, table) = (scratch.code.start, scratch.table.start);
        let stub = |restored: &Restored| agent::call_stub(restored, nr, args, child, table);
        let (result, started) = self.borrow(nr, stub)?;
        let Some(tid) = started else {
            return Err(RepairError::NoThread {
                pid: self.target.pid,
                cause: std::io::Error::from_raw_os_error(-result as i32),
            });
        };
        match inject::wait(tid, WORK_TIMEOUT) {
            Some(Wait::Trap | Wait::GroupStop) => Ok(tid),
            Some(Wait::Ended) => Err(self.ended()),
            _ => Err(RepairError::CannotStop {
                pid: self.target.pid,
                tid,
            }),
        }
    }

    /// Sends a thread into a call stub, and brings it back to a trap stop when the call is done.
    /// Returns the result, and the thread that was started.
    fn borrow(
        &mut self,
        nr: i64,
        stub: impl Fn(&Restored) -> Vec<u8>,
    ) -> Result<(i64, Option<i32>), RepairError> {
        let (target, index) = (self.target, self.borrowed()?);
        let ended = |_| target.gone();
        let tid = self.threads[index].tid;
        inject::report_calls(tid, target.seccomp, false).map_err(ended)?;
        let (mut found, mut selector) = (None, None);
        if nr == libc::SYS_clone {
            selector = self.send_to_stub(index, &stub)?;
            found = target.started_by(tid)?;
            if found.is_none() {
                // The stub has let the thread go, which has run on.
                self.threads[index] = Thread::of(tid).ok_or_else(|| self.ended())?;
            }
        }
        let (result, started) = match found {
            Some(started) => (started.into(), Some(started)),
            None => {
                selector = self.send_to_stub(index, &stub)?;
                target.result_of(tid, nr)?
            }
        };
        // At a trap stop, the kernel can still restart the call that the first stop interrupted.
        inject::interrupt(tid).map_err(ended)?;
        ptrace::resume(tid, Resume::Continue, 0).map_err(ended)?;
        if !target.wait_for(tid, WORK_TIMEOUT)? {
            return Err(target.gone());
        }
        if let Some((at, value)) = selector {
            // The stub has not come to its end.
            target.write(&[value], at).map_err(ended)?;
        }
        self.threads[index].bring_back().map_err(ended)?;
        Ok((result, started))
    }

    /// Writes a call stub for a thread, and sends the thread there. Returns the byte that the stub sets
    /// first, and its value.
    fn send_to_stub(
        &mut self,
        index: usize,
        stub: impl Fn(&Restored) -> Vec<u8>,
    ) -> Result<Option<(u64, u8)>, RepairError> {
        let target = self.target;
        let thread = &mut self.threads[index];
        let restored = thread.restored(target);
        let written = target.write_code(thread.tid, &stub(&restored), target.stub());
        written.map_err(|_| {
            crate::proc_status::ended_or(target.pid, RepairError::Forbidden(target.pid))
        })?;
        let sent = thread.send_to(target.stub());
        sent.map_err(|_| target.gone())?;
        // The kernel forgets a restartable sequence when the thread runs elsewhere.
        thread.registers = restored.registers;
        Ok(restored.selector)
    }

    /// Parks all threads.
    fn park(&mut self, scratch: &Scratch) -> Result<(), RepairError> {
        let (target, free) = (self.target, program::free_word(scratch));
        let mut bytes = Vec::new();
        for (index, thread) in self.threads.iter().enumerate() {
            bytes.resize(index * agent::STUB_BYTES as usize, 0);
            bytes.extend(agent::park_stub(&thread.restored(target), free));
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let tid = self.any_thread()?;
        let written = target.write_code(tid, &bytes, scratch.place(0));
        written.map_err(|_| self.ended())?;
        for (index, thread) in self.threads.iter_mut().enumerate() {
            if thread.can_run_stub() {
                let sent = thread.send_to(scratch.place(index));
                sent.map_err(|_| target.gone())?;
            }
        }
        Ok(())
    }

    /// Gives all parked threads their own state again.
    fn unpark(&mut self) -> Result<(), RepairError> {
        let target = self.target;
        let ended = |_| target.gone();
        let mut away = self.threads.iter_mut().filter(|thread| thread.is_away());
        away.try_for_each(|thread| thread.bring_back().map_err(ended))
    }

    /// Runs `program` in a new agent to its end. What it has noted remains in the table, also after the
    /// process has been let go ([`Program::read`]).
    ///
    /// # Errors
    /// [`RepairError::NoThread`], [`RepairError::Ended`], [`RepairError::System`]; nothing has
    /// happened then, or the process has ended. [`RepairError::CannotStop`] if the agent does not
    /// come to its end in time: the threads remain parked until it does.
    pub(super) fn run(
        &mut self,
        scratch: &Scratch,
        program: &mut Program,
        at_call: Option<AtCall<'_>>,
    ) -> Result<(), RepairError> {
        if self.threads.len() > scratch.places() {
            // The program has started many threads since the places were made. The next attempt makes
            // more.
            return Err(RepairError::NoThread {
                pid: self.target.pid,
                cause: std::io::Error::from_raw_os_error(libc::EAGAIN),
            });
        }
        program.write(self.target, scratch)?;
        let tid = self.start_agent(scratch)?;
        let parked = self
            .park(scratch)
            .and_then(|()| program::go(self.target, scratch));
        let done = self.follow_agent(tid, at_call);
        if done.is_err() {
            self.leave_parked();
        }
        done?;
        self.unpark()?;
        parked
    }

    /// Waits until the agent and its reader have done everything. A signal that stops the process does
    /// not stop them. They close their files, which takes the longer the more mappings there are,
    /// while the program runs again.
    fn follow_agent(
        &mut self,
        tid: i32,
        mut at_call: Option<AtCall<'_>>,
    ) -> Result<(), RepairError> {
        let how = match at_call {
            Some(_) => Resume::UntilSyscall,
            None => Resume::Continue,
        };
        let until = Instant::now() + WORK_TIMEOUT;
        let _ = inject::report_calls(tid, self.target.seccomp, true);
        // The whole process waits for this thread.
        own_process::raise_priority(tid);
        // Resuming a thread fails if it has been killed, which the next look shows.
        let _ = ptrace::resume(tid, how, 0);
        let (mut tids, mut looks) = (vec![tid], 0);
        while !tids.is_empty() {
            looks += 1;
            for at in (0..tids.len()).rev() {
                let tid = tids[at];
                let Some(stop) = inject::look(tid) else {
                    continue;
                };
                looks = 0;
                match stop {
                    Wait::Ended => drop(tids.swap_remove(at)),
                    Wait::Ending => {
                        own_process::lower_priority(tid);
                        self.ending.push(tids.swap_remove(at));
                    }
                    Wait::Clone => tids.extend(started(tid)),
                    Wait::Syscall => at_call.iter_mut().for_each(|at_call| at_call(tid)),
                    _ => {}
                }
                let _ = ptrace::resume(tid, how, signal_of(stop));
            }
            match looks {
                ..LOOKS => own_process::breathe(),
                _ if Instant::now() < until => std::thread::sleep(REST),
                _ => {
                    let pid = self.target.pid;
                    return Err(RepairError::CannotStop { pid, tid });
                }
            }
        }
        Ok(())
    }
}

/// Returns the thread that a thread at [`Wait::Clone`] has started.
fn started(tid: i32) -> Option<i32> {
    ptrace::event_message(tid).ok().map(|tid| tid as i32)
}

/// Returns the signal that a stopped thread is about to receive, or 0.
fn signal_of(stop: Wait) -> i32 {
    match stop {
        Wait::Signal(signal) => signal,
        _ => 0,
    }
}
