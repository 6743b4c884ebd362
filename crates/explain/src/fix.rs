//! What would take a boundary away, and whether it would.
//!
//! Only what `vmarea merge` really does counts: its repairs leave some flags as they are, replace a
//! guard only between two mappings that are alike, and move no pages that a fresh mapping could
//! not have. The decision of the core is asked about the pair as the repair would leave it.
//! Deliberately absent: what it would cost ([`super::estimate`]).

use super::boundary::{Boundary, Certainty, Reason, Side, guard};
use super::sight::Pair;
use super::subject::Seen;
use vmarea::policy::Policy;
use vmarea::types::{FileKind, VmFlags};
use vmarea::vma::VmaView;
use vmarea::vma::explain::{Explanation, Hidden, explain};
use vmarea::vma::merge::Refusal;
use vmarea_process::maps::MapName;
use vmarea_repair::{CAN_BE_GIVEN, MOST_GUARD_PAGES};

/// A range without access is made a marker up to this size.
const MARKED_BYTES: u64 = MOST_GUARD_PAGES * vmarea::types::PAGE_SIZE;

/// What would take a boundary away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fix {
    /// Pages moved out and back, which gives them one anon_vma and page offset.
    Merge,
    /// As [`Fix::Merge`], but pages may be shared after a fork and then have to be copied.
    Copy,
    /// Guards as entries of the page table instead of mappings (`MADV_GUARD_INSTALL`).
    Guards,
    /// Flags taken back (`MADV_DOFORK` and kin).
    Flags,
    /// Empty ranges without access mapped anew as one.
    Empties,
}

impl Fix {
    /// All of them.
    pub const ALL: [Fix; 5] = [Fix::Merge, Fix::Copy, Fix::Guards, Fix::Flags, Fix::Empties];

    /// Short name, as in reports; of a repair, as `merge --fix` has it.
    pub fn name(self) -> &'static str {
        match self {
            Fix::Merge => "merge",
            Fix::Copy => "copy",
            Fix::Guards => "guards",
            Fix::Flags => "flags",
            Fix::Empties => "empties",
        }
    }
}

/// What would take the boundary away: what the repairs of `vmarea merge` do, and no more.
pub fn of(policy: &Policy, a: &Seen, b: &Seen, pair: &Pair, boundary: &Boundary) -> Option<Fix> {
    let all = |wanted: &dyn Fn(&Seen) -> bool| wanted(a) && wanted(b);
    let unnamed = all(&|seen| seen.mapping.name == MapName::None);
    let heap_too = all(&|seen| matches!(seen.mapping.name, MapName::None | MapName::Heap));
    if !plain(&pair.a) || !plain(&pair.b) || !heap_too {
        return None;
    }
    let flags = [pair.a.body.flags, pair.b.body.flags];
    let accessible = flags[0].is_accessible();
    let with = |without| after(policy, pair, with_flags(pair, without));
    match boundary.reason {
        Reason::Guard => (unnamed && joins_as_marker(policy, pair)).then_some(Fix::Guards),
        // Both refuse in the same way; a difference of flags that repairs leave is none of theirs.
        Reason::Rule(Refusal::Flags) if boundary.certainty == Certainty::Certain => {
            let differ = (flags[0] ^ flags[1]) - VmFlags::STICKY;
            if !accessible {
                let kept = flags[0] | flags[1];
                (unnamed && !kept.intersects(NOT_EMPTIED) && with(VmFlags::empty()))
                    .then_some(Fix::Empties)
            } else {
                (unnamed && (differ - REVERSIBLE).is_empty() && with(REVERSIBLE))
                    .then_some(Fix::Flags)
            }
        }
        Reason::Rule(Refusal::AnonVma | Refusal::PageOffset | Refusal::Flags) | Reason::Nothing => {
            if !accessible {
                unnamed.then_some(Fix::Empties)
            } else if !movable(&pair.a) || !movable(&pair.b) {
                None
            } else if [a, b].iter().any(|s| s.inside.is_some_and(|i| i.forked)) {
                Some(Fix::Copy)
            } else {
                Some(Fix::Merge)
            }
        }
        Reason::Gap | Reason::Rule(_) => None,
    }
}

/// Flags that a repair takes back. The others that `madvise` sets change what a fork or a reader
/// sees, or cost nothing to know that is seen from here.
const REVERSIBLE: VmFlags = VmFlags::DONTCOPY.union(VmFlags::DONTDUMP);

/// What a fresh mapping in place of an empty one would lose.
const NOT_EMPTIED: VmFlags = VmFlags::DONTCOPY.union(VmFlags::WIPEONFORK);

/// Can its pages be moved into a fresh mapping that has all its flags?
fn movable(view: &VmaView) -> bool {
    let flags = view.body.flags;
    flags.contains(VmFlags::WRITE) && (flags - CAN_BE_GIVEN).is_empty() && view.body.policy == 0
}

/// Would the pair, changed like this, join, at the latest when its pages are moved?
fn after(policy: &Policy, pair: &Pair, (a, b): (VmaView, VmaView)) -> bool {
    let moves = |r: &Refusal| {
        let by_moving = matches!(r, Refusal::AnonVma | Refusal::PageOffset);
        by_moving && (!a.body.flags.is_accessible() || movable(&a) && movable(&b))
    };
    match explain(policy, &a, &b, pair.hidden - Hidden::FLAGS) {
        Explanation::Together => true,
        Explanation::Apart(refusal) => moves(&refusal),
        Explanation::OneOf(candidates) => candidates.iter().any(moves),
    }
}

/// Would the guard, as a marker in the page table, be one mapping with its neighbour?
///
/// A marker gives its mapping an anon_vma: the neighbour's where all but their permissions is
/// equal, else one of its own. And what has markers inside cannot be moved.
fn joins_as_marker(policy: &Policy, pair: &Pair) -> bool {
    let guard = match guard(pair) {
        Some(Side::Lower) => &pair.a,
        _ => &pair.b,
    };
    let differ = (pair.a.body.flags ^ pair.b.body.flags) - VmFlags::ACCESS - VmFlags::STICKY;
    // Whether a guard was ever writable, and so is charged, nothing else tells.
    let takes_neighbours = guard.anon_vma.is_some() || differ.is_empty();
    if pair.hidden.contains(Hidden::FLAGS) || !takes_neighbours {
        return false;
    }
    let (a, b) = opened(pair);
    !matches!(explain(policy, &a, &b, pair.hidden), Explanation::Apart(_))
}

/// Takes [`Fix::Guards`] away where only one side of a guard would join: a guard is replaced where
/// mappings of the same permissions lie on both of its sides. Where these hang on different
/// anon_vmas it joins one of them.
pub fn keep_whole_guards(seen: &[Seen], boundaries: &mut [Boundary]) {
    for guard in 0..seen.len() {
        let accessible = |seen: &Seen| {
            let perms = seen.mapping.perms;
            perms.read || perms.write || perms.exec
        };
        if accessible(&seen[guard]) {
            continue;
        }
        // Boundary n lies between the mappings n and n + 1.
        let own = [guard.checked_sub(1), Some(guard)];
        let is_fixed = |n: &Option<usize>| {
            let boundary = n.and_then(|n| boundaries.get(n));
            boundary.is_some_and(|boundary| boundary.fix == Some(Fix::Guards))
        };
        let whole = own.iter().all(is_fixed) && is_replaced(&seen[guard - 1..=guard + 1]);
        let last_kept = match whole {
            true if joins_both(&seen[guard - 1], &seen[guard + 1]) => continue,
            true => 1,
            false => 0,
        };
        for n in own.into_iter().skip(last_kept).flatten() {
            if let Some(boundary) = boundaries.get_mut(n).filter(|b| b.fix == Some(Fix::Guards)) {
                boundary.fix = None;
            }
        }
    }
}

/// Is the guard between the others small enough, and do they let the same be done?
fn is_replaced(triple: &[Seen]) -> bool {
    let [below, guard, above] = triple else {
        return false;
    };
    let perms = below.mapping.perms;
    perms == above.mapping.perms
        && perms.write
        && guard.mapping.end - guard.mapping.start <= MARKED_BYTES
}

fn joins_both(below: &Seen, above: &Seen) -> bool {
    let anon_vma = |seen: &Seen| seen.inside.map_or(0, |inside| inside.anon_vma);
    let both = [anon_vma(below), anon_vma(above)];
    both[0] == both[1] || both.contains(&0)
}

/// The guard with the permissions of its neighbour, and charged as that is.
fn opened(pair: &Pair) -> (VmaView, VmaView) {
    const TAKEN: VmFlags = VmFlags::ACCESS.union(VmFlags::ACCOUNT);
    let (mut a, mut b) = (pair.a, pair.b);
    let (guard, neighbour) = match guard(pair) {
        Some(Side::Lower) => (&mut a, &pair.b),
        _ => (&mut b, &pair.a),
    };
    let flags = &mut guard.body.flags;
    *flags = (*flags - TAKEN) | (neighbour.body.flags & TAKEN);
    (a, b)
}

/// Both without the flags `without`; with none given both with those of the lower one, as a fresh
/// mapping has them.
fn with_flags(pair: &Pair, without: VmFlags) -> (VmaView, VmaView) {
    let (mut a, mut b) = (pair.a, pair.b);
    if without.is_empty() {
        b.body.flags = a.body.flags;
    } else {
        a.body.flags -= without;
        b.body.flags -= without;
    }
    (a, b)
}

/// Anonymous, private, and nothing that only the kernel may shape.
pub fn plain(view: &VmaView) -> bool {
    const UNTOUCHABLE: VmFlags = VmFlags::SPECIAL
        .union(VmFlags::UFFD_ANY)
        .union(VmFlags::GROWSDOWN)
        .union(VmFlags::SHADOW_STACK)
        .union(VmFlags::LOCKED_MASK)
        .union(VmFlags::SEALED)
        .union(VmFlags::DROPPABLE)
        .union(VmFlags::MAYSHARE)
        .union(VmFlags::HUGETLB);
    let no_file = match view.body.file {
        None => true,
        Some(file) => file.kind == FileKind::DevZero,
    };
    no_file && view.body.uffd == 0 && !view.body.flags.intersects(UNTOUCHABLE)
}
