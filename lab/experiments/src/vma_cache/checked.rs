//! The cache of this project: many entries per thread, each checked against its VMA.
//!
//! An entry is useless if its VMA no longer exists or does not contain the address. Both conditions
//! can be checked in the VMA: its slot has a generation, and its bounds are atomics. Therefore the
//! cache needs no notification of changes, a change elsewhere in the address space costs the cache
//! nothing, an address space stores no data for the cache, and no sequence number can overflow. A
//! VMA that has grown can still be found by its former end. A cache with too few hits is disabled
//! for a number of lookups. The cache deliberately has no entries for address spaces other than the
//! thread's current one.
//!
//! # Picture
//! ```text
//! ends:  e0 │ e1 │ e2 │ …  ascending     the first end above the address gives the VMA that
//! vmas:  v0 │ v1 │ v2 │ …                contains it; if the VMA before has grown, that one may
//! used:  one bit per entry               a clock hand evicts the first entry without the bit
//! ```
//!
//! # Invariants
//! K1  the ends are in ascending order, and are `u64::MAX` from `len` on
//! K2  a result is always a live VMA that contains the address, because entries are only hints

use super::Cache;
use vmarea::lookup::Vmas;
use vmarea::types::{MmId, VmRange, VmaId};

/// A cache of `N` VMAs per thread; `N` is at most 64.
#[derive(Debug)]
pub struct Checked<const N: usize = 32>;

/// Number of entries in a block; the search first compares the last end of each block.
const BLOCK: usize = 8;

/// Data that [`Checked`] stores per thread.
#[derive(Clone, Debug)]
pub struct Entries<const N: usize> {
    /// Id of the address space as bits; 0 if there is no address space.
    mm: u64,
    used: u64,
    len: usize,
    hand: usize,
    /// Number of misses minus number of hits; misses count only while the cache is full.
    score: u32,
    /// Remaining number of lookups for which the cache is disabled; negative if the cache is
    /// enabled.
    rest: i64,
    /// Number of lookups for which the cache will be disabled next time.
    nap: u32,
    ends: [u64; N],
    vmas: [u64; N],
}

impl<const N: usize> Default for Entries<N> {
    fn default() -> Self {
        const {
            assert!(N > 1 && N <= 64, "a bit an entry");
            assert!(N < BLOCK || N.is_multiple_of(BLOCK), "whole blocks");
        }
        Entries {
            mm: 0,
            used: 0,
            len: 0,
            hand: 0,
            score: 0,
            rest: 0,
            nap: Self::REST,
            ends: [u64::MAX; N],
            vmas: [0; N],
        }
    }
}

/// Returns a mask of the bits below `at`.
#[inline]
fn below(at: usize) -> u64 {
    !u64::MAX.checked_shl(at as u32).unwrap_or(0)
}

impl<const N: usize> Entries<N> {
    /// Score above which the cache is disabled for a number of lookups.
    ///
    /// Random lookups among many VMAs are rarely repeated soon; a search of the index then costs
    /// less than maintaining the cache. If hits are as frequent as misses, the cache is never
    /// disabled.
    const TIRED: u32 = 4 * N as u32;
    /// Score to which the cache is reset when it is disabled.
    const RESTED: u32 = 3 * N as u32;
    /// Number of lookups for which the cache is disabled the first time.
    ///
    /// Without hits, the cache is then enabled for 1 lookup in 128. Each time the cache is disabled
    /// again, the number doubles, up to `LONGEST`. A score below `WON` resets it to `REST`.
    const REST: u32 = 128 * N as u32;
    /// Maximum number of lookups for which the cache is disabled at a time.
    const LONGEST: u32 = 16 * Self::REST;
    /// Score below which the cache counts as useful: since the cache was last disabled, the number
    /// of hits has exceeded the number of misses by more than the number of entries.
    const WON: u32 = Self::RESTED - N as u32;

    /// Counts the entries that end at or before `addr`.
    #[inline]
    fn ending_by(&self, addr: u64) -> usize {
        let count = |ends: &[u64]| -> usize { ends.iter().map(|e| usize::from(*e <= addr)).sum() };
        let block = BLOCK.min(N);
        // No branch depends on the data: a branch misprediction costs more than the comparisons.
        let lasts = (1..N / block).map(|n| usize::from(self.ends[n * block - 1] <= addr));
        let from = lasts.sum::<usize>() * block;
        from + count(&self.ends[from..from + block])
    }

    /// Returns an entry's VMA and the VMA's range, if the VMA exists and contains `addr`.
    #[inline(always)]
    fn at<V: Vmas + ?Sized>(&self, vmas: &V, at: usize, addr: u64) -> Option<(VmaId, VmRange)> {
        let vma = VmaId::from_bits(*self.vmas.get(at)?)?;
        let range = vmas.range(vma)?;
        range.contains(addr).then_some((vma, range))
    }

    /// Records a hit of an entry.
    #[inline(always)]
    fn hit(&mut self, at: usize) {
        self.used |= 1 << at;
        self.score = self.score.saturating_sub(1);
    }

    /// Checks whether the VMA of the last entry that ends at or below `addr` has grown and contains
    /// `addr`. Called if the first entry that ends above `addr` does not contain `addr`.
    #[inline(never)]
    fn grown<V: Vmas + ?Sized>(&mut self, vmas: &V, addr: u64) -> Option<(VmaId, VmRange)> {
        let above = self.ending_by(addr);
        let before = above.wrapping_sub(1);
        if let Some(found) = self.at(vmas, before, addr) {
            self.hit(before);
            return Some(found);
        }
        for at in [above, before] {
            let vma = self.vmas.get(at).and_then(|bits| VmaId::from_bits(*bits));
            if vma.is_some_and(|vma| vmas.range(vma).is_none()) {
                // The entry of a VMA that no longer exists is evicted before other entries.
                self.used &= !(1 << at);
            }
        }
        None
    }

    fn remove(&mut self, at: usize) {
        self.ends.copy_within(at + 1.., at);
        self.vmas.copy_within(at + 1.., at);
        self.ends[N - 1] = u64::MAX;
        self.vmas[N - 1] = 0;
        let low = below(at);
        self.used = self.used & low | self.used >> 1 & !low;
        self.len -= 1;
    }

    /// Moves the entries `at..gap` up by one and overwrites the entry at `gap`.
    fn shift_up(&mut self, at: usize, gap: usize) {
        self.ends.copy_within(at..gap, at + 1);
        self.vmas.copy_within(at..gap, at + 1);
        let moved = below(gap) & !below(at);
        let touched = below(gap + 1) & !below(at);
        self.used = self.used & !touched | (self.used & moved) << 1;
    }

    /// Moves the entries `gap + 1..at` down by one and overwrites the entry at `gap`.
    fn shift_down(&mut self, gap: usize, at: usize) {
        self.ends.copy_within(gap + 1..at, gap);
        self.vmas.copy_within(gap + 1..at, gap);
        let moved = below(at) & !below(gap + 1);
        let touched = below(at) & !below(gap);
        self.used = self.used & !touched | (self.used & moved) >> 1;
    }

    /// Chooses the entry to evict.
    ///
    /// The entry to evict is the first one, starting at the clock hand, that has not been used
    /// since the hand last passed it.
    fn victim(&mut self) -> usize {
        let idle = !self.used & below(self.len);
        let ahead = idle & !below(self.hand);
        let (victim, passed) = match (ahead, idle) {
            (0, 0) => (self.hand % self.len, u64::MAX),
            (0, idle) => {
                let victim = idle.trailing_zeros() as usize;
                (victim, !below(self.hand) | below(victim))
            }
            (ahead, _) => {
                let victim = ahead.trailing_zeros() as usize;
                (victim, below(victim) & !below(self.hand))
            }
        };
        self.used &= !passed;
        victim
    }

    /// Stores a VMA found by a search of the index, or disables the cache if there are too many
    /// misses.
    #[inline(never)]
    fn keep<V: Vmas + ?Sized>(&mut self, vmas: &V, addr: u64, vma: VmaId) {
        // Without the lock, the two bounds may have been read at different times.
        let Some(range) = vmas.range(vma).filter(|range| range.start < range.end) else {
            return;
        };
        self.score += u32::from(self.len == N);
        if self.score > Self::TIRED {
            self.score = Self::RESTED;
            self.rest = i64::from(self.nap);
            self.nap = (2 * self.nap).min(Self::LONGEST);
            return;
        }
        if self.score < Self::WON {
            self.nap = Self::REST;
        }
        self.put(addr, vma, range);
    }

    /// Inserts the VMA that a search for `addr` returned; the VMA contains `addr` or starts above
    /// it.
    fn put(&mut self, addr: u64, vma: VmaId, range: VmRange) {
        let mut at = self.ending_by(addr.max(range.start));
        // VMAs are disjoint, so an entry that ends within this VMA is stale.
        while at > 0 && self.ends[at - 1] > range.start {
            at -= 1;
            self.remove(at);
        }
        while at < self.len && self.ends[at] < range.end {
            self.remove(at);
        }
        if at < self.len && self.ends[at] == range.end {
            self.vmas[at] = vma.to_bits();
            return;
        }
        if self.len < N {
            self.shift_up(at, self.len);
            self.len += 1;
        } else {
            let victim = self.victim();
            if victim < at {
                self.shift_down(victim, at);
                at -= 1;
            } else {
                self.shift_up(at, victim);
            }
            // The clock hand moves to the entry after the victim, not to the new entry.
            self.hand = victim + usize::from(at <= victim);
        }
        self.ends[at] = range.end;
        self.vmas[at] = vma.to_bits();
    }
}

impl<const N: usize> Cache for Checked<N> {
    const NAME: &'static str = "vmarea";
    type Mm = ();
    type Thread = Entries<N>;

    fn enter(_: &(), own: &mut Entries<N>, mm: MmId) {
        *own = Entries {
            mm: mm.to_bits(),
            ..Entries::default()
        };
    }

    // While the cache is disabled, a lookup should cost no more than decrementing a counter.
    #[inline(always)]
    fn rests(own: &mut Entries<N>) -> bool {
        own.rest = own.rest.wrapping_sub(1);
        own.rest >= 0
    }

    #[inline(always)]
    fn lookup<V: Vmas + ?Sized>(
        _: &(),
        own: &mut Entries<N>,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        if own.mm != vmas.mm().to_bits() {
            return None;
        }
        // The last used VMA is not checked first: that branch is mispredicted whenever a thread
        // switches from one VMA to another, and a misprediction costs more than the whole search.
        let above = own.ending_by(addr);
        let found = own.at(vmas, above, addr)?;
        own.hit(above);
        Some(found)
    }

    #[inline(always)]
    fn look_again<V: Vmas + ?Sized>(
        _: &(),
        own: &mut Entries<N>,
        vmas: &V,
        addr: u64,
    ) -> Option<(VmaId, VmRange)> {
        if own.mm != vmas.mm().to_bits() {
            return None;
        }
        own.grown(vmas, addr)
    }

    #[inline(always)]
    fn found<V: Vmas + ?Sized>(_: &(), own: &mut Entries<N>, vmas: &V, addr: u64, vma: VmaId) {
        if own.mm == vmas.mm().to_bits() {
            own.keep(vmas, addr, vma);
        }
    }
}
