//! Signals: their numbers, their actions, and those that are pending.
//!
//! `send` sends a signal, and `delivery` calls its handler. Stopping and continuing a process is not
//! implemented; the signals for this do nothing.

use super::Process;
use alloc::vec::Vec;
use linux_raw_sys::general::{
    SI_USER, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH,
};
use spin::Mutex;

/// Number of signals.
pub const SIGNALS: u32 = 64;
const SI_KERNEL: i32 = 128;
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

    /// True if the action has a flag (`SA_`).
    pub fn has(&self, flag: u32) -> bool {
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

    /// True if the signal has no effect: the process ignores it, or does so by default.
    pub fn ignores(&self, number: u32) -> bool {
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
    /// Pending signals that only this thread may handle.
    pub pending: Vec<SigInfo>,
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

/// Returns the set of the given signals.
pub fn set_of(pending: &[SigInfo]) -> u64 {
    pending.iter().fold(0, |set, info| set | bit(info.number))
}

/// Adds a signal to the pending ones, unless the same signal is pending already.
pub fn add(pending: &mut Vec<SigInfo>, info: SigInfo) {
    if set_of(pending) & bit(info.number) == 0 {
        pending.push(info);
    }
}
