//! Boundaries: for each pair of neighbours the one reason that keeps them apart.
//!
//! The decision of the core gives the rule; where a part is hidden it gives the rules that it may
//! be, and experience says which of them it probably is. Two reasons have no rule: free space
//! between two mappings, and a guard page, which is a difference of permission that a repair
//! exists for.
//!
//! # Invariants
//! B1  there is exactly one boundary less than mappings, so that reasons add up to the list

use super::fix::{self, Fix, plain};
use super::sight::Pair;
use super::subject::Seen;
use vmarea::policy::Policy;
use vmarea::types::VmFlags;
use vmarea::vma::VmaView;
use vmarea::vma::explain::{Explanation, explain};
use vmarea::vma::merge::Refusal;

/// A range without access counts as a guard up to this size, and up to that of its neighbour.
pub const GUARD_BYTES: u64 = 1 << 20;

/// Why two neighbours are two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// Free space lies between them.
    Gap,
    /// One of them is a guard: a small range without access beside a larger one.
    Guard,
    /// A rule of the kernel.
    Rule(Refusal),
    /// Nothing does: the next call that touches the border joins them.
    Nothing,
}

impl Reason {
    /// Short name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Gap => "gap",
            Reason::Guard => "guard",
            Reason::Rule(refusal) => refusal.name(),
            Reason::Nothing => "nothing",
        }
    }

    /// What it means, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Reason::Gap => "free space between",
            Reason::Guard => "a guard: no access",
            Reason::Nothing => "nothing: join at the next call there",
            Reason::Rule(refusal) => match refusal {
                Refusal::Special => "the kernel's own or a driver's",
                Refusal::Hugetlb => "hugetlbfs",
                Refusal::Policy => "other memory policy",
                Refusal::Protection => "other permission",
                Refusal::Flags => "other flags",
                Refusal::Sealed => "sealed (mseal)",
                Refusal::File => "another file, or file and anonymous",
                Refusal::Userfaultfd => "watched by userfaultfd",
                Refusal::Name => "other name (PR_SET_VMA)",
                Refusal::AnonVma => "first touched apart (anon_vma)",
                Refusal::PageOffset => "moved by mremap (page offset)",
                Refusal::Pinned => "pinned pages",
                Refusal::FileOffset => "same file, other place in it",
                Refusal::CloseHook => "a System V segment",
                Refusal::Opaque => "not known",
            },
        }
    }
}

/// How sure a reason is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It was seen, and is enough to keep the two apart.
    Certain,
    /// Something that was not seen; this is the most frequent among what it can be.
    Likely,
}

/// The border between a mapping and the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boundary {
    /// Why it is there.
    pub reason: Reason,
    /// How sure that is.
    pub certainty: Certainty,
    /// Where it is not: everything that it can be, the reason included.
    pub candidates: Vec<Refusal>,
    /// What would take it away.
    pub fix: Option<Fix>,
}

impl Boundary {
    /// The border between two neighbours. What would take it away may hang on a third, which
    /// [`boundaries`] looks at.
    pub fn between(policy: &Policy, a: &Seen, b: &Seen) -> Boundary {
        if a.mapping.end != b.mapping.start {
            return Boundary::certain(Reason::Gap);
        }
        let pair = Pair::of(a, b);
        let mut boundary = match explain(policy, &pair.a, &pair.b, pair.hidden) {
            Explanation::Together => Boundary::certain(Reason::Nothing),
            Explanation::Apart(refusal) if pair.by_driver => {
                Boundary::likely(Refusal::Special, vec![Refusal::Special, refusal])
            }
            Explanation::OneOf(mut candidates) if pair.by_driver => {
                candidates.insert(0, Refusal::Special);
                Boundary::likely(Refusal::Special, candidates.to_vec())
            }
            Explanation::Apart(refusal) => Boundary::certain(named(&pair, refusal)),
            Explanation::OneOf(candidates) => {
                Boundary::likely(likely(&pair, &candidates), candidates.to_vec())
            }
        };
        boundary.fix = fix::of(policy, a, b, &pair, &boundary);
        boundary
    }

    fn certain(reason: Reason) -> Boundary {
        Boundary {
            reason,
            certainty: Certainty::Certain,
            candidates: Vec::new(),
            fix: None,
        }
    }

    fn likely(refusal: Refusal, candidates: Vec<Refusal>) -> Boundary {
        Boundary {
            reason: Reason::Rule(refusal),
            certainty: Certainty::Likely,
            candidates,
            fix: None,
        }
    }

    /// The name of the reason, with `?` where it is not certain.
    pub fn label(&self) -> String {
        let name = self.reason.name();
        match self.certainty {
            Certainty::Certain => name.to_owned(),
            Certainty::Likely => format!("{name}?"),
        }
    }
}

/// All boundaries of a list, by address.
pub fn boundaries(policy: &Policy, seen: &[Seen]) -> Vec<Boundary> {
    let pairs = seen.windows(2);
    let mut all: Vec<_> = pairs
        .map(|pair| Boundary::between(policy, &pair[0], &pair[1]))
        .collect();
    fix::keep_whole_guards(seen, &mut all);
    all
}

/// The reason behind a rule. One check compares permissions and all other flags, and what is
/// writable is charged as well: where permissions differ, they are the reason.
fn named(pair: &Pair, refusal: Refusal) -> Reason {
    let differ = pair.a.body.flags ^ pair.b.body.flags;
    match refusal {
        Refusal::Protection | Refusal::Flags if differ.intersects(VmFlags::ACCESS) => {
            match guard(pair) {
                Some(_) => Reason::Guard,
                None => Reason::Rule(Refusal::Protection),
            }
        }
        refusal => Reason::Rule(refusal),
    }
}

/// The most frequent of what it can be.
fn likely(pair: &Pair, candidates: &[Refusal]) -> Refusal {
    let flags = pair.a.body.flags;
    let order = if pair.a.body.file.is_some() {
        // A piece that was writable once stays charged; else it was opened twice.
        if flags.contains(VmFlags::MAYSHARE) {
            [Refusal::File, Refusal::Flags, Refusal::AnonVma]
        } else {
            [Refusal::Flags, Refusal::File, Refusal::AnonVma]
        }
    } else if !flags.intersects(VmFlags::ACCESS) {
        // Given back by an allocator: some of it was charged.
        [Refusal::Flags, Refusal::AnonVma, Refusal::PageOffset]
    } else {
        [Refusal::AnonVma, Refusal::PageOffset, Refusal::Flags]
    };
    let known = order.into_iter().find(|r| candidates.contains(r));
    known.unwrap_or(candidates[0])
}

/// Which of the two is a guard beside the other.
pub fn guard(pair: &Pair) -> Option<Side> {
    let is_guard = |one: &VmaView, other: &VmaView| {
        let len = one.range.len_bytes();
        plain(one)
            && plain(other)
            && !one.body.flags.is_accessible()
            && other.body.flags.is_accessible()
            && len <= GUARD_BYTES
            && len <= other.range.len_bytes()
    };
    if is_guard(&pair.a, &pair.b) {
        Some(Side::Lower)
    } else {
        is_guard(&pair.b, &pair.a).then_some(Side::Upper)
    }
}

/// One of two neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// At lower addresses.
    Lower,
    /// At higher addresses.
    Upper,
}
