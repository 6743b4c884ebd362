//! System calls for the machine and for resource limits.

use super::{Call, Outcome};
use crate::console;
use crate::cpu;
use crate::failure::{Failure, Value};
use crate::files::open::fill_randomly;
use crate::memory::{frames, heap, swap};
use crate::proc::check;
use crate::process::exec;
use crate::say;
use crate::scheduler;
use crate::space::{reclaim, space};
use alloc::vec;
use linux_raw_sys::errno::{EINVAL, EPERM, ESRCH};
use linux_raw_sys::general::*;

/// `LINUX_REBOOT_CMD_POWER_OFF`, `LINUX_REBOOT_CMD_HALT`, `LINUX_REBOOT_CMD_RESTART`.
const POWER_COMMANDS: [u32; 3] = [0x4321_fedc, 0xcdef_0123, 0x0123_4567];
/// Length in bytes of a field in `struct utsname`.
const NAME_LEN: usize = 65;
/// Exit code for a failed memory check; QEMU's exit status is then `2 * CHECK_FAILED + 1`.
const CHECK_FAILED: u32 = 2;
const PR_SET_NAME: u32 = 15;
const PR_GET_NAME: u32 = 16;
const PR_SET_PDEATHSIG: u32 = 1;
const PR_GET_DUMPABLE: u32 = 3;
const PR_SET_DUMPABLE: u32 = 4;

/// Performs a system call for the machine or for resource limits.
pub fn call(call: &Call<'_>) -> Outcome {
    let [a, b, c, d, ..] = call.args;
    let mm = call.mm;
    Some(match call.number {
        __NR_uname => uname(call),
        __NR_getrandom => heap::zeroed(b.min(1 << 16) as usize).and_then(|mut bytes| {
            fill_randomly(&mut bytes);
            mm.write(a, &bytes).map(|()| bytes.len() as u64)
        }),
        __NR_sysinfo => {
            let (total, free) = (frames::total_frames() as u64, frames::free_frames() as u64);
            // Uptime, three load averages, memory sizes and so on; the last word contains the unit
            // of the memory sizes, 4096 bytes.
            let mut words = [
                cpu::clock::now() / 1_000_000_000,
                0,
                0,
                0,
                total,
                free,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                4096,
            ];
            words[8] = swap::slots() as u64;
            words[9] = words[8] - space().swap_slots_in_use() as u64;
            words[10] = crate::process::all().count() as u64;
            mm.write_values(a, &words).map(|()| 0)
        }
        __NR_getrlimit => limit(call, call.thread.process.pid, a, 0, b),
        __NR_setrlimit => limit(call, call.thread.process.pid, a, b, 0),
        __NR_prlimit64 => limit(call, a as u32, b, c, d),
        __NR_getrusage => mm.write_values(b, &[0u64; 18]).map(|()| 0),
        __NR_sched_getaffinity => {
            let set = (1u64 << cpu::online()) - 1;
            mm.write_values(c, &[set]).map(|()| 8)
        }
        __NR_sched_setaffinity | __NR_sync | __NR_syslog | __NR_sethostname => Ok(0),
        __NR_getcpu => mm
            .write_if_wanted(a, &[cpu::number() as u32])
            .and_then(|()| mm.write_if_wanted(b, &[0u32]))
            .map(|()| 0),
        __NR_sched_getscheduler | __NR_getpriority | __NR_setpriority | __NR_membarrier => Ok(0),
        __NR_sched_yield => {
            scheduler::schedule();
            Ok(0)
        }
        __NR_reboot => reboot(call),
        __NR_prctl => prctl(call),
        __NR_capget => capabilities(call),
        __NR_capset => set_capabilities(call),
        _ => return None,
    })
}

fn uname(call: &Call<'_>) -> Result<Value, Failure> {
    let fields = ["Linux", "vmarea", "6.12.0-vmarea", "#1", "x86_64", "(none)"];
    let mut bytes = vec![0; NAME_LEN * fields.len()];
    for (at, field) in fields.iter().enumerate() {
        bytes[at * NAME_LEN..][..field.len()].copy_from_slice(field.as_bytes());
    }
    call.mm.write(call.args[0], &bytes).map(|()| 0)
}

/// Writes a resource limit to `old` and sets it from `new`; an address of 0 skips its step.
fn limit(call: &Call<'_>, pid: u32, kind: u64, new: u64, old: u64) -> Result<Value, Failure> {
    let own = &call.thread.process;
    if pid != 0 && pid != own.pid {
        return Err(ESRCH.into());
    }
    let mut inherited = own.inherited.lock().clone();
    let privileged = inherited.user[0] == 0;
    let limit = inherited.limits.get_mut(kind as usize).ok_or(EINVAL)?;
    let before = *limit;
    if new != 0 {
        let [soft, hard]: [u64; 2] = call.mm.read_array(new)?;
        if soft > hard {
            return Err(EINVAL.into());
        }
        if hard > before[1] && !privileged {
            return Err(EPERM.into());
        }
        *limit = [soft, hard];
        let limits = exec::limits_of(&inherited);
        *own.inherited.lock() = inherited;
        space().set_limits(call.mm.id(), |l| *l = limits)?;
    }
    call.mm.write_if_wanted(old, &before).map(|()| 0)
}

fn prctl(call: &Call<'_>) -> Result<Value, Failure> {
    let [option, argument, ..] = call.args;
    let mut inherited = call.thread.process.inherited.lock();
    match option as u32 {
        PR_SET_NAME => {
            let mut bytes = [0; 15];
            drop(inherited);
            let name = call.mm.read_string(argument, 16).unwrap_or_else(|_| {
                let _ = call.mm.read(argument, &mut bytes);
                alloc::string::String::from_utf8_lossy(&bytes).into_owned()
            });
            call.thread.process.inherited.lock().name = name;
            Ok(0)
        }
        PR_GET_NAME => {
            let mut bytes = [0; 16];
            let name = core::mem::take(&mut inherited.name);
            let len = name.len().min(15);
            bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
            inherited.name = name;
            drop(inherited);
            call.mm.write(argument, &bytes).map(|()| 0)
        }
        PR_SET_PDEATHSIG | PR_SET_DUMPABLE => Ok(0),
        PR_GET_DUMPABLE => Ok(1),
        _ => Err(EINVAL.into()),
    }
}

/// Stops the machine (`reboot`), after checking the frames and the core's structures.
fn reboot(call: &Call<'_>) -> Result<Value, Failure> {
    let [_, _, command, ..] = call.args;
    if call.thread.process.inherited.lock().user[0] != 0 {
        return Err(EPERM.into());
    }
    if !POWER_COMMANDS.contains(&(command as u32)) {
        return Ok(0);
    }
    reclaim::stop();
    let report = check::report();
    for line in report.lines() {
        say!("check: {line}");
    }
    console::exit(if report.starts_with("ok") {
        0
    } else {
        CHECK_FAILED
    })
}

/// `CAP_IPC_LOCK`, the only capability that a process can drop individually.
const IPC_LOCK: u32 = 1 << 14;

/// `capget`: a privileged process has all capabilities except a dropped `CAP_IPC_LOCK`.
fn capabilities(call: &Call<'_>) -> Result<Value, Failure> {
    let inherited = call.thread.process.inherited.lock().clone();
    let all = if inherited.user[0] == 0 { !0 } else { 0 };
    let low = if inherited.may_lock {
        all
    } else {
        all & !IPC_LOCK
    };
    // Effective, permitted and inheritable, for the low and the high half.
    let words = [low, low, 0, all & 0x1ff, all & 0x1ff, 0];
    call.mm.write_if_wanted(call.args[1], &words).map(|()| 0)
}

fn set_capabilities(call: &Call<'_>) -> Result<Value, Failure> {
    let [effective]: [u32; 1] = call.mm.read_array(call.args[1])?;
    let mut inherited = call.thread.process.inherited.lock();
    inherited.may_lock &= effective & IPC_LOCK != 0;
    let limits = exec::limits_of(&inherited);
    space().set_limits(call.mm.id(), |l| *l = limits)?;
    Ok(0)
}
