//! The address spaces of a trace, replayed under one policy.

use super::prevention::Changed;
use super::report::PolicyReport;
use std::collections::HashMap;
use vmarea::Space;
use vmarea::System;
use vmarea::fault;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::merge_collector::Budget;
use vmarea::types::{Errno, MmId, PAGE_SIZE};
use vmarea_trace::event::{Access, Fault, MmId as TraceMm, Touch as Touched};

/// The replayed address spaces under one policy.
#[derive(Debug)]
pub struct World {
    /// Name of the policy in reports.
    pub name: &'static str,
    /// The core: all address spaces and the machine's settings.
    pub space: Space,
    /// Counts so far. The counts of a live address space are added when it ends.
    pub report: PolicyReport,
    mms: HashMap<TraceMm, MmId>,
    /// The last address space that was looked up.
    last: Option<(TraceMm, MmId)>,
    /// Number of VMAs in each live address space; `total_live` is the sum over all of them.
    live: HashMap<TraceMm, u64>,
    total_live: u64,
    /// Number of VMAs that the next check may cover; grows with each call after the last check.
    check_paid: u64,
    /// Number of calls so far, if the policy has a merge collector.
    calls: u64,
    /// Change to the program, if the world has one.
    pub(crate) changed: Option<Changed>,
}

/// Number of calls between two runs of the merge collector. A kernel would run the collector in a
/// thread.
const CALLS_A_COLLECTION: u64 = 64;

impl World {
    /// Creates an empty world.
    pub fn new(name: &'static str, policy: Policy, system: System) -> Self {
        let mut space = Space::new(policy, system);
        space.count_lookups();
        World {
            name,
            space,
            report: PolicyReport::default(),
            mms: HashMap::new(),
            last: None,
            live: HashMap::new(),
            total_live: 0,
            check_paid: 0,
            calls: 0,
            changed: None,
        }
    }

    /// Returns the core's id of a recorded address space, and caches the id.
    pub fn mm(&mut self, mm: TraceMm) -> Option<MmId> {
        match self.last {
            Some((last, id)) if last == mm => Some(id),
            _ => {
                let id = *self.mms.get(&mm)?;
                self.last = Some((mm, id));
                Some(id)
            }
        }
    }

    /// Returns the core's id of a recorded address space.
    pub fn existing(&self, mm: TraceMm) -> Option<MmId> {
        self.mms.get(&mm).copied()
    }

    /// Returns the trace's number of an address space of the core.
    pub(crate) fn recorded_mm(&self, id: MmId) -> Option<TraceMm> {
        if let Some((mm, last)) = self.last
            && last == id
        {
            return Some(mm);
        }
        let mut mms = self.mms.iter();
        mms.find(|(_, one)| **one == id).map(|(mm, _)| *mm)
    }

    /// Returns the layout and settings of an address space.
    pub fn layout(&self, mm: TraceMm) -> Layout {
        let id = self.existing(mm);
        let r = id.and_then(|id| self.space.mmap_read_lock(id));
        r.map_or_else(Layout::default, |r| r.state().layout)
    }

    /// Gives an address space the settings that its process retains across `execve`.
    pub fn inherit(&mut self, mm: TraceMm, old: &Layout) {
        if let Some(id) = self.mm(mm) {
            // This cannot fail: the address space was in the table.
            let _ = self.space.set_layout(id, |layout| layout.inherit(old));
        }
    }

    /// Creates an empty address space.
    pub fn mm_empty(&mut self, mm: TraceMm) {
        let id = self.space.mm_create(Layout::default(), Limits::default());
        self.adopt(mm, id);
    }

    /// Creates an address space as a copy of `from`.
    pub fn mm_fork(&mut self, mm: TraceMm, from: TraceMm) {
        let Some(parent) = self.mm(from) else {
            return;
        };
        let id = self.space.fork(parent);
        self.adopt(mm, id);
        if let Some(changed) = &mut self.changed {
            changed.forked(mm, from);
        }
    }

    /// Gives an address space the limits and capabilities of the next thread that acts on it.
    pub fn set_limits(&mut self, mm: TraceMm, limits: Limits) {
        if let Some(mm) = self.mm(mm) {
            // This cannot fail: the address space exists.
            let _ = self.space.set_limits(mm, |l| *l = limits);
        }
    }

    fn adopt(&mut self, mm: TraceMm, id: Result<MmId, Errno>) {
        self.mm_end(mm);
        if let Ok(id) = id {
            self.mms.insert(mm, id);
            self.count(mm, id);
        }
    }

    /// Removes an address space that no longer has users.
    pub fn mm_end(&mut self, mm: TraceMm) {
        self.last = None;
        let Some(id) = self.mms.remove(&mm) else {
            return;
        };
        self.add_counts(id);
        self.report.vmas_exit += self.live.get(&mm).copied().unwrap_or(0);
        self.total_live -= self.live.remove(&mm).unwrap_or(0);
        if let Some(changed) = &mut self.changed {
            changed.ended(mm);
        }
        // This cannot fail: the address space was in the table.
        let _ = self.space.mm_exit(id);
    }

    /// Removes all remaining address spaces.
    pub fn finish(&mut self) {
        for mm in self.mms.keys().copied().collect::<Vec<_>>() {
            self.mm_end(mm);
        }
    }

    fn add_counts(&mut self, id: MmId) {
        let (lookups, hits) = self.space.lookup_counts(id);
        self.report.lookups += lookups;
        self.report.last_used_hits += hits;
        let Some(r) = self.space.mmap_read_lock(id) else {
            return;
        };
        let stats = &r.state().stats;
        for (kind, n) in stats.merges().filter(|(_, n)| *n > 0) {
            *self
                .report
                .merges
                .entry(kind.name().to_owned())
                .or_default() += n;
        }
        for (reason, n) in stats.refusals().filter(|(_, n)| *n > 0) {
            *self
                .report
                .refusals
                .entry(reason.name().to_owned())
                .or_default() += n;
        }
        for (call, outcome, n) in stats.attempts().filter(|(.., n)| *n > 0) {
            let by_outcome = self
                .report
                .attempts
                .entry(call.name().to_owned())
                .or_default();
            *by_outcome.entry(outcome.name().to_owned()).or_default() += n;
        }
        for (what, n) in stats.relocations().filter(|(_, n)| *n > 0) {
            let by_outcome = &mut self.report.relocations;
            *by_outcome.entry(what.name().to_owned()).or_default() += n;
        }
        self.report.pgoff_updates += stats.pgoff_updates;
        self.report.pgoff_merges += stats.pgoff_merges;
        self.report.expand_merges += stats.expand_merges;
        self.report.splits += stats.splits;
    }

    /// Checks the invariants of one address space, except those of its pages. A violation is
    /// printed to stderr.
    ///
    /// The cost of a check is proportional to the number of VMAs, so address spaces with more VMAs
    /// are checked less often.
    pub(crate) fn is_valid(&mut self, mm: TraceMm) -> bool {
        const VMAS_A_CALL: u64 = 256;
        self.check_paid = self.check_paid.saturating_add(VMAS_A_CALL);
        if self.check_paid < self.live.get(&mm).copied().unwrap_or(0) {
            return true;
        }
        self.check_paid = 0;
        let checked = self
            .mm(mm)
            .map_or(Ok(()), |id| self.space.validate_vmas(id));
        checked
            .inspect_err(|v| eprintln!("{}: {}", self.name, v.0))
            .is_ok()
    }

    /// Runs the policy's merge collector, if it has one, after every [`CALLS_A_COLLECTION`] calls.
    pub(crate) fn collect_merges(&mut self, id: MmId) {
        if !self.space.policy().merging.collector {
            return;
        }
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_A_COLLECTION) {
            let budget = Budget {
                pages_at_once: 4096,
                borders: 64,
            };
            // An error leaves borders for a later run.
            let collected = self.space.collect(id, budget).unwrap_or_default();
            self.report.collected += collected.merged;
        }
    }

    /// Updates the counts with the current number of VMAs in an address space.
    pub fn count(&mut self, mm: TraceMm, id: MmId) {
        let Some(r) = self.space.mmap_read_lock(id) else {
            return;
        };
        let now = u64::from(r.state().map_count);
        let was = self.live.insert(mm, now).unwrap_or(0);
        self.total_live = self.total_live + now - was;
        self.report.vmas_peak_single = self.report.vmas_peak_single.max(now);
        self.report.vmas_peak = self.report.vmas_peak.max(self.total_live);
    }

    /// Returns the number of VMAs in an address space.
    pub fn vmas(&self, mm: TraceMm) -> u64 {
        self.live.get(&mm).copied().unwrap_or(0)
    }

    /// Returns the number of VMAs in all live address spaces together.
    pub(crate) fn total_vmas(&self) -> u64 {
        self.total_live
    }

    /// Replays a page fault; returns true if the access succeeds.
    #[inline]
    pub fn fault(&mut self, fault: &Fault) -> bool {
        let Some(mm) = self.mm(fault.mm) else {
            return false;
        };
        let access = access_of(fault.access);
        let faulted = self.space.fault(mm, fault.addr, access);
        matches!(faulted, Ok(fault::Faulted::Done | fault::Faulted::Spurious))
    }

    /// Replays a memory access that caused no page fault.
    pub fn touch(&mut self, touched: &Touched) {
        let Some(mm) = self.mm(touched.mm) else {
            return;
        };
        let access = access_of(touched.access);
        let end = touched.addr.saturating_add(touched.len);
        let mut at = touched.addr;
        while at < end {
            if !matches!(
                self.space.fault(mm, at, access),
                Ok(vmarea::fault::Faulted::Done | vmarea::fault::Faulted::Spurious)
            ) {
                break;
            }
            at = (at & !(PAGE_SIZE - 1)) + PAGE_SIZE;
        }
    }
}

fn access_of(access: Access) -> fault::Access {
    match access {
        Access::Read => fault::Access::Read,
        Access::Exec => fault::Access::Exec,
        // Most faults are writes. If this fault is not a write, a resulting difference counts as
        // undecided.
        Access::Write | Access::Unknown => fault::Access::Write,
    }
}
