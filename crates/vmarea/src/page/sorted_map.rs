//! `SortedMap`: a map in one sorted buffer that returns an error if it cannot grow.
//!
//! The buffer is a ring. Inserting or removing an entry moves all entries between that entry and
//! the nearer end of the buffer. Inserting or removing keys in ascending or descending order
//! therefore moves no entries. The standard library's maps cannot be used, because they abort the
//! program if they cannot grow.

use crate::types::Errno;
use alloc::collections::VecDeque;

/// Number of entries for which an empty map keeps its memory.
const KEPT: usize = 64;

#[derive(Debug)]
pub(crate) struct SortedMap<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap(VecDeque::new())
    }
}

impl<K: Ord + Copy, V> SortedMap<K, V> {
    fn place(&self, key: K) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(&key))
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let at = self.place(key).ok()?;
        Some(&self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let at = self.place(key).ok()?;
        Some(&mut self.0[at].1)
    }

    /// Returns the value for a key, which is created if there is none.
    pub(crate) fn get_or_default(&mut self, key: K) -> Result<&mut V, Errno>
    where
        V: Default,
    {
        let at = match self.place(key) {
            Ok(at) => at,
            Err(at) => {
                self.reserve(1)?;
                self.0.insert(at, (key, V::default()));
                at
            }
        };
        Ok(&mut self.0[at].1)
    }

    /// Reserves space for `more` entries, so that [`insert`](Self::insert) cannot fail for them.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Errno> {
        self.0.try_reserve(more).map_err(|_| Errno::ENOMEM)
    }

    /// Sets the value for a key; returns true if the key is new.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Result<bool, Errno> {
        match self.place(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                self.reserve(1)?;
                self.0.insert(at, (key, value));
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let at = self.place(key).ok()?;
        let (_, value) = self.0.remove(at)?;
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = VecDeque::new();
        }
        Some(value)
    }

    /// Moves the value of the key `from` to the key `to`, without allocating memory.
    pub(crate) fn rename(&mut self, from: K, to: K) {
        let Some(value) = self.remove(from) else {
            return;
        };
        match self.place(to) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (to, value)),
        }
    }

    /// Returns the first key after `key`, or the first key if `key` is `None`.
    pub(crate) fn next_key(&self, key: Option<K>) -> Option<K> {
        let at = match key {
            None => 0,
            Some(key) => self.0.partition_point(|(other, _)| *other <= key),
        };
        self.0.get(at).map(|(key, _)| *key)
    }

    /// Returns the memory for entries that have been removed to the allocator.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.0.iter().map(|(key, _)| *key)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
