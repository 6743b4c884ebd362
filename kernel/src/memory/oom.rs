//! Behaviour when memory is full: the process with the most pages ends.

use super::mm::BadAccess;
use super::{frames, mmu};
use crate::process::{self, Process, scheduler};
use crate::say;
use alloc::sync::Arc;

/// How often a thread gives its CPU away to wait for the memory of a process that ends.
const PATIENCE: u32 = 4000;

/// Makes room for a page: ends the process with the most pages, and waits until frames are free.
///
/// # Errors
/// `NoMemory` if there is no process to end, if the caller's own process ends (before it returns to
/// user mode), or if no frame becomes free in time.
pub fn make_room() -> Result<(), BadAccess> {
    let before = frames::free_frames();
    let Some(victim) = largest() else {
        return Err(BadAccess::NoMemory);
    };
    if victim.kill_for_memory() {
        say!(
            "out of memory: ended process {} ({}) with {} pages, {} of {} frames free",
            victim.pid,
            victim.name(),
            pages_of(&victim),
            before,
            frames::total_frames(),
        );
    }
    let current = process::current();
    if current.is_dying() {
        return Err(BadAccess::NoMemory);
    }
    drop((victim, current));
    for _ in 0..PATIENCE {
        scheduler::pause();
        if frames::free_frames() > before {
            return Ok(());
        }
    }
    Err(BadAccess::NoMemory)
}

/// Ends the current process, because there was no memory for one of its pages.
pub fn end_current() -> BadAccess {
    let process = process::current();
    if process.kill_for_memory() {
        say!(
            "out of memory: ended process {} ({}), which needs a page",
            process.pid,
            process.name(),
        );
    }
    BadAccess::NoMemory
}

fn pages_of(process: &Process) -> usize {
    process.mm().map_or(0, |mm| mmu::resident(mm.id()))
}

/// Returns the process with the most pages; never the first process.
fn largest() -> Option<Arc<Process>> {
    let all = process::all().into_iter();
    all.filter(|p| p.pid != process::INIT)
        .max_by_key(|p| pages_of(p))
}
