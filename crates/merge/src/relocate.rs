//! Relocation: a moved range whose pages get the page offsets and the anon_vma of its new address.
//!
//! A faulted range keeps its page offsets and its anon_vma when `mremap` moves it, and so it rarely
//! merges with the neighbours of its new address. With
//! [`Merging::relocate`](crate::policy::Merging::relocate), a range that merges with neither
//! neighbour is decided on a second time: as a range without pages, with the anon_vma that a first
//! fault at the new address would give it. Both decisions follow the rules of the kernel version,
//! and no page of a neighbour changes.
//!
//! # Picture
//! ```text
//! PPPP....NNNN                    V has pages, and an anon_vma and page offsets of its own
//! PPPPvvvvNNNN   as it is         v does not fit P or N: it would stay apart
//! PPPP****NNNN   relocated        * has N's anon_vma, or else P's, or a new one
//! ```
//!
//! # Linux
//! Not in Linux. The patch series "mm/mremap: introduce more mergeable mremap via
//! MREMAP_RELOCATE_ANON", Lorenzo Stoakes, June 2025: `should_relocate_anon`, `copy_vma`.

use crate::policy::Policy;
use crate::types::{AnonVmaId, PageOffsets, VmFlags};
use crate::view::VmaView;
use crate::{Decision, MergeScope, Proposal, Refusal, Verdict};

/// What became of the relocation of a faulted range that merges with no neighbour as it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Relocation {
    /// The pages get the page offsets and the anon_vma of the new address.
    Done,
    /// The mapping is special, or maps hugetlb pages.
    Special,
    /// The mapping is a private mapping of a file.
    File,
    /// A parent or a child of the process maps the pages, or has mapped them.
    Family,
    /// Some pages are pinned.
    Pinned,
    /// A page could not change when its turn came, so the range has moved as it was.
    GivenUp,
}

impl Relocation {
    /// All outcomes.
    pub const ALL: [Relocation; 6] = [
        Relocation::Done,
        Relocation::Special,
        Relocation::File,
        Relocation::Family,
        Relocation::Pinned,
        Relocation::GivenUp,
    ];

    /// Returns the short name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Relocation::Done => "done",
            Relocation::Special => "special",
            Relocation::File => "file",
            Relocation::Family => "family",
            Relocation::Pinned => "pinned",
            Relocation::GivenUp => "given_up",
        }
    }
}

impl Decision<'_> {
    /// Decides on a moved range that merges with no neighbour as it is, which is the verdict `kept`.
    pub(crate) fn relocated(
        &self,
        p: &Proposal,
        neighbours: [Option<&VmaView>; 2],
        scope: MergeScope,
        kept: Verdict,
    ) -> Verdict {
        let Some(from) = p.copied_from.filter(|from| from.anon_vma.is_some()) else {
            return kept;
        };
        let relocation = self.may_relocate(&from);
        if !matches!(relocation, Relocation::Done | Relocation::Pinned) {
            return Verdict {
                relocation: Some(relocation),
                ..kept
            };
        }
        let [prev, next] = p.adjacent(neighbours[0], neighbours[1]);
        let new = VmaView {
            range: p.range,
            offsets: PageOffsets::ADDRESS,
            body: p.body,
            ..from
        };
        let lent = |neighbour: Option<&VmaView>| lent_anon_vma(self.policy, &new, neighbour?);
        let anon_vma = lent(next).or_else(|| lent(prev));
        let there = Proposal {
            offsets: new.offsets,
            anon_vma,
            copied_from: Some(VmaView { anon_vma, ..from }),
            ..*p
        };
        let verdict = self.decide_as_it_is(&there, prev, next, scope);
        if relocation == Relocation::Done {
            return Verdict {
                relocation: Some(relocation),
                ..verdict
            };
        }
        // Where the range would merge but for the pins, they are the reason.
        let but_for_pins = |kept: Option<Refusal>, there: Option<Refusal>| match there {
            None => kept.and(Some(Refusal::Pinned)),
            Some(_) => kept,
        };
        Verdict {
            left: but_for_pins(kept.left, verdict.left),
            right: but_for_pins(kept.right, verdict.right),
            relocation: Some(relocation),
            ..kept
        }
    }

    /// Checks whether the pages of a range may be relocated: whether nobody else maps them, could
    /// find them by their anon_vma, or has pinned them.
    fn may_relocate(&self, from: &VmaView) -> Relocation {
        if from.body.flags.intersects(VmFlags::SPECIAL) {
            return Relocation::Special;
        }
        if !from.is_anonymous() {
            return Relocation::File;
        }
        let sharing = self.evidence.sharing(from, from.range);
        if !from.chain_singular || sharing.family || sharing.pages > 0 {
            Relocation::Family
        } else if sharing.pinned > 0 {
            Relocation::Pinned
        } else {
            Relocation::Done
        }
    }
}

/// Returns the anon_vma of `neighbour` if `vma`, which is adjacent and has none, gets it with its
/// first page, because the two might merge after an `mprotect`.
#[doc(alias = "anon_vma_compatible")]
#[doc(alias = "reusable_anon_vma")]
pub fn lent_anon_vma(policy: &Policy, vma: &VmaView, neighbour: &VmaView) -> Option<AnonVmaId> {
    // A VMA that is mapped over part of a reservation is charged; the reservation is not.
    let mut ignored = VmFlags::ACCESS | policy.sticky();
    if policy.merging.early_anon_vma {
        ignored |= VmFlags::ACCOUNT | VmFlags::NORESERVE;
    }
    let (ours, theirs) = (&vma.body, &neighbour.body);
    let touches = vma.range.end == neighbour.range.start || neighbour.range.end == vma.range.start;
    let compatible = touches
        && ours.policy == theirs.policy
        && ours.file.map(|f| f.id) == theirs.file.map(|f| f.id)
        && ((ours.flags ^ theirs.flags) - ignored).is_empty()
        && vma.offsets == neighbour.offsets;
    neighbour
        .anon_vma
        .filter(|_| compatible && neighbour.chain_singular)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Pgoff, VmRange, VmaId};
    use crate::view::VmaBody;
    use crate::{Evidence, Sharing};

    struct Pages(Sharing);

    impl Evidence for Pages {
        fn sharing(&self, _: &VmaView, _: VmRange) -> Sharing {
            self.0
        }
    }

    fn vma(id: u64, start: u64, offsets: PageOffsets) -> VmaView {
        VmaView {
            id: VmaId::from_bits(id).unwrap(),
            range: VmRange::new(start, start + 0x1000),
            offsets,
            anon_vma: AnonVmaId::from_bits(id),
            chain_singular: true,
            body: VmaBody::default(),
        }
    }

    /// Decides on a move to 0x2000, between two neighbours with different anon_vmas.
    fn decided(from: VmaView, sharing: Sharing) -> Verdict {
        let [prev, next] =
            [(1, 0x1000), (2, 0x3000)].map(|(id, start)| vma(id, start, PageOffsets::ADDRESS));
        let range = VmRange::new(0x2000, 0x3000);
        let p = Proposal {
            range,
            middle: None,
            copied_from: Some(from),
            ..Proposal::unchanged(&from)
        };
        let decision = Decision {
            policy: &Policy::RELOCATE,
            evidence: &Pages(sharing),
        };
        decision.decide(&p, Some(&prev), Some(&next), MergeScope::Both)
    }

    #[test]
    fn the_next_vma_lends_its_anon_vma_unless_the_pages_must_not_change() {
        let from = vma(3, 0x9000, PageOffsets::starting_at(Pgoff(50), 0x2000));
        let special = VmaView {
            body: VmaBody {
                flags: VmFlags::PFNMAP,
                ..from.body
            },
            ..from
        };
        let inherited = VmaView {
            chain_singular: false,
            ..from
        };
        let unshared = Sharing::NONE;
        let family = Sharing {
            family: true,
            ..unshared
        };
        let pinned = Sharing {
            pinned: 1,
            ..unshared
        };
        let verdict = decided(from, unshared);
        let target = verdict.plan.map(|plan| plan.target.to_bits());
        assert_eq!(target, Some(2), "{verdict:?}");
        assert_eq!(verdict.left, Some(Refusal::AnonVma));
        assert_eq!(verdict.relocation, Some(Relocation::Done));
        for (from, sharing, why, left) in [
            (special, unshared, Relocation::Special, Refusal::Special),
            (inherited, unshared, Relocation::Family, Refusal::AnonVma),
            (from, family, Relocation::Family, Refusal::AnonVma),
            (from, pinned, Relocation::Pinned, Refusal::AnonVma),
        ] {
            let verdict = decided(from, sharing);
            assert_eq!((verdict.plan, verdict.offsets), (None, from.offsets));
            assert_eq!(verdict.relocation, Some(why));
            assert_eq!(verdict.left, Some(left));
        }
        let right = |sharing| decided(from, sharing).right;
        assert_eq!(right(pinned), Some(Refusal::Pinned), "nothing else");
        assert_eq!(right(family), Some(Refusal::AnonVma));
    }
}
