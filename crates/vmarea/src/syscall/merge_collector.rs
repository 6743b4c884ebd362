//! The merge collector: merges that could not be made at once are made later, when nobody called.
//!
//! A merge that is refused for its pages (shared, swapped out, pinned, migrating) may be possible a
//! moment later. Where the policy says so the border is noted, and [`Space::collect`] tries again: with
//! the lock taken anew for every border, and never for more pages than its budget. The embedder calls
//! it, from a thread of its own if it likes.
//!
//! # Locking
//! `mmap_lock` for writing, for one border at a time.
//!
//! # Linux
//! Not there; the thesis names it as an extension ("merge collector").

use crate::mm::MmapWriteGuard;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, VmFlags};
use crate::vma::merge::{CallKind, MergeScope, Proposal, Refusal};

/// Borders that are noted at the most; what comes later is not collected.
const NOTED_LIMIT: usize = 1 << 16;

/// What one run of the collector may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Pages that may lie in the smaller VMA of a merge, and pages that it may change: a bound for the time
    /// the lock is held.
    pub pages_at_once: u64,
    /// Borders that are looked at.
    pub borders: usize,
}

/// What a run of the collector came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Borders that are gone.
    pub merged: u64,
    /// Borders that are no longer there, or that have come to be for another reason.
    pub forgotten: u64,
    /// Borders that stay noted: refused again, or too large for the budget.
    pub kept: u64,
}

impl<E: Environment> Space<E> {
    /// Tries the noted borders of an address space again.
    ///
    /// # Errors
    /// EINVAL for a budget of nothing; ESRCH if the address space is gone, or goes meanwhile; ENOMEM. What
    /// was merged before stays merged.
    pub fn collect(&self, mm: MmId, budget: Budget) -> Result<Collected, Errno> {
        if budget.pages_at_once == 0 || budget.borders == 0 {
            return Err(Errno::EINVAL);
        }
        let mut done = Collected::default();
        let noted = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        let count = noted.state().noted.len().min(budget.borders);
        drop(noted);
        // What stays noted goes to the end, so that none is looked at twice.
        for _ in 0..count {
            let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
            let Some(border) = w.state_mut().noted.pop_front() else {
                break;
            };
            match w.collect_border(border, budget.pages_at_once) {
                Ok(Border::Merged) => done.merged += 1,
                Ok(Border::Gone) => done.forgotten += 1,
                Ok(Border::Kept) => done.kept += 1,
                Err(error) => {
                    w.note(border);
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// Borders that wait for the collector.
    pub fn borders_noted(&self, mm: MmId) -> usize {
        self.mmap_read_lock(mm).map_or(0, |r| r.state().noted.len())
    }
}

enum Border {
    Merged,
    Gone,
    Kept,
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Remembers a border between private anonymous VMAs that only their pages keep.
    pub(crate) fn note_border(&mut self, border: u64, refusal: Option<Refusal>, flags: VmFlags) {
        let worth = refusal.is_some_and(keeps_pages_apart);
        if worth && self.space.policy.merging.collector && !flags.intersects(VmFlags::MAYSHARE) {
            self.note(border);
        }
    }

    fn note(&mut self, border: u64) {
        let noted = &mut self.state_mut().noted;
        if noted.len() < NOTED_LIMIT
            && noted.back() != Some(&border)
            && noted.try_reserve(1).is_ok()
        {
            noted.push_back(border);
        }
    }

    fn collect_border(&mut self, border: u64, pages_at_once: u64) -> Result<Border, Errno> {
        let below = self.prev(border).filter(|v| v.range.end == border);
        let above = self.lookup(border).filter(|v| v.range.start == border);
        let (Some(below), Some(above)) = (below, above) else {
            return Ok(Border::Gone);
        };
        if below.range.pages().min(above.range.pages()) > pages_at_once {
            self.note(border);
            return Ok(Border::Kept);
        }
        let proposal = Proposal {
            range: above.range,
            pgoff: above.pgoff,
            body: above.body,
            anon_vma: above.anon_vma,
            middle: Some(above),
            copied_from: None,
        };
        self.call = CallKind::Collect;
        let decided = self.decide(&proposal, MergeScope::Both);
        if decided.verdict.left.is_some_and(|r| !keeps_pages_apart(r)) {
            return Ok(Border::Gone);
        }
        let changed = |plan| -> u64 {
            let changes = self.changes(&plan);
            changes.iter().map(|(range, _)| range.pages()).sum()
        };
        if decided.verdict.plan.map_or(0, changed) > pages_at_once {
            self.note(border);
            return Ok(Border::Kept);
        }
        self.carry_out(&proposal, &decided)?;
        let gone = self.lookup(border).is_none_or(|v| v.range.start != border);
        Ok(if gone { Border::Merged } else { Border::Kept })
    }
}

/// The reason may go away by itself.
fn keeps_pages_apart(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::AnonVma | Refusal::PageOffset | Refusal::Pinned
    )
}
