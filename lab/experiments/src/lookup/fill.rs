//! The structures to compare, all filled with the same ranges, and the addresses to look up.

use super::super::bare::{Bare, BareMm, mm_id};
use memory_set::{MappingBackend, MemoryArea, MemorySet};
use parking_lot::RwLock;
use rangemap::RangeMap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use vmarea::types::VmRange;
use vmarea_range_tree::RangeTree;
use vmarea_sync::Slots;

/// Number of VMAs among which local lookups choose.
pub(super) const LOCAL: usize = 8;

pub(super) const PAGE: u64 = 4096;
/// Number of addresses in a sequence of lookups. A power of two.
pub(super) const ADDRESSES: usize = 1 << 14;

/// Map from the start of a range to the range's end and value.
pub(super) type Map = BTreeMap<u64, (u64, u64)>;

/// Random number generator (xorshift64*).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(bound)) >> 64) as u64
    }
}

/// Dummy page table; `memory_set` calls it whenever a range changes.
#[derive(Clone)]
pub(super) struct NoPages;

impl MappingBackend for NoPages {
    type Addr = usize;
    type Flags = u8;
    type PageTable = ();

    fn map(&self, _: usize, _: usize, _: u8, (): &mut ()) -> bool {
        true
    }
    fn unmap(&self, _: usize, _: usize, (): &mut ()) -> bool {
        true
    }
    fn protect(&self, _: usize, _: usize, _: u8, (): &mut ()) -> bool {
        true
    }
}

pub(super) fn area(range: VmRange) -> MemoryArea<NoPages> {
    MemoryArea::new(range.start as usize, range.len_bytes() as usize, 0, NoPages)
}

/// All structures to compare, filled with the same ranges.
pub(super) struct Fill {
    pub(super) ranges: Vec<VmRange>,
    pub(super) tree: RangeTree,
    pub(super) slots: Slots<Bare>,
    pub(super) map: RefCell<Map>,
    pub(super) locked: RwLock<Map>,
    pub(super) set: RefCell<MemorySet<NoPages>>,
    pub(super) ranged: RefCell<RangeMap<u64, u64>>,
}

impl Fill {
    /// Creates `n` ranges of 1 to 8 pages, with gaps of 0 to 3 pages, inserted in random order.
    pub(super) fn new(n: u64) -> Self {
        let mut random = Random(7);
        let mut at = 1 << 20;
        let mut range = || {
            let start = at + random.below(4) * PAGE;
            at = start + (1 + random.below(8)) * PAGE;
            VmRange::new(start, at)
        };
        let mut ranges: Vec<VmRange> = (0..n).map(|_| range()).collect();
        for i in (1..ranges.len()).rev() {
            ranges.swap(i, random.below(i as u64 + 1) as usize);
        }
        let fill = Fill {
            tree: RangeTree::new(),
            slots: Slots::new(),
            map: RefCell::default(),
            locked: RwLock::default(),
            set: RefCell::new(MemorySet::new()),
            ranged: RefCell::default(),
            ranges,
        };
        for (value, range) in fill.ranges.iter().enumerate() {
            let value = value as u64;
            black_box(fill.mm().link(*range));
            fill.map
                .borrow_mut()
                .insert(range.start, (range.end, value));
            fill.locked.write().insert(range.start, (range.end, value));
            black_box(
                fill.set
                    .borrow_mut()
                    .map(area(*range), &mut (), false)
                    .is_ok(),
            );
            fill.ranged
                .borrow_mut()
                .insert(range.start..range.end, value);
        }
        fill
    }

    pub(super) fn mm(&self) -> BareMm<'_> {
        BareMm {
            id: mm_id(1),
            tree: &self.tree,
            slots: &self.slots,
        }
    }

    fn inside(&self, range: usize, random: &mut Random) -> u64 {
        let range = self.ranges[range];
        range.start + random.below(range.len_bytes())
    }

    /// Returns addresses within randomly chosen ranges.
    pub(super) fn random(&self) -> Vec<u64> {
        let mut random = Random(11);
        (0..ADDRESSES)
            .map(|_| {
                let range = random.below(self.ranges.len() as u64) as usize;
                self.inside(range, &mut random)
            })
            .collect()
    }

    /// Returns addresses with locality; at any time, they come from eight ranges.
    ///
    /// Consecutive addresses are mostly in the same range. Occasionally, a random range replaces
    /// one of the eight ranges.
    pub(super) fn local(&self) -> Vec<u64> {
        let mut random = Random(13);
        let all = self.ranges.len() as u64;
        let mut near: [usize; LOCAL] = std::array::from_fn(|_| random.below(all) as usize);
        let mut now = 0;
        (0..ADDRESSES)
            .map(|_| {
                if random.below(4) == 0 {
                    now = random.below(LOCAL as u64) as usize;
                }
                if random.below(64) == 0 {
                    near[now] = random.below(all) as usize;
                }
                self.inside(near[now], &mut random)
            })
            .collect()
    }
}
