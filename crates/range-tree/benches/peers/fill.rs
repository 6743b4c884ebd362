//! Ranges with which every map is filled, in the same order.

use super::map::Map;
use vmarea_range_tree::Entry;

pub const PAGE: u64 = 4096;
/// Lowest address of a window for gaps.
pub const LOW: u64 = 1 << 20;

/// Pseudo-random number generator (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(bound)) >> 64) as u64
    }
}

/// Moves `count` randomly chosen ranges to the end, in random order.
fn shuffle(ranges: &mut [Entry], count: usize, random: &mut Random) {
    let n = ranges.len();
    for i in ((n - count).max(1)..n).rev() {
        ranges.swap(i, random.below(i as u64 + 1) as usize);
    }
}

/// Maps of one kind, all filled with the same ranges.
pub struct Fill<'m, M> {
    pub maps: Vec<M>,
    pub prototype: &'m M,
    /// The ranges, in random order.
    pub ranges: Vec<Entry>,
    pub random: Random,
}

impl<'m, M: Map> Fill<'m, M> {
    /// Prepares `n` ranges of 1 to 8 pages in random order, with gaps of 0 to 3 pages.
    pub fn new(prototype: &'m M, n: usize) -> Self {
        let mut random = Random(7);
        let mut at = LOW;
        let mut ranges: Vec<_> = (0..n as u64)
            .map(|value| {
                let start = at + random.below(4) * PAGE;
                at = start + (1 + random.below(8)) * PAGE;
                Entry {
                    start,
                    end: at,
                    value: value + 1,
                }
            })
            .collect();
        shuffle(&mut ranges, n, &mut random);
        Fill {
            maps: Vec::new(),
            prototype,
            ranges,
            random,
        }
    }

    /// Returns `count` filled maps.
    pub fn maps(&mut self, count: usize) -> &[M] {
        while self.maps.len() < count {
            let map = self.prototype.another();
            for e in &self.ranges {
                map.insert(*e);
            }
            self.maps.push(map);
        }
        &self.maps[..count]
    }

    /// Returns `count` randomly chosen ranges, each at most once.
    pub fn choose(&mut self, count: usize) -> Vec<Entry> {
        shuffle(&mut self.ranges, count, &mut self.random);
        self.ranges[self.ranges.len() - count..].to_vec()
    }

    /// Returns `count` randomly chosen ranges, some of them more than once.
    pub fn pick(&mut self, count: usize) -> Vec<Entry> {
        let n = self.ranges.len() as u64;
        (0..count)
            .map(|_| self.ranges[self.random.below(n) as usize])
            .collect()
    }

    pub fn highest(&self) -> u64 {
        self.ranges.iter().map(|e| e.end).max().unwrap_or(0)
    }
}
