//! Caches in front of the search for a VMA, each a type, so that they can be measured against each other.
//!
//! A cache proposes a VMA for an address; where it has none the index is asked and the cache is told
//! what was found. A cache never decides by itself that a VMA still is what it was: it asks
//! [`Vmas::range`], so that a stale entry costs a search and never gives a wrong answer. The core
//! knows no threads and therefore holds no cache: an embedder keeps [`Cache::Thread`] beside its
//! thread and [`Cache::Mm`] beside its address space.
//!
//! | type | entries | made invalid by |
//! |---|---|---|
//! | [`NoCache`] | none | |
//! | [`LastUsed`] | one an address space (`mmap_cache`) | removal of that VMA; any `munmap` |
//! | [`LastUsedAndLargest`] | two an address space | the same |
//! | [`VmaCache`] | four a thread (`vmacache`) | removal of any VMA of the address space |
//! | [`Checked`] | many a thread | only what happens to the VMA itself |
//!
//! # Locking
//! A lookup needs `mmap_lock` for reading, a change for writing: then an answer holds as long as the
//! lock is held. Without the lock an answer is a proposal, to be checked again when the VMA itself is
//! locked; of those here only [`Checked`] may be used so, because the others are told of changes by
//! the writer.
//!
//! # Linux
//! `mm/mmap.c` `find_vma` of 3.14 (`mmap_cache`); `mm/vmacache.c` of 3.15, gone since 6.1. A lookup
//! that finds the VMA after a hole is never answered by a cache, there or here.

mod checked;
mod last_used;
mod observe;
mod vmacache;

pub use checked::Checked;
pub use last_used::{LastUsed, LastUsedAndLargest, NoCache};
pub use observe::{Change, Observer};
pub use vmacache::VmaCache;
/// The index by itself, and the slots that VMAs live in: for who wants to look at lookups alone.
pub use {vmarea_range_tree as range_tree, vmarea_sync::Key, vmarea_sync::Slots};

use crate::mm::{Mm, MmapReadGuard, MmapWriteGuard};
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{MmId, VmRange, VmaId};

/// One address space, as far as a lookup is concerned.
pub trait Vmas {
    /// Which.
    fn mm(&self) -> MmId;

    /// Asks the index: the first VMA that ends after `addr`.
    fn find(&self, addr: u64) -> Option<VmaId>;

    /// The addresses of a VMA as they are now; `None` where it is gone or of another address space.
    fn range(&self, vma: VmaId) -> Option<VmRange>;
}

/// A cache of what lookups found.
pub trait Cache {
    /// As tables call it.
    const NAME: &'static str;
    /// What it keeps for an address space. Its default is that of a new one.
    type Mm: Default + Send + Sync;
    /// What it keeps for a thread. Its default is that of a thread without address space.
    type Thread: Default + Send;

    /// The thread lives in the address space `mm` from now on, whose part is `shared`: it begins, or
    /// it has executed another program.
    fn enter(shared: &Self::Mm, own: &mut Self::Thread, mm: MmId) {
        let _ = (shared, own, mm);
    }

    /// True where the cache wants to know nothing of the next lookup: it is not to be asked, and not
    /// to be told what was found. Called once for each lookup, before it.
    #[inline(always)]
    fn rests(own: &mut Self::Thread) -> bool {
        let _ = own;
        false
    }

    /// The VMA that holds `addr`, and where it lies, if the cache has it.
    fn lookup<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)>;

    /// As [`lookup`](Self::lookup), where that had nothing: what is worth a second look before the
    /// index is asked.
    fn look_again<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        let _ = (shared, own, vmas, addr);
        None
    }

    /// The index has answered a lookup of `addr` with `vma`, which may lie above it.
    fn found<V: Vmas + ?Sized>(
        shared: &Self::Mm,
        own: &mut Self::Thread,
        vmas: &V,
        addr: u64,
        vma: VmaId,
    );

    /// `vma` leaves the address space; `prev` lies before it. Called by the writer.
    fn unlinked(shared: &Self::Mm, vma: VmaId, prev: Option<VmaId>) {
        let _ = (shared, vma, prev);
    }

    /// A call has unmapped something. Called by the writer, after [`unlinked`](Self::unlinked).
    fn unmapped(shared: &Self::Mm) {
        let _ = shared;
    }
}

/// What a lookup came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The cache had it, and has asked where it lies; it holds the address.
    Hit(VmaId, VmRange),
    /// The index was asked: the first VMA that ends after the address.
    Searched(Option<VmaId>),
}

impl Lookup {
    /// The first VMA that ends after the address.
    pub fn vma(self) -> Option<VmaId> {
        match self {
            Lookup::Hit(vma, _) => Some(vma),
            Lookup::Searched(vma) => vma,
        }
    }

    /// Where that VMA lies. A hit knows it already.
    #[inline]
    pub fn range<V: Vmas + ?Sized>(self, vmas: &V) -> Option<VmRange> {
        match self {
            Lookup::Hit(_, range) => Some(range),
            Lookup::Searched(vma) => vmas.range(vma?),
        }
    }
}

/// The first VMA that ends after `addr`: of the cache, or else of the index.
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

/// The first VMA that ends after `addr`, and where it lies: of the cache, or else of the index.
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

/// Where the cache has nothing at once. A call of its own, so that nothing of it is in the way of a
/// cache that rests or hits, not even the registers that are saved for this.
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

/// The VMAs of one mm of a space. The caller holds its lock, or treats answers as proposals.
pub(crate) struct VmasOf<'a, E: Environment> {
    pub(crate) space: &'a Space<E>,
    pub(crate) mm: &'a Mm<E::Wait>,
    pub(crate) id: MmId,
}

impl<'a, E: Environment> VmasOf<'a, E> {
    /// Of an address space that has an id.
    pub(crate) fn new(space: &'a Space<E>, mm: &'a Mm<E::Wait>) -> Option<Self> {
        let id = mm.pages.owner()?;
        Some(VmasOf { space, mm, id })
    }
}

impl<E: Environment> Vmas for VmasOf<'_, E> {
    #[inline]
    fn mm(&self) -> MmId {
        self.id
    }

    #[inline]
    fn find(&self, addr: u64) -> Option<VmaId> {
        let found = self.mm.tree.find(addr)?;
        VmaId::from_bits(found.value)
    }

    #[inline]
    fn range(&self, vma: VmaId) -> Option<VmRange> {
        let vma = self.space.vmas.get(vma.0)?;
        let range = VmRange {
            start: vma.start(),
            end: vma.end(),
        };
        (vma.is_of(self.id)).then_some(range)
    }
}

macro_rules! of_guard {
    ($guard:ident) => {
        impl<E: Environment> $guard<'_, E> {
            #[inline]
            pub(crate) fn lookups(&self) -> VmasOf<'_, E> {
                VmasOf {
                    space: self.space,
                    mm: self.mm,
                    id: self.id,
                }
            }
        }

        impl<E: Environment> Vmas for $guard<'_, E> {
            #[inline]
            fn mm(&self) -> MmId {
                self.id
            }

            #[inline]
            fn find(&self, addr: u64) -> Option<VmaId> {
                self.lookups().find(addr)
            }

            #[inline]
            fn range(&self, vma: VmaId) -> Option<VmRange> {
                self.lookups().range(vma)
            }
        }
    };
}

of_guard!(MmapReadGuard);
of_guard!(MmapWriteGuard);
