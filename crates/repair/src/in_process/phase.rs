//! The phase of a piece, shared by the mover and the watcher, and what each event means in a phase.
//!
//! The mover (the thread that repairs) advances the phase; the watcher reads the kernel's events.
//! Both do so under the lock of [`Shared`](super::shared::Shared), so that no event falls between
//! two phases.
//!
//! # Picture
//! ```text
//! phase     state of the pages                       ends with              next phase
//! Idle      all pages at their addresses             begin                  Leaving
//! Leaving   pages move out, in order                 all_left               Away
//!                                                    end (after a refusal)  Idle
//! Away      pages are moved out, or moving back      begin_swap             Swapping
//!                                                    end                    Idle
//! Swapping  the fresh mapping is put in place;       end_swap               Away
//!           no other thread changes mappings
//!
//! event     in Swapping   in any other phase
//! Fault     ignored       ignored
//! Fork      the child gets a copy of the moved-out pages (in every phase)
//! Remap     ignored       disturbed; the pages of the range now belong to another address
//! Unmap     ignored       disturbed; the pages are dropped from the temporary range
//! Remove    the pages are dropped from the temporary range (in every phase); also disturbed
//!           in Leaving: a page that moves out before the program drops it would come back
//! ```
//! A *disturbed* piece is no longer moved as a whole: each page goes to the address to which it
//! belongs ([`page_locations`](super::page_locations)), and no further page moves out. It is not
//! swapped either, unless the caller owns the range, in which case no other thread may unmap or
//! move the piece.

use std::sync::atomic::{AtomicU32, Ordering};

use vmarea_linux_sys::uffd::Event;

// ORDERING: the words are written under the lock, and read under the lock or by the thread that
// writes them; the lock orders them, so they are Relaxed.
const UNDER_LOCK: Ordering = Ordering::Relaxed;

/// The phase of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    Leaving,
    Away,
    Swapping,
}

/// The meaning of an event for a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// The event needs no action.
    Nothing,
    /// A fork created a child; the event contains the child's userfaultfd.
    Child(i32),
    /// The program has moved mappings.
    Moved { from: u64, to: u64, len: u64 },
    /// The program has unmapped `start..end`.
    Unmapped { start: u64, end: u64 },
    /// The program is discarding the pages of `start..end`. This disturbs the piece if its pages
    /// are still moving out.
    Dropped {
        start: u64,
        end: u64,
        disturbs: bool,
    },
}

impl Phase {
    /// Returns the meaning of an event, as in the table of the module documentation.
    pub(super) fn meaning(self, event: Event) -> Meaning {
        match event {
            Event::Fault => Meaning::Nothing,
            Event::Fork(child) => Meaning::Child(child),
            // All other threads are stopped, so the event was caused by the swap itself.
            Event::Remap { .. } | Event::Unmap { .. } if self == Phase::Swapping => {
                Meaning::Nothing
            }
            Event::Remap { from, to, len } => Meaning::Moved { from, to, len },
            Event::Unmap { start, end } => Meaning::Unmapped { start, end },
            Event::Remove { start, end } => Meaning::Dropped {
                start,
                end,
                disturbs: self == Phase::Leaving,
            },
        }
    }
}

/// The phase of the current piece, in shared memory. Zeroed memory means [`Phase::Idle`].
#[derive(Debug)]
pub(super) struct Progress {
    phase: AtomicU32,
    disturbed: AtomicU32,
}

impl Progress {
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(UNDER_LOCK) {
            0 => Phase::Idle,
            1 => Phase::Leaving,
            2 => Phase::Away,
            _ => Phase::Swapping,
        }
    }

    /// Begins a piece, which is undisturbed at first. From now on its pages may be moved out.
    pub(super) fn begin(&self) {
        self.disturbed.store(0, UNDER_LOCK);
        self.enter(Phase::Leaving);
    }

    pub(super) fn enter(&self, phase: Phase) {
        let word = match phase {
            Phase::Idle => 0,
            Phase::Leaving => 1,
            Phase::Away => 2,
            Phase::Swapping => 3,
        };
        self.phase.store(word, UNDER_LOCK);
    }

    /// Records that the program has changed the mappings of the piece.
    pub(super) fn disturb(&self) {
        self.disturbed.store(1, UNDER_LOCK);
    }

    pub(super) fn is_disturbed(&self) -> bool {
        self.disturbed.load(UNDER_LOCK) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 4] = [Phase::Idle, Phase::Leaving, Phase::Away, Phase::Swapping];

    #[test]
    fn our_own_swap_is_no_change_of_the_program() {
        let remap = Event::Remap {
            from: 1,
            to: 2,
            len: 3,
        };
        let unmap = Event::Unmap { start: 1, end: 2 };
        for phase in PHASES {
            let is_ours = phase == Phase::Swapping;
            assert_eq!(phase.meaning(remap) == Meaning::Nothing, is_ours);
            assert_eq!(phase.meaning(unmap) == Meaning::Nothing, is_ours);
            assert_eq!(phase.meaning(Event::Fork(4)), Meaning::Child(4));
            assert_eq!(phase.meaning(Event::Fault), Meaning::Nothing);
        }
    }

    #[test]
    fn a_drop_disturbs_only_while_pages_go_out() {
        for phase in PHASES {
            let dropped = phase.meaning(Event::Remove { start: 1, end: 2 });
            let disturbs = phase == Phase::Leaving;
            let (start, end) = (1, 2);
            assert_eq!(
                dropped,
                Meaning::Dropped {
                    start,
                    end,
                    disturbs
                }
            );
        }
    }

    #[test]
    fn a_new_piece_is_undisturbed_and_each_phase_is_kept() {
        let progress = Progress {
            phase: AtomicU32::new(0),
            disturbed: AtomicU32::new(0),
        };
        assert_eq!(progress.phase(), Phase::Idle);
        for phase in PHASES {
            progress.enter(phase);
            progress.disturb();
            assert_eq!(progress.phase(), phase);
        }
        progress.begin();
        assert_eq!(progress.phase(), Phase::Leaving);
        assert!(!progress.is_disturbed());
    }
}
