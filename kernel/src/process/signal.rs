//! Signals: their actions, pending signals, and calls to handlers.
//!
//! A signal that the process ignores is discarded when it is sent. Stopping and continuing a
//! process is not implemented; the signals for this do nothing. [`frame`] builds the stack frame
//! for a handler.

mod frame;

pub use frame::give_back;

use super::{Process, Thread, current_thread, exit};
use crate::cpu::Registers;
use crate::failure::RESTART;
use crate::scheduler;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general::{
    SA_NODEFER, SA_RESETHAND, SA_RESTART, SI_USER, SIGCHLD, SIGCONT, SIGKILL, SIGSEGV, SIGSTOP,
    SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH,
};
use spin::Mutex;

/// Number of signals.
pub const SIGNALS: u32 = 64;
const SI_KERNEL: i32 = 128;
/// Length of the `syscall` instruction in bytes.
const CALL_LEN: u64 = 2;

/// Returns the bit that represents a signal in a signal set.
pub fn bit(number: u32) -> u64 {
    1 << (number - 1)
}

/// Set of the signals that cannot be blocked or caught.
pub const UNSTOPPABLE: u64 = 1 << (SIGKILL - 1) | 1 << (SIGSTOP - 1);

/// A signal, with the information that its handler receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SigInfo {
    /// Number of the signal.
    pub number: u32,
    /// Reason for sending the signal (`si_code`).
    pub code: i32,
    /// The words of `siginfo_t` from `si_addr` on: a fault address, or a sender and a value.
    pub words: [u64; 2],
}

impl SigInfo {
    /// Creates a signal for a failed memory access or instruction.
    pub fn fault(number: u32, code: i32, addr: u64) -> Self {
        SigInfo {
            number,
            code,
            words: [addr, 0],
        }
    }

    /// Creates a signal sent by a process.
    pub fn of_process(number: u32, code: i32, process: &Process) -> Self {
        let user = u64::from(process.inherited.lock().user[0]);
        SigInfo {
            number,
            code,
            words: [u64::from(process.pid) | user << 32, 0],
        }
    }

    /// Creates a signal sent by the kernel.
    pub fn of_kernel(number: u32) -> Self {
        SigInfo {
            number,
            code: SI_KERNEL,
            words: [0; 2],
        }
    }

    /// Creates a signal that a process sends with `kill`.
    pub fn of_kill(number: u32, process: &Process) -> Self {
        Self::of_process(number, SI_USER as i32, process)
    }
}

/// The action for a signal (`struct sigaction`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Action {
    /// Address of the handler, or [`DEFAULT`](Self::DEFAULT) or [`IGNORE`](Self::IGNORE).
    pub handler: u64,
    /// Flags (`SA_`).
    pub flags: u64,
    /// Address of the code that a handler returns to, which calls `rt_sigreturn`.
    pub restorer: u64,
    /// Signals that are blocked while the handler runs.
    pub mask: u64,
}

impl Action {
    /// Value of `handler` for the signal's default action.
    pub const DEFAULT: u64 = 0;
    /// Value of `handler` for ignoring the signal.
    pub const IGNORE: u64 = 1;

    fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
}

/// The actions of all signals.
#[derive(Debug)]
pub struct Actions(Mutex<[Action; SIGNALS as usize]>);

impl Default for Actions {
    fn default() -> Self {
        Actions(Mutex::new([Action::default(); SIGNALS as usize]))
    }
}

impl Actions {
    /// Returns the action of a signal.
    pub fn get(&self, number: u32) -> Action {
        self.0.lock()[number as usize - 1]
    }

    /// Sets the action of a signal.
    pub fn set(&self, number: u32, action: Action) {
        self.0.lock()[number as usize - 1] = action;
    }

    /// Returns a copy of the actions.
    pub fn copy(&self) -> Actions {
        Actions(Mutex::new(*self.0.lock()))
    }

    /// Returns a copy in which the default action replaces every handler.
    pub fn without_handlers(&self) -> Actions {
        let copy = self.copy();
        let caught = |action: &&mut Action| action.handler > Action::IGNORE;
        copy.0
            .lock()
            .iter_mut()
            .filter(caught)
            .for_each(|a| *a = Action::default());
        copy
    }

    fn ignores(&self, number: u32) -> bool {
        match self.get(number).handler {
            Action::IGNORE => true,
            Action::DEFAULT => matches!(
                number,
                SIGCHLD | SIGCONT | SIGURG | SIGWINCH | SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU
            ),
            _ => false,
        }
    }
}

/// A thread's alternate stack for signal handlers (`sigaltstack`).
#[derive(Clone, Copy, Debug, Default)]
pub struct HandlerStack {
    /// First address.
    pub start: u64,
    /// Size in bytes; 0 if there is no alternate stack.
    pub size: u64,
}

/// Signals of one thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadSignals {
    /// Blocked signals.
    pub mask: u64,
    /// Signals to block after the next handler has returned; `None` for no change (`sigsuspend`).
    pub mask_after: Option<u64>,
    /// The alternate stack for handlers.
    pub stack: HandlerStack,
    pending: Vec<SigInfo>,
}

impl ThreadSignals {
    /// Returns the signal state of a new thread, which inherits only the mask.
    pub fn for_child(&self) -> Self {
        ThreadSignals {
            mask: self.mask,
            ..ThreadSignals::default()
        }
    }
}

fn set_of(pending: &[SigInfo]) -> u64 {
    pending.iter().fold(0, |set, info| set | bit(info.number))
}

/// Returns the set of signals that are pending for a thread or its process.
pub fn pending_set(thread: &Thread) -> u64 {
    set_of(&thread.signals.lock().pending) | set_of(&thread.process.pending.lock())
}

/// True if a signal is pending that the thread does not block.
pub fn is_pending(thread: &Thread) -> bool {
    let set = pending_set(thread);
    set & !thread.signals.lock().mask != 0
}

fn add(pending: &mut Vec<SigInfo>, info: SigInfo) {
    if set_of(pending) & bit(info.number) == 0 {
        pending.push(info);
    }
}

fn is_dropped(process: &Process, number: u32) -> bool {
    // The first process is not ended by a signal that it does not catch.
    let actions = process.actions.lock();
    let default_of_init =
        process.pid == super::INIT && actions.get(number).handler == Action::DEFAULT;
    actions.ignores(number) || default_of_init
}

/// Sends a signal to a process.
pub fn send(process: &Process, info: SigInfo) {
    if is_dropped(process, info.number) {
        return;
    }
    if info.number == SIGKILL {
        process.begin_exit(SIGKILL);
        return;
    }
    add(&mut process.pending.lock(), info);
    let threads = process.threads();
    let takes = |t: &&Arc<Thread>| t.signals.lock().mask & bit(info.number) == 0;
    if let Some(thread) = threads.iter().find(takes) {
        scheduler::interrupt(&thread.task);
    }
}

/// Sends a signal to a thread.
pub fn send_to_thread(thread: &Thread, info: SigInfo) {
    if is_dropped(&thread.process, info.number) {
        return;
    }
    if info.number == SIGKILL {
        thread.process.begin_exit(SIGKILL);
        return;
    }
    add(&mut thread.signals.lock().pending, info);
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
}

/// Removes and returns a pending signal in `wanted`; those sent to the thread itself come first.
fn take(thread: &Thread, wanted: u64) -> Option<SigInfo> {
    let take_from = |pending: &mut Vec<SigInfo>| {
        let at = pending
            .iter()
            .position(|info| wanted & bit(info.number) != 0)?;
        Some(pending.remove(at))
    };
    let own = take_from(&mut thread.signals.lock().pending);
    own.or_else(|| take_from(&mut thread.process.pending.lock()))
}

/// Removes and returns a pending signal in `set`, for `sigtimedwait`.
pub fn take_of_set(thread: &Thread, set: u64) -> Option<SigInfo> {
    take(thread, set)
}

/// Delivers the current thread's pending signals; ends the thread if it must end.
pub fn deliver(registers: &mut Registers) {
    let interrupted =
        registers.vector == Registers::SYSTEM_CALL && registers.rax == (-i64::from(RESTART)) as u64;
    let mut repeat = interrupted;
    loop {
        let thread = current_thread();
        if thread.is_ending() {
            drop(thread);
            exit::end_current();
        }
        let mask = thread.signals.lock().mask;
        let Some(info) = take(&thread, !mask) else {
            break;
        };
        let action = thread.process.actions.lock().get(info.number);
        match action.handler {
            Action::IGNORE => {}
            Action::DEFAULT => {
                if !is_dropped(&thread.process, info.number) {
                    thread.process.begin_exit(info.number);
                }
            }
            _ => {
                if repeat {
                    repeat = false;
                    match action.has(SA_RESTART) {
                        true => repeat_call(registers),
                        false => registers.rax = (-i64::from(EINTR)) as u64,
                    }
                }
                call_handler(&thread, registers, &info, &action);
            }
        }
    }
    if repeat {
        repeat_call(registers);
    }
    let thread = current_thread();
    let mut signals = thread.signals.lock();
    if let Some(mask) = signals.mask_after.take() {
        signals.mask = mask;
    }
}

/// Makes the thread repeat its system call.
fn repeat_call(registers: &mut Registers) {
    registers.rip -= CALL_LEN;
    registers.rax = registers.error_or_call;
}

fn call_handler(thread: &Thread, registers: &mut Registers, info: &SigInfo, action: &Action) {
    if frame::push(thread, registers, info, action).is_err() {
        // The program's stack has no room for the frame.
        thread.process.begin_exit(SIGSEGV);
        return;
    }
    let mut signals = thread.signals.lock();
    signals.mask |= action.mask & !UNSTOPPABLE;
    if !action.has(SA_NODEFER) {
        signals.mask |= bit(info.number);
    }
    if action.has(SA_RESETHAND) {
        let actions = thread.process.actions.lock();
        actions.set(info.number, Action::default());
    }
}
