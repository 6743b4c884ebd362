//! Mappings outside of the arena that bring an address space close to its VMA limit.
//!
//! One large mapping is created with `PROT_NONE`, and every second page of it is then made
//! readable. Each readable page adds two VMAs.

use super::arena::FILL;
use super::op::Call;
use vmarea::types::PAGE_SIZE;
use vmarea_trace::sysno;

/// Largest `vm.max_map_count` to fill; creating and listing more VMAs would take too long.
const MOST: u64 = 70_000;

/// Returns how many pages to make readable; `None` if `limit` is unsuitable.
///
/// In an address space with `count` VMAs, making these pages readable leaves room for about `leave`
/// more VMAs. A limit is unsuitable if it is above [`MOST`] or below `count + leave + 4`.
pub fn pairs(count: u64, limit: u64, leave: u64) -> Option<u64> {
    let missing = limit.checked_sub(count)?.checked_sub(leave)?;
    (limit <= MOST && missing >= 4).then(|| (missing - 1) / 2)
}

/// Returns the `mmap` call that creates the area, and the first `mprotect` call; each further
/// `mprotect` starts two pages above the previous one.
pub fn calls(pairs: u64) -> [Call; 2] {
    const PRIVATE_FIXED_ANONYMOUS: u64 = 0x32;
    const PROT_READ: u64 = 1;
    // There is one more page at the end, so that each readable page has a neighbour on both sides.
    let len = (2 * pairs + 1) * PAGE_SIZE;
    let map = [FILL, len, 0, PRIVATE_FIXED_ANONYMOUS, u64::MAX, 0];
    [
        Call::new(sysno::MMAP, map),
        Call::new(sysno::MPROTECT, [FILL + PAGE_SIZE, PAGE_SIZE, PROT_READ]),
    ]
}
