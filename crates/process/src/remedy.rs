//! Remedies that remove a boundary; `explain`, `top` and `repair` share this decision.
//!
//! The remedy of a [`Boundary`](crate::Boundary) is the method by which the two neighbours can
//! become one mapping. To choose a remedy, this module runs the core's merge decision on the pair
//! as it would be after the remedy. [`unmovable`] returns why the pages of a mapping cannot be
//! moved. These decisions use only facts that are known without stopping the process; `repair` may
//! still fail because of obstacles that are only detected during the attempt (pinned or shared
//! pages, guard markers). The cost of a remedy is not considered here; `explain` estimates the
//! cost.

use crate::guard;
use crate::mapping::Mapping;
use crate::maps::MapName;
use crate::pair::Pair;
use crate::reason::{Certainty, Reason};
use vmarea_merge::Refusal;
use vmarea_merge::partial_view::{Explanation, Hidden, explain};
use vmarea_merge::policy::Policy;
use vmarea_merge::types::VmFlags;
use vmarea_merge::view::VmaView;

/// Flags that `mmap` and `madvise` can set on a new mapping.
pub const CAN_BE_GIVEN: VmFlags = VmFlags::READ
    .union(VmFlags::WRITE)
    .union(VmFlags::EXEC)
    .union(VmFlags::MAYRWX)
    .union(VmFlags::ACCOUNT)
    .union(VmFlags::NORESERVE)
    .union(VmFlags::HUGEPAGE)
    .union(VmFlags::NOHUGEPAGE)
    .union(VmFlags::DONTCOPY)
    .union(VmFlags::DONTDUMP)
    .union(VmFlags::WIPEONFORK)
    .union(VmFlags::SEQ_READ)
    .union(VmFlags::RAND_READ)
    .union(VmFlags::SOFTDIRTY);

/// Flags that a remedy clears.
///
/// Other flags set by `madvise` are not cleared, because they change what a forked child or another
/// reader of the memory sees, or because their purpose cannot be determined from outside the
/// process.
pub const REVERSIBLE: VmFlags = VmFlags::DONTCOPY.union(VmFlags::DONTDUMP);

/// Flags that would be lost if a new mapping replaced an empty one.
const NOT_EMPTIED: VmFlags = VmFlags::DONTCOPY.union(VmFlags::WIPEONFORK);

/// Method that removes a boundary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Remedy {
    /// Moves the pages out and back, so that they get one anon_vma and contiguous page offsets.
    Merge,
    /// Same as [`Remedy::Merge`], but pages that a fork may have shared must be copied.
    Copy,
    /// Replaces guard mappings with guard markers in the page table (`MADV_GUARD_INSTALL`).
    Guards,
    /// Clears flags (`MADV_DOFORK` and similar advice).
    Flags,
    /// Replaces empty, inaccessible ranges with one new mapping.
    Empties,
}

impl Remedy {
    /// All remedies.
    pub const ALL: [Remedy; 5] = [
        Remedy::Merge,
        Remedy::Copy,
        Remedy::Guards,
        Remedy::Flags,
        Remedy::Empties,
    ];

    /// Returns the short name used in reports and in `merge --fix`.
    pub fn name(self) -> &'static str {
        match self {
            Remedy::Merge => "merge",
            Remedy::Copy => "copy",
            Remedy::Guards => "guards",
            Remedy::Flags => "flags",
            Remedy::Empties => "empties",
        }
    }

    /// Returns true if the remedy moves or copies pages to a new mapping.
    pub fn takes_pages(self) -> bool {
        matches!(self, Remedy::Merge | Remedy::Copy)
    }
}

/// Reason why the pages of a mapping cannot be moved to a new mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmovable {
    /// The mapping is not plain anonymous memory.
    NotAnonymous,
    /// The mapping has a name set with `PR_SET_VMA_ANON_NAME`.
    Named,
    /// The program registered the mapping with a userfaultfd.
    Userfaultfd,
    /// The mapping is locked.
    Locked,
    /// The mapping is not writable; the kernel moves only pages of writable mappings.
    NotWritable,
    /// The mapping has a memory policy.
    Policy,
    /// The mapping contains guard markers, which the kernel does not move.
    Guard,
    /// The mapping has flags that cannot be set on a new mapping.
    Special,
}

/// Returns why the pages of a mapping cannot be moved; `None` if no obstacle is known.
pub fn unmovable(mapping: &Mapping) -> Option<Unmovable> {
    let entry = &mapping.entry;
    let no_inode = entry.ino == 0 && entry.dev == 0;
    let kernel = mapping.kernel.unwrap_or_default();
    let flags = mapping.flags();
    let is_set = |pointer: Option<u64>| pointer.is_some_and(|pointer| pointer != 0);
    match entry.name {
        _ if !no_inode || kernel.file != 0 || kernel.ops != 0 => Some(Unmovable::NotAnonymous),
        MapName::Named(_) => Some(Unmovable::Named),
        MapName::Path(_) | MapName::Special(_) | MapName::Stack => Some(Unmovable::NotAnonymous),
        MapName::None | MapName::Heap => {
            if flags.intersects(VmFlags::UFFD_ANY) || is_set(kernel.uffd) {
                Some(Unmovable::Userfaultfd)
            } else if flags.intersects(VmFlags::LOCKED_MASK) {
                Some(Unmovable::Locked)
            } else if !flags.contains(VmFlags::WRITE) {
                Some(Unmovable::NotWritable)
            } else if is_set(kernel.policy) {
                Some(Unmovable::Policy)
            } else if flags.contains(VmFlags::MAYBE_GUARD) {
                Some(Unmovable::Guard)
            } else {
                (!(flags - CAN_BE_GIVEN).is_empty()).then_some(Unmovable::Special)
            }
        }
    }
}

/// Returns the remedy for the boundary between two mappings, which are separate because of
/// `reason`.
pub(crate) fn of(
    policy: &Policy,
    pair: &Pair<'_>,
    reason: Reason,
    certainty: Certainty,
) -> Option<Remedy> {
    let mappings = pair.mappings;
    let unnamed = mappings.iter().all(|m| m.entry.name == MapName::None);
    let heap_too = |m: &&Mapping| matches!(m.entry.name, MapName::None | MapName::Heap);
    if !pair.is_plain() || !mappings.iter().all(heap_too) {
        return None;
    }
    let flags = [pair.a.body.flags, pair.b.body.flags];
    let accessible = flags[0].is_accessible();
    match reason {
        Reason::Guard => {
            (unnamed && guard::joins_as_marker(policy, pair)).then_some(Remedy::Guards)
        }
        // No other flag has a remedy.
        Reason::Rule(Refusal::Flags) if certainty == Certainty::Certain => {
            let differ = (flags[0] ^ flags[1]) - VmFlags::STICKY;
            if !accessible {
                let kept = flags[0] | flags[1];
                let joins = || joins_with_flags_of_lower(policy, pair);
                (unnamed && !kept.intersects(NOT_EMPTIED) && joins()).then_some(Remedy::Empties)
            } else {
                let joins = || joins_without(policy, pair, REVERSIBLE);
                (unnamed && (differ - REVERSIBLE).is_empty() && joins()).then_some(Remedy::Flags)
            }
        }
        Reason::Rule(Refusal::AnonVma | Refusal::PageOffset | Refusal::Flags) | Reason::Nothing => {
            if !accessible {
                unnamed.then_some(Remedy::Empties)
            } else if !is_movable(pair) {
                None
            } else if mappings.iter().any(|m| m.is_forked()) {
                Some(Remedy::Copy)
            } else {
                Some(Remedy::Merge)
            }
        }
        Reason::Gap | Reason::Cut | Reason::Rule(_) => None,
    }
}

fn is_movable(pair: &Pair<'_>) -> bool {
    pair.mappings.iter().all(|m| unmovable(m).is_none())
}

/// Checks whether the pair would merge without `flags`, if necessary after moving its pages.
fn joins_without(policy: &Policy, pair: &Pair<'_>, flags: VmFlags) -> bool {
    let (mut a, mut b) = (pair.a, pair.b);
    a.body.flags -= flags;
    b.body.flags -= flags;
    joins(policy, pair, &a, &b)
}

/// Checks whether the pair would merge if the upper mapping had the lower mapping's flags.
fn joins_with_flags_of_lower(policy: &Policy, pair: &Pair<'_>) -> bool {
    let mut b = pair.b;
    b.body.flags = pair.a.body.flags;
    joins(policy, pair, &pair.a, &b)
}

fn joins(policy: &Policy, pair: &Pair<'_>, a: &VmaView, b: &VmaView) -> bool {
    let moves = |refusal: &Refusal| {
        let by_moving = matches!(refusal, Refusal::AnonVma | Refusal::PageOffset);
        by_moving && (!a.body.flags.is_accessible() || is_movable(pair))
    };
    match explain(policy, a, b, pair.hidden - Hidden::FLAGS) {
        Explanation::Together => true,
        Explanation::Apart(refusal) => moves(&refusal),
        Explanation::OneOf(candidates) => candidates.iter().any(moves),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;

    /// Returns the remedies for the boundaries in a list of adjacent one-page mappings.
    ///
    /// Each mapping is described by its permissions, its name and the two-letter codes of its
    /// flags.
    fn remedies(mappings: &[(&str, &str, &str)]) -> Vec<Option<Remedy>> {
        let lines = mappings.iter().enumerate();
        let text = lines.map(|(n, (perms, name, letters))| {
            let start = 0x1000_0000 + (n << 12);
            let end = start + 0x1000;
            format!("{start:x}-{end:x} {perms} 00000000 00:00 0 {name}\nVmFlags: {letters}\n")
        });
        let text: String = text.collect();
        let process = Process::from_text("text".to_owned(), text.as_bytes()).unwrap();
        let all = process.boundaries();
        all.iter().map(|boundary| boundary.remedy).collect()
    }

    #[test]
    fn each_remedy_has_its_boundary() {
        const RW: (&str, &str, &str) = ("rw-p", "", "rd wr mr mw me ac");
        const GUARD: (&str, &str, &str) = ("---p", "", "mr mw me ac");
        const EMPTY: (&str, &str, &str) = ("---p", "", "mr mw me");
        let dontfork = ("rw-p", "", "rd wr mr mw me dc ac");
        let random = ("rw-p", "", "rd wr mr mw me rr ac");
        for (what, mappings, remedy) in [
            ("moved", vec![RW, RW], Some(Remedy::Merge)),
            (
                "heap",
                vec![RW, ("rw-p", "[heap]", RW.2)],
                Some(Remedy::Merge),
            ),
            ("a flag", vec![RW, dontfork], Some(Remedy::Flags)),
            ("a flag that stays", vec![RW, random], None),
            ("charged and not", vec![EMPTY, GUARD], Some(Remedy::Empties)),
            ("a guard at the end", vec![RW, GUARD], None),
            (
                "permissions",
                vec![RW, ("r--p", "", "rd mr mw me ac")],
                None,
            ),
        ] {
            assert_eq!(remedies(&mappings), [remedy], "{what}");
        }
        let between = remedies(&[RW, GUARD, RW]);
        let one = [Some(Remedy::Guards), None];
        assert_eq!(
            between, one,
            "without the anon_vmas, a guard joins one side"
        );
    }

    #[test]
    fn what_a_fresh_mapping_cannot_be_is_not_moved() {
        for (perms, name, letters, why) in [
            ("rw-p", "", "rd wr mr mw me ac", None),
            ("rw-p", "", "rd wr mr mw me dc sd hg", None),
            ("rw-p", "[anon:a]", "rd wr", Some(Unmovable::Named)),
            ("rw-p", "[stack]", "rd wr gd", Some(Unmovable::NotAnonymous)),
            ("rw-p", "/a file", "rd wr", Some(Unmovable::NotAnonymous)),
            ("r--p", "", "rd mr mw me", Some(Unmovable::NotWritable)),
            ("rw-p", "", "rd wr lo", Some(Unmovable::Locked)),
            ("rw-p", "", "rd wr um", Some(Unmovable::Userfaultfd)),
            ("rw-p", "", "rd wr gu", Some(Unmovable::Guard)),
            ("rw-p", "", "rd wr sl", Some(Unmovable::Special)),
            ("rw-p", "", "rd wr ??", Some(Unmovable::Special)),
        ] {
            let text = format!("1000-2000 {perms} 00000000 00:00 0 {name}\nVmFlags: {letters}\n");
            let process = Process::from_text("text".to_owned(), text.as_bytes()).unwrap();
            assert_eq!(unmovable(&process.mappings[0]), why, "{name} {letters}");
        }
    }
}
