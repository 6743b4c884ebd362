//! Lookup of the VMA at an address.
//!
//! # Linux
//! `mm/mmap.c`: `find_vma`, `find_vma_prev`, `find_vma_intersection`, `vma_lookup`.

use super::lookups::VmasOf;
use super::{Mm, MmapGuard};
use crate::Space;
use crate::types::platform::Environment;
use crate::types::writers::Token;
use crate::types::{VmRange, VmaId};
use crate::vma::VmaView;
use core::sync::atomic::Ordering;
use vmarea_range_tree::Entry;

fn id(entry: Entry) -> Option<VmaId> {
    VmaId::from_bits(entry.value)
}

impl<E: Environment> Mm<E> {
    /// Counts a lookup; also counts a hit if a last-VMA cache would have contained the result.
    fn count_lookup(&self, found: Option<Entry>, addr: u64) {
        let value = found.filter(|e| e.start <= addr).map_or(0, |e| e.value);
        // ORDERING: Relaxed; statistics.
        if value != 0 && self.last_used.load(Ordering::Relaxed) == value {
            self.last_used_hits.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if value != 0 {
            self.last_used.store(value, Ordering::Relaxed);
        }
        self.last_used_misses.fetch_add(1, Ordering::Relaxed);
    }
}

impl<E: Environment> Space<E> {
    /// True if [`note_lookup`](Self::note_lookup) does anything.
    #[inline]
    pub(crate) fn notes_lookups(&self) -> bool {
        self.count_lookups || self.lookup_observer.is_some()
    }

    /// Counts a lookup if counting is enabled, and reports it to the lookup observer, if any.
    #[inline]
    pub(crate) fn note_lookup(&self, mm: &Mm<E>, found: Option<Entry>, addr: u64) {
        if self.count_lookups {
            mm.count_lookup(found, addr);
        }
        if let Some(observer) = &self.lookup_observer
            && let Some(vmas) = VmasOf::new(self, mm)
        {
            observer.looked_up(&vmas, addr, found.and_then(id));
        }
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Returns the first VMA that ends after `addr`, without counting the lookup.
    pub(crate) fn find(&self, addr: u64) -> Option<VmaView> {
        self.index().find(addr).and_then(id).map(|v| self.view(v))
    }

    /// Returns the first VMA that ends after `addr`.
    #[inline]
    pub fn find_vma(&self, addr: u64) -> Option<VmaView> {
        let found = self.index().find(addr);
        if self.space.notes_lookups() {
            self.space.note_lookup(self.mm, found, addr);
        }
        found.and_then(id).map(|v| self.view(v))
    }

    /// Returns the VMA that contains `addr`.
    pub fn vma_lookup(&self, addr: u64) -> Option<VmaView> {
        self.find_vma(addr).filter(|v| v.range.contains(addr))
    }

    /// Returns the last VMA that starts below `addr`.
    pub(crate) fn prev(&self, addr: u64) -> Option<VmaView> {
        self.index().prev(addr).and_then(id).map(|v| self.view(v))
    }

    /// Returns the first VMA that overlaps `range`.
    #[doc(alias = "find_vma_intersection")]
    pub(crate) fn intersection(&self, range: VmRange) -> Option<VmaView> {
        self.find_vma(range.start)
            .filter(|v| v.range.start < range.end)
    }
}
