//! The merge collector: retries refused merges later, outside any system call.
//!
//! A merge that is refused because of the state of the pages (shared, swapped out, pinned or
//! migrating) may become possible shortly afterwards. If the policy enables the collector, the
//! border between the two VMAs is recorded, and [`Space::collect`] retries the merge. The collector
//! takes `mmap_lock` anew for each border, and never changes more pages in one merge than its
//! budget allows. The embedder runs the collector, possibly in a dedicated thread.
//!
//! # Locking
//! Takes `mmap_lock` for writing, for one border at a time.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//! use vmarea::syscall::merge_collector::Budget;
//!
//! let policy = Policy::parse("vmarea+collector").expect("a policy").policy;
//! let space = Space::new(policy, System::default());
//! let mm = space.mm_create(Layout::default(), Limits::default())?;
//! assert_eq!(space.borders_noted(mm), 0);
//! let budget = Budget { pages_at_once: 64, borders: 16 };
//! space.collect(mm, budget)?;
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Linux
//! Not in Linux; the thesis mentions this extension ("merge collector").

use crate::Space;
use crate::mm::MmapGuard;
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{Errno, MmId, VmFlags};
use crate::vma::merge::{CallKind, MergeScope, Proposal, Refusal};

/// Maximum number of recorded borders; further borders are not recorded.
const NOTED_LIMIT: usize = 1 << 16;

/// Upper limits on the work of one collector run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Maximum number of pages in the smaller VMA, and maximum number of pages that a merge
    /// changes.
    ///
    /// This maximum limits the time during which `mmap_lock` is held.
    pub pages_at_once: u64,
    /// Maximum number of borders to check in one run.
    pub borders: usize,
}

/// The result of one collector run, as numbers of borders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Number of borders that were removed, because the two VMAs merged.
    pub merged: u64,
    /// Number of borders that are gone, or whose merge is refused for a reason that is not retried.
    pub forgotten: u64,
    /// Number of borders still recorded, because the merge was refused again or exceeds the budget.
    pub kept: u64,
}

impl<E: Environment> Space<E> {
    /// Retries the merges at the recorded borders in an address space.
    ///
    /// # Errors
    /// EINVAL for a budget of zero; ESRCH if the address space is gone or is removed during the
    /// run; ENOMEM. Merges made before an error are kept.
    pub fn collect(&self, mm: MmId, budget: Budget) -> Result<Collected, Errno> {
        if budget.pages_at_once == 0 || budget.borders == 0 {
            return Err(Errno::EINVAL);
        }
        let mut done = Collected::default();
        let noted = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        let count = noted.state().noted.len().min(budget.borders);
        drop(noted);
        // Borders that remain recorded move to the end of the queue, so that none is checked twice.
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

    /// Returns the number of borders that are recorded for the collector.
    pub fn borders_noted(&self, mm: MmId) -> usize {
        self.mmap_read_lock(mm).map_or(0, |r| r.state().noted.len())
    }
}

enum Border {
    Merged,
    Gone,
    Kept,
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Records the border between two private VMAs if only their pages' state prevents a merge.
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
        let above = self.vma_lookup(border).filter(|v| v.range.start == border);
        let (Some(below), Some(above)) = (below, above) else {
            return Ok(Border::Gone);
        };
        if below.range.pages().min(above.range.pages()) > pages_at_once {
            self.note(border);
            return Ok(Border::Kept);
        }
        let proposal = Proposal::unchanged(&above);
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
        let gone = self
            .vma_lookup(border)
            .is_none_or(|v| v.range.start != border);
        Ok(if gone { Border::Merged } else { Border::Kept })
    }
}

/// True if the reason for a refusal can disappear without a system call that changes the VMAs.
fn keeps_pages_apart(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::AnonVma | Refusal::PageOffset | Refusal::Pinned
    )
}
