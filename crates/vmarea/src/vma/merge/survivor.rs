//! Selection of the anon_vma and the page offsets of a merged VMA, and the cost of that choice.
//!
//! The parts of a merge are the neighbours and the range between them. A part without an anon_vma
//! has no anonymous pages and fits any choice. The pages of the other parts must change unless they
//! already have the surviving anon_vma and page offset base. [`Evidence`](super::Evidence) reports
//! whether they may change.
//!
//! # Picture
//! ```text
//! address     0 1 2 3 4 5        page offset base = page offset - address, in pages
//! P: pgoff    0 1 2              base 0
//! N: pgoff          7 8 9        base 4; with P's base its pages would have the offsets 3 4 5
//! ```

use super::{Evidence, Proposal, Sharing};
use crate::policy::Policy;
use crate::policy::SharingCheck;
use crate::types::{Pgoff, VmRange, VmaId};
use crate::vma::VmaView;

/// Page offset base: the number of pages to add to an address to get the page offset there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PgoffBase(u64);

impl PgoffBase {
    /// Base of a VMA whose page offsets are its page numbers.
    const ADDRESS: PgoffBase = PgoffBase(0);

    pub(super) fn of(pgoff: Pgoff, addr: u64) -> PgoffBase {
        PgoffBase(pgoff.0.wrapping_sub(Pgoff::of_addr(addr).0))
    }

    fn of_vma(vma: &VmaView) -> PgoffBase {
        PgoffBase::of(vma.pgoff, vma.range.start)
    }

    pub(super) fn at(self, addr: u64) -> Pgoff {
        Pgoff(self.0.wrapping_add(Pgoff::of_addr(addr).0))
    }

    /// Checks that no page offset of `range` wraps.
    fn holds(self, range: VmRange) -> bool {
        self.at(range.start).0.checked_add(range.pages()).is_some()
    }
}

/// The anon_vma and page offset base that survive a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Survivor {
    /// The VMA whose anon_vma survives; `None` if none of the VMAs has an anon_vma.
    pub(super) holder: Option<VmaId>,
    pub(super) base: PgoffBase,
    /// Number of shared pages in the other VMAs that have to be copied.
    pub(super) copies: u64,
}

/// A range of pages that becomes part of the merged VMA.
#[derive(Clone, Copy)]
struct Part<'a> {
    vma: &'a VmaView,
    /// Current address range of the pages.
    range: VmRange,
    /// Page offset base of the pages in the merged VMA if their page offsets do not change.
    base: PgoffBase,
}

impl<'a> Part<'a> {
    fn whole(vma: &'a VmaView) -> Self {
        Part {
            vma,
            range: vma.range,
            base: PgoffBase::of_vma(vma),
        }
    }

    /// Returns the pages of the proposal itself, if it has any.
    fn of(p: &'a Proposal) -> Option<Self> {
        let base = PgoffBase::of(p.pgoff, p.range.start);
        let (vma, range) = match (&p.middle, &p.copied_from) {
            (Some(vma), _) => (vma, p.range),
            (None, Some(vma)) => (vma, vma.range),
            (None, None) => return None,
        };
        Some(Part { vma, range, base })
    }

    fn is_faulted(&self) -> bool {
        self.vma.anon_vma.is_some()
    }
}

/// The last query to [`Evidence`] and its result.
type Asked = (VmaId, VmRange, Sharing);

/// Treatment of pinned pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pins {
    /// Pinned pages must not change.
    Respected,
    /// Pins are ignored, to find out whether they are the only obstacle.
    Ignored,
}

/// Chooses the survivor for one proposal.
pub(super) struct Chooser<'a> {
    policy: &'a Policy,
    evidence: &'a dyn Evidence,
    /// The last query to the evidence, cached because queries often repeat.
    asked: Option<Asked>,
    /// True if some pages could not change because they are pinned.
    met_pin: bool,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(policy: &'a Policy, evidence: &'a dyn Evidence) -> Self {
        Chooser {
            policy,
            evidence,
            asked: None,
            met_pin: false,
        }
    }

    /// Calls `ask` if a pinned page was an obstacle so far; otherwise returns `None`. `ask` should
    /// ignore pins.
    pub(super) fn without_pins<R>(&mut self, ask: impl FnOnce(&mut Self) -> R) -> Option<R> {
        self.met_pin.then(|| ask(self))
    }

    /// Returns the anon_vma and page offset base that the range and the neighbours can all have.
    /// Returns `None` if there is no such combination.
    pub(super) fn survivor(
        &mut self,
        pins: Pins,
        p: &Proposal,
        prev: Option<&VmaView>,
        next: Option<&VmaView>,
    ) -> Option<Survivor> {
        let target = PgoffBase::of_vma(prev.or(next)?);
        let parts = [prev.map(Part::whole), next.map(Part::whole), Part::of(p)];
        let merged = VmRange::new(
            prev.map_or(p.range.start, |v| v.range.start),
            next.map_or(p.range.end, |v| v.range.end),
        );
        let faulted = || parts.iter().flatten().filter(|part| part.is_faulted());
        let Some(first) = faulted().next() else {
            let base = if target.holds(merged) {
                target
            } else {
                PgoffBase::ADDRESS
            };
            return Some(Survivor {
                holder: None,
                base,
                copies: 0,
            });
        };
        let merging = &self.policy.merging;
        let mut best: Option<Survivor> = None;
        for holder in faulted() {
            if holder.vma.id != first.vma.id && !merging.either_survives {
                break;
            }
            for base in [target, holder.base] {
                let other = base != target;
                if other && !merging.renumber_in_place || !base.holds(merged) {
                    continue;
                }
                if let Some(copies) = self.copies(&parts, (holder, base), pins)
                    && best.is_none_or(|b| copies < b.copies)
                {
                    let holder = Some(holder.vma.id);
                    best = Some(Survivor {
                        holder,
                        base,
                        copies,
                    });
                }
                if best.is_some_and(|b| b.copies == 0) {
                    return best;
                }
            }
        }
        best
    }

    /// Returns the number of shared pages that change under `holder`'s anon_vma and `base`. Returns
    /// `None` if some pages must not change, or if there are too many.
    fn copies(
        &mut self,
        parts: &[Option<Part<'_>>; 3],
        (holder, base): (&Part<'_>, PgoffBase),
        pins: Pins,
    ) -> Option<u64> {
        let fits = |part: &&Part<'_>| {
            !part.is_faulted() || part.vma.anon_vma == holder.vma.anon_vma && part.base == base
        };
        let mut copies = 0;
        for part in parts.iter().flatten().filter(|part| !fits(part)) {
            copies += self.may_change(part.vma, part.range, pins)?;
        }
        (copies <= self.policy.merging.copy_budget).then_some(copies)
    }

    /// Checks whether the pages of `range` may get another anon_vma or page offset. Returns the
    /// number of pages that have to be copied first, or `None` if the pages must not change.
    pub(super) fn may_change(&mut self, vma: &VmaView, range: VmRange, pins: Pins) -> Option<u64> {
        let merging = &self.policy.merging;
        if !merging.different_anon_vmas && !merging.update_pgoff {
            return None;
        }
        let sharing = self.sharing(vma, range);
        if sharing.pinned > 0 && pins == Pins::Respected {
            self.met_pin = true;
            return None;
        }
        match merging.sharing {
            SharingCheck::Thesis => (!sharing.family && sharing.pages == 0).then_some(0),
            SharingCheck::Truth => (sharing.pages <= merging.copy_budget).then_some(sharing.pages),
        }
    }

    fn sharing(&mut self, vma: &VmaView, range: VmRange) -> Sharing {
        if let Some((id, part, answer)) = self.asked
            && (id, part) == (vma.id, range)
        {
            return answer;
        }
        let sharing = self.evidence.sharing(vma, range);
        self.asked = Some((vma.id, range, sharing));
        sharing
    }
}
