//! Changes to the recorded program that would have prevented mappings, checked by a replay.
//!
//! For each change, the replay has a world in which the program's calls are rewritten as if the
//! program contained the change; all other calls and all faults are the recorded ones, at the
//! recorded addresses. If a rewritten run cannot be followed to the end, because a call that
//! succeeded in the recording fails, it has no count.
//!
//! # Picture
//! ```text
//! recorded        mmap(---)            mprotect(rw, piece)   mprotect(---, page)
//! priming         mmap(rw, NORESERVE)  write   mprotect(---)
//! guard markers                        madvise(GUARD_REMOVE) madvise(GUARD_INSTALL)
//! whole advice                         madvise(piece) ─▶ madvise(mapping)
//! ```

use std::collections::{BTreeMap, HashMap};
use vmarea::syscall::Syscall;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::{MmapRequest, Placement};
use vmarea::types::PAGE_SIZE;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea_trace::event::{Call, MmId};

/// Minimum size of a reservation that is primed.
const LEAST_RESERVED: u64 = 1 << 20;
/// Maximum size of a guard.
const MOST_GUARD: u64 = 64 * PAGE_SIZE;

/// A change to the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Prevention {
    /// No change. The world has the recorded calls and faults, without corrections from the
    /// kernel's lists, and so shows what a count of the other worlds is worth.
    None,
    /// Each large reservation is mapped writable with `MAP_NORESERVE`, written once, and then
    /// protected, so that memory that is committed later has one anon_vma.
    Priming,
    /// `madvise` with a flag is called once for the whole mapping instead of for pieces.
    WholeAdvice,
    /// Guards are installed with `MADV_GUARD_INSTALL` instead of `mprotect`.
    GuardMarkers,
}

impl Prevention {
    /// All changes, after the baseline.
    pub const ALL: [Prevention; 4] = [
        Prevention::None,
        Prevention::Priming,
        Prevention::WholeAdvice,
        Prevention::GuardMarkers,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Prevention::None => "none",
            Prevention::Priming => "priming",
            Prevention::WholeAdvice => "whole_advice",
            Prevention::GuardMarkers => "guard_markers",
        }
    }
}

/// Result of a changed run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prevented {
    /// The change.
    pub prevention: Prevention,
    /// Number of mappings of one address space at its peak.
    pub peak: u64,
    /// Number of calls that the change replaced.
    pub rewritten: u64,
    /// Why the changed run could not be followed to the end.
    pub broken: Option<String>,
}

/// State of a world with a change.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) prevention: Prevention,
    rewritten: u64,
    broken: Option<String>,
    /// Private anonymous mappings that the program has created, by start: their ends.
    regions: HashMap<MmId, BTreeMap<u64, u64>>,
}

/// A call or an access of the changed program.
#[derive(Debug)]
pub(crate) enum Step {
    /// A call.
    Call(Syscall),
    /// A write to a byte.
    Write(u64),
}

impl Changed {
    pub(crate) fn new(prevention: Prevention) -> Changed {
        Changed {
            prevention,
            rewritten: 0,
            broken: None,
            regions: HashMap::new(),
        }
    }

    pub(crate) fn forked(&mut self, mm: MmId, parent: MmId) {
        let regions = self.regions.get(&parent).cloned();
        self.regions.insert(mm, regions.unwrap_or_default());
    }

    pub(crate) fn ended(&mut self, mm: MmId) {
        self.regions.remove(&mm);
    }

    pub(crate) fn rewritten(&self) -> (Prevention, u64) {
        (self.prevention, self.rewritten)
    }

    pub(crate) fn result(&self, peak: u64) -> Prevented {
        Prevented {
            prevention: self.prevention,
            peak,
            rewritten: self.rewritten,
            broken: self.broken.clone(),
        }
    }

    /// Records that a call succeeded in the recording and fails in the changed program.
    pub(crate) fn fails(&mut self, call: &Call, errno: i64) {
        let name = vmarea_trace::sysno::name(call.nr).unwrap_or("a call");
        self.broken
            .get_or_insert_with(|| format!("{name} fails (errno {}) after the change", -errno));
    }

    /// Records that an access succeeds in the recording and fails in the changed program.
    pub(crate) fn access_fails(&mut self, addr: u64) {
        self.broken
            .get_or_insert_with(|| format!("an access to {addr:x} fails after the change"));
    }

    /// Returns the region that contains the range.
    fn region(&self, mm: MmId, addr: u64, len: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.regions.get(&mm)?.range(..=addr).next_back()?;
        (addr.saturating_add(len) <= end).then_some((start, end))
    }

    /// Remembers new and removed regions.
    pub(crate) fn follow(&mut self, call: &Call, request: &Syscall) {
        let regions = self.regions.entry(call.mm).or_default();
        let (start, len, is_new) = match request {
            Syscall::Mmap(request) => {
                let Placement::At(start) = request.placement else {
                    return;
                };
                (start, request.len, is_private_anonymous(request))
            }
            Syscall::Munmap { addr, len } => (*addr, *len, false),
            _ => return,
        };
        let end = start.saturating_add(len.next_multiple_of(PAGE_SIZE));
        let over: Vec<_> = regions
            .range(..end)
            .filter(|(_, region_end)| **region_end > start)
            .map(|(&start, &end)| (start, end))
            .collect();
        for (region_start, region_end) in over {
            regions.remove(&region_start);
            if region_start < start {
                regions.insert(region_start, start);
            }
            if region_end > end {
                regions.insert(end, region_end);
            }
        }
        if is_new {
            regions.insert(start, end);
        }
    }

    /// Returns what the changed program does instead of the recorded call; `None` if the call is
    /// unchanged.
    pub(crate) fn rewrite(&mut self, call: &Call, request: &Syscall) -> Option<Vec<Step>> {
        let steps = self.steps(call, request);
        let is_guard = |step: &Step| {
            let Step::Call(Syscall::Madvise { advice, .. }) = step else {
                return false;
            };
            *advice == Advice::GuardInstall
        };
        // Where there is no guard, no program would call anything else.
        let counts = match self.prevention {
            Prevention::GuardMarkers => steps.iter().flatten().any(is_guard),
            _ => steps.is_some(),
        };
        self.rewritten += u64::from(counts);
        steps
    }

    fn steps(&self, call: &Call, request: &Syscall) -> Option<Vec<Step>> {
        match (self.prevention, request) {
            (Prevention::Priming, Syscall::Mmap(request)) => primed(request),
            (Prevention::WholeAdvice, &Syscall::Madvise { addr, len, advice }) => {
                self.whole(call.mm, (addr, len), advice)
            }
            (
                Prevention::GuardMarkers,
                &Syscall::Mprotect {
                    addr,
                    len,
                    prot,
                    pkey: None,
                },
            ) => self.marked(call.mm, (addr, len), prot),
            _ => None,
        }
    }

    fn whole(&self, mm: MmId, (addr, len): (u64, u64), advice: Advice) -> Option<Vec<Step>> {
        use Advice::{DoDump, DoFork, DontDump, DontFork, HugePage, Mergeable, NoHugePage};
        let (start, end) = self.region(mm, addr, len)?;
        match advice {
            DontFork | DontDump | HugePage | NoHugePage | Mergeable => {
                Some(vec![Step::Call(Syscall::Madvise {
                    addr: start,
                    len: end - start,
                    advice,
                })])
            }
            // The whole mapping keeps the advice.
            DoFork | DoDump => Some(Vec::new()),
            _ => None,
        }
    }

    fn marked(&self, mm: MmId, (addr, len): (u64, u64), prot: Prot) -> Option<Vec<Step>> {
        let (start, end) = self.region(mm, addr, len)?;
        let len = len.next_multiple_of(PAGE_SIZE);
        let advise = |addr, len, advice| Step::Call(Syscall::Madvise { addr, len, advice });
        let protect = |addr, len| {
            Step::Call(Syscall::Mprotect {
                addr,
                len,
                prot,
                pkey: None,
            })
        };
        if prot.is_empty() {
            let install = advise(addr, len, Advice::GuardInstall);
            return (len <= MOST_GUARD && len < end - start).then(|| vec![install]);
        }
        if prot != Prot::READ | Prot::WRITE {
            return None;
        }
        let remove = advise(addr, len, Advice::GuardRemove);
        // A reservation of which only guards remain: a thread's stack.
        let around = (addr - start, end - (addr + len));
        if around != (0, 0) && around.0 + around.1 <= MOST_GUARD {
            let mut steps = vec![protect(start, end - start), remove];
            for (guard, len) in [(start, around.0), (addr + len, around.1)] {
                steps.extend((len > 0).then(|| advise(guard, len, Advice::GuardInstall)));
            }
            return Some(steps);
        }
        Some(vec![remove, protect(addr, len)])
    }
}

fn is_private_anonymous(request: &MmapRequest) -> bool {
    let kind = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    request.file.is_none()
        && request.flags.contains(kind)
        && !request.flags.contains(MapFlags::HUGETLB)
}

fn primed(request: &MmapRequest) -> Option<Vec<Step>> {
    let Placement::At(start) = request.placement else {
        return None;
    };
    if !is_private_anonymous(request) || !request.prot.is_empty() || request.len < LEAST_RESERVED {
        return None;
    }
    let writable = MmapRequest {
        prot: Prot::READ | Prot::WRITE,
        flags: request.flags | MapFlags::NORESERVE,
        ..*request
    };
    let protect = Syscall::Mprotect {
        addr: start,
        len: request.len,
        prot: Prot::empty(),
        pkey: None,
    };
    Some(vec![
        Step::Call(Syscall::Mmap(writable)),
        Step::Write(start),
        Step::Call(protect),
    ])
}
