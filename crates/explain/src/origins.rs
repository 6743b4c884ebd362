//! Traces each boundary back to the call that created it, during a replay.
//!
//! After each call, the mappings that the call may have changed are compared with those before the
//! call. A boundary is attributed to the call that created or split a mapping, not to the last one
//! that touched it: a boundary whose reason changes keeps its origin, and so does one that a call
//! only moves, such as the end of the part that a growing heap has made accessible.
//!
//! ```text
//! before   |rw-|--------|     the boundary of mmap and mprotect
//! mprotect     |rw-|
//! after    |rw-----|----|     one boundary has gone and one come: it has moved
//! ```
//!
//! # Invariants
//! O1  every mapping of a traced address space has an entry at its first byte

use std::collections::{BTreeMap, HashMap, VecDeque};
use vmarea::Space;
use vmarea::types::MmId;
use vmarea::vma::VmaView;
use vmarea_process::Mapping;
use vmarea_trace::event::Call;
use vmarea_trace::names::{MADV, PROT};
use vmarea_trace::sysno;

/// Origin of a boundary: the call, and its call site in the program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    /// Name of the call with its relevant arguments.
    pub call: String,
    /// Stack number, if stacks were recorded.
    pub stack: Option<u32>,
}

/// Index of an [`Origin`] in [`Sites`].
type Site = u32;

/// Boundaries of one address space with their origins.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Origin of the boundary below each mapping, by the start of the mapping.
    sites: BTreeMap<u64, Site>,
}

/// Table of all distinct origins.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    table: Vec<Origin>,
    numbers: HashMap<Origin, Site>,
}

impl Sites {
    /// Returns the index of an origin; adds the origin to the table if it is new.
    pub fn number(&mut self, origin: Origin) -> Site {
        if let Some(&number) = self.numbers.get(&origin) {
            return number;
        }
        let number = self.table.len() as Site;
        self.table.push(origin.clone());
        self.numbers.insert(origin, number);
        number
    }

    /// Returns the origin with this index.
    pub fn get(&self, site: Site) -> Option<&Origin> {
        self.table.get(site as usize)
    }
}

/// Converts VMAs of the core to mappings of a process.
pub trait Show {
    /// Converts one VMA.
    fn mapping(&self, view: &VmaView) -> Mapping;
}

/// Addresses at which an event may have changed the mappings, which are then compared again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// The whole address space.
    All,
    /// Two address ranges, one of which may be empty.
    Ranges([(u64, u64); 2]),
    /// No addresses.
    None,
}

impl Origins {
    /// Compares the starts of the mappings in `extent` with the known ones, and attributes each that
    /// has come to `site`, unless another has gone for it. Those in `replaced` are not kept.
    pub fn follow(
        &mut self,
        (space, mm): (&Space, MmId),
        extent: Extent,
        replaced: [(u64, u64); 2],
        site: Site,
    ) {
        let Some(guard) = space.mmap_read_lock(mm) else {
            return;
        };
        let ranges = match extent {
            Extent::None => return,
            Extent::All => [(0, u64::MAX), (0, 0)],
            Extent::Ranges(ranges) => ranges,
        };
        for (start, end) in replaced {
            self.sites
                .extract_if(start..end, |_, _| true)
                .for_each(drop);
        }
        let (mut gone, mut come) = (VecDeque::new(), Vec::new());
        for (low, high) in ranges.into_iter().filter(|(low, high)| low < high) {
            // The mappings from the one that ends at the start of the range to the first one after it.
            let mut found = Vec::new();
            let mut at = guard.find_vma(low.saturating_sub(1));
            while let Some(view) = at {
                found.push(view.range.start);
                if view.range.start >= high {
                    break;
                }
                at = guard.find_vma(view.range.end);
            }
            gone.extend(self.forget(low, &found));
            come.extend(
                found
                    .into_iter()
                    .filter(|start| !self.sites.contains_key(start)),
            );
        }
        for start in come {
            let moved = gone.pop_front();
            self.sites.insert(start, moved.unwrap_or(site));
        }
    }

    /// Removes the sites from `low` to the last of `found` at which no mapping starts any more, and
    /// returns them.
    fn forget(&mut self, low: u64, found: &[u64]) -> Vec<Site> {
        let last = found.last().copied().unwrap_or(u64::MAX);
        let range = low.min(last)..=last;
        let has_gone = |start: &u64, _: &mut Site| found.binary_search(start).is_err();
        let gone = self.sites.extract_if(range, has_gone);
        gone.map(|(_, site)| site).collect()
    }

    /// Returns the origin of the boundary below the mapping at `start`.
    pub fn site(&self, start: u64) -> Option<Site> {
        self.sites.get(&start).copied()
    }
}

/// Returns the addresses that a call may have changed; `heap` is the start of the heap.
pub fn extent(call: &Call, heap: u64) -> Extent {
    let [a, b, c, ..] = call.args;
    let range = |at: u64, len: u64| (at, at.saturating_add(len.max(1)));
    let one = |range| Extent::Ranges([range, (0, 0)]);
    let ret = call.ret as u64;
    match call.nr {
        sysno::MMAP | sysno::SHMAT | sysno::MREMAP if (-4095..0).contains(&call.ret) => {
            Extent::None
        }
        sysno::MMAP => one(range(ret, b)),
        sysno::MUNMAP
        | sysno::MPROTECT
        | sysno::PKEY_MPROTECT
        | sysno::MADVISE
        | sysno::MLOCK
        | sysno::MLOCK2
        | sysno::MUNLOCK
        | sysno::MSEAL => one(range(a, b)),
        sysno::MREMAP => Extent::Ranges([range(a, b.max(c)), range(ret, c)]),
        sysno::BRK => one((heap, ret.max(a).max(heap).saturating_add(1))),
        sysno::SHMAT => one(range(ret, call.file.map_or(1, |file| file.size))),
        sysno::SHMDT | sysno::MLOCKALL | sysno::MUNLOCKALL => Extent::All,
        _ => Extent::None,
    }
}

/// Returns the addresses at which a call has put a mapping in place of others, or taken one away to
/// put it elsewhere.
pub fn replaced(call: &Call) -> [(u64, u64); 2] {
    let [a, b, c, ..] = call.args;
    let range = |at: u64, len: u64| (at, at.saturating_add(len));
    let ret = call.ret as u64;
    match call.nr {
        _ if (-4095..0).contains(&call.ret) => [(0, 0); 2],
        sysno::MMAP => [range(ret, b), (0, 0)],
        sysno::SHMAT => [range(ret, call.file.map_or(1, |file| file.size)), (0, 0)],
        sysno::MREMAP if ret != a => [range(a, b), range(ret, c)],
        _ => [(0, 0); 2],
    }
}

/// Returns a readable name of a call.
pub fn label(call: &Call) -> String {
    let name = sysno::name(call.nr).unwrap_or("a call");
    match call.nr {
        sysno::MPROTECT | sysno::PKEY_MPROTECT => format!("{name}({})", PROT.show(call.args[2])),
        sysno::MADVISE => format!("{name}({})", MADV.show(call.args[2])),
        sysno::MMAP if call.file.is_some() => format!("{name}(file)"),
        sysno::MMAP => format!("{name}({})", PROT.show(call.args[2])),
        _ => name.to_owned(),
    }
}
