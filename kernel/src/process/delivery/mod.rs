//! The delivery of signals: their handlers and default actions, before a thread returns to user mode.
//!
//! [`frame`] builds the stack frame for a handler.

mod frame;

pub use frame::give_back;

use super::send::is_dropped;
use super::signal::{Action, SigInfo, UNSTOPPABLE, bit};
use super::{Thread, current_thread, exit};
use crate::cpu::Registers;
use crate::failure::RESTART;
use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general::{SA_NODEFER, SA_RESETHAND, SA_RESTART, SIGSEGV};

/// Length of the `syscall` instruction in bytes.
const CALL_LEN: u64 = 2;

/// Delivers the pending signals of `thread`, which is the current one; ends it if it must end.
pub fn deliver(thread: &Thread, registers: &mut Registers) {
    let interrupted =
        registers.vector == Registers::SYSTEM_CALL && registers.rax == (-i64::from(RESTART)) as u64;
    if interrupted || thread.is_alerted() && thread.look_for_work() {
        deliver_work(registers, interrupted);
    }
}

#[cold]
fn deliver_work(registers: &mut Registers, mut repeat: bool) {
    loop {
        let thread = current_thread();
        if thread.is_ending() {
            drop(thread);
            exit::end_current();
        }
        let mask = thread.signals.lock().mask;
        let Some(info) = thread.take_signal(!mask) else {
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
