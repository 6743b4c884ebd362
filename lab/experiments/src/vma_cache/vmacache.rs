//! `vmacache`: four entries per thread, invalidated by sequence numbers.
//!
//! A thread and its address space each have a sequence number. The removal of a VMA increments the
//! address space's number; at its next lookup, a thread whose number differs from the address
//! space's number empties its own cache. When the address space's number wraps to 0, the writer
//! empties the caches of all threads. Otherwise, a thread that made no lookup during a whole cycle
//! of the number would find the two numbers equal although the thread's entries are stale.
//!
//! # Picture
//! ```text
//! lookup:  checks all four in order            miss: replaces the entry (page number mod 4)
//! ```
//!
//! # Invariants
//! C1  if the sequence numbers are equal, every entry is a VMA of the thread's address space
//!
//! # Locking
//! Only the thread itself writes its entries, under `mmap_lock` for reading, except that a writer
//! of the address space empties them under `mmap_lock` for writing. The list of threads has its own
//! lock.
//!
//! # Linux
//! `mm/vmacache.c` 3.15: `vmacache_find`, `vmacache_update`, `vmacache_valid`,
//! `vmacache_flush_all`. Differences: the threads of an address space are listed, while Linux
//! iterates over all threads of the system; and the flush also happens in an address space with one
//! thread, where Linux skipped it and so let entries outlive their VMAs (CVE-2018-17182).

use super::{Cache, SLOTS};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::vec::Vec;
use vmarea::lookup::Vmas;
use vmarea::types::{MmId, PAGE_SHIFT, VmRange, VmaId};
use vmarea_sync::SpinLock;

/// The cache of Linux 3.15. The sequence number wraps to 0 after `LAST`.
#[derive(Debug)]
#[doc(alias = "vmacache")]
pub struct VmaCache<const LAST: u32 = { u32::MAX }>;

/// Data that [`VmaCache`] stores per address space.
#[derive(Debug, Default)]
pub struct Shared {
    sequence: AtomicU32,
    threads: SpinLock<Vec<Weak<Entries>>>,
}

/// Data that [`VmaCache`] stores per thread.
#[derive(Debug, Default)]
pub struct Thread {
    mm: Option<MmId>,
    entries: Arc<Entries>,
}

/// The part of a thread's data that a writer can access.
///
/// ORDERING: Relaxed throughout; `mmap_lock` excludes readers during a write.
#[derive(Debug, Default)]
struct Entries {
    sequence: AtomicU32,
    vmas: [AtomicU64; SLOTS],
}

impl Entries {
    fn flush(&self) {
        for entry in &self.vmas {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns true if the cache belongs to `mm` and no VMA has been removed since the last lookup.
///
/// If a VMA has been removed, empties the cache and updates the thread's sequence number.
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
        // New entries are allocated, because the old ones are still on the list of the previous
        // address space.
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
    fn found<V: Vmas + ?Sized>(
        _: &Shared,
        own: &mut Thread,
        vmas: &V,
        addr: u64,
        (vma, _): (VmaId, VmRange),
    ) {
        if own.mm == Some(vmas.mm()) {
            let slot = (addr >> PAGE_SHIFT) as usize % SLOTS;
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
