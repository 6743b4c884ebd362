//! Termination of threads and processes.

use super::signal::{Action, SigInfo};
use super::{Process, Thread, all, current_thread, find, forget, futex, send};
use crate::console;
use crate::memory::mmu;
use crate::say;
use crate::scheduler::{self, Event};
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{CLD_EXITED, CLD_KILLED, SA_NOCLDWAIT, SIGCHLD};

/// Ends the current thread and never returns, so the callers' stack frames must not own anything.
pub fn end_current() -> ! {
    let thread = current_thread();
    end(&thread);
    scheduler::end_thread(thread)
}

fn end(thread: &Thread) {
    // ORDERING: Relaxed; only this thread uses the value.
    let clear = thread.clear_tid.load(Ordering::Relaxed);
    if let Some(mm) = thread.process.mm().filter(|_| clear != 0) {
        let _ = mm.write_values(clear, &[0u32]);
        futex::wake_at(&mm, clear, 1);
    }
    let process = &thread.process;
    if process.remove_thread(thread.tid) {
        process.begin_exit(thread.end_status());
        end_process(process);
    }
}

fn end_process(process: &Process) {
    super::alarm::set(process.pid, 0, 0);
    process.files.release();
    leave_memory();
    drop(process.replace_mm(None));
    process.return_memory();
    process.become_zombie();
    if process.pid == super::INIT {
        end_machine(process);
    }
    for child in all().filter(|p| p.parent_number() == process.pid) {
        // ORDERING: Relaxed; see `parent_number`.
        child.parent.store(super::INIT, Ordering::Relaxed);
        if child.zombie_status().is_some() {
            scheduler::wake(Event::Child(super::INIT), usize::MAX);
        }
    }
    tell_parent(process);
}

/// Makes this CPU stop using the current process's address space.
fn leave_memory() {
    mmu::switch(None);
}

fn tell_parent(process: &Process) {
    let Some(parent) = find(process.parent_number()) else {
        return forget(process.pid);
    };
    let action = parent.actions.lock().get(SIGCHLD);
    let unwanted = action.handler == Action::IGNORE || action.flags & u64::from(SA_NOCLDWAIT) != 0;
    if process.exit_signal == SIGCHLD && unwanted {
        forget(process.pid);
    } else if process.exit_signal != 0 {
        let status = process.zombie_status().unwrap_or(0);
        send::to_process(&parent, child_info(process, process.exit_signal, status));
    }
    scheduler::wake(Event::Child(parent.pid), usize::MAX);
}

/// Returns the signal information that a parent receives when a child ends.
pub fn child_info(process: &Process, number: u32, status: u32) -> SigInfo {
    let (code, value) = match status & 0x7f {
        0 => (CLD_EXITED, status >> 8 & 0xff),
        killed => (CLD_KILLED, killed),
    };
    let mut info = SigInfo::of_process(number, code as i32, process);
    info.words[1] = u64::from(value);
    info
}

/// Stops the machine; reports success if the first process ended with status 0.
fn end_machine(process: &Process) -> ! {
    let status = process.zombie_status().unwrap_or(0);
    say!("the first process ended with status {status:#x}");
    console::exit(if status == 0 { 0 } else { 1 })
}
