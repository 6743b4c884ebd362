//! How often values occur.

use std::collections::HashMap;
use std::hash::Hash;

/// Counts equal values.
pub fn counts<T: Eq + Hash>(values: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

/// Returns the most frequent of some values, and of several the largest.
pub fn most_frequent<T: Eq + Ord + Hash>(values: impl Iterator<Item = T>) -> Option<T> {
    let most = counts(values)
        .into_iter()
        .max_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    most.map(|(value, _)| value)
}
