//! `alarm` and the real-time interval timer, which send SIGALRM after a given time.

use super::send;
use super::signal::SigInfo;
use crate::cpu::clock;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use linux_raw_sys::general::SIGALRM;
use spin::Mutex;

#[derive(Clone, Copy)]
struct Alarm {
    at: u64,
    interval: u64,
}

/// Alarms by process number.
static ALARMS: Mutex<BTreeMap<u32, Alarm>> = Mutex::new(BTreeMap::new());

/// Sets a process's alarm to go off in `after` nanoseconds and then every `interval` nanoseconds.
///
/// An `after` of 0 turns the alarm off; an `interval` of 0 makes it go off only once. Returns the
/// nanoseconds until the old alarm would have gone off and the old interval, or zeros if no alarm
/// was set.
pub fn set(pid: u32, after: u64, interval: u64) -> (u64, u64) {
    let now = clock::now();
    let mut alarms = ALARMS.lock();
    let alarm = Alarm {
        at: now.saturating_add(after),
        interval,
    };
    let old = match after {
        0 => alarms.remove(&pid),
        _ => alarms.insert(pid, alarm),
    };
    old.map_or((0, 0), |old| {
        (old.at.saturating_sub(now).max(1), old.interval)
    })
}

/// Sends SIGALRM to each process whose alarm is due.
pub fn ring() {
    let now = clock::now();
    let mut due = Vec::new();
    ALARMS.lock().retain(|&pid, alarm| {
        if alarm.at > now {
            return true;
        }
        due.push(pid);
        alarm.at = now + alarm.interval;
        alarm.interval != 0
    });
    for pid in due {
        if let Some(process) = super::find(pid) {
            send::to_process(&process, SigInfo::of_kernel(SIGALRM));
        }
    }
}
