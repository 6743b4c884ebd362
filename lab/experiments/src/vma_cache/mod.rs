//! Caches for VMA lookups, one type per cache, whose performance can be compared.
//!
//! A cache proposes a VMA for an address. If it has none to propose, the index is searched and the
//! cache is notified of the result. A cache always checks its entries with [`Vmas::range`], so a
//! stale entry costs a search but never causes a wrong result. The user of a cache stores one
//! [`Cache::Thread`] per thread and one [`Cache::Mm`] per address space.
//!
//! | type | entries | invalidated by |
//! |---|---|---|
//! | [`NoCache`] | none | |
//! | [`LastUsed`] | one per address space (`mmap_cache`) | removal of that VMA; any `munmap` |
//! | [`LastUsedAndLargest`] | two per address space | the same |
//! | [`VmaCache`] | four per thread (`vmacache`) | removal of any VMA of the address space |
//! | [`Checked`] | many per thread | changes to the VMA itself only |
//!
//! # Locking
//! As in [`vmarea::lookup`]. Of the caches in this module, only [`Checked`] may be used without the
//! lock, because the writer has to notify the other caches of changes.
//!
//! # Linux
//! `mm/mmap.c` `find_vma` of 3.14 (`mmap_cache`); `mm/vmacache.c` of 3.15, removed in 6.1. As in
//! Linux, a lookup of an address in a hole is never a cache hit.

mod checked;
mod last_used;
mod vmacache;

pub use checked::Checked;
pub use last_used::{LastUsed, LastUsedAndLargest, NoCache};
pub use vmacache::VmaCache;

use vmarea::lookup::Vmas;
use vmarea::types::{MmId, VmRange, VmaId};

/// A cache of lookup results.
pub trait Cache {
    /// Name of the cache in tables.
    const NAME: &'static str;
    /// Data that the cache stores per address space. The default value is that of a new address
    /// space.
    type Mm: Default + Send + Sync;
    /// Data that the cache stores per thread. The default value is that of a thread without an
    /// address space.
    type Thread: Default + Send;

    /// Notifies the cache that the thread will use the address space `mm`.
    ///
    /// The thread is new, or has executed another program. `shared` is the cache's data for `mm`.
    fn enter(shared: &Self::Mm, own: &mut Self::Thread, mm: MmId) {
        let _ = (shared, own, mm);
    }

    /// Returns true if the next lookup must skip the cache. Called once before each lookup.
    ///
    /// If the result is true, the cache is neither queried nor notified of the lookup's result.
    #[inline(always)]
    fn rests(own: &mut Self::Thread) -> bool {
        let _ = own;
        false
    }

    /// Returns the VMA that contains `addr`, with its range, if the cache contains that VMA.
    fn lookup<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)>;

    /// Makes a second attempt after [`lookup`](Self::lookup) found nothing. If the second attempt
    /// also fails, the index is searched.
    fn look_again<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        let _ = (shared, own, vmas, addr);
        None
    }

    /// Notifies the cache that the index returned `vma` for a lookup of `addr`. The VMA may start
    /// above `addr`.
    fn found<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
        vma: VmaId,
    );

    /// Notifies the cache of the removal of `vma`; `prev` is the VMA before it. Called with
    /// `mmap_lock` held for writing.
    fn unlinked(shared: &Self::Mm, vma: VmaId, prev: Option<VmaId>) {
        let _ = (shared, vma, prev);
    }

    /// Notifies the cache that a call unmapped memory. Called with `mmap_lock` held for writing,
    /// after [`unlinked`](Self::unlinked).
    fn unmapped(shared: &Self::Mm) {
        let _ = shared;
    }
}

/// Result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The cache contained the VMA; the VMA's current range contains the address.
    Hit(VmaId, VmRange),
    /// The index was searched for the first VMA that ends after the address.
    Searched(Option<VmaId>),
}

impl Lookup {
    /// Returns the first VMA that ends after the address.
    pub fn vma(self) -> Option<VmaId> {
        match self {
            Lookup::Hit(vma, _) => Some(vma),
            Lookup::Searched(vma) => vma,
        }
    }

    /// Returns the range of the VMA that the lookup found. For a hit, the range is already known.
    #[inline]
    pub fn range<V: Vmas + ?Sized>(self, vmas: &V) -> Option<VmRange> {
        match self {
            Lookup::Hit(_, range) => Some(range),
            Lookup::Searched(vma) => vmas.range(vma?),
        }
    }
}

/// Finds the first VMA that ends after `addr`; searches the index only if the cache has no result.
#[inline(always)]
pub fn find_vma<C: Cache, V: Vmas + ?Sized>(
    shared: &C::Mm,
    own: &mut C::Thread,
    vmas: &V,
    addr: u64,
) -> Lookup {
    if C::rests(own) {
        return Lookup::Searched(vmas.find(addr));
    }
    let cached = C::lookup(shared, own, vmas, addr);
    if let Some((vma, range)) = cached.or_else(|| C::look_again(shared, own, vmas, addr)) {
        return Lookup::Hit(vma, range);
    }
    let found = vmas.find(addr);
    if let Some(vma) = found {
        C::found(shared, own, vmas, addr, vma);
    }
    Lookup::Searched(found)
}

/// Finds the first VMA that ends after `addr`, as [`find_vma`] does; also returns the VMA's range.
#[inline(always)]
pub fn find_range<C: Cache, V: Vmas + ?Sized>(
    shared: &C::Mm,
    own: &mut C::Thread,
    vmas: &V,
    addr: u64,
) -> Option<(VmaId, VmRange)> {
    if C::rests(own) {
        let vma = vmas.find(addr)?;
        return Some((vma, vmas.range(vma)?));
    }
    if let Some(found) = C::lookup(shared, own, vmas, addr) {
        return Some(found);
    }
    ask_index::<C, V>(shared, own, vmas, addr)
}

/// Finds a VMA after the first attempt in the cache failed. This is a separate function so that a
/// lookup that hits or skips the cache does not need to save the registers used here.
#[inline(never)]
fn ask_index<C: Cache, V: Vmas + ?Sized>(
    shared: &C::Mm,
    own: &mut C::Thread,
    vmas: &V,
    addr: u64,
) -> Option<(VmaId, VmRange)> {
    if let Some(found) = C::look_again(shared, own, vmas, addr) {
        return Some(found);
    }
    let vma = vmas.find(addr)?;
    C::found(shared, own, vmas, addr, vma);
    Some((vma, vmas.range(vma)?))
}
