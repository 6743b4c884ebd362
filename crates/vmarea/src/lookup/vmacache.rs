//! `vmacache`: four entries a thread, made invalid by sequence numbers.
//!
//! The thread and its address space each have a number. A removal of any VMA moves that of the
//! address space on, and a thread whose number differs empties its cache at its next lookup. When the
//! number begins anew a thread that slept for a whole round would find it equal and its entries stale,
//! so the writer then empties the caches of all threads itself.
//!
//! # Picture
//! ```text
//! lookup:  all four, one after the other            miss: the entry (page number mod 4) is replaced
//! ```
//!
//! # Invariants
//! C1  where the numbers are equal, every entry is a VMA of the thread's address space
//!
//! # Locking
//! A thread writes its entries under `mmap_lock` for reading, and nobody else does; a writer of the
//! address space empties them under `mmap_lock` for writing. The list of threads has its own lock.
//!
//! # Linux
//! `mm/vmacache.c` 3.15: `vmacache_find`, `vmacache_update`, `vmacache_valid`, `vmacache_flush_all`.
//! Differences: threads of an address space are listed, where Linux looks through all there are; and
//! the flush is not left out where the address space has one thread, a shortcut that let entries
//! outlive their VMAs (CVE-2018-17182).

use super::{Cache, Vmas};
use crate::types::{MmId, PAGE_SHIFT, VmRange, VmaId};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vmarea_sync::SpinLock;

const ENTRIES: usize = 4;

/// The cache of the texts. After `LAST` the sequence number begins anew.
#[derive(Debug)]
#[doc(alias = "vmacache")]
pub struct VmaCache<const LAST: u32 = { u32::MAX }>;

/// What [`VmaCache`] keeps for an address space.
#[derive(Debug, Default)]
pub struct Shared {
    sequence: AtomicU32,
    threads: SpinLock<Vec<Weak<Entries>>>,
}

/// What [`VmaCache`] keeps for a thread.
#[derive(Debug, Default)]
pub struct Thread {
    mm: Option<MmId>,
    entries: Arc<Entries>,
}

/// The part of a thread that a writer can reach.
///
/// ORDERING: Relaxed throughout; readers and writer are kept apart by the mm's lock.
#[derive(Debug, Default)]
struct Entries {
    sequence: AtomicU32,
    vmas: [AtomicU64; ENTRIES],
}

impl Entries {
    fn flush(&self) {
        for entry in &self.vmas {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// True where the cache may be used: it is the thread's own address space, and nothing was removed.
/// Else it is empty afterwards and of the present number.
#[inline]
#[doc(alias = "vmacache_valid")]
fn is_valid(shared: &Shared, own: &Thread, mm: MmId) -> bool {
    if own.mm != Some(mm) {
        return false;
    }
    let now = shared.sequence.load(Ordering::Relaxed);
    if own.entries.sequence.load(Ordering::Relaxed) == now {
        return true;
    }
    own.entries.sequence.store(now, Ordering::Relaxed);
    own.entries.flush();
    false
}

impl<const LAST: u32> Cache for VmaCache<LAST> {
    const NAME: &'static str = "vmacache";
    type Mm = Shared;
    type Thread = Thread;

    fn enter(shared: &Shared, own: &mut Thread, mm: MmId) {
        // A new one, because the list of the address space that it leaves has the old one.
        own.entries = Arc::default();
        own.mm = Some(mm);
        let now = shared.sequence.load(Ordering::Relaxed);
        own.entries.sequence.store(now, Ordering::Relaxed);
        let mut threads = shared.threads.lock();
        if threads.len() == threads.capacity() {
            threads.retain(|thread| thread.strong_count() > 0);
        }
        threads.push(Arc::downgrade(&own.entries));
    }

    #[inline]
    #[doc(alias = "vmacache_find")]
    fn lookup<V: Vmas + ?Sized>(
        shared: &Shared,
        own: &mut Thread,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        if !is_valid(shared, own, vmas.mm()) {
            return None;
        }
        own.entries.vmas.iter().find_map(|entry| {
            let vma = VmaId::from_bits(entry.load(Ordering::Relaxed))?;
            let range = vmas.range(vma);
            debug_assert!(range.is_some(), "C1: the entry outlived its VMA");
            let range = range?;
            range.contains(addr).then_some((vma, range))
        })
    }

    #[inline]
    #[doc(alias = "vmacache_update")]
    fn found<V: Vmas + ?Sized>(_: &Shared, own: &mut Thread, vmas: &V, addr: u64, vma: VmaId) {
        if own.mm == Some(vmas.mm()) {
            let slot = (addr >> PAGE_SHIFT) as usize % ENTRIES;
            own.entries.vmas[slot].store(vma.to_bits(), Ordering::Relaxed);
        }
    }

    #[doc(alias = "vmacache_invalidate")]
    fn unlinked(shared: &Shared, _: VmaId, _: Option<VmaId>) {
        let now = shared.sequence.load(Ordering::Relaxed);
        if now < LAST {
            shared.sequence.store(now + 1, Ordering::Relaxed);
            return;
        }
        shared.sequence.store(0, Ordering::Relaxed);
        for thread in shared.threads.lock().iter().filter_map(Weak::upgrade) {
            thread.flush();
        }
    }
}
