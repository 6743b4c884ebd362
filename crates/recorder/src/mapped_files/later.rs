//! Changes of the mapped ranges that take effect later than the stops that announce them.
//!
//! While calls are observed, the recorder learns of an unmapping some time after it. A mapping that
//! it sees at once, at a stop, must not overtake the unmapping, so the ranges change in the order of
//! the stream. Until then, the description is *awaited*: it is not forgotten, and a duplicate may
//! exist. A duplicate may therefore outlive the last mapping for a moment, which is harmless only
//! if the description is read-only: [`super::super::files`] keeps no others in this case.
//!
//! # Invariants
//! H3  A description is known while a range or an awaited mapping refers to it.

use super::{MappedFiles, Range};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use vmarea_trace::event::{FileId, MmId};

/// A change of the ranges of one address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RangeChange {
    /// An awaited description is mapped at a range.
    Map(Range, FileId),
    /// A range no longer maps a known description.
    Unmap(Range),
    /// A child inherits the ranges.
    Fork(MmId),
    /// The address space has ended.
    End,
}

/// What was announced and has not taken effect yet.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Number of mappings of each description in each address space.
    maps: HashMap<(MmId, FileId), u32>,
    forks: u32,
    /// Address spaces without users.
    ending: HashSet<MmId>,
}

impl Awaited {
    /// True if `mm` may come to map the description.
    pub(super) fn may_map(&self, mm: MmId, file: FileId) -> bool {
        self.forks != 0 || self.maps.contains_key(&(mm, file))
    }
}

impl MappedFiles {
    /// Announces a mapping of a description. If the description is new, it is created.
    pub(crate) fn will_map(
        &mut self,
        mm: MmId,
        file: FileId,
        duplicate: impl FnOnce() -> (Option<OwnedFd>, u64),
    ) {
        if !self.is_mapped(file) {
            let (duplicate, ino) = duplicate();
            self.add(file, duplicate, ino);
        }
        self.count(file, 1);
        *self.awaited.maps.entry((mm, file)).or_default() += 1;
    }

    /// Announces that a child inherits ranges.
    pub(crate) fn will_fork(&mut self) {
        self.awaited.forks += 1;
    }

    /// Closes the duplicates that only an address space without users needs.
    ///
    /// The process has exited, and others may see the consequences at once.
    pub(crate) fn will_end(&mut self, mm: MmId) {
        self.awaited.ending.insert(mm);
        if self.awaited.forks != 0 {
            return;
        }
        let files = |mm: &MmId| self.mapped.get(mm).into_iter().flat_map(|p| p.values());
        let mut last: HashSet<FileId> = files(&mm).map(|piece| piece.file).collect();
        let living = self.mapped.keys();
        for other in living.filter(|mm| !self.awaited.ending.contains(mm)) {
            for piece in files(other) {
                last.remove(&piece.file);
            }
        }
        for (_, file) in self.awaited.maps.keys() {
            last.remove(file);
        }
        for file in last {
            self.close_duplicate(file);
        }
    }

    /// Carries out a change when the stream reaches it.
    pub(crate) fn change(&mut self, mm: MmId, change: RangeChange) {
        match change {
            RangeChange::Map(range, file) => {
                if !range.is_empty() {
                    self.put(mm, range, file);
                }
                if let Some(count) = self.awaited.maps.get_mut(&(mm, file)) {
                    *count -= 1;
                    if *count == 0 {
                        self.awaited.maps.remove(&(mm, file));
                    }
                    self.count(file, -1);
                }
            }
            RangeChange::Unmap(range) => self.unmap(mm, &range),
            RangeChange::Fork(child) => {
                self.awaited.forks = self.awaited.forks.saturating_sub(1);
                self.fork(mm, child);
            }
            RangeChange::End => {
                self.awaited.ending.remove(&mm);
                self.ended(mm);
            }
        }
    }
}
