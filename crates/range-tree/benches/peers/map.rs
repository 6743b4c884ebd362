//! The operations that are compared, and the two maps from Rust.

use parking_lot::RwLock;
use std::collections::BTreeMap;
use vmarea_range_tree::{Entry, RangeTree};

/// A map of disjoint ranges. Each method is one operation, with the locks that it needs.
pub trait Map {
    /// Creates an empty map of the same kind.
    fn another(&self) -> Self;
    fn insert(&self, e: Entry);
    fn remove(&self, e: Entry);
    /// Removes a range and inserts it again, under one lock.
    fn replace(&self, e: Entry);
    /// Moves the end of a range to `end`.
    fn resize(&self, e: Entry, end: u64);
    /// Returns the value of the range at or above `addr`.
    fn find(&self, addr: u64) -> Option<u64>;
    /// Returns the last address at which `len` is free in `[low, high)`.
    fn gap_highest(&self, low: u64, high: u64, len: u64) -> Option<u64>;
    /// Returns the first address at which `len` is free in `[low, high)`.
    fn gap_lowest(&self, low: u64, high: u64, len: u64) -> Option<u64>;
}

impl Map for RangeTree {
    fn another(&self) -> Self {
        RangeTree::new()
    }

    fn insert(&self, e: Entry) {
        let mut writer = self.write();
        // A change of an address space reserves the nodes that it may need before it begins.
        writer.reserve(1).expect("memory");
        writer.insert(e);
    }

    fn remove(&self, e: Entry) {
        self.write().remove(e.start).expect("a range");
    }

    fn replace(&self, e: Entry) {
        let mut writer = self.write();
        writer.remove(e.start).expect("a range");
        writer.reserve(1).expect("memory");
        writer.insert(e);
    }

    fn resize(&self, e: Entry, end: u64) {
        self.write().resize(e.start, e.start, end);
    }

    fn find(&self, addr: u64) -> Option<u64> {
        Some(self.find(addr)?.value)
    }

    fn gap_highest(&self, low: u64, high: u64, len: u64) -> Option<u64> {
        Some(self.gap_highest(low, high, len)?.1 - len)
    }

    fn gap_lowest(&self, low: u64, high: u64, len: u64) -> Option<u64> {
        Some(self.gap_lowest(low, high, len)?.0)
    }
}

/// Ranges by their start, in a `BTreeMap` under a lock. Has no search for gaps.
pub type Locked = RwLock<BTreeMap<u64, (u64, u64)>>;

impl Map for Locked {
    fn another(&self) -> Self {
        Self::default()
    }

    fn insert(&self, e: Entry) {
        self.write().insert(e.start, (e.end, e.value));
    }

    fn remove(&self, e: Entry) {
        self.write().remove(&e.start).expect("a range");
    }

    fn replace(&self, e: Entry) {
        let mut map = self.write();
        map.remove(&e.start).expect("a range");
        map.insert(e.start, (e.end, e.value));
    }

    fn resize(&self, e: Entry, end: u64) {
        self.write().get_mut(&e.start).expect("a range").0 = end;
    }

    fn find(&self, addr: u64) -> Option<u64> {
        let map = self.read();
        let below = map.range(..=addr).next_back();
        below
            .filter(|(_, (end, _))| addr < *end)
            .or_else(|| map.range(addr..).next())
            .map(|(_, &(_, value))| value)
    }

    fn gap_highest(&self, _: u64, _: u64, _: u64) -> Option<u64> {
        None
    }

    fn gap_lowest(&self, _: u64, _: u64, _: u64) -> Option<u64> {
        None
    }
}
