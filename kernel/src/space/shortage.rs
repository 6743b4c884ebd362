//! Behaviour when memory is full and neither reclaim nor the shrinker can free any: a process is
//! killed.
//!
//! The layer of processes, which is above this one, chooses and kills the process: it registers a
//! function for this at boot ([`set_killer`]).

use super::{reclaim, shrinker, space};
use crate::memory::{frames, heap, swap};
use crate::scheduler;
use core::fmt;
use spin::Once;

/// Maximum number of times that a thread yields its CPU to wait for a killed process's memory.
pub const PATIENCE: u32 = 4000;

/// The process to kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// The largest process.
    Largest,
    /// The process of the current thread.
    Current,
}

/// Kills a process for the given reason.
///
/// Returns false if there is none to kill, or if the current process is ending.
pub type Killer = fn(Victim, &dyn fmt::Display) -> bool;

static KILLER: Once<Killer> = Once::new();

/// Sets the function that kills processes; must be called once, before the first program is loaded.
pub fn set_killer(killer: Killer) {
    KILLER.call_once(|| killer);
}

fn kill(victim: Victim, why: &dyn fmt::Display) -> bool {
    KILLER.get().expect("set at boot")(victim, why)
}

/// The kind of memory that is exhausted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {
    /// The kernel's heap.
    Heap,
    /// Page frames; reclaim found no page that can be swapped out.
    Frames,
}

impl Short {
    /// True if a page fault can go on.
    fn is_over(self) -> bool {
        match self {
            Short::Heap => !heap::is_exhausted(),
            Short::Frames => reclaim::free_frames(reclaim::MIN),
        }
    }
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

/// Makes room for a page: if shrinking does not suffice, kills the largest process and waits until
/// memory is free.
///
/// Returns false if there is no process to kill, if the caller's own process is killed (it ends
/// before it returns to user mode), or if no memory becomes free in time.
pub fn make_room(short: Short) -> bool {
    shrinker::shrink();
    if short.is_over() {
        return true;
    }
    let before = frames::free_frames();
    if !kill(Victim::Largest, &short) {
        return false;
    }
    (0..PATIENCE).any(|_| {
        scheduler::pause();
        // What the killed process had in the heap is the core's until the core shrinks.
        if short == Short::Heap && frames::free_frames() > before {
            shrinker::shrink();
        }
        short.is_over()
    })
}

/// Kills the current process because one of its pages cannot be allocated.
pub fn end_current() {
    kill(Victim::Current, &"a page of it has no frame");
}
