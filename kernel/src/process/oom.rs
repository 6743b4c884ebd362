//! The choice of the process that the kernel kills when memory is full.
//!
//! # Linux
//! `mm/oom_kill.c` `oom_badness`: the size of a process is the sum of its pages in memory, its
//! pages on the swap device and its page tables.

use super::{INIT, Process, all, current};
use crate::say;
use crate::scheduler;
use crate::space::mm::Usage;
use crate::space::shortage::{PATIENCE, Victim};
use alloc::sync::Arc;
use core::fmt;

/// Kills a process because memory is full.
///
/// Returns false if there is none to kill, or if the current process is ending.
pub fn kill(victim: Victim, why: &dyn fmt::Display) -> bool {
    let current = current();
    let victim = match victim {
        Victim::Current => Some((Arc::clone(&current), usage_of(&current))),
        Victim::Largest => largest(),
    };
    let Some((victim, usage)) = victim else {
        return false;
    };
    end(&victim, usage, why);
    !current.is_dying()
}

/// Waits until all killed processes have freed their memory, or for a limited time.
///
/// Does not wait if the current process is ending.
pub fn wait_for_killed() {
    let current = current();
    let wait = (0..PATIENCE).take_while(|_| !current.is_dying() && all().any(|p| p.is_killed()));
    wait.for_each(|_| scheduler::pause());
}

fn end(process: &Process, usage: Usage, why: &dyn fmt::Display) {
    if process.kill_for_memory() {
        say!(
            "out of memory: ended process {} ({}) with {} pages in memory, {} in swap and {} of \
             page tables: {why}",
            process.pid,
            process.name(),
            usage.resident(),
            usage.swapped,
            usage.tables,
        );
    }
}

fn usage_of(process: &Process) -> Usage {
    process.mm().map_or_else(Usage::default, |mm| mm.usage())
}

/// Returns the largest process other than the first process.
fn largest() -> Option<(Arc<Process>, Usage)> {
    all()
        .filter(|p| p.pid != INIT)
        .map(|p| {
            let usage = usage_of(&p);
            (p, usage)
        })
        .max_by_key(|(_, usage)| usage.resident() + usage.swapped + usage.tables)
}
