//! Boundaries: for each pair of neighbours the one reason that keeps them apart.
//!
//! The decision of the core names the rule of the kernel. Where a part of the pair is hidden it
//! names all the rules that it may be, and experience says which of them is most likely. Two
//! reasons are not rules: free space between two mappings, and a guard page, a difference of
//! permission for which there is a remedy of its own.
//!
//! # Invariants
//! B1  there is one boundary less than mappings: with the first mapping, the reasons add up to the list

use crate::mapping::Mapping;
use crate::pair::Pair;
use crate::reason::{Certainty, Reason};
use crate::remedy::{self, Remedy};
use vmarea::policy::Policy;
use vmarea::types::VmFlags;
use vmarea::vma::merge::Refusal;
use vmarea::vma::partial_view::{Explanation, explain};

/// The border between a mapping and the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boundary {
    /// Why it is there.
    pub reason: Reason,
    /// How sure that is.
    pub certainty: Certainty,
    /// Where it is only likely: every rule that it can be, the reason included.
    pub candidates: Vec<Refusal>,
    /// What takes it away.
    pub remedy: Option<Remedy>,
}

impl Boundary {
    /// The border between two neighbours. For a guard, [`boundaries`] looks at the mapping on its
    /// other side as well before it keeps [`Remedy::Guards`].
    pub fn between(policy: &Policy, a: &Mapping, b: &Mapping) -> Boundary {
        if a.entry.end != b.entry.start {
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
        boundary.remedy = remedy::of(policy, &pair, boundary.reason, boundary.certainty);
        boundary
    }

    fn certain(reason: Reason) -> Boundary {
        Boundary {
            reason,
            certainty: Certainty::Certain,
            candidates: Vec::new(),
            remedy: None,
        }
    }

    fn likely(refusal: Refusal, candidates: Vec<Refusal>) -> Boundary {
        Boundary {
            reason: Reason::Rule(refusal),
            certainty: Certainty::Likely,
            candidates,
            remedy: None,
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
pub fn boundaries(policy: &Policy, mappings: &[Mapping]) -> Vec<Boundary> {
    let pairs = mappings.windows(2);
    let mut all: Vec<_> = pairs
        .map(|pair| Boundary::between(policy, &pair[0], &pair[1]))
        .collect();
    keep_whole_guards(mappings, &mut all);
    all
}

/// The reason behind a rule. One check compares permissions and all other flags, and what is
/// writable is charged as well: where permissions differ, they are the reason.
fn named(pair: &Pair<'_>, refusal: Refusal) -> Reason {
    let differ = pair.a.body.flags ^ pair.b.body.flags;
    match refusal {
        Refusal::Protection | Refusal::Flags if differ.intersects(VmFlags::ACCESS) => {
            match pair.guard() {
                Some(_) => Reason::Guard,
                None => Reason::Rule(Refusal::Protection),
            }
        }
        refusal => Reason::Rule(refusal),
    }
}

/// The most frequent of what it can be.
fn likely(pair: &Pair<'_>, candidates: &[Refusal]) -> Refusal {
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

/// Takes [`Remedy::Guards`] away where only one side of a guard would join: a guard is replaced
/// where mappings of the same permissions lie on both of its sides. Where these hang on different
/// anon_vmas it joins one of them.
fn keep_whole_guards(mappings: &[Mapping], boundaries: &mut [Boundary]) {
    for guard in 0..mappings.len() {
        let perms = mappings[guard].entry.perms;
        if perms.read || perms.write || perms.exec {
            continue;
        }
        // Boundary n lies between the mappings n and n + 1.
        let own = [guard.checked_sub(1), Some(guard)];
        let is_taken_away = |n: &Option<usize>| {
            let boundary = n.and_then(|n| boundaries.get(n));
            boundary.is_some_and(|boundary| boundary.remedy == Some(Remedy::Guards))
        };
        let last_kept = match own.iter().all(is_taken_away) {
            false => 0,
            true => {
                let [below, above] = [&mappings[guard - 1], &mappings[guard + 1]];
                match remedy::is_replaced(below, &mappings[guard], above) {
                    false => 0,
                    true if remedy::joins_both(below, above) => continue,
                    true => 1,
                }
            }
        };
        for n in own.into_iter().skip(last_kept).flatten() {
            let boundary = boundaries.get_mut(n);
            if let Some(boundary) = boundary.filter(|b| b.remedy == Some(Remedy::Guards)) {
                boundary.remedy = None;
            }
        }
    }
}
