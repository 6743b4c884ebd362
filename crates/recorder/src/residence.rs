//! Where each thread was at what time.
//!
//! Samples arrive after the fact: by the time a page fault is looked at, its thread may have
//! moved on by `execve`, or have gone, and its number may name another thread. So the places of
//! a thread are kept with their times until the stream has passed them.

use std::collections::{HashMap, VecDeque};
use vmarea_trace::event::{MmId, Nanos};

/// Where a thread is, as far as the recording goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In an address space that is recorded.
    In(MmId),
    /// Inside of `execve`, away from an address space that others use on: what the kernel reads
    /// (the arguments) is in that one still, what it writes is in the next.
    Leaving(MmId),
    /// In none: before its first program, between two, after its end, or not recorded.
    Nowhere,
}

/// The places of all threads.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    places: HashMap<i32, Vec<(Nanos, Place)>>,
    ended: VecDeque<(Nanos, i32)>,
}

impl Lives {
    /// From `since` on `tid` is at `place`. A time before an earlier change counts as that.
    pub(crate) fn moves(&mut self, tid: i32, since: Nanos, place: Place) {
        let places = self.places.entry(tid).or_default();
        let since = places.last().map_or(since, |last| since.max(last.0));
        places.push((since, place));
        if place == Place::Nowhere {
            self.ended.push_back((since, tid));
        }
    }

    /// Where `tid` was at `t`; `None` for a thread that is not known (yet).
    pub(crate) fn at(&self, tid: i32, t: Nanos) -> Option<Place> {
        let places = self.places.get(&tid)?;
        let after = places.partition_point(|p| p.0 <= t);
        Some(places.get(after.checked_sub(1)?)?.1)
    }

    /// Forgets what no sample after `t` can ask for.
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
        let mut lives = Lives::default();
        lives.moves(7, 100, Place::In(MmId(1)));
        lives.moves(7, 200, Place::Nowhere);
        lives.moves(7, 300, Place::In(MmId(2)));
        assert_eq!(lives.at(7, 99), None);
        assert_eq!(lives.at(7, 150), Some(Place::In(MmId(1))));
        assert_eq!(lives.at(7, 250), Some(Place::Nowhere));
        assert_eq!(lives.at(7, 300), Some(Place::In(MmId(2))));
        lives.forget_before(310);
        assert_eq!(lives.at(7, 320), Some(Place::In(MmId(2))));
        assert_eq!(lives.at(7, 150), None);
    }

    #[test]
    fn the_dead_are_forgotten() {
        let mut lives = Lives::default();
        lives.moves(7, 100, Place::In(MmId(1)));
        lives.moves(7, 200, Place::Nowhere);
        lives.forget_before(201);
        assert!(lives.places.is_empty());
    }
}
