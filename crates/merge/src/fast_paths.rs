//! The two fast paths of the decision decide as the general path does.
//!
//! The cases are three parts that are alike except that each property of each part differs now and
//! then, so that both sides of every condition of the fast paths are met.

use crate::policy::{MergePolicy, Policy};
use crate::sides::Sides;
use crate::survivor::Chooser;
use crate::types::{
    AnonVmaId, FileId, FileKind, PAGE_SIZE, PageOffsets, Pgoff, VmFlags, VmRange, VmaId,
};
use crate::view::{MappedFile, VmaBody, VmaView};
use crate::{Decision, Evidence, MergeScope, Proposal, Sharing};

const CASES: u32 = 300_000;

/// A rule that refuses nothing: with it, `Decision::decide` takes the general path.
struct NoRule;

impl MergePolicy for NoRule {
    fn name(&self) -> &'static str {
        "no-rule"
    }
}

/// Pages are shared or pinned by chance, always the same way in one case.
struct Chance(u64);

impl Evidence for Chance {
    fn sharing(&self, vma: &VmaView, range: VmRange) -> Sharing {
        let number = vma.id.to_bits() * 31 + range.start / PAGE_SIZE;
        let bits = (number * (self.0 | 1)) >> 3;
        Sharing {
            family: bits & 1 == 0,
            pages: (bits >> 1) & 1,
            pinned: (bits >> 2) & 1,
        }
    }
}

/// Pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn body(&mut self) -> VmaBody {
        let mut flags = VmFlags::READ | VmFlags::WRITE;
        for (rare, flag) in [
            (3, VmFlags::ACCOUNT),
            (9, VmFlags::DONTCOPY),
            (9, VmFlags::PFNMAP),
            (9, VmFlags::SOFTDIRTY),
        ] {
            flags.set(flag, self.one_in(rare));
        }
        let kinds = [FileKind::Regular, FileKind::DevZero, FileKind::SysvShm];
        let file = self.one_in(4).then(|| MappedFile {
            id: FileId(self.below(2)),
            inode: 1,
            kind: kinds[self.below(3) as usize],
        });
        VmaBody {
            flags,
            file,
            name: u32::from(self.one_in(9)),
            ..VmaBody::default()
        }
    }

    /// Returns a VMA like the others of the case, which have this body, anon_vma and page offset
    /// base, or one that differs.
    fn vma(&mut self, id: u64, pages: [u64; 2], like: &Like) -> VmaView {
        let body = if self.one_in(8) {
            self.body()
        } else {
            like.body
        };
        let anon_vma = if self.one_in(6) {
            self.below(3)
        } else {
            like.anon_vma
        };
        let base = if self.one_in(8) { 5 } else { like.base };
        VmaView {
            id: VmaId::from_bits(id).unwrap(),
            range: VmRange::new(pages[0] * PAGE_SIZE, pages[1] * PAGE_SIZE),
            offsets: PageOffsets::starting_at(Pgoff(base), 0),
            anon_vma: AnonVmaId::from_bits(anon_vma),
            chain_singular: !self.one_in(3),
            body,
        }
    }

    /// Returns the range between the neighbours: new, present, or moved there.
    fn proposal(&mut self, like: &Like) -> Proposal {
        let mid = self.vma(3, [20, 30], like);
        match self.below(3) {
            0 => Proposal::unfaulted(mid.range, mid.offsets, mid.body),
            1 => Proposal {
                body: like.body,
                ..Proposal::unchanged(&mid)
            },
            _ => Proposal {
                copied_from: Some(VmaView {
                    range: VmRange::new(100 * PAGE_SIZE, 110 * PAGE_SIZE),
                    ..mid
                }),
                middle: None,
                ..Proposal::unchanged(&mid)
            },
        }
    }

    fn policy(&mut self) -> Policy {
        let mut policy = Policy::PRESETS[self.below(Policy::PRESETS.len() as u64) as usize];
        let m = &mut policy.merging;
        for switch in [
            &mut m.update_pgoff,
            &mut m.different_anon_vmas,
            &mut m.relocate,
            &mut m.either_survives,
            &mut m.renumber_in_place,
            &mut m.spread_charge,
        ] {
            *switch ^= self.one_in(4);
        }
        m.copy_budget = self.below(4);
        policy
    }
}

/// What the parts of a case have in common.
struct Like {
    body: VmaBody,
    anon_vma: u64,
    base: u64,
}

/// A case of the decision.
struct Arrangement {
    policy: Policy,
    evidence: Chance,
    proposal: Proposal,
    prev: VmaView,
    next: VmaView,
}

fn arrangements() -> impl Iterator<Item = Arrangement> {
    let mut random = Random(0x1234_5678_9abc_def1);
    (0..CASES).map(move |_| {
        // With the last base, the page offsets of the merged range wrap.
        let bases = [0, 0, 7, u64::MAX - 35];
        let like = Like {
            body: random.body(),
            anon_vma: random.below(3),
            base: bases[random.below(4) as usize],
        };
        Arrangement {
            policy: random.policy(),
            evidence: Chance(random.below(1 << 20)),
            proposal: random.proposal(&like),
            prev: random.vma(1, [10, 20], &like),
            next: random.vma(2, [30, 40], &like),
        }
    })
}

#[test]
fn parts_that_are_all_alike_are_decided_as_by_the_general_path() {
    let mut joined = 0;
    let scopes = [MergeScope::Both, MergeScope::NextFirst, MergeScope::Itself];
    for (case, scope) in arrangements().zip(scopes.into_iter().cycle()) {
        let decide = |policy: &Policy| {
            let decision = Decision {
                policy,
                evidence: &case.evidence,
            };
            decision.decide(&case.proposal, Some(&case.prev), Some(&case.next), scope)
        };
        let general = Policy {
            own: Policy::of(&NoRule).own,
            ..case.policy
        };
        let Arrangement {
            policy,
            proposal,
            prev,
            next,
            ..
        } = &case;
        let verdict = decide(policy);
        assert_eq!(
            verdict,
            decide(&general),
            "{policy:?} {proposal:?} {prev:?} {next:?} {scope:?}"
        );
        joined += u32::from(verdict.plan.is_some());
    }
    assert!(joined > CASES / 10, "only {joined} merge");
}

#[test]
fn the_survivor_of_pages_that_do_not_change_is_that_of_the_general_path() {
    let mut unchanged = 0;
    for case in arrangements() {
        let Arrangement {
            policy,
            proposal,
            prev,
            next,
            evidence,
        } = &case;
        let sides = [
            Sides::Prev(prev),
            Sides::Next(next),
            Sides::Both(prev, next),
        ];
        for side in sides {
            let mut chooser = Chooser::new(policy, evidence);
            let survivor = chooser.survivor(proposal, side);
            assert_eq!(
                survivor,
                Chooser::new(policy, evidence).fewest_copies(proposal, side),
                "{policy:?} {proposal:?} {prev:?} {next:?}"
            );
            unchanged += u32::from(survivor.is_ok_and(|s| s.copies == 0));
        }
    }
    assert!(unchanged > CASES / 10, "only {unchanged} change no page");
}
