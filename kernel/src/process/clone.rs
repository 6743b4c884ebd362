//! `fork`, `vfork`, `clone` and `clone3`: new threads and processes.

use super::{Process, Thread, current_thread, is_full, new_number, oom};
use crate::cpu::Registers;
use crate::failure::{Failure, Value};
use crate::scheduler::task::new_stack;
use crate::scheduler::{self, Event};
use crate::space::mm::check_memory;
use crate::space::shrinker;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::errno::{EAGAIN, EINVAL, ENOMEM};
use linux_raw_sys::general::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_FILES, CLONE_PARENT,
    CLONE_PARENT_SETTID, CLONE_SETTLS, CLONE_SIGHAND, CLONE_THREAD, CLONE_VFORK, CLONE_VM, SIGKILL,
};

/// Parameters of any of these calls, in a common form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Flags (`CLONE_`), excluding the exit signal.
    pub flags: u64,
    /// Signal that the parent receives when the child ends.
    pub exit_signal: u32,
    /// Stack pointer of the child; 0 if the child uses the parent's.
    pub stack: u64,
    /// Address in the parent's memory at which the child's thread number is stored.
    pub parent_tid: u64,
    /// Address in the child's memory for the child's thread number.
    ///
    /// Depending on the flags, the number is stored there when the child starts
    /// (`CLONE_CHILD_SETTID`), cleared when the child ends (`CLONE_CHILD_CLEARTID`), or both.
    pub child_tid: u64,
    /// Base of the child's `fs` segment.
    pub tls: u64,
}

impl Request {
    fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }

    /// Checks that the flags can be combined, as in Linux, and that resources are available.
    fn check(&self) -> Result<(), Failure> {
        let without = |flag, needed| self.has(flag) && !self.has(needed);
        let clears = self.flags & CLONE_CLEAR_SIGHAND != 0;
        if without(CLONE_THREAD, CLONE_SIGHAND)
            || without(CLONE_SIGHAND, CLONE_VM)
            || clears && self.has(CLONE_SIGHAND)
        {
            return Err(EINVAL.into());
        }
        if check_memory().is_err() {
            oom::wait_for_killed();
        }
        if !shrinker::has_heap() {
            return Err(ENOMEM.into());
        }
        match is_full() {
            true => Err(EAGAIN.into()),
            false => Ok(()),
        }
    }
}

/// Creates a thread or a process; returns its number to the parent.
///
/// # Errors
/// EINVAL for an invalid combination of flags; EAGAIN if there are too many threads; ENOMEM;
/// EFAULT.
pub fn clone(registers: &Registers, request: &Request) -> Result<Value, Failure> {
    request.check()?;
    let stack = new_stack().ok_or(ENOMEM)?;
    let parent = current_thread();
    let tid = new_number();
    let process = match request.has(CLONE_THREAD) {
        true => Arc::clone(&parent.process),
        false => new_process(&parent.process, tid, request)?,
    };
    let mut start = *registers;
    start.rax = 0;
    if request.stack != 0 {
        start.rsp = request.stack;
    }
    let base = match request.has(CLONE_SETTLS) {
        true => request.tls & ((1 << 47) - 1),
        false => parent.task.fs_base(),
    };
    let signals = {
        let mut signals = parent.signals.lock().for_child();
        if !request.has(CLONE_VM) || request.has(CLONE_VFORK) {
            signals.stack = parent.signals.lock().stack;
        }
        signals
    };
    let thread = Thread::new(
        stack,
        tid,
        Arc::clone(&process),
        start,
        parent.task.vector_state(),
        base,
        signals,
    );
    if request.has(CLONE_CHILD_CLEARTID) {
        // ORDERING: Relaxed; the thread does not run yet.
        thread.clear_tid.store(request.child_tid, Ordering::Relaxed);
    }
    if let (true, Some(mm)) = (request.has(CLONE_PARENT_SETTID), parent.process.mm()) {
        let _ = mm.write_values(request.parent_tid, &[tid]);
    }
    if let (true, Some(mm)) = (request.has(CLONE_CHILD_SETTID), process.mm()) {
        let _ = mm.write_values(request.child_tid, &[tid]);
    }
    process.start_thread(thread);
    if request.has(CLONE_VFORK) {
        wait_for_program(&process);
    }
    Ok(u64::from(tid))
}

fn new_process(parent: &Process, pid: u32, request: &Request) -> Result<Arc<Process>, Failure> {
    let mm = parent.mm().ok_or(ENOMEM)?;
    let mm = match request.has(CLONE_VM) {
        true => mm,
        false => mm.fork()?,
    };
    let files = match request.has(CLONE_FILES) {
        true => {
            parent.files.share();
            Arc::clone(&parent.files)
        }
        false => Arc::new(parent.files.copy()?),
    };
    let actions = {
        let actions = parent.actions.lock();
        if request.has(CLONE_SIGHAND) {
            Arc::clone(&actions)
        } else if request.flags & CLONE_CLEAR_SIGHAND != 0 {
            Arc::new(actions.without_handlers())
        } else {
            Arc::new(actions.copy())
        }
    };
    let creator = match request.has(CLONE_PARENT) {
        true => parent.parent_number(),
        false => parent.pid,
    };
    let inherited = parent.inherited.lock().clone();
    let child = Process::new(
        pid,
        creator,
        request.exit_signal,
        mm,
        files,
        actions,
        inherited,
    );
    if request.has(CLONE_VFORK) {
        child.borrow_memory();
    }
    // A signal to all processes has reached the parent, and came too early for the child.
    if parent.is_dying() {
        child.begin_exit(SIGKILL);
    }
    Ok(child)
}

/// Waits until the child created by `vfork` has executed a program or has ended.
fn wait_for_program(child: &Process) {
    let returned = || (!child.borrows_memory()).then_some(());
    // A signal interrupts the wait only if it ends this thread.
    while scheduler::wait(Event::OwnProgram(child.pid), None, returned).is_err() {
        if current_thread().is_ending() {
            return;
        }
        scheduler::pause();
    }
}
