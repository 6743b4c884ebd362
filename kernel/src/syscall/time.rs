//! System calls for clocks and timers.

use super::{Call, Outcome};
use crate::cpu::clock;
use crate::failure::{Failure, Value};
use crate::process::alarm;
use crate::scheduler::task::Woken;
use crate::scheduler::{self, Event};
use crate::space::Mm;
use linux_raw_sys::errno::{EINTR, EINVAL};
use linux_raw_sys::general::*;

const SECOND: u64 = 1_000_000_000;
const TIMER_ABSTIME: u64 = 1;

fn timespec(nanoseconds: u64) -> [u64; 2] {
    [nanoseconds / SECOND, nanoseconds % SECOND]
}

fn timeval(nanoseconds: u64) -> [u64; 2] {
    [nanoseconds / SECOND, nanoseconds % SECOND / 1000]
}

/// Performs a system call for clocks or timers.
pub fn call(call: &Call<'_>) -> Outcome {
    let [a, b, c, d, ..] = call.args;
    let mm = call.mm;
    Some(match call.number {
        __NR_clock_gettime => mm.write_values(b, &timespec(clock::now())).map(|()| 0),
        __NR_clock_getres => mm.write_if_wanted(b, &timespec(1)).map(|()| 0),
        __NR_gettimeofday => mm.write_if_wanted(a, &timeval(clock::now())).map(|()| 0),
        __NR_time => {
            let seconds = clock::now() / SECOND;
            mm.write_if_wanted(a, &[seconds]).map(|()| seconds)
        }
        __NR_times => {
            let ticks = clock::now() / (SECOND / 100);
            mm.write_if_wanted(a, &[0u64; 4]).map(|()| ticks)
        }
        __NR_nanosleep => mm
            .read_time(a)
            .and_then(|time| sleep(mm, clock::now() + time, b)),
        __NR_clock_nanosleep => mm.read_time(c).and_then(|time| match b & TIMER_ABSTIME {
            0 => sleep(mm, clock::now().saturating_add(time), d),
            _ => sleep(mm, time, 0),
        }),
        __NR_alarm => {
            let (left, _) = alarm::set(call.thread.process.pid, a as u32 as u64 * SECOND, 0);
            Ok(left.div_ceil(SECOND))
        }
        __NR_setitimer => set_timer(call, a, b, c),
        _ => return None,
    })
}

fn sleep(mm: &Mm, until: u64, left: u64) -> Result<Value, Failure> {
    match scheduler::wait(Event::Nothing, Some(until), || None::<()>) {
        Err(Woken::Signal) => {
            let rest = until.saturating_sub(clock::now());
            mm.write_if_wanted(left, &timespec(rest))?;
            Err(EINTR.into())
        }
        _ => Ok(0),
    }
}

fn set_timer(call: &Call<'_>, which: u64, new: u64, old: u64) -> Result<Value, Failure> {
    if which as u32 != ITIMER_REAL {
        return Err(EINVAL.into());
    }
    let [every, every_us, after, after_us]: [u64; 4] = call.mm.read_array(new)?;
    let time = |seconds: u64, us: u64| seconds.saturating_mul(SECOND).saturating_add(us * 1000);
    let pid = call.thread.process.pid;
    let (left, interval) = alarm::set(pid, time(after, after_us), time(every, every_us));
    let [a, b] = timeval(interval);
    let [c, d] = timeval(left);
    call.mm.write_if_wanted(old, &[a, b, c, d]).map(|()| 0)
}
