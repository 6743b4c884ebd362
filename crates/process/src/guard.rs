//! Guard pages: which mappings count as guards, and which of them can become markers.
//!
//! A guard is a small inaccessible range next to memory that the program uses, for example at the
//! end of a thread's stack. As a mapping it costs a boundary on each side. Since Linux 6.13 a guard
//! can be a marker in the page table instead (`MADV_GUARD_INSTALL`), inside one mapping.

use crate::boundary::Boundary;
use crate::mapping::Mapping;
use crate::pair::{Pair, is_plain};
use crate::remedy::Remedy;
use vmarea::policy::Policy;
use vmarea::types::VmFlags;
use vmarea::vma::VmaView;
use vmarea::vma::partial_view::{Explanation, Hidden, explain};

/// Maximum size in bytes of a guard, which must also not be larger than its neighbour.
const GUARD_BYTES: u64 = 1 << 20;

/// Maximum size in pages of a guard that can become a marker; a larger range is a reservation.
pub const MOST_GUARD_PAGES: u64 = 64;

/// Position of a mapping in a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The mapping at lower addresses.
    Lower,
    /// The mapping at higher addresses.
    Upper,
}

/// Returns which of the two mappings is a guard for the other, if any.
pub(crate) fn side(pair: &Pair<'_>) -> Option<Side> {
    let is_guard = |one: &VmaView, other: &VmaView| {
        let len = one.range.len_bytes();
        is_plain(one)
            && is_plain(other)
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

/// True if the guard is small enough, and its neighbours have equal permissions with write access.
fn is_replaced(below: &Mapping, guard: &Mapping, above: &Mapping) -> bool {
    let perms = below.entry.perms;
    perms == above.entry.perms && perms.write && guard.range().pages() <= MOST_GUARD_PAGES
}

/// True if one mapping could contain both neighbours if the guard between them were a marker.
fn joins_both(below: &Mapping, above: &Mapping) -> bool {
    let anon_vma = |mapping: &Mapping| mapping.kernel.map_or(0, |vma| vma.anon_vma);
    let both = [anon_vma(below), anon_vma(above)];
    both[0] == both[1] || both.contains(&0)
}

/// True if the guard, as a marker in the page table, would merge with its neighbour.
///
/// Installing a marker assigns an anon_vma to the guard's mapping: the neighbour's if only the
/// permissions differ, else a new one. A mapping that contains markers cannot be moved.
pub(crate) fn joins_as_marker(policy: &Policy, pair: &Pair<'_>) -> bool {
    let guard = match side(pair) {
        Some(Side::Lower) => &pair.a,
        _ => &pair.b,
    };
    let differ = (pair.a.body.flags ^ pair.b.body.flags) - VmFlags::ACCESS - VmFlags::STICKY;
    // Only the flags show whether a guard has been writable and is therefore charged.
    let takes_neighbours = guard.anon_vma.is_some() || differ.is_empty();
    if pair.hidden.contains(Hidden::FLAGS) || !takes_neighbours {
        return false;
    }
    let (a, b) = opened(pair);
    !matches!(explain(policy, &a, &b, pair.hidden), Explanation::Apart(_))
}

/// Returns the pair with the guard given the permissions and the charge of its neighbour.
fn opened(pair: &Pair<'_>) -> (VmaView, VmaView) {
    const TAKEN: VmFlags = VmFlags::ACCESS.union(VmFlags::ACCOUNT);
    let (mut a, mut b) = (pair.a, pair.b);
    let (guard, neighbour) = match side(pair) {
        Some(Side::Lower) => (&mut a, &pair.b),
        _ => (&mut b, &pair.a),
    };
    let flags = &mut guard.body.flags;
    *flags = (*flags - TAKEN) | (neighbour.body.flags & TAKEN);
    (a, b)
}

/// Removes [`Remedy::Guards`] from guards that would merge with only one of their neighbours.
///
/// A guard is replaced only if the mappings on both sides have the same permissions. If those two
/// have different anon_vmas, the guard joins only one of them.
pub(crate) fn keep_whole_guards(mappings: &[Mapping], boundaries: &mut [Boundary]) {
    for guard in 0..mappings.len() {
        let perms = mappings[guard].entry.perms;
        if perms.read || perms.write || perms.exec {
            continue;
        }
        // Boundary n is between the mappings n and n + 1.
        let own = [guard.checked_sub(1), Some(guard)];
        let is_taken_away = |n: &Option<usize>| {
            let boundary = n.and_then(|n| boundaries.get(n));
            boundary.is_some_and(|boundary| boundary.remedy == Some(Remedy::Guards))
        };
        let last_kept = match own.iter().all(is_taken_away) {
            false => 0,
            true => {
                let [below, above] = [&mappings[guard - 1], &mappings[guard + 1]];
                match is_replaced(below, &mappings[guard], above) {
                    false => 0,
                    true if joins_both(below, above) => continue,
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
