//! What the mover and the watcher agree on: how far a piece is, and what an event means then.
//!
//! The mover (the thread that repairs) takes the steps, the watcher reads the events of the kernel. Both do
//! so under the lock of [`Shared`](super::shared::Shared), so that no event falls between two phases.
//!
//! # Picture
//! ```text
//! phase     what is where                            left by                 to
//! Idle      all pages at home                        begin                   Leaving
//! Leaving   pages go out, in their order             all_left                Away
//!                                                    end (after a refusal)   Idle
//! Away      pages wait, or come home                 begin_swap              Swapping
//!                                                    end                     Idle
//! Swapping  the fresh mapping is put in place;       end_swap                Away
//!           nobody else changes mappings
//!
//! event     in Swapping   in any other phase
//! Fault     nothing       nothing
//! Fork      give the child a copy of what is out
//! Remap     nothing       disturbed; its pages belong elsewhere now
//! Unmap     nothing       disturbed; its pages belong nowhere
//! Remove    its pages are dropped where they wait; in Leaving disturbed as well: one that
//!           went out before the program drops it would come back
//! ```
//! A piece that is *disturbed* is not moved as a whole any more, nor swapped: each page goes to where it
//! belongs ([`page_locations`](super::page_locations)), and nothing else goes out.

use std::sync::atomic::{AtomicU32, Ordering};

use vmarea_linux_sys::uffd::Event;

// ORDERING: the words are written under the lock, and read under it or by the thread that writes them;
// the lock orders them, so they are Relaxed.
const UNDER_LOCK: Ordering = Ordering::Relaxed;

/// How far a piece is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    Leaving,
    Away,
    Swapping,
}

/// What an event means to a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// Nothing is to be done.
    Nothing,
    /// There is a child, behind this descriptor.
    Child(i32),
    /// The program has moved mappings.
    Moved { from: u64, to: u64, len: u64 },
    /// The program has unmapped `start..end`.
    Unmapped { start: u64, end: u64 },
    /// The program drops the pages of `start..end`; it disturbs the piece while pages go out.
    Dropped {
        start: u64,
        end: u64,
        disturbs: bool,
    },
}

impl Phase {
    /// The table of events above.
    pub(super) fn meaning(self, event: Event) -> Meaning {
        match event {
            Event::Fault => Meaning::Nothing,
            Event::Fork(child) => Meaning::Child(child),
            // All others are stopped: it is our swap.
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

/// The phase of the piece, in shared memory. Zeroed, it is [`Phase::Idle`].
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

    /// Pages go out from now on, and nothing has disturbed them.
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

    /// The program has changed what the piece is made of.
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
