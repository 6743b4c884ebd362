//! Caches shared by all threads of an address space: the last-used VMA, and the largest VMA.
//!
//! All threads of an address space share these caches, so the caches are useless if the threads
//! work in different VMAs. An entry is a hint that is checked against the VMA. For comparison, the
//! module also contains an implementation without a cache.
//!
//! # Linux
//! The last used VMA is `mmap_cache` in `mm/mmap.c` of 3.14: a removed VMA is replaced by the VMA
//! before it, and any `munmap` empties the cache. The largest VMA is from the patch "mm: cache
//! largest vma" of November 2013, which was rejected: it is the largest VMA found so far, until
//! that VMA is removed.

use super::Cache;
use std::sync::atomic::{AtomicU64, Ordering};
use vmarea::lookup::Vmas;
use vmarea::types::{VmRange, VmaId};

/// Implementation without a cache: every lookup searches the index.
#[derive(Debug)]
pub struct NoCache;

impl Cache for NoCache {
    const NAME: &'static str = "none";
    type Mm = ();
    type Thread = ();

    #[inline]
    fn lookup<V: Vmas + ?Sized>(_: &(), _: &mut (), _: &V, _: u64) -> Option<(VmaId, VmRange)> {
        None
    }

    #[inline]
    fn found<V: Vmas + ?Sized>(_: &(), _: &mut (), _: &V, _: u64, _: (VmaId, VmRange)) {}
}

/// Storage for the id of at most one VMA.
///
/// ORDERING: Relaxed throughout; the id that is read is checked against the VMA, under `mmap_lock`.
#[derive(Debug, Default)]
pub struct Place(AtomicU64);

impl Place {
    #[inline]
    fn get(&self) -> Option<VmaId> {
        VmaId::from_bits(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    fn set(&self, vma: Option<VmaId>) {
        self.0
            .store(vma.map_or(0, VmaId::to_bits), Ordering::Relaxed);
    }

    #[inline]
    fn holding<V: Vmas + ?Sized>(&self, vmas: &V, addr: u64) -> Option<(VmaId, VmRange)> {
        let vma = self.get()?;
        let range = vmas.range(vma)?;
        range.contains(addr).then_some((vma, range))
    }
}

/// Cache of the VMA that was last used in the address space.
#[derive(Debug)]
#[doc(alias = "mmap_cache")]
pub struct LastUsed;

impl Cache for LastUsed {
    const NAME: &'static str = "last used";
    type Mm = Place;
    type Thread = ();

    #[inline]
    fn lookup<V: Vmas + ?Sized>(
        last: &Place,
        _: &mut (),
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        last.holding(vmas, addr)
    }

    #[inline]
    fn found<V: Vmas + ?Sized>(
        last: &Place,
        _: &mut (),
        _: &V,
        _: u64,
        (vma, _): (VmaId, VmRange),
    ) {
        last.set(Some(vma));
    }

    fn unlinked(last: &Place, vma: VmaId, prev: Option<VmaId>) {
        if last.get() == Some(vma) {
            last.set(prev);
        }
    }

    fn unmapped(last: &Place) {
        last.set(None);
    }
}

/// Cache of the last-used VMA, and of the largest VMA that a lookup has found.
#[derive(Debug)]
pub struct LastUsedAndLargest;

/// Data that [`LastUsedAndLargest`] stores per address space.
#[derive(Debug, Default)]
pub struct Two {
    last: Place,
    largest: Place,
}

impl Cache for LastUsedAndLargest {
    const NAME: &'static str = "last used, largest";
    type Mm = Two;
    type Thread = ();

    #[inline]
    fn lookup<V: Vmas + ?Sized>(
        two: &Two,
        _: &mut (),
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        two.last
            .holding(vmas, addr)
            .or_else(|| two.largest.holding(vmas, addr))
    }

    #[inline]
    fn found<V: Vmas + ?Sized>(
        two: &Two,
        _: &mut (),
        vmas: &V,
        _: u64,
        (vma, range): (VmaId, VmRange),
    ) {
        two.last.set(Some(vma));
        let pages = |vma| vmas.range(vma).map_or(0, |range| range.pages());
        if two.largest.get().map_or(0, pages) < range.pages() {
            two.largest.set(Some(vma));
        }
    }

    fn unlinked(two: &Two, vma: VmaId, prev: Option<VmaId>) {
        LastUsed::unlinked(&two.last, vma, prev);
        if two.largest.get() == Some(vma) {
            two.largest.set(None);
        }
    }

    fn unmapped(two: &Two) {
        two.last.set(None);
    }
}
