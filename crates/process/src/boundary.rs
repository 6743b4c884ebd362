//! Boundaries between neighbouring mappings, each with the reason why the two are separate.
//!
//! The core's merge decision determines the kernel rule that keeps two mappings apart. If some
//! attributes of the mappings cannot be read, the decision returns every possible rule, and a
//! heuristic selects the most likely one. Two reasons are not kernel rules: free space between the
//! mappings, and a guard page. To the kernel, a guard page differs only in its permissions; here it
//! is a separate reason, because it has a remedy of its own.
//!
//! # Invariants
//! B1  a list of N mappings has N - 1 boundaries: the counts of all reasons add up to N - 1

use crate::guard;
use crate::mapping::Mapping;
use crate::pair::Pair;
use crate::reason::{Certainty, Reason};
use crate::remedy::{self, Remedy};
use crate::unseen::Unseen;
use vmarea_merge::Refusal;
use vmarea_merge::partial_view::{Explanation, explain};
use vmarea_merge::policy::Policy;
use vmarea_merge::policy::kernel::KernelRules;
use vmarea_merge::types::VmFlags;

/// Boundary between a mapping and the mapping below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boundary {
    /// Reason why the two mappings are separate.
    pub reason: Reason,
    /// Certainty of the reason.
    pub certainty: Certainty,
    /// If the reason is only likely, all possible rules, including the reported one.
    pub candidates: Vec<Refusal>,
    /// Remedy that removes the boundary.
    pub remedy: Option<Remedy>,
}

impl Boundary {
    /// Explains the boundary between two neighbours.
    ///
    /// For a guard, this function checks only one side; [`boundaries`] also checks the mapping on
    /// the other side, and may remove [`Remedy::Guards`].
    pub fn between(policy: &Policy, a: &Mapping, b: &Mapping) -> Boundary {
        if b.unseen.contains(Unseen::CUT) {
            return Boundary::certain(Reason::Cut);
        }
        if a.entry.end != b.entry.start {
            let mut gap = Boundary::certain(Reason::Gap);
            if b.unseen.contains(Unseen::GAP) {
                gap.certainty = Certainty::Likely;
            }
            return gap;
        }
        let pair = Pair::of(a, b);
        if (a.unseen | b.unseen).contains(Unseen::PERMS) {
            return Boundary::without_perms(policy, &pair);
        }
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
        if (a.unseen | b.unseen).contains(Unseen::FILE) {
            boundary.doubt_memory();
        }
        boundary
    }

    /// Takes back what holds for anonymous memory only, because the mappings may be those of files.
    fn doubt_memory(&mut self) {
        self.remedy = None;
        if self.reason == Reason::Guard {
            self.reason = Reason::Rule(Refusal::Protection);
        }
        if self.certainty == Certainty::Likely {
            self.candidates.push(Refusal::File);
        }
    }

    /// Explains a boundary at which the permissions of a mapping are unknown.
    ///
    /// Different permissions are the most frequent reason why two neighbours stay apart. Only a
    /// reason that holds with equal permissions as well is certain.
    fn without_perms(policy: &Policy, pair: &Pair<'_>) -> Boundary {
        let mut candidates = vec![Refusal::Protection];
        match explain(policy, &pair.a, &pair.b, pair.hidden) {
            Explanation::Apart(refusal) if refusal != Refusal::Protection => {
                return Boundary::certain(Reason::Rule(refusal));
            }
            Explanation::OneOf(others) => candidates.extend(others),
            Explanation::Apart(_) | Explanation::Together => {}
        }
        Boundary::likely(Refusal::Protection, candidates)
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

    /// Makes the reason only likely if it depends on a rule of the kernel that is in doubt.
    pub(crate) fn doubt(&mut self, kernel: &KernelRules) {
        if let Reason::Rule(refusal) = self.reason
            && self.certainty == Certainty::Certain
            && kernel.is_in_doubt(refusal)
        {
            self.certainty = Certainty::Likely;
            self.candidates.push(refusal);
        }
    }

    /// Returns the name of the reason, with `?` appended if the reason is not certain.
    pub fn label(&self) -> String {
        let name = self.reason.name();
        match self.certainty {
            Certainty::Certain => name.to_owned(),
            Certainty::Likely => format!("{name}?"),
        }
    }
}

/// Returns all boundaries of a list of mappings, ordered by address.
pub fn boundaries(policy: &Policy, mappings: &[Mapping]) -> Vec<Boundary> {
    let pairs = mappings.windows(2);
    let mut all: Vec<_> = pairs
        .map(|pair| Boundary::between(policy, &pair[0], &pair[1]))
        .collect();
    keep_whole_guards(mappings, &mut all);
    all
}

/// Returns the reason to report for a `refusal` that is certain.
///
/// The kernel compares the files last. A program can give two mappings equal permissions, flags and
/// policies, but never the same file, so different files are reported whatever else differs.
///
/// The kernel compares permissions and all other flags in one check. If the permissions differ,
/// this function reports the permissions or a guard even if other flags differ too, such as the
/// commit charge (`VM_ACCOUNT`) of a writable mapping.
fn named(pair: &Pair<'_>, refusal: Refusal) -> Reason {
    let differ = pair.a.body.flags ^ pair.b.body.flags;
    match refusal {
        Refusal::Policy | Refusal::Protection | Refusal::Flags | Refusal::Sealed
            if pair.has_different_files() =>
        {
            Reason::Rule(Refusal::File)
        }
        Refusal::Protection | Refusal::Flags if differ.intersects(VmFlags::ACCESS) => {
            match guard::side(pair) {
                Some(_) => Reason::Guard,
                None => Reason::Rule(Refusal::Protection),
            }
        }
        refusal => Reason::Rule(refusal),
    }
}

/// Returns the candidate that is most frequent in practice.
fn likely(pair: &Pair<'_>, candidates: &[Refusal]) -> Refusal {
    let flags = pair.a.body.flags;
    let order = if pair.a.body.file.is_some() {
        // Private mappings of a file differ most often because one of them was once writable and
        // remains charged; shared ones, because the file was opened twice.
        if flags.contains(VmFlags::MAYSHARE) {
            [Refusal::File, Refusal::Flags, Refusal::AnonVma]
        } else {
            [Refusal::Flags, Refusal::File, Refusal::AnonVma]
        }
    } else if !flags.intersects(VmFlags::ACCESS) {
        // Typical case: an allocator released a range that was partly charged.
        [Refusal::Flags, Refusal::AnonVma, Refusal::PageOffset]
    } else {
        [Refusal::AnonVma, Refusal::PageOffset, Refusal::Flags]
    };
    let known = order.into_iter().find(|r| candidates.contains(r));
    known.unwrap_or(candidates[0])
}

/// Keeps [`Remedy::Guards`] only for boundaries that disappear when their guard is replaced.
///
/// A guard is replaced only between two mappings with equal permissions. If the guard could join
/// either mapping but the two mappings have different anon_vmas, or unknown ones, the guard joins
/// only the lower one.
fn keep_whole_guards(mappings: &[Mapping], boundaries: &mut [Boundary]) {
    for (n, guard) in mappings.iter().enumerate() {
        if guard.is_accessible() {
            continue;
        }
        // Boundary n is between the mappings n and n + 1.
        let end = boundaries.len().min(n + 1);
        let around = &mut boundaries[n.saturating_sub(1)..end];
        let neighbours = n
            .checked_sub(1)
            .and_then(|n| mappings.get(n))
            .zip(mappings.get(n + 1));
        let whole = neighbours.filter(|(below, above)| {
            is_replaced(below, guard, above) && around.iter().all(|b| b.reason == Reason::Guard)
        });
        let is_removed = |b: &Boundary| b.remedy == Some(Remedy::Guards);
        match whole {
            Some((below, above)) if joins_both(below, above) => {}
            Some(_) if !around.iter().all(is_removed) => {}
            Some(_) => around[1].remedy = None,
            None => around
                .iter_mut()
                .filter(|b| is_removed(b))
                .for_each(|b| b.remedy = None),
        }
    }
}

/// Checks whether the guard is small enough, and both neighbours are writable with equal
/// permissions.
fn is_replaced(below: &Mapping, between: &Mapping, above: &Mapping) -> bool {
    let perms = below.entry.perms;
    perms == above.entry.perms && perms.write && between.range().pages() <= guard::MOST_GUARD_PAGES
}

/// Checks whether both neighbours could be one mapping if the guard between them were a marker.
fn joins_both(below: &Mapping, above: &Mapping) -> bool {
    let both = below.kernel.zip(above.kernel);
    both.is_some_and(|(below, above)| {
        let both = [below.anon_vma, above.anon_vma];
        both[0] == both[1] || both.contains(&0)
    })
}

#[cfg(test)]
mod tests {
    use crate::Process;

    /// Returns the reason between two adjacent mappings, each described by permissions, inode with
    /// path, and the two-letter codes of its flags.
    fn reason(below: [&str; 3], above: [&str; 3]) -> String {
        let line = |start: u64, [perms, file, letters]: [&str; 3]| {
            let end = start + 0x1000;
            format!("{start:x}-{end:x} {perms} 00000000 08:01 {file}\nVmFlags: {letters}\n")
        };
        let text = line(0x1000_0000, below) + &line(0x1000_1000, above);
        let process = Process::from_text("text".to_owned(), text.as_bytes()).unwrap();
        process.boundaries()[0].label()
    }

    #[test]
    fn different_files_are_the_reason_whatever_else_differs() {
        let data = ["r--s", "7 /data/7", "rd mr me ms"];
        let code = ["r-xp", "8 /lib/8", "rd ex mr mw me"];
        let once_writable = ["r--p", "8 /lib/8", "rd mr mw me ac"];
        let other_code = ["r-xp", "9 /lib/9", "rd ex mr mw me"];
        let other_data = ["r--p", "9 /lib/9", "rd mr mw me"];
        let memory = ["rw-p", "0", "rd wr mr mw me ac"];
        let guard = ["---p", "0", "mr mw me"];
        for (below, above) in [
            (data, code),
            (code, data),
            (once_writable, other_code),
            (once_writable, other_data),
            (memory, code),
            (code, guard),
        ] {
            assert_eq!(reason(below, above), "file", "{below:?} {above:?}");
        }
        assert_eq!(reason(once_writable, code), "protection");
        assert_eq!(reason(guard, memory), "guard");
    }
}
