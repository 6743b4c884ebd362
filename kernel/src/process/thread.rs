//! `Thread`: a thread of a process.

use super::Process;
use super::signal::{SigInfo, ThreadSignals, bit, set_of};
use crate::cpu::Registers;
use crate::scheduler::task::{Runnable, Stack, Task, VectorState};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use spin::Mutex;
use vmarea::types::MmId;

/// A thread of a process.
pub struct Thread {
    /// Thread number.
    pub tid: u32,
    /// The process that the thread belongs to.
    pub process: Arc<Process>,
    /// Address of the word that is cleared when the thread ends; 0 if there is none.
    pub clear_tid: AtomicU64,
    /// Signal state of this thread.
    pub signals: Mutex<ThreadSignals>,
    /// The scheduler's part of the thread.
    pub task: Task,
    /// The thread's exit status, combined with the flag [`ENDING`].
    ending: AtomicU64,
    /// True if the thread may have something to do before it returns to user mode.
    alerted: AtomicBool,
}

/// Flag in `ending`: the thread must end before it returns to user mode.
const ENDING: u64 = 1 << 32;

impl Runnable for Thread {
    fn task(&self) -> &Task {
        &self.task
    }

    fn address_space(&self) -> Option<MmId> {
        self.process.mm_id()
    }

    fn has_signal(&self) -> bool {
        self.is_ending() || self.pending_signals() & !self.signals.lock().mask != 0
    }
}

impl Thread {
    /// Creates a thread that starts with `registers`. The caller passes it to the scheduler.
    pub fn new(
        stack: Stack,
        tid: u32,
        process: Arc<Process>,
        registers: Registers,
        vector: VectorState,
        fs_base: u64,
        signals: ThreadSignals,
    ) -> Arc<Thread> {
        Arc::new(Thread {
            tid,
            process,
            clear_tid: AtomicU64::new(0),
            signals: Mutex::new(signals),
            task: Task::new(stack, registers, vector, fs_base),
            ending: AtomicU64::new(0),
            // The process may have begun to end before it knew this thread.
            alerted: AtomicBool::new(true),
        })
    }

    /// Returns the set of signals that are pending for the thread or its process.
    pub fn pending_signals(&self) -> u64 {
        set_of(&self.signals.lock().pending) | set_of(&self.process.pending.lock())
    }

    /// Makes the thread look for work before it returns to user mode; called after the work is there.
    #[doc(alias = "set_tsk_thread_flag")]
    pub fn alert(&self) {
        // ORDERING: Release, pairs with the Acquire in `is_alerted`.
        self.alerted.store(true, Ordering::Release);
    }

    /// True if the thread has to call [`has_work`](Self::has_work) before it returns to user mode.
    pub fn is_alerted(&self) -> bool {
        // ORDERING: Acquire, pairs with the Release in `alert`.
        self.alerted.load(Ordering::Acquire)
    }

    /// Returns [`has_work`](Self::has_work). If there is none, the thread does not look again until
    /// it is alerted.
    pub fn look_for_work(&self) -> bool {
        // ORDERING: Acquire, pairs with the Release in `alert`: if this overwrites an alert, the
        // work is visible below. An alert that comes later stays.
        self.alerted.swap(false, Ordering::Acquire);
        let has_work = self.has_work();
        if has_work {
            self.alert();
        }
        has_work
    }

    /// True if the thread has anything to do before it returns to user mode: to end, to look at a
    /// pending signal, or to restore its signal mask.
    #[doc(alias = "TIF_SIGPENDING")]
    pub fn has_work(&self) -> bool {
        let signals = self.signals.lock();
        !signals.pending.is_empty()
            || signals.mask_after.is_some()
            || !self.process.pending.lock().is_empty()
            || self.is_ending()
    }

    /// Removes and returns a pending signal in `wanted`; those sent to the thread itself come first.
    pub fn take_signal(&self, wanted: u64) -> Option<SigInfo> {
        let take_from = |pending: &mut Vec<SigInfo>| {
            let at = pending
                .iter()
                .position(|info| wanted & bit(info.number) != 0)?;
            Some(pending.remove(at))
        };
        let own = take_from(&mut self.signals.lock().pending);
        own.or_else(|| take_from(&mut self.process.pending.lock()))
    }

    /// Makes the thread end before it returns to user mode.
    pub fn begin_end(&self, status: u32) {
        // ORDERING: Relaxed; read by the thread itself.
        self.ending
            .store(ENDING | u64::from(status), Ordering::Relaxed);
        self.alert();
    }

    /// Returns the status that `begin_end` set, or 0 if `begin_end` was not called.
    pub fn end_status(&self) -> u32 {
        // ORDERING: Relaxed, as above.
        self.ending.load(Ordering::Relaxed) as u32
    }

    /// True if the thread must end before it returns to user mode.
    ///
    /// This is the case if the thread or its process is ending, or if another thread of the process
    /// is executing a new program.
    pub fn is_ending(&self) -> bool {
        // ORDERING: Relaxed, as above.
        self.ending.load(Ordering::Relaxed) != 0
            || self.process.is_dying()
            || self.process.keeps_other_than(self.tid)
    }
}
