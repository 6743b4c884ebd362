//! Records which address space each thread used at any given time.
//!
//! Samples arrive late. By the time the recorder handles a page fault, the faulting thread may have
//! executed another program or exited, and its thread ID may have been reused. This module
//! therefore keeps the history of each thread's address space until the stream has passed the
//! corresponding times.

use foldhash::HashMap;
use std::collections::VecDeque;
use vmarea_trace::event::{MmId, Nanos};

/// The address space that a thread uses, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The thread uses a recorded address space.
    In(MmId),
    /// The thread is inside `execve` and is leaving an address space that other tasks still use.
    ///
    /// The kernel reads the arguments of `execve` from the old address space and writes them to the
    /// new one.
    Leaving(MmId),
    /// No address space: before the first program, between two programs, after exit, or unrecorded.
    Nowhere,
}

/// History of each thread's [`Place`].
#[derive(Debug, Default)]
pub(crate) struct Residence {
    places: HashMap<i32, Vec<(Nanos, Place)>>,
    ended: VecDeque<(Nanos, i32)>,
}

impl Residence {
    /// Records that `tid` has been at `place` since time `since`, or since its last move if that is
    /// later.
    pub(crate) fn moves(&mut self, tid: i32, since: Nanos, place: Place) {
        let places = self.places.entry(tid).or_default();
        let since = places.last().map_or(since, |last| since.max(last.0));
        places.push((since, place));
        if place == Place::Nowhere {
            self.ended.push_back((since, tid));
        }
    }

    /// Returns the place of `tid` at time `t`; `None` for a thread that is not (yet) known.
    pub(crate) fn at(&self, tid: i32, t: Nanos) -> Option<Place> {
        let places = self.places.get(&tid)?;
        let after = places.partition_point(|p| p.0 <= t);
        Some(places.get(after.checked_sub(1)?)?.1)
    }

    /// Forgets places that no sample after `t` needs.
    pub(crate) fn forget_before(&mut self, t: Nanos) {
        while let Some(&(since, tid)) = self.ended.front() {
            if since >= t {
                break;
            }
            self.ended.pop_front();
            if let Some(places) = self.places.get_mut(&tid) {
                let past = places.partition_point(|p| p.0 <= t).saturating_sub(1);
                places.drain(..past);
                if places.len() == 1 && places[0].1 == Place::Nowhere {
                    self.places.remove(&tid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_names_the_thread_of_that_time() {
        let mut residence = Residence::default();
        residence.moves(7, 100, Place::In(MmId(1)));
        residence.moves(7, 200, Place::Nowhere);
        residence.moves(7, 300, Place::In(MmId(2)));
        assert_eq!(residence.at(7, 99), None);
        assert_eq!(residence.at(7, 150), Some(Place::In(MmId(1))));
        assert_eq!(residence.at(7, 250), Some(Place::Nowhere));
        assert_eq!(residence.at(7, 300), Some(Place::In(MmId(2))));
        residence.forget_before(310);
        assert_eq!(residence.at(7, 320), Some(Place::In(MmId(2))));
        assert_eq!(residence.at(7, 150), None);
    }

    #[test]
    fn the_dead_are_forgotten() {
        let mut residence = Residence::default();
        residence.moves(7, 100, Place::In(MmId(1)));
        residence.moves(7, 200, Place::Nowhere);
        residence.forget_before(201);
        assert!(residence.places.is_empty());
    }
}
