//! Traces each boundary back to the call that created it, during a replay.
//!
//! After each call, the mappings that the call may have changed are compared with those before the
//! call. A boundary that is new or has a different reason is attributed to this call. A later page
//! fault can change the reason (a first touch assigns an anon_vma); the boundary is still
//! attributed to the call that created it.
//!
//! # Invariants
//! O1  every mapping of a traced address space has an entry at its first byte

use std::collections::{BTreeMap, HashMap};
use vmarea::Space;
use vmarea::policy::Policy;
use vmarea::types::MmId;
use vmarea::vma::VmaView;
use vmarea_process::{Boundary, Mapping, Reason};
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

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// End of the mapping below, and reason for the boundary to it; `None` for the first mapping.
    before: Option<(u64, Reason)>,
    site: Site,
}

/// Boundaries of one address space with their origins.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    entries: BTreeMap<u64, Entry>,
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
    /// Compares the mappings in `extent` with the known boundaries, and attributes every change to
    /// `site`.
    pub fn follow(
        &mut self,
        (space, mm): (&Space, MmId),
        policy: &Policy,
        show: &dyn Show,
        extent: Extent,
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
        for (low, high) in ranges.into_iter().filter(|(low, high)| low < high) {
            // Collects the mappings from the one that ends at the start of the range to the first
            // one after the range.
            let mut found = Vec::new();
            let mut at = guard.find_vma(low.saturating_sub(1));
            while let Some(view) = at {
                found.push(view);
                if view.range.start >= high {
                    break;
                }
                at = guard.find_vma(view.range.end);
            }
            self.forget(low, &found);
            let below = found.first().and_then(|first| {
                let mut below = self.entries.range(..first.range.start);
                guard.vma_lookup(*below.next_back()?.0)
            });
            self.compare(policy, show, below.as_ref(), &found, site);
        }
    }

    /// Removes entries from `low` to the last of `found` that are no longer the start of a mapping.
    fn forget(&mut self, low: u64, found: &[VmaView]) {
        let last = found.last().map_or(u64::MAX, |view| view.range.start);
        let known = self.entries.range(low.min(last)..=last);
        let begins = |start: &u64| {
            let at = found.binary_search_by_key(start, |view| view.range.start);
            at.is_ok()
        };
        let gone = known
            .map(|(start, _)| *start)
            .filter(|start| !begins(start));
        for start in gone.collect::<Vec<_>>() {
            self.entries.remove(&start);
        }
    }

    fn compare(
        &mut self,
        policy: &Policy,
        show: &dyn Show,
        below: Option<&VmaView>,
        found: &[VmaView],
        site: Site,
    ) {
        let mut before = below.map(|view| show.mapping(view));
        for view in found {
            let mapping = show.mapping(view);
            let now = before.as_ref().map(|before| {
                let reason = Boundary::between(policy, before, &mapping).reason;
                (before.entry.end, reason)
            });
            let known = self.entries.get(&view.range.start);
            if known.is_none_or(|known| known.before != now) {
                self.entries
                    .insert(view.range.start, Entry { before: now, site });
            }
            before = Some(mapping);
        }
    }

    /// Returns the origin of the boundary below the mapping at `start`.
    pub fn site(&self, start: u64) -> Option<Site> {
        self.entries.get(&start).map(|entry| entry.site)
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
