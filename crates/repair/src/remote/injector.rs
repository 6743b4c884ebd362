//! Makes system calls in a thread of a stopped process, and restores the thread's state.
//!
//! A single call is made with a system-call instruction of the process; a table of calls is
//! executed by the agent. [`stop`](super::stop) describes how the process is stopped.
//!
//! # Picture
//! ```text
//! borrowed ─▶ call … ─▶ settle ─▶ run the agent … ─▶ restore registers ─▶ SIGCONT ─▶ detach
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::target::Target;
use crate::RepairError;
use crate::journal::{self, Agent, Journal, Saved};
use crate::proc_status;
use vmarea_linux_sys::calls::{Call, ENTRY_BYTES};
use vmarea_linux_sys::inject::{self, Wait};
use vmarea_linux_sys::own_process::Prompt;
use vmarea_linux_sys::ptrace::{self, Resume};
use vmarea_linux_sys::syscall_restart::Waited;

/// Maximum time that the calls of a piece spend in the kernel.
const WORK_TIMEOUT: Duration = Duration::from_secs(120);
pub(super) const SIGCONT_BIT: u64 = 1 << (libc::SIGCONT - 1);

/// Interface for calls in a stopped process.
///
/// The interface is implemented by a borrowed thread, and by a test injector that makes some of the
/// calls fail.
pub(super) trait Injector {
    /// Returns the id of the process.
    fn pid(&self) -> i32;

    /// Returns the id of the thread that makes the calls. Descriptors refer to this thread's
    /// descriptor table.
    fn tid(&self) -> i32;

    /// Returns the memory of the process (`/proc/PID/mem`).
    fn memory(&self) -> &File;

    /// Makes one call with a system-call instruction of the process. Afterwards,
    /// [`Injector::settle`] or [`Injector::run`] must be called.
    ///
    /// # Errors
    /// [`RepairError::Ended`]; [`RepairError::CannotStop`] if the thread does not return from the
    /// call. An error of the call itself is in the result.
    fn call(&self, call: &Call) -> Result<i64, RepairError>;

    /// Runs the thread from the end of a call to its next signal-delivery stop, at which the
    /// thread's registers can be restored.
    ///
    /// # Errors
    /// As for [`Injector::call`].
    fn settle(&self) -> Result<(), RepairError>;

    /// Lets the agent execute `calls` from index `first` on; they must fit into the agent's table.
    ///
    /// Returns the index of the call that failed, or the number of calls if none failed.
    ///
    /// # Errors
    /// As for [`Injector::call`]; [`RepairError::System`] if the table cannot be accessed.
    fn run(&self, agent: &Agent, calls: &mut [Call], first: usize) -> Result<usize, RepairError>;
}

/// A stopped process with a borrowed thread.
///
/// Dropping the value without [`StoppedProcess::release`] leaves the process stopped.
#[derive(Debug)]
pub(super) struct StoppedProcess<'a> {
    pub(super) target: &'a Target,
    pub(super) threads: Vec<i32>,
    pub(super) saved: Saved,
    /// The ids of the stopped process and of the borrowed thread, in their own pid namespace.
    pub(super) inner: (i32, i32),
    pub(super) was_stopped: bool,
    /// Keeps the priority of the repairing thread raised, because the whole stopped process waits
    /// for that thread.
    pub(super) _prompt: Prompt,
}

impl StoppedProcess<'_> {
    fn ended(&self) -> RepairError {
        RepairError::Ended(self.target.pid)
    }

    fn run_until(&self, how: Resume, wanted: fn(Wait) -> bool) -> Result<(), RepairError> {
        let tid = self.saved.tid;
        ptrace::resume(tid, how, 0).map_err(|_| self.ended())?;
        loop {
            match inject::wait(tid, WORK_TIMEOUT) {
                Some(stop) if wanted(stop) => return Ok(()),
                Some(Wait::Ended) => return Err(self.ended()),
                Some(_) => ptrace::resume(tid, how, 0).map_err(|_| self.ended())?,
                None => {
                    return Err(RepairError::CannotStop {
                        pid: self.target.pid,
                        tid,
                    });
                }
            }
        }
    }

    /// Restores the borrowed thread and resumes the process. A process that was stopped before the
    /// repair remains stopped. The process is released even if the journal cannot be written.
    ///
    /// # Errors
    /// [`RepairError::Ended`], and errors from writing the journal.
    pub(super) fn release(self, journal: &mut Journal) -> Result<(), RepairError> {
        let ended = |_| self.ended();
        let tid = self.saved.tid;
        let mut registers = self.saved.registers;
        registers.make_again(Waited::Perhaps);
        inject::set_registers(tid, &registers).map_err(ended)?;
        inject::set_mask(tid, self.saved.mask).map_err(ended)?;
        let restored = journal.restored();
        if !self.was_stopped {
            self.target.end_group_stop(tid, self.saved.mask)?;
        }
        let released = journal.released();
        for &tid in &self.threads {
            let _ = inject::detach(tid);
        }
        restored.and(released).map_err(journal::failed)
    }
}

impl Injector for StoppedProcess<'_> {
    fn pid(&self) -> i32 {
        self.target.pid
    }

    fn tid(&self) -> i32 {
        self.saved.tid
    }

    fn memory(&self) -> &File {
        &self.target.memory
    }

    fn call(&self, call: &Call) -> Result<i64, RepairError> {
        let tid = self.saved.tid;
        let ended = |_| self.ended();
        let registers = self.saved.registers.calling(self.target.syscall, call);
        inject::set_registers(tid, &registers).map_err(ended)?;
        let at_call: fn(Wait) -> bool =
            |stop| matches!(stop, Wait::Syscall | Wait::Signal(libc::SIGTRAP));
        self.run_until(Resume::UntilSyscall, at_call)?;
        self.run_until(Resume::UntilSyscall, at_call)?;
        Ok(inject::registers(tid).map_err(ended)?.result())
    }

    fn settle(&self) -> Result<(), RepairError> {
        let tid = self.saved.tid;
        inject::signal_thread(self.target.pid, tid, libc::SIGSTOP).map_err(|_| self.ended())?;
        self.run_until(Resume::Continue, |stop| stop == Wait::Signal(libc::SIGSTOP))
    }

    fn run(&self, agent: &Agent, calls: &mut [Call], first: usize) -> Result<usize, RepairError> {
        let ended = |_| self.ended();
        let address = |n: usize| agent.table + n as u64 * ENTRY_BYTES;
        for (n, call) in calls.iter_mut().enumerate() {
            *call = call.at(address(n));
        }
        let failed = |cause| {
            let what = "the table of calls";
            proc_status::ended_or(self.target.pid, RepairError::System { what, cause })
        };
        self.target
            .write(inject::bytes_of(calls), agent.table)
            .map_err(failed)?;
        let registers = self.saved.registers.agent(
            agent.code,
            (address(first), address(calls.len())),
            self.inner,
        );
        inject::set_registers(self.saved.tid, &registers).map_err(ended)?;
        self.run_until(Resume::Continue, |stop| stop == Wait::Signal(libc::SIGSTOP))?;
        self.target
            .memory
            .read_exact_at(inject::bytes_of_mut(calls), agent.table)
            .map_err(failed)?;
        let failed = calls[first..].iter().position(|call| call.errno() != 0);
        Ok(failed.map_or(calls.len(), |n| first + n))
    }
}
