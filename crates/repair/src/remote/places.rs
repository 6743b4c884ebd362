//! Whether the place of a planned change is still as planned, while the process is stopped.
//!
//! A repair is planned while the process runs. Before a step changes a stopped process, the
//! protection, the extent and the pages of its place are compared with the plan: memory that the
//! program has committed or filled since then is left unchanged.

use vmarea_merge::types::{PAGE_SIZE, VmRange};
use vmarea_process::maps::{self, MapName, MapsEntry, Query};
use vmarea_process::pages::{LivePages, Pages};
use vmarea_process::plan::Change;

use crate::RepairError;
use crate::fixes::Step;

/// The mappings and pages of a process that is stopped.
#[derive(Debug)]
pub(super) struct Places {
    pid: i32,
    query: Option<Query>,
    /// The list of mappings, if single mappings cannot be queried.
    list: Vec<MapsEntry>,
    pages: LivePages,
}

impl Places {
    /// Opens the files of a process that is not stopped yet.
    ///
    /// # Errors
    /// [`RepairError::Maps`], [`RepairError::Forbidden`], [`RepairError::Ended`].
    pub(super) fn open(pid: i32) -> Result<Places, RepairError> {
        Ok(Places {
            pid,
            query: Query::open(pid).ok(),
            list: Vec::new(),
            pages: LivePages::open(pid).map_err(RepairError::maps(pid))?,
        })
    }

    /// Reads what must be read while the process is stopped.
    ///
    /// # Errors
    /// As for [`Places::open`].
    pub(super) fn begin(&mut self) -> Result<(), RepairError> {
        if self.query.is_none() {
            self.list = maps::read(self.pid).map_err(RepairError::maps(self.pid))?;
        }
        Ok(())
    }

    /// Returns true if a step may still be executed.
    pub(super) fn allow(&mut self, step: &Step) -> bool {
        match step.change {
            Some(Change::Mark { range, perms }) => {
                let guard = self.at(range.start);
                let below = self.at(range.start - PAGE_SIZE);
                guard.is_some_and(|guard| is_reserved(&guard) && guard.end == range.end)
                    && below.is_some_and(|below| below.end == range.start && below.perms == perms)
                    && self.is_empty(range)
            }
            Some(Change::Clear { range, .. }) => {
                let mapping = self.at(range.start);
                mapping.is_some_and(|mapping| range.end <= mapping.end)
            }
            Some(Change::Reserve { range, .. }) => {
                self.is_reserved_everywhere(range) && self.is_empty(range)
            }
            None => step.touch.is_none_or(|page| {
                let page = VmRange::page(page);
                self.is_reserved_everywhere(page) && self.is_empty(page)
            }),
        }
    }

    fn is_empty(&self, range: VmRange) -> bool {
        self.pages.is_empty(range) == Some(true)
    }

    fn is_reserved_everywhere(&mut self, range: VmRange) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.at(at) {
                Some(mapping) if is_reserved(&mapping) => at = mapping.end,
                _ => return false,
            }
        }
        true
    }

    /// Returns the mapping that contains `addr`.
    fn at(&mut self, addr: u64) -> Option<MapsEntry> {
        let found = match &mut self.query {
            Some(query) => query.covering_or_next(addr).ok()?,
            None => {
                let at = self.list.partition_point(|mapping| mapping.end <= addr);
                self.list.get(at).cloned()
            }
        };
        found.filter(|mapping| mapping.start <= addr)
    }
}

/// True if a mapping is private, anonymous, unnamed and inaccessible.
fn is_reserved(mapping: &MapsEntry) -> bool {
    let perms = mapping.perms;
    !(perms.read || perms.write || perms.exec || perms.shared)
        && mapping.ino == 0
        && mapping.name == MapName::None
}
