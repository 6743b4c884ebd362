//! Ranges with which the benchmarks fill maps, and the random numbers that choose them.

use vmarea_range_tree::Entry;

pub const PAGE: u64 = 4096;
/// Lowest address of a range, and of a window for gaps.
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

    /// Moves `count` randomly chosen ranges to the end, in random order.
    pub fn shuffle(&mut self, ranges: &mut [Entry], count: usize) {
        let n = ranges.len();
        for i in ((n - count).max(1)..n).rev() {
            ranges.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Returns `n` ranges of 1 to 8 pages in random order, with gaps of 0 to 3 pages between them.
    pub fn ranges(&mut self, n: usize) -> Vec<Entry> {
        let mut at = LOW;
        let mut ranges: Vec<_> = (0..n as u64)
            .map(|value| {
                let start = at + self.below(4) * PAGE;
                at = start + (1 + self.below(8)) * PAGE;
                Entry {
                    start,
                    end: at,
                    value: value + 1,
                }
            })
            .collect();
        self.shuffle(&mut ranges, n);
        ranges
    }
}
