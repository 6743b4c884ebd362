//! What a merged VMA takes over: whose anon_vma, which page offsets, at what cost.
//!
//! The parts of a merge are the neighbours and the range between them. A part without anon_vma has no
//! anonymous page and goes along with anything. Pages of the others must change unless they have the
//! surviving anon_vma and page offset base already; whether they may is asked as
//! [`Evidence`](super::Evidence).
//!
//! # Picture
//! ```text
//! address     0 1 2 3 4 5        a VMA's page offset base is its page offset less its address, in pages:
//! P: pgoff    0 1 2              base 0
//! N: pgoff          7 8 9        base 4; with P's base its pages would have the offsets 3 4 5
//! ```

use super::{Evidence, Proposal, Sharing};
use crate::policy::Policy;
use crate::policy::SharingCheck;
use crate::types::{Pgoff, VmRange, VmaId};
use crate::vma::VmaView;

/// Page offset base: what is to be added to an address, in pages, for the page offset there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PgoffBase(u64);

impl PgoffBase {
    /// Page offsets are addresses.
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

    /// No page of `range` would lie below zero.
    fn holds(self, range: VmRange) -> bool {
        self.at(range.start).0.checked_add(range.pages()).is_some()
    }
}

/// The anon_vma and page offset base that survive a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Survivor {
    /// Whose anon_vma it is now; none where nobody has one.
    pub(super) holder: Option<VmaId>,
    pub(super) base: PgoffBase,
    /// Shared pages of the others, which have to be copied.
    pub(super) copies: u64,
}

/// Pages that become part of the merged VMA.
#[derive(Clone, Copy)]
struct Part<'a> {
    vma: &'a VmaView,
    /// Where they are now.
    range: VmRange,
    /// Their page offset base in the merged VMA if their page offsets stay.
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

    /// Pages of the proposal itself, if it has any.
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

/// Pages that were asked about, and what was said.
type Asked = (VmaId, VmRange, Sharing);

/// What is made of pinned pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pins {
    /// They must stay as they are.
    Respected,
    /// They are taken as not pinned, to see whether that alone is in the way.
    Ignored,
}

/// Chooses for one proposal.
pub(super) struct Chooser<'a> {
    policy: &'a Policy,
    evidence: &'a dyn Evidence,
    /// The last answer: mostly the same is asked again.
    asked: Option<Asked>,
    /// Some pages could not change because they are pinned.
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

    /// What would be answered if no page were pinned; `None` where none is, as far as was asked.
    pub(super) fn without_pins<R>(&mut self, ask: impl FnOnce(&mut Self) -> R) -> Option<R> {
        self.met_pin.then(|| ask(self))
    }

    /// What the range and the neighbours given can all have. `None` if there is nothing.
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

    /// Shared pages that change if everything gets `holder`'s anon_vma and `base`. `None` if some
    /// must not change, or too many.
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

    /// May pages of a VMA get another anon_vma or page offset? The number that would have to be
    /// copied for it, or `None`.
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
