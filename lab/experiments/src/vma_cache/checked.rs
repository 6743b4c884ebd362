//! The cache of this project: as few entries as `vmacache`, each checked against its VMA.
//!
//! An entry has the bounds that its VMA had when it was found last. They select the entry to try, so
//! a lookup rarely reads a wrong VMA; whether the VMA still exists and contains the address is
//! checked in the VMA itself, whose slot has a generation and whose bounds are atomics. A change
//! elsewhere in the address space therefore costs no entry. A VMA that has grown since is found if
//! the address is near its former bounds. If a VMA has merged into the one before it, its entry
//! passes to that one, which the address space remembers for the last VMA that was removed.
//!
//! The entry used last comes first, so that a thread that stays in one VMA pays for one, and a miss
//! replaces the last one. Nothing counts the misses: a lookup of an address in a hole, or of a
//! VMA that the thread has never used, is a miss whatever the cache does, and says nothing about the
//! lookups that follow.
//!
//! # Picture
//! ```text
//! entries   s0─e0 │ s1─e1 │ s2─e2 │ s3─e3      address within the bounds: try the VMA
//!           last used          used longest ago   within `REACH` of them: try it as well
//! ```
//!
//! # Invariants
//! K1  a result is always a live VMA that contains the address, because entries are only hints

use super::{Cache, SLOTS};
use std::sync::atomic::{AtomicU64, Ordering};
use vmarea::lookup::Vmas;
use vmarea::types::{MmId, PAGE_SIZE, VmRange, VmaId};

/// A cache of `N` VMAs per thread.
#[derive(Debug)]
pub struct Checked<const N: usize = SLOTS>;

/// Largest distance of an address from the former bounds of a VMA that is tried because it may have
/// grown: the pages of a few calls of `brk`, or a guard and the beginning of a stack.
const REACH: u64 = 64 * PAGE_SIZE;

/// The VMA that was removed last, and the one before it.
///
/// ORDERING: Relaxed throughout; the fields may come from different removals, and users check the
/// VMA.
#[derive(Debug, Default)]
pub struct Removed {
    vma: AtomicU64,
    prev: AtomicU64,
}

/// Data that [`Checked`] stores per thread.
#[derive(Clone, Debug)]
pub struct Entries<const N: usize> {
    /// The entry that was used last comes first.
    entries: [Entry; N],
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Start and length of the VMA when it was found last; the length is 0 if the entry is empty.
    start: u64,
    len: u64,
    vma: u64,
}

impl Entry {
    #[inline(always)]
    fn new(vma: VmaId, range: VmRange) -> Self {
        Entry {
            start: range.start,
            len: range.end.wrapping_sub(range.start),
            vma: vma.to_bits(),
        }
    }

    #[inline(always)]
    fn contains(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.start) < self.len
    }

    /// True if `addr` is at most [`REACH`] from the bounds.
    #[inline(always)]
    fn is_near(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.start).wrapping_add(REACH) < self.len.wrapping_add(2 * REACH)
    }
}

impl<const N: usize> Default for Entries<N> {
    fn default() -> Self {
        const { assert!(N > 0, "at least one entry") }
        Entries {
            entries: [Entry::default(); N],
        }
    }
}

impl<const N: usize> Entries<N> {
    /// Makes `entry` the first one, in place of the one at `at`.
    #[inline(always)]
    fn lead(&mut self, at: usize, entry: Entry) {
        for at in (1..=at).rev() {
            self.entries[at] = self.entries[at - 1];
        }
        self.entries[0] = entry;
    }

    /// Tries the VMA of the entry at `at`, and updates the entry.
    fn try_vma<V: Vmas + ?Sized>(
        &mut self,
        removed: &Removed,
        vmas: &V,
        at: usize,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        let mut vma = VmaId::from_bits(self.entries[at].vma)?;
        let mut range = vmas.range(vma);
        if range.is_none() {
            self.entries[at] = Entry::default();
            if removed.vma.load(Ordering::Relaxed) != vma.to_bits() {
                return None;
            }
            // It may have merged with the VMA before it.
            vma = VmaId::from_bits(removed.prev.load(Ordering::Relaxed))?;
            range = vmas.range(vma).filter(|range| range.contains(addr));
        }
        let range = range?;
        self.entries[at] = Entry::new(vma, range);
        if !range.contains(addr) {
            return None;
        }
        self.lead(at, self.entries[at]);
        Some((vma, range))
    }
}

impl<const N: usize> Cache for Checked<N> {
    const NAME: &'static str = "vmarea";
    type Mm = Removed;
    type Thread = Entries<N>;

    fn enter(_: &Removed, own: &mut Entries<N>, _: MmId) {
        *own = Entries::default();
    }

    /// Tries the VMA that was used last.
    #[inline(always)]
    fn lookup<V: Vmas + ?Sized>(
        _: &Removed,
        own: &mut Entries<N>,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        let first = &own.entries[0];
        if !first.contains(addr) {
            return None;
        }
        let vma = VmaId::from_bits(first.vma)?;
        let range = vmas.range(vma).filter(|range| range.contains(addr))?;
        Some((vma, range))
    }

    #[inline(always)]
    fn look_again<V: Vmas + ?Sized>(
        removed: &Removed,
        own: &mut Entries<N>,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        // Those whose bounds contain the address first: nearly always, only one of them is tried. VMAs
        // grow while they are used, so the others are tried only if they were used recently.
        for expected in [true, false] {
            for at in 0..if expected { N } else { N.div_ceil(2) } {
                let entry = &own.entries[at];
                let tries = if expected {
                    entry.contains(addr)
                } else {
                    entry.is_near(addr)
                };
                if tries && let Some(found) = own.try_vma(removed, vmas, at, addr) {
                    return Some(found);
                }
            }
        }
        None
    }

    #[inline(always)]
    fn found<V: Vmas + ?Sized>(
        _: &Removed,
        own: &mut Entries<N>,
        _: &V,
        _: u64,
        (vma, range): (VmaId, VmRange),
    ) {
        own.lead(N - 1, Entry::new(vma, range));
    }

    fn unlinked(removed: &Removed, vma: VmaId, prev: Option<VmaId>) {
        removed.vma.store(vma.to_bits(), Ordering::Relaxed);
        let prev = prev.map_or(0, VmaId::to_bits);
        removed.prev.store(prev, Ordering::Relaxed);
    }
}
