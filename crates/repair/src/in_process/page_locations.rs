//! The addresses to which the moved-out pages belong in a child of a fork.
//!
//! In the process itself, each page belongs to its own address. A child may move, unmap or discard
//! parts of the piece before it has received its pages. The table cannot overflow: it has one word
//! per page, which holds the address to which the page currently belongs. The table is in shared
//! memory, like all data that is used while pages are moved out.
//!
//! # Invariants
//! H1  A page is copied to the address named by the last event, or to none.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use vmarea_merge::types::VmRange;

use crate::plan::PAGE;
use vmarea_linux_sys::calls::{Arena, Plain};

/// The page belongs to its original address.
const STAYED: u64 = 0;
/// Value for a page that the child has unmapped or discarded; no page has this address.
const NOWHERE: u64 = 1;

// ORDERING: words are read and written under the watcher's lock, which orders them: Relaxed.
const UNDER_LOCK: Ordering = Ordering::Relaxed;

/// Number of pages in the largest piece.
pub(super) const MOST_PAGES: usize = 65_536;

/// One word for each page of a piece; zero means the page's original address.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct PageLocations {
    words: [AtomicU64; MOST_PAGES],
}

impl Plain for PageLocations {}

impl PageLocations {
    /// Creates the table of a child that inherits `from`, or in which each page belongs to its
    /// original address. `piece` is the piece whose pages are moved out.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn fork(
        from: Option<&PageLocations>,
        piece: VmRange,
    ) -> io::Result<Arena<PageLocations>> {
        let arena: Arena<PageLocations> = Arena::new(1)?;
        let pages = piece.pages() as usize;
        let inherited = from.map_or(&[][..], |from| &from.words[..pages]);
        for (to, from) in arena.get()[0].words.iter().zip(inherited) {
            to.store(from.load(UNDER_LOCK), UNDER_LOCK);
        }
        Ok(arena)
    }

    /// Returns the address to which the page at offset `off` in `piece` belongs. Returns `None` if
    /// the child has unmapped or discarded the page.
    pub(super) fn of(&self, piece: VmRange, off: u64) -> Option<u64> {
        let word = self.words[(off / PAGE) as usize].load(UNDER_LOCK);
        match word {
            STAYED => Some(piece.start + off),
            NOWHERE => None,
            home => Some(home),
        }
    }

    /// Records that the pages belonging to `from..from + len` now belong to `to..to + len`.
    pub(super) fn moved(&self, piece: VmRange, from: u64, to: u64, len: u64) {
        self.change(piece, from..from.saturating_add(len), |home| {
            home - from + to
        });
    }

    /// Records that the pages that belonged to `start..end` have been unmapped or discarded.
    pub(super) fn dropped(&self, piece: VmRange, start: u64, end: u64) {
        self.change(piece, start..end, |_| NOWHERE);
    }

    fn change(&self, piece: VmRange, range: std::ops::Range<u64>, to: impl Fn(u64) -> u64) {
        for off in (0..piece.len_bytes()).step_by(PAGE as usize) {
            if let Some(home) = self.of(piece, off).filter(|home| range.contains(home)) {
                self.words[(off / PAGE) as usize].store(to(home), UNDER_LOCK);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: VmRange = VmRange {
        start: 16 * PAGE,
        end: 20 * PAGE,
    };

    fn all(locations: &PageLocations) -> Vec<Option<u64>> {
        let offs = (0..PIECE.len_bytes()).step_by(PAGE as usize);
        offs.map(|off| locations.of(PIECE, off).map(|home| home / PAGE))
            .collect()
    }

    #[test]
    fn pages_follow_every_move_and_end_where_they_are_dropped() {
        let arena = PageLocations::fork(None, PIECE).unwrap();
        let locations = &arena.get()[0];
        assert_eq!(all(locations), [Some(16), Some(17), Some(18), Some(19)]);
        locations.moved(PIECE, 17 * PAGE, 40 * PAGE, 2 * PAGE);
        locations.moved(PIECE, 41 * PAGE, 17 * PAGE, PAGE);
        assert_eq!(all(locations), [Some(16), Some(40), Some(17), Some(19)]);
        let child = PageLocations::fork(Some(locations), PIECE).unwrap();
        let child = &child.get()[0];
        child.dropped(PIECE, 16 * PAGE, 18 * PAGE);
        assert_eq!(all(child), [None, Some(40), None, Some(19)]);
        // A mapping created there later contains other pages.
        child.moved(PIECE, 17 * PAGE, 50 * PAGE, PAGE);
        assert_eq!(all(child), [None, Some(40), None, Some(19)]);
        assert_eq!(all(locations), [Some(16), Some(40), Some(17), Some(19)]);
    }
}
