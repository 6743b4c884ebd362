//! The sending of signals. A signal that the process ignores is discarded when it is sent.

use super::signal::{Action, SigInfo, add, bit};
use super::{INIT, Process, Thread, all, current_thread};
use crate::scheduler;
use alloc::sync::Arc;
use linux_raw_sys::general::SIGKILL;

/// True if a signal to a process has no effect.
///
/// The process ignores the signal, or it is the first process and does not catch the signal.
pub fn is_dropped(process: &Process, number: u32) -> bool {
    let actions = process.actions.lock();
    let default_of_init = process.pid == INIT && actions.get(number).handler == Action::DEFAULT;
    actions.ignores(number) || default_of_init
}

/// Sends a signal to a process.
pub fn to_process(process: &Process, info: SigInfo) {
    if is_dropped(process, info.number) {
        return;
    }
    if info.number == SIGKILL {
        process.begin_exit(SIGKILL);
        return;
    }
    add(&mut process.pending.lock(), info);
    let threads = process.threads();
    threads.iter().for_each(|thread| thread.alert());
    let takes = |t: &&Arc<Thread>| t.signals.lock().mask & bit(info.number) == 0;
    if let Some(thread) = threads.iter().find(takes) {
        scheduler::interrupt(&thread.task);
    }
}

/// Sends a signal to every process except the first one.
pub fn to_all(info: SigInfo) {
    for process in all().filter(|p| p.pid != INIT) {
        to_process(&process, info);
    }
}

/// Sends a signal to a thread.
pub fn to_thread(thread: &Thread, info: SigInfo) {
    if is_dropped(&thread.process, info.number) {
        return;
    }
    if info.number == SIGKILL {
        thread.process.begin_exit(SIGKILL);
        return;
    }
    add(&mut thread.signals.lock().pending, info);
    thread.alert();
    scheduler::interrupt(&thread.task);
}

/// Sends a signal that the current thread has caused.
///
/// If the thread blocks or ignores the signal, the process ends.
pub fn force(info: SigInfo) {
    let thread = current_thread();
    let blocked = thread.signals.lock().mask & bit(info.number) != 0;
    let ignored = thread.process.actions.lock().get(info.number).handler == Action::IGNORE;
    if blocked || ignored {
        thread.process.begin_exit(info.number);
        return;
    }
    add(&mut thread.signals.lock().pending, info);
    thread.alert();
}
