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
//! | [`Checked`] | four per thread | changes to the VMA itself only |
//!
//! # Locking
//! As in [`vmarea::lookup`]. Of the caches in this module, only [`Checked`] may be used without the
//! lock, because the other caches rely on the writer's notifications.
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

/// Number of VMAs that [`VmaCache`] and [`Checked`] keep for each thread.
pub const SLOTS: usize = 4;

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

    /// Returns the VMA that contains `addr`, with its range, if the cache contains that VMA.
    fn lookup<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)>;

    /// Makes a second attempt after [`lookup`](Self::lookup) found nothing. If the second attempt
    /// also fails, the index is searched.
    #[inline(always)]
    fn look_again<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        let _ = (shared, own, vmas, addr);
        None
    }

    /// Notifies the cache that a search of the index for `addr` found a VMA with this range. The VMA
    /// may start above `addr`.
    fn found<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
        found: (VmaId, VmRange),
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
    Searched(Option<(VmaId, VmRange)>),
}

impl Lookup {
    /// Returns the first VMA that ends after the address, with its range.
    #[inline]
    pub fn found(self) -> Option<(VmaId, VmRange)> {
        match self {
            Lookup::Hit(vma, range) => Some((vma, range)),
            Lookup::Searched(found) => found,
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
    match C::lookup(shared, own, vmas, addr) {
        Some((vma, range)) => Lookup::Hit(vma, range),
        None => look_further::<C, V>(shared, own, vmas, addr),
    }
}

/// Finds a VMA after the first attempt in the cache failed. This is a separate function so that a
/// lookup that hits at once does not need to save the registers used here.
#[inline(never)]
fn look_further<C: Cache, V: Vmas + ?Sized>(
    shared: &C::Mm,
    own: &mut C::Thread,
    vmas: &V,
    addr: u64,
) -> Lookup {
    if let Some((vma, range)) = C::look_again(shared, own, vmas, addr) {
        return Lookup::Hit(vma, range);
    }
    let search = || {
        let vma = vmas.find(addr)?;
        Some((vma, vmas.range(vma)?))
    };
    let found = search();
    if let Some(found) = found {
        C::found(shared, own, vmas, addr, found);
    }
    Lookup::Searched(found)
}
