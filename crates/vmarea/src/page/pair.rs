//! Two slots of one page table, locked together, for moves.
//!
//! # Locking
//! The two slots may be in one shard or in two. The lock of the shard with the lower number is
//! taken first.

use super::entry::{ENTRIES, Pte};
use super::shard::{Blocked, Shard};
use super::slot::{Slot, Table};
use super::table::{PageTable, SHARDS, scattered};
use core::ops::Range;
use vmarea_sync::SpinGuard;

/// The tables between which entries are moved; they have all entries.
pub(super) enum Pair<'a> {
    /// The source and the destination are in one table.
    One(&'a mut Table),
    /// The table with the source, and the table with the destination.
    Two(&'a mut Table, &'a mut Table),
}

impl Pair<'_> {
    /// Moves the entries in `part` to the positions from `to` on, where all entries are `None`.
    ///
    /// Calls `f` with each entry that is not `None`, and with its old position. Stops at the first
    /// error. Returns the range of the positions from the first to the last entry that moved.
    pub(super) fn move_entries<X>(
        self,
        part: Range<usize>,
        to: usize,
        mut f: impl FnMut(usize, &mut Pte) -> Result<(), X>,
    ) -> (Range<usize>, Result<(), X>) {
        let mut moved = 0..0;
        let mut count = 0;
        let mut each = |at: usize, entry: &mut Pte| {
            f(at, entry)?;
            if count == 0 {
                moved.start = at;
            }
            moved.end = at + 1;
            count += 1;
            Ok(core::mem::replace(entry, Pte::None))
        };
        let mut result = Ok(());
        match self {
            Pair::One(table) => {
                for at in part.clone() {
                    if table.entries[at] != Pte::None {
                        match each(at, &mut table.entries[at]) {
                            Ok(entry) => table.entries[to + at - part.start] = entry,
                            Err(error) => {
                                result = Err(error);
                                break;
                            }
                        }
                    }
                }
            }
            Pair::Two(source, target) => {
                let places = &mut target.entries[to..to + part.len()];
                let there = source.entries[part.clone()].iter_mut().zip(places);
                for (at, (entry, place)) in part.zip(there) {
                    if *entry != Pte::None {
                        match each(at, entry) {
                            Ok(entry) => *place = entry,
                            Err(error) => {
                                result = Err(error);
                                break;
                            }
                        }
                    }
                }
                source.used -= count;
                target.used += count;
            }
        }
        (moved, result)
    }

    /// Like [`move_entries`](Self::move_entries), for entries that refer to nothing that knows their
    /// address.
    pub(super) fn move_all(self, part: Range<usize>, to: usize) -> Range<usize> {
        let used = |entries: &[Pte]| {
            let is_used = |entry: &Pte| *entry != Pte::None;
            let first = entries.iter().position(is_used)?;
            let last = entries.iter().rposition(is_used)?;
            let count = entries[first..=last].iter().filter(|e| is_used(e)).count();
            Some((first..last + 1, count as u32))
        };
        let (entries, count) = match &self {
            Pair::One(table) | Pair::Two(table, _) => match used(&table.entries[part.clone()]) {
                Some((within, count)) => (within, count),
                None => return 0..0,
            },
        };
        let from = part.start + entries.start..part.start + entries.end;
        let to = to + entries.start;
        match self {
            Pair::One(table) => {
                table.entries.copy_within(from.clone(), to);
                table.entries[from.clone()].fill(Pte::None);
            }
            Pair::Two(source, target) => {
                let entries = &mut source.entries[from.clone()];
                target.entries[to..to + entries.len()].copy_from_slice(entries);
                entries.fill(Pte::None);
                source.used -= count;
                target.used += count;
            }
        }
        from
    }
}

/// The shards of two slots, locked.
struct Shards<'a> {
    source: SpinGuard<'a, Shard>,
    /// `None` if both slots are in one shard.
    target: Option<SpinGuard<'a, Shard>>,
}

impl Shards<'_> {
    fn target(&mut self) -> &mut Shard {
        self.target.as_mut().unwrap_or(&mut self.source)
    }
}

impl PageTable {
    fn lock_both(&self, from: u64, to: u64) -> Result<Shards<'_>, Blocked> {
        let (source, target) = (scattered(from) % SHARDS, scattered(to) % SHARDS);
        let shards = self.make_shards()?;
        let low = shards[source.min(target)].shard.lock();
        if source == target {
            return Ok(Shards {
                source: low,
                target: None,
            });
        }
        let high = shards[source.max(target)].shard.lock();
        Ok(match source < target {
            true => Shards {
                source: low,
                target: Some(high),
            },
            false => Shards {
                source: high,
                target: Some(low),
            },
        })
    }

    /// Calls `f` with the tables in two slots, which may be the same; creates missing tables.
    pub(super) fn with_tables<R>(
        &self,
        (from, to): (u64, u64),
        f: impl FnOnce(Pair<'_>) -> R,
    ) -> Result<R, Blocked> {
        let mut shards = self.lock_both(from, to)?;
        let all = 0..ENTRIES;
        let there = shards.target().table(to, all.clone())?;
        if from == to {
            return Ok(f(Pair::One(there)));
        }
        let Shards { source, target } = &mut shards;
        if let Some(target) = target {
            let pair = Pair::Two(source.table(from, all.clone())?, target.table(to, all)?);
            return Ok(f(pair));
        }
        source.table(from, all)?;
        let places = [from, to].map(|index| source.at(index).unwrap_or(usize::MAX));
        let slots = source.slots.get_disjoint_mut(places);
        let [(_, source), (_, target)] = slots.map_err(|_| Blocked::InUse)?;
        match (source.as_table(), target.as_table()) {
            (Some(source), Some(target)) => Ok(f(Pair::Two(source, target))),
            _ => Err(Blocked::InUse),
        }
    }

    /// Moves the contents of slot `from` to slot `to`; an empty table in `to` is moved to `from`.
    ///
    /// `prepare` updates the contents before they are moved. If `prepare` returns an error, the
    /// contents stay in `from`. A second call in the opposite direction needs no memory.
    pub(super) fn exchange_slots<X: From<Blocked>>(
        &self,
        (from, to): (u64, u64),
        prepare: impl FnOnce(&mut Slot) -> Result<(), X>,
    ) -> Result<(), X> {
        let mut shards = self.lock_both(from, to)?;
        let mut there = core::mem::replace(shards.target().place(to)?, Slot::Vacant);
        let prepared = match shards.source.slot_mut(from) {
            None => Ok(()),
            Some(Slot::Huge(_)) if !matches!(there, Slot::Vacant) => Err(Blocked::InUse.into()),
            Some(_) if !there.is_empty() => Err(Blocked::InUse.into()),
            Some(here) => prepare(here).map(|()| core::mem::swap(here, &mut there)),
        };
        if let Some(place) = shards.target().slot_mut(to) {
            *place = there;
        }
        prepared
    }
}
