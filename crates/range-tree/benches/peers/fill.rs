//! Ranges with which every map is filled, in the same order.

use super::map::Map;
use super::ranges::Random;
use vmarea_range_tree::Entry;

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
        let ranges = random.ranges(n);
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
        self.random.shuffle(&mut self.ranges, count);
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
