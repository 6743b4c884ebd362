//! Mappings outside of the arena that bring an address space close to its VMA limit.
//!
//! One large mapping is created with `PROT_NONE`, and every second page of it is then made
//! readable: then each page is a VMA.

use super::arena::FILL;
use super::op::Call;
use vmarea::types::PAGE_SIZE;
use vmarea_trace::sysno;

/// Largest `vm.max_map_count` to fill; creating and listing more VMAs would take too long.
const MOST: u64 = 70_000;

/// Returns how many VMAs to add; `None` if `limit` is unsuitable.
///
/// An address space with `count` VMAs then has room for `leave` more. A limit is unsuitable if it is
/// above [`MOST`] or below `count + leave + 4`.
pub fn missing(count: u64, limit: u64, leave: u64) -> Option<u64> {
    let missing = limit.checked_sub(count)?.checked_sub(leave)?;
    (limit <= MOST && missing >= 4).then_some(missing)
}

/// Returns the `mmap` call that creates an area of `pages`, and the first of the `pages / 2` calls of
/// `mprotect`, each of which starts two pages above the one before.
pub fn calls(pages: u64) -> [Call; 2] {
    const PRIVATE_FIXED_ANONYMOUS: u64 = 0x32;
    const PROT_READ: u64 = 1;
    let map = [
        FILL,
        pages * PAGE_SIZE,
        0,
        PRIVATE_FIXED_ANONYMOUS,
        u64::MAX,
        0,
    ];
    [
        Call::new(sysno::MMAP, map),
        Call::new(sysno::MPROTECT, [FILL + PAGE_SIZE, PAGE_SIZE, PROT_READ]),
    ]
}
