//! Behaviour when memory is full and reclaim cannot free any: the kernel kills the largest process.
//!
//! # Linux
//! `mm/oom_kill.c` `oom_badness`: the size of a process is the sum of its pages in memory, its
//! pages on the swap device and its page tables.

use super::mm::{BadAccess, Usage};
use super::{frames, reclaim, space, swap};
use crate::process::{self, Process};
use crate::say;
use crate::scheduler;
use alloc::sync::Arc;
use core::fmt;

/// Maximum number of times that a thread yields its CPU to wait for a killed process's memory.
const PATIENCE: u32 = 4000;

/// The kind of memory that is exhausted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {
    /// The kernel's heap.
    Heap,
    /// Page frames; reclaim found no page that can be swapped out.
    Frames,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, total) = (frames::free_frames(), frames::total_frames());
        let (used, slots) = (space().swap_slots_in_use(), swap::slots());
        match self {
            Short::Heap => write!(f, "the kernel's heap is used up"),
            Short::Frames if slots == 0 => {
                write!(f, "{free} of {total} frames are free, and there is no swap")
            }
            Short::Frames => write!(
                f,
                "{free} of {total} frames are free, and {used} of {slots} pages of swap are used"
            ),
        }
    }
}

/// Makes room for a page: kills the largest process and waits until memory is free.
///
/// # Errors
/// `NoMemory` if there is no process to kill, if the caller's own process is killed (it ends before
/// it returns to user mode), or if no memory becomes free in time.
pub fn make_room(short: Short) -> Result<(), BadAccess> {
    let before = frames::free_frames();
    let Some((victim, usage)) = largest() else {
        return Err(BadAccess::NoMemory);
    };
    end(&victim, usage, &short);
    let current = process::current();
    if current.is_dying() {
        return Err(BadAccess::NoMemory);
    }
    drop((victim, current));
    for _ in 0..PATIENCE {
        scheduler::pause();
        let enough = match short {
            Short::Heap => frames::free_frames() > before,
            Short::Frames => reclaim::free_frames(reclaim::MIN),
        };
        if enough {
            return Ok(());
        }
    }
    Err(BadAccess::NoMemory)
}

/// Kills the current process because one of its pages cannot be allocated.
pub fn end_current() -> BadAccess {
    let process = process::current();
    end(&process, usage_of(&process), &"a page of it has no frame");
    BadAccess::NoMemory
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
    let all = process::all().into_iter();
    all.filter(|p| p.pid != process::INIT)
        .map(|p| {
            let usage = usage_of(&p);
            (p, usage)
        })
        .max_by_key(|(_, usage)| usage.resident() + usage.swapped + usage.tables)
}
