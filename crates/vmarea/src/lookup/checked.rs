//! Ours: many entries a thread, each checked against its own VMA.
//!
//! What makes an entry useless is that its VMA is gone or does not hold the address, and both can be
//! read from the VMA: its slot has a generation, its bounds are atomics. So nobody tells the cache of
//! changes, a change elsewhere in the address space costs it nothing, an address space keeps nothing
//! for it, and there is no number that could overflow. A VMA that grew is found by its old place.
//! Where nothing is found twice it rests for a while. Deliberately absent: entries of another address
//! space than the thread's own.
//!
//! # Picture
//! ```text
//! ends:  e0 │ e1 │ e2 │ …  ascending            the first end above the address names the VMA that holds
//! vmas:  v0 │ v1 │ v2 │ …                       it, or the one before, if that has grown
//! used:  a bit an entry                         a hand goes round and takes the first without it
//! ```
//!
//! # Invariants
//! K1  the ends ascend, and are `u64::MAX` beyond `len`
//! K2  an answer is a VMA that is there and holds the address, whatever the entries say: they are hints

use super::{Cache, Vmas};
use crate::types::{MmId, VmRange, VmaId};

/// A cache of `N` VMAs a thread, at the most 64.
#[derive(Debug)]
pub struct Checked<const N: usize = 32>;

/// Every so many ends one is looked at first.
const BLOCK: usize = 8;

/// What [`Checked`] keeps for a thread.
#[derive(Clone, Debug)]
pub struct Entries<const N: usize> {
    /// Bits of the address space; 0 for none.
    mm: u64,
    used: u64,
    len: usize,
    hand: usize,
    /// Misses of the full cache more than hits.
    score: u32,
    /// Lookups that it is still left alone for; below 0 it is awake.
    rest: i64,
    /// Lookups that its next rest lasts.
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

/// The bits below `at`.
#[inline]
fn below(at: usize) -> u64 {
    !u64::MAX.checked_shl(at as u32).unwrap_or(0)
}

impl<const N: usize> Entries<N> {
    /// The score at which it rests, where the score begins again, and for how long it rests. What is
    /// looked up at random among many VMAs is not found again in time, and a search costs less than
    /// to keep what it found. Where hits are as many as misses it never comes to that. Where they are
    /// none it is awake for 1 lookup in 128 at first; a rest that follows another, with nothing won
    /// between them, is twice as long as that, until it is awake for 1 in 2,048.
    const TIRED: u32 = 4 * N as u32;
    const RESTED: u32 = 3 * N as u32;
    const REST: u32 = 128 * N as u32;
    const LONGEST: u32 = 16 * Self::REST;
    /// A score that says that something was won since the last rest: as many hits more than misses as
    /// there are entries.
    const WON: u32 = Self::RESTED - N as u32;

    /// How many of the entries end at `addr` or before.
    #[inline]
    fn ending_by(&self, addr: u64) -> usize {
        let count = |ends: &[u64]| -> usize { ends.iter().map(|e| usize::from(*e <= addr)).sum() };
        let block = BLOCK.min(N);
        // No jump hangs on the data: what a processor cannot guess costs more than to look.
        let lasts = (1..N / block).map(|n| usize::from(self.ends[n * block - 1] <= addr));
        let from = lasts.sum::<usize>() * block;
        from + count(&self.ends[from..from + block])
    }

    /// The VMA of an entry, where that is there and holds `addr`.
    #[inline(always)]
    fn at<V: Vmas + ?Sized>(&self, vmas: &V, at: usize, addr: u64) -> Option<(VmaId, VmRange)> {
        let vma = VmaId::from_bits(*self.vmas.get(at)?)?;
        let range = vmas.range(vma)?;
        range.contains(addr).then_some((vma, range))
    }

    /// It was of use.
    #[inline(always)]
    fn hit(&mut self, at: usize) {
        self.used |= 1 << at;
        self.score = self.score.saturating_sub(1);
    }

    /// The first entry that ends above `addr` does not hold it: looks at the one before, whose VMA
    /// may have grown.
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
                // It makes room before others do.
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

    /// Entries `at..gap` move up by one; the one at `gap` is overwritten.
    fn shift_up(&mut self, at: usize, gap: usize) {
        self.ends.copy_within(at..gap, at + 1);
        self.vmas.copy_within(at..gap, at + 1);
        let moved = below(gap) & !below(at);
        let touched = below(gap + 1) & !below(at);
        self.used = self.used & !touched | (self.used & moved) << 1;
    }

    /// Entries `gap + 1..at` move down by one; the one at `gap` is overwritten.
    fn shift_down(&mut self, gap: usize, at: usize) {
        self.ends.copy_within(gap + 1..at, gap);
        self.vmas.copy_within(gap + 1..at, gap);
        let moved = below(at) & !below(gap + 1);
        let touched = below(at) & !below(gap);
        self.used = self.used & !touched | (self.used & moved) >> 1;
    }

    /// Chooses who makes room: the first from the hand on that was not used since it came by.
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

    /// What the index found.
    #[inline(never)]
    fn keep<V: Vmas + ?Sized>(&mut self, vmas: &V, addr: u64, vma: VmaId) {
        // Without the lock bounds may be read of two moments.
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

    /// Puts a VMA in that holds `addr`, or lies above it where nothing holds it.
    fn put(&mut self, addr: u64, vma: VmaId, range: VmRange) {
        let mut at = self.ending_by(addr.max(range.start));
        // VMAs are disjoint: an entry that ends within this one is of old.
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
            // The next in turn is who came after the victim, not the new one.
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

    // Where it rests nothing may be left of it but a count.
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
        // The VMA used last is not looked at first: that jump is guessed wrong each time that a thread
        // goes from one VMA to another, which costs more than all of this.
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
