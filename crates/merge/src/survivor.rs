//! Selection of the anon_vma and the page offsets of a merged VMA, and the cost of that choice.
//!
//! The parts of a merge are the neighbours and the range between them. A part without an anon_vma
//! has no anonymous pages and fits any choice. The pages of the other parts must change unless they
//! already have the surviving anon_vma and page offsets. [`Evidence`](super::Evidence) reports
//! whether they may change.

use crate::policy::{Policy, SharingCheck};
use crate::sides::Sides;
use crate::types::{PageOffsets, VmRange, VmaId};
use crate::view::VmaView;
use crate::{Evidence, Proposal, Sharing};

/// The anon_vma and page offsets that survive a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Survivor {
    /// The VMA whose anon_vma survives; `None` if none of the VMAs has an anon_vma.
    pub(super) holder: Option<VmaId>,
    pub(super) offsets: PageOffsets,
    /// Number of the other VMAs' shared pages that have to be copied.
    pub(super) copies: u64,
}

/// A range of pages that becomes part of the merged VMA.
#[derive(Clone, Copy)]
struct Part<'a> {
    vma: &'a VmaView,
    /// Current address range of the pages.
    range: VmRange,
    /// Page offsets of the pages if the merge does not change them.
    offsets: PageOffsets,
}

impl<'a> Part<'a> {
    fn whole(vma: &'a VmaView) -> Self {
        Part {
            vma,
            range: vma.range,
            offsets: vma.offsets,
        }
    }

    /// Returns the pages of the proposal itself, if it has any.
    fn of(p: &'a Proposal) -> Option<Self> {
        let (vma, range) = match (&p.middle, &p.copied_from) {
            (Some(vma), _) => (vma, p.range),
            (None, Some(vma)) => (vma, vma.range),
            (None, None) => return None,
        };
        Some(Part {
            vma,
            range,
            offsets: p.offsets,
        })
    }

    fn is_faulted(&self) -> bool {
        self.vma.anon_vma.is_some()
    }
}

/// Returns the survivor of a merge that changes no pages, because all parts with an anon_vma have
/// the same one, and the page offsets `offsets`. Such a merge is by far the most frequent one.
#[inline]
fn unchanged(
    p: &Proposal,
    neighbours: [Option<&VmaView>; 2],
    offsets: PageOffsets,
) -> Option<Survivor> {
    let mut first: Option<&VmaView> = None;
    for vma in neighbours.into_iter().flatten() {
        if vma.anon_vma.is_some() {
            if vma.offsets != offsets || first.is_some_and(|f| f.anon_vma != vma.anon_vma) {
                return None;
            }
            first = first.or(Some(vma));
        }
    }
    if let Some(own) = p.middle.as_ref().or(p.copied_from.as_ref())
        && own.anon_vma.is_some()
    {
        if p.offsets != offsets || first.is_some_and(|f| f.anon_vma != own.anon_vma) {
            return None;
        }
        first = first.or(Some(own));
    }
    Some(Survivor {
        holder: first.map(|vma| vma.id),
        offsets,
        copies: 0,
    })
}

/// The last query to [`Evidence`] and its result.
type Asked = (VmaId, VmRange, Sharing);

/// Why the pages of a range must not get another anon_vma or page offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Obstacle {
    /// The policy does not allow pages to be changed, or too many pages are shared.
    Shared,
    /// Some pages are pinned; without the pins, `copies` pages would have to be copied.
    Pinned {
        /// Number of shared pages.
        copies: u64,
    },
}

/// Chooses the survivor for one proposal.
pub(super) struct Chooser<'a> {
    policy: &'a Policy,
    evidence: &'a dyn Evidence,
    /// The last query to the evidence, cached because the same query is often repeated.
    asked: Option<Asked>,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(policy: &'a Policy, evidence: &'a dyn Evidence) -> Self {
        Chooser {
            policy,
            evidence,
            asked: None,
        }
    }

    /// Chooses the merged VMA's anon_vma and page offsets so that the fewest pages are copied.
    ///
    /// # Errors
    /// No such combination exists; the obstacle is `Pinned` if one would exist without the pins.
    pub(super) fn survivor(
        &mut self,
        p: &Proposal,
        sides: Sides<'_>,
    ) -> Result<Survivor, Obstacle> {
        let target = sides.target().offsets;
        match unchanged(p, sides.both(), target) {
            Some(survivor) if target.holds(sides.range(p)) => Ok(survivor),
            _ => self.fewest_copies(p, sides),
        }
    }

    /// Chooses like [`Chooser::survivor`], by comparing all combinations.
    pub(super) fn fewest_copies(
        &mut self,
        p: &Proposal,
        sides: Sides<'_>,
    ) -> Result<Survivor, Obstacle> {
        let target = sides.target().offsets;
        let [prev, next] = sides.both();
        let merged = sides.range(p);
        let parts = [prev.map(Part::whole), next.map(Part::whole), Part::of(p)];
        let faulted = || parts.iter().flatten().filter(|part| part.is_faulted());
        let Some(first) = faulted().next() else {
            let offsets = if target.holds(merged) {
                target
            } else {
                PageOffsets::ADDRESS
            };
            return Ok(Survivor {
                holder: None,
                offsets,
                copies: 0,
            });
        };
        let merging = &self.policy.merging;
        let mut best = Err(Obstacle::Shared);
        for holder in faulted() {
            if holder.vma.id != first.vma.id && !merging.either_survives {
                break;
            }
            for offsets in [target, holder.offsets] {
                let other = offsets != target;
                if other && !merging.renumber_in_place || !offsets.holds(merged) {
                    continue;
                }
                match (self.copies(&parts, (holder, offsets)), best) {
                    (Ok(copies), Ok(Survivor { copies: fewest, .. })) if fewest <= copies => {}
                    (Ok(copies), _) => {
                        let holder = Some(holder.vma.id);
                        best = Ok(Survivor {
                            holder,
                            offsets,
                            copies,
                        });
                    }
                    (Err(pinned @ Obstacle::Pinned { .. }), Err(_)) => best = Err(pinned),
                    (Err(_), _) => {}
                }
                if best.is_ok_and(|b| b.copies == 0) {
                    return best;
                }
            }
        }
        best
    }

    /// Returns the number of shared pages to copy if `holder`'s anon_vma and `offsets` survive. Fails
    /// if some pages must not change, or too many are shared.
    fn copies(
        &mut self,
        parts: &[Option<Part<'_>>; 3],
        (holder, offsets): (&Part<'_>, PageOffsets),
    ) -> Result<u64, Obstacle> {
        let fits = |part: &&Part<'_>| {
            !part.is_faulted()
                || part.vma.anon_vma == holder.vma.anon_vma && part.offsets == offsets
        };
        let (mut copies, mut pinned) = (0, false);
        for part in parts.iter().flatten().filter(|part| !fits(part)) {
            let differs = part.vma.anon_vma != holder.vma.anon_vma;
            if differs && !self.policy.merging.different_anon_vmas {
                return Err(Obstacle::Shared);
            }
            copies += match self.may_change(part.vma, part.range) {
                Err(Obstacle::Pinned { copies }) => {
                    pinned = true;
                    copies
                }
                free => free?,
            };
        }
        if copies > self.policy.merging.copy_budget {
            Err(Obstacle::Shared)
        } else if pinned {
            Err(Obstacle::Pinned { copies })
        } else {
            Ok(copies)
        }
    }

    /// Checks whether the pages of `range` may get another anon_vma or page offset. Returns the
    /// number of pages that have to be copied first.
    pub(super) fn may_change(&mut self, vma: &VmaView, range: VmRange) -> Result<u64, Obstacle> {
        let merging = &self.policy.merging;
        if !merging.different_anon_vmas && !merging.update_pgoff {
            return Err(Obstacle::Shared);
        }
        let sharing = self.sharing(vma, range);
        let allowed = match merging.sharing {
            SharingCheck::Thesis => !sharing.family && sharing.pages == 0,
            SharingCheck::Truth => sharing.pages <= merging.copy_budget,
        };
        let copies = sharing.pages;
        match allowed {
            false => Err(Obstacle::Shared),
            true if sharing.pinned > 0 => Err(Obstacle::Pinned { copies }),
            true => Ok(copies),
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

#[cfg(test)]
mod tests {
    use crate::policy::{Merging, Policy};
    use crate::types::{AnonVmaId, PageOffsets, VmFlags, VmRange, VmaId};
    use crate::view::{VmaBody, VmaView};
    use crate::{Decision, Evidence, MergeScope, Proposal, Refusal, Sharing};

    struct Unshared;

    impl Evidence for Unshared {
        fn sharing(&self, _: &VmaView, _: VmRange) -> Sharing {
            Sharing::NONE
        }
    }

    /// An unfaulted range fits both neighbours, which have different anon_vmas. Permission to change
    /// page offsets is none to change anon_vmas.
    #[test]
    fn neighbours_with_different_anon_vmas_join_across_a_range_only_with_the_switch() {
        let body = VmaBody {
            flags: VmFlags::READ | VmFlags::WRITE,
            ..VmaBody::default()
        };
        let vma = |id, start: u64| VmaView {
            id: VmaId::from_bits(id).unwrap(),
            range: VmRange::new(start, start + 0x1000),
            offsets: PageOffsets::ADDRESS,
            anon_vma: AnonVmaId::from_bits(id),
            chain_singular: true,
            body,
        };
        let (prev, next) = (vma(1, 0x1000), vma(2, 0x3000));
        let range = VmRange::new(0x2000, 0x3000);
        let p = Proposal::unfaulted(range, PageOffsets::ADDRESS, body);
        for different_anon_vmas in [false, true] {
            let policy = Policy {
                merging: Merging {
                    update_pgoff: true,
                    different_anon_vmas,
                    ..Merging::MAINLINE
                },
                ..Policy::LINUX
            };
            let decision = Decision {
                policy: &policy,
                evidence: &Unshared,
            };
            let verdict = decision.decide(&p, Some(&prev), Some(&next), MergeScope::Both);
            let refusal = (!different_anon_vmas).then_some(Refusal::AnonVma);
            assert_eq!(verdict.apart, refusal, "{different_anon_vmas}");
            assert!(verdict.plan.is_some());
        }
    }
}
