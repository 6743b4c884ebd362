//! System calls for signals.

use super::{Call, Outcome};
use crate::cpu::clock;
use crate::failure::{Failure, Value};
use crate::process::delivery::give_back;
use crate::process::signal::{Action, HandlerStack, SIGNALS, SigInfo, UNSTOPPABLE};
use crate::process::{self, INIT, send};
use crate::scheduler::task::Woken;
use crate::scheduler::{self, Event};
use linux_raw_sys::errno::{EAGAIN, EINTR, EINVAL, ENOMEM, EPERM, ESRCH};
use linux_raw_sys::general::*;

/// Size of a signal set in bytes.
const SET_SIZE: u64 = 8;
const SI_TKILL: i32 = -6;
/// Minimum size of an alternate stack for handlers, in bytes.
const STACK_MIN: u64 = 2048;

/// Performs a system call for signals.
pub fn call(call: &mut Call<'_>) -> Outcome {
    let [a, b, c, d, ..] = call.args;
    Some(match call.number {
        __NR_rt_sigaction => action(call),
        __NR_rt_sigprocmask => mask(call),
        __NR_rt_sigreturn => {
            // A damaged frame ends the process, as a fault would.
            if give_back(call.thread, call.registers).is_err() {
                call.thread.process.begin_exit(SIGSEGV);
            }
            Ok(call.registers.rax)
        }
        __NR_rt_sigpending => {
            let set = call.thread.pending_signals() & call.thread.signals.lock().mask;
            call.mm.write_values(a, &[set]).map(|()| 0)
        }
        __NR_rt_sigsuspend => set_mask_for_wait(call, a).and_then(|()| pause()),
        __NR_pause => pause(),
        __NR_rt_sigtimedwait => wait(call),
        __NR_sigaltstack => stack(call),
        __NR_kill => kill(call, a as i32, b as u32),
        __NR_tkill => kill_thread(call, None, a as u32, b as u32),
        __NR_tgkill => kill_thread(call, Some(a as u32), b as u32, c as u32),
        __NR_pidfd_send_signal => {
            super::process::process_of_pidfd(call, a as u32).and_then(|pid| {
                if d == 0 {
                    kill(call, pid as i32, b as u32)
                } else {
                    Err(EINVAL.into())
                }
            })
        }
        _ => return None,
    })
}

fn action(call: &Call<'_>) -> Result<Value, Failure> {
    let [number, new, old, size, ..] = call.args;
    let number = number as u32;
    let can_change = number != SIGKILL && number != SIGSTOP;
    if number == 0 || number > SIGNALS || size != SET_SIZE || new != 0 && !can_change {
        return Err(EINVAL.into());
    }
    let actions = call.thread.process.actions.lock().clone();
    let before = actions.get(number);
    if new != 0 {
        let [handler, flags, restorer, mask] = call.mm.read_array(new)?;
        actions.set(
            number,
            Action {
                handler,
                flags,
                restorer,
                mask,
            },
        );
    }
    let words = [before.handler, before.flags, before.restorer, before.mask];
    call.mm.write_if_wanted(old, &words).map(|()| 0)
}

fn mask(call: &Call<'_>) -> Result<Value, Failure> {
    let [how, new, old, size, ..] = call.args;
    if size != SET_SIZE {
        return Err(EINVAL.into());
    }
    let before = call.thread.signals.lock().mask;
    if new != 0 {
        let set: u64 = call.mm.read_value(new)?;
        let after = match how as u32 {
            SIG_BLOCK => before | set,
            SIG_UNBLOCK => before & !set,
            SIG_SETMASK => set,
            _ => return Err(EINVAL.into()),
        };
        call.thread.signals.lock().mask = after & !UNSTOPPABLE;
    }
    call.mm.write_if_wanted(old, &[before]).map(|()| 0)
}

/// Makes the set at `addr` the signal mask until the call ends; does nothing if `addr` is 0.
///
/// # Errors
/// EFAULT.
pub fn set_mask_for_wait(call: &Call<'_>, addr: u64) -> Result<(), Failure> {
    if addr != 0 {
        let set: u64 = call.mm.read_value(addr)?;
        let mut signals = call.thread.signals.lock();
        signals.mask_after = Some(signals.mask);
        signals.mask = set & !UNSTOPPABLE;
        call.thread.alert();
    }
    Ok(())
}

fn pause() -> Result<Value, Failure> {
    let _ = scheduler::wait(Event::Nothing, None, || None::<()>);
    Err(EINTR.into())
}

/// `rt_sigtimedwait`: waits for a pending signal in a set of signals, which are usually blocked.
fn wait(call: &Call<'_>) -> Result<Value, Failure> {
    let [set, info, timeout, ..] = call.args;
    let set: u64 = call.mm.read_value(set)?;
    let deadline = call
        .mm
        .read_time_if_given(timeout)?
        .map(|t| clock::now().saturating_add(t));
    // During the wait, the signals of the set must wake this thread.
    let before = call.thread.signals.lock().mask;
    call.thread.signals.lock().mask = before & !set;
    let take = || call.thread.take_signal(set);
    let taken = scheduler::wait(Event::Nothing, deadline, take);
    call.thread.signals.lock().mask = before;
    let taken = taken.map_err(|why| match why {
        Woken::Timeout => EAGAIN,
        _ => EINTR,
    })?;
    let mut words = [0u64; 16];
    words[0] = taken.number.into();
    words[1] = u64::from(taken.code as u32);
    words[2..4].copy_from_slice(&taken.words);
    call.mm.write_if_wanted(info, &words)?;
    Ok(taken.number.into())
}

fn stack(call: &Call<'_>) -> Result<Value, Failure> {
    let [new, old, ..] = call.args;
    let before = call.thread.signals.lock().stack;
    let is_on = call.registers.rsp.wrapping_sub(before.start) < before.size;
    let flags = match (before.size, is_on) {
        (0, _) => SS_DISABLE,
        (_, true) => SS_ONSTACK,
        _ => 0,
    };
    if new != 0 {
        if is_on {
            return Err(EPERM.into());
        }
        let [start, flags, size]: [u64; 3] = call.mm.read_array(new)?;
        let stack = match flags as u32 & SS_DISABLE {
            0 if size < STACK_MIN => return Err(ENOMEM.into()),
            0 => HandlerStack { start, size },
            _ => HandlerStack::default(),
        };
        call.thread.signals.lock().stack = stack;
    }
    let words = [before.start, u64::from(flags), before.size];
    call.mm.write_if_wanted(old, &words).map(|()| 0)
}

fn check_number(number: u32) -> Result<(), Failure> {
    match number <= SIGNALS {
        true => Ok(()),
        false => Err(EINVAL.into()),
    }
}

fn kill(call: &Call<'_>, pid: i32, number: u32) -> Result<Value, Failure> {
    check_number(number)?;
    let own = &call.thread.process;
    let group = match pid {
        0 => own.inherited.lock().group,
        _ => pid.unsigned_abs(),
    };
    let mut found = false;
    for process in process::all() {
        let takes = match pid {
            1.. => process.pid == pid as u32,
            -1 => process.pid != INIT && process.pid != own.pid,
            _ => process.inherited.lock().group == group,
        };
        if !takes {
            continue;
        }
        found = true;
        if number != 0 {
            send::to_process(&process, SigInfo::of_kill(number, own));
        }
    }
    match found {
        true => Ok(0),
        false => Err(ESRCH.into()),
    }
}

fn kill_thread(
    call: &Call<'_>,
    group: Option<u32>,
    tid: u32,
    number: u32,
) -> Result<Value, Failure> {
    check_number(number)?;
    let thread = process::find_thread(tid).ok_or(ESRCH)?;
    if group.is_some_and(|group| group != thread.process.pid) {
        return Err(ESRCH.into());
    }
    if number != 0 {
        let info = SigInfo::of_process(number, SI_TKILL, &call.thread.process);
        send::to_thread(&thread, info);
    }
    Ok(0)
}
