//! Mappings outside of the arena, so many that the limit of an address space is near.
//!
//! One large mapping without rights, of which every second page may then be read: each of these adds
//! two VMAs.

use super::arena::FILL;
use super::op::Call;
use vmarea::types::PAGE_SIZE;
use vmarea_trace::sysno;

/// More VMAs than this take too long to make and to look at.
const MOST: u64 = 70_000;

/// Pages that have to become readable, where an address space with `count` VMAs is to have `leave`
/// less than `limit`. `None` where that makes no sense.
pub fn pairs(count: u64, limit: u64, leave: u64) -> Option<u64> {
    let missing = limit.checked_sub(count)?.checked_sub(leave)?;
    (limit <= MOST && missing >= 4).then(|| (missing - 1) / 2)
}

/// The mapping, and the first of the pages that become readable; the next follow by two pages each.
pub fn calls(pairs: u64) -> [Call; 2] {
    const PRIVATE_FIXED_ANONYMOUS: u64 = 0x32;
    const PROT_READ: u64 = 1;
    // A page more at the end, so that each of them has a neighbour on both sides.
    let len = (2 * pairs + 1) * PAGE_SIZE;
    let map = [FILL, len, 0, PRIVATE_FIXED_ANONYMOUS, u64::MAX, 0];
    [
        Call::new(sysno::MMAP, map),
        Call::new(sysno::MPROTECT, [FILL + PAGE_SIZE, PAGE_SIZE, PROT_READ]),
    ]
}
