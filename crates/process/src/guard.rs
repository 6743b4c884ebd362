//! Guards: which mappings are classified as guards, and which guards can become markers.
//!
//! A guard is a small inaccessible range next to memory that the program uses, for example at the
//! end of a thread's stack. A guard that is a separate mapping adds a boundary on each side. Since
//! Linux 6.13, a guard can instead be a marker in the page table within a larger mapping
//! (`MADV_GUARD_INSTALL`).

use crate::pair::{Pair, is_plain};
use vmarea_merge::partial_view::{Explanation, explain};
use vmarea_merge::policy::Policy;
use vmarea_merge::types::VmFlags;
use vmarea_merge::view::VmaView;

/// Maximum size of a guard in bytes. In addition, a guard must not be larger than its neighbour.
const GUARD_BYTES: u64 = 1 << 20;

/// Maximum size in pages of a guard that can become a marker. A larger range counts as a
/// reservation.
pub const MOST_GUARD_PAGES: u64 = 64;

/// Position of a mapping in a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The mapping at lower addresses.
    Lower,
    /// The mapping at higher addresses.
    Upper,
}

/// Returns which of the two mappings is a guard next to the other; `None` if neither is.
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

/// Checks whether the guard would merge with its neighbour if it were accessible. If so, a marker
/// in the page table can replace the guard.
///
/// Before the marker is installed, the guard receives its neighbour's permissions, and therefore a
/// commit charge, so that the two mappings merge. If they stayed separate, installing the marker
/// would create another anon_vma for the guard.
pub(crate) fn joins_as_marker(policy: &Policy, pair: &Pair<'_>) -> bool {
    let (a, b) = opened(pair);
    !matches!(explain(policy, &a, &b, pair.hidden), Explanation::Apart(_))
}

/// Returns the pair with the guard's permissions and commit charge replaced by its neighbour's.
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
