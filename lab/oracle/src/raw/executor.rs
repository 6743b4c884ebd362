//! The code of a child: executes commands from its slot until it is killed.
//!
//! The code never allocates memory, panics or uses thread-local data; the parent module explains
//! why. When a child forks, the new process becomes a child of the tester, which waits for the new
//! process and kills it, as it does with the first child.

use std::io;
use std::sync::atomic::Ordering;

use super::channel::{self, CHILD, Channel, SLOTS, Slot, TESTER, command};
use super::{raw_call, touch};

const CLONE_PARENT: u64 = 0x8000;

/// Forks the first child, which takes its commands from slot 0. Returns its process id.
///
/// The child first unmaps the ranges in `unneeded` and shrinks its heap, which begins at `heap`, to
/// size 0.
///
/// # Errors
/// The errors of `fork(2)`.
pub fn start(channel: &Channel, unneeded: &[(u64, u64)], heap: u64) -> io::Result<i32> {
    let slots = channel.slots();
    slots[0].expect_child();
    // Copy the list to the stack: the list itself may be in one of the ranges.
    let mut ranges = [(0, 0); 64];
    for (to, from) in ranges.iter_mut().zip(unneeded) {
        *to = *from;
    }
    // SAFETY: the child only executes `run`, on its copy of this stack, and never returns.
    let pid = unsafe {
        raw_call(
            libc::SYS_clone as u64,
            [libc::SIGCHLD as u64, 0, 0, 0, 0, 0],
        )
    };
    match pid {
        0 => {
            // SAFETY: from here on, this process belongs to the executor alone; the executor does
            // not use the memory in the ranges.
            unsafe {
                for (start, len) in ranges {
                    raw_call(libc::SYS_munmap as u64, [start, len, 0, 0, 0, 0]);
                }
                raw_call(libc::SYS_brk as u64, [heap, 0, 0, 0, 0, 0]);
                touch::catch_signals();
                run(slots, 0)
            }
        }
        pid if pid < 0 => Err(io::Error::from_raw_os_error(-pid as i32)),
        pid => Ok(pid as i32),
    }
}

/// Executes commands forever.
///
/// # Safety
/// Must be called in a separate process, after [`touch::catch_signals`].
unsafe fn run(slots: &[Slot; SLOTS], first: usize) -> ! {
    let mut own = first;
    // SAFETY: the call takes numbers.
    unsafe { die_with_tester() };
    loop {
        let Some(slot) = slots.get(own) else { end() };
        // SAFETY: the caller guarantees this.
        let answer = unsafe { obey(slot) };
        match answer {
            Done::Answered => {}
            // This process is the child of a fork. It sends its first answer in its new slot.
            Done::Become(new) => {
                own = new;
                // SAFETY: the call takes numbers.
                unsafe { die_with_tester() };
                let Some(slot) = slots.get(own) else { end() };
                slot.result.store(0, Ordering::Relaxed);
            }
        }
        let Some(slot) = slots.get(own) else { end() };
        slot.hand_over(TESTER);
        slot.wait(CHILD, None);
    }
}

enum Done {
    Answered,
    Become(usize),
}

/// Executes one command. All loads and stores are Relaxed, because passing the turn orders them.
unsafe fn obey(slot: &Slot) -> Done {
    let arg = |n: usize| slot.args[n].load(Ordering::Relaxed);
    let number = slot.number.load(Ordering::Relaxed);
    let (mut result, mut signal) = (0, 0);
    // SAFETY: the tester passes only calls and addresses that do not affect the executor's own
    // memory.
    unsafe {
        match slot.command.load(Ordering::Relaxed) {
            command::CALL => {
                let args = [arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)];
                result = raw_call(number, args);
            }
            command::READ => {
                let touched = touch::read(arg(0));
                (result, signal) = (touched.value as i64, touched.signal);
            }
            command::WRITE => signal = touch::write(arg(0), arg(1)).signal,
            command::CALLS => {
                result = series(slot, |args| match raw_call(number, args) {
                    error @ -4095..0 => Some(error),
                    _ => None,
                });
            }
            command::WRITES => {
                result = series(slot, |args| {
                    let touched = touch::write(args[0], args[1]);
                    (touched.signal != 0).then_some(touched.signal as i64)
                });
            }
            command::FORK => {
                let flags = CLONE_PARENT | libc::SIGCHLD as u64;
                result = raw_call(libc::SYS_clone as u64, [flags, 0, 0, 0, 0, 0]);
                if result == 0 {
                    return Done::Become(arg(0) as usize);
                }
            }
            _ => {}
        }
    }
    slot.result.store(result, Ordering::Relaxed);
    slot.signal.store(signal, Ordering::Relaxed);
    Done::Answered
}

/// Calls `once` repeatedly with changing arguments. Returns 0, or the error that ended the series.
fn series(slot: &Slot, mut once: impl FnMut([u64; 6]) -> Option<i64>) -> i64 {
    let mut args = [0; 6];
    let mut steps = [0; 6];
    for n in 0..6 {
        args[n] = slot.args[n].load(Ordering::Relaxed);
        steps[n] = slot.scratch[channel::STEPS + n].load(Ordering::Relaxed);
    }
    let times = slot.scratch[channel::TIMES].load(Ordering::Relaxed);
    let (mut went, mut stopped) = (0, 0);
    let begun = nanoseconds(slot);
    while went < times && stopped == 0 {
        stopped = once(args).unwrap_or(0);
        went += u64::from(stopped == 0);
        for n in 0..6 {
            args[n] = args[n].wrapping_add(steps[n]);
        }
    }
    let took = nanoseconds(slot).wrapping_sub(begun);
    slot.scratch[channel::WENT].store(went, Ordering::Relaxed);
    slot.scratch[channel::TOOK].store(took, Ordering::Relaxed);
    stopped
}

/// Returns the time of `CLOCK_MONOTONIC` in nanoseconds.
fn nanoseconds(slot: &Slot) -> u64 {
    let clock = &slot.scratch[channel::CLOCK..channel::CLOCK + 2];
    let args = [
        libc::CLOCK_MONOTONIC as u64,
        clock.as_ptr() as u64,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes the two words of `clock`.
    unsafe { raw_call(libc::SYS_clock_gettime as u64, args) };
    let (seconds, rest) = (
        clock[0].load(Ordering::Relaxed),
        clock[1].load(Ordering::Relaxed),
    );
    seconds.wrapping_mul(1_000_000_000).wrapping_add(rest)
}

unsafe fn die_with_tester() {
    let args = [
        libc::PR_SET_PDEATHSIG as u64,
        libc::SIGKILL as u64,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the call takes numbers.
    unsafe { raw_call(libc::SYS_prctl as u64, args) };
}

fn end() -> ! {
    loop {
        // SAFETY: the call ends this process at once.
        unsafe { raw_call(libc::SYS_exit_group as u64, [98, 0, 0, 0, 0, 0]) };
    }
}
