//! Reference implementation of the map, based on a `BTreeMap`, for tests and fuzzing.

use crate::Entry;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Reference {
    map: BTreeMap<u64, (u64, u64)>,
}

fn entry((start, (end, value)): (&u64, &(u64, u64))) -> Entry {
    Entry {
        start: *start,
        end: *end,
        value: *value,
    }
}

impl Reference {
    pub fn find(&self, addr: u64) -> Option<Entry> {
        let below = self
            .map
            .range(..=addr)
            .next_back()
            .map(entry)
            .filter(|e| addr < e.end);
        below.or_else(|| self.map.range(addr..).next().map(entry))
    }

    pub fn prev(&self, addr: u64) -> Option<Entry> {
        self.map.range(..addr).next_back().map(entry)
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.map.iter().map(entry)
    }

    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.find(start).is_some_and(|e| e.start < end)
    }

    pub fn gap_lowest(&self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        self.gaps(low, high).find(|(start, end)| end - start >= len)
    }

    pub fn gap_highest(&self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        self.gaps(low, high)
            .filter(|(start, end)| end - start >= len)
            .last()
    }

    /// Iterates over all gaps in the window `[low, high)`, clipped to the window.
    fn gaps(&self, low: u64, high: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let starts = self.map.keys().copied().chain([u64::MAX]);
        let ends = [0]
            .into_iter()
            .chain(self.map.values().map(|&(end, _)| end));
        let gaps = ends
            .zip(starts)
            .map(move |(end, start)| (end.max(low), start.min(high)));
        gaps.filter(|(start, end)| start < end)
    }

    pub fn insert(&mut self, e: Entry) {
        assert!(self.map.insert(e.start, (e.end, e.value)).is_none());
    }

    pub fn remove(&mut self, start: u64) -> Option<Entry> {
        self.map
            .remove(&start)
            .map(|(end, value)| Entry { start, end, value })
    }

    pub fn resize(&mut self, old: u64, start: u64, end: u64) {
        let (_, value) = self.map.remove(&old).expect("a range starts there");
        self.map.insert(start, (end, value));
    }
}
