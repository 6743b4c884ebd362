//! Experiments about which mappings the kernel merges.

use super::area::{Area, MOVE, PRIVATE, READ, WRITE, dev_zero, memfd};
use super::syscall::call;
use libc::{MADV_DONTFORK, MAP_ANONYMOUS, MAP_PRIVATE};

/// Pages of a file that were moved are next to a page of the file that fits them, but their
/// anonymous page offset does not.
pub(super) fn anon_pgoff_of_files(area: &Area) -> Option<bool> {
    let fd = memfd(2, libc::MFD_CLOEXEC)?;
    area.map_file(20, 1, WRITE, MAP_PRIVATE, (fd, 0))?;
    area.write(20);
    area.remap(20, [1, 1], MOVE, 2).ok()?;
    area.map_file(3, 1, WRITE, MAP_PRIVATE, (fd, 1))?;
    area.is_joined(3).map(|joined| !joined)
}

/// A written page becomes equal to its neighbour, which was never written to.
pub(super) fn one_sided(area: &Area) -> Option<usize> {
    area.map(0, 2, WRITE, PRIVATE)?;
    area.advise(1, 1, MADV_DONTFORK).ok()?;
    area.write(0);
    area.advise(0, 1, MADV_DONTFORK).ok()?;
    area.is_joined(1).map(usize::from)
}

/// Part of a System V segment, whose mapping has the hook, comes back to its other part.
pub(super) fn close_hook(area: &Area) -> Option<usize> {
    let len = area.at(2) - area.at(0);
    let rights = (libc::IPC_CREAT | 0o600) as usize;
    let id = call(libc::SYS_shmget, &[libc::IPC_PRIVATE as usize, len, rights]).ok()?;
    let attached = call(libc::SYS_shmat, &[id, area.at(0), libc::SHM_REMAP as usize]);
    call(libc::SYS_shmctl, &[id, libc::IPC_RMID as usize, 0]).ok()?;
    attached.ok()?;
    area.remap(1, [1, 1], MOVE, 10).ok()?;
    area.remap(10, [1, 1], MOVE, 1).ok()?;
    area.is_joined(1).map(usize::from)
}

/// A page is mapped between two written ones, with either of which it could merge.
pub(super) fn mmap_asks_next_first(area: &Area) -> Option<bool> {
    for page in [0, 2] {
        area.map(page, 1, WRITE, PRIVATE)?;
        area.write(page);
    }
    area.map(1, 1, WRITE, PRIVATE)?;
    let [before, after] = [area.is_joined(1)?, area.is_joined(2)?];
    (before != after).then_some(after)
}

/// A charged page becomes read-only next to one that never was charged.
pub(super) fn mprotect_uncharges(area: &Area) -> Option<bool> {
    let charged = MAP_PRIVATE | MAP_ANONYMOUS;
    area.map(0, 1, READ, charged)?;
    area.map(1, 1, WRITE, charged)?;
    area.protect(1, 1, READ).ok()?;
    area.is_joined(1)
}

/// A page for a stack is mapped next to another page.
pub(super) fn map_stack_nohuge(area: &Area) -> Option<bool> {
    area.map(0, 1, WRITE, PRIVATE)?;
    area.map(1, 1, WRITE, PRIVATE | libc::MAP_STACK)?;
    area.is_joined(1).map(|joined| !joined)
}

/// A page grows until it reaches the next one.
pub(super) fn expand_joins_next(area: &Area) -> Option<bool> {
    area.unmap(0, 3)?;
    area.map(0, 1, WRITE, PRIVATE)?;
    area.map(2, 1, WRITE, PRIVATE)?;
    area.remap(0, [1, 2], 0, 0).ok()?;
    area.is_joined(2)
}

/// All new memory is for KSM; a page is mapped next to one that already has the flag.
pub(super) fn ksm_flag_first(area: &Area) -> Option<bool> {
    merge_all_memory()?;
    area.map(0, 1, WRITE, PRIVATE)?;
    area.map(1, 1, WRITE, PRIVATE)?;
    area.is_joined(1)
}

/// The same with `/dev/zero`.
pub(super) fn ksm_flag_first_on_zero(area: &Area) -> Option<bool> {
    let fd = dev_zero()?;
    merge_all_memory()?;
    area.map_file(0, 1, WRITE, MAP_PRIVATE, (fd, 0))?;
    area.map_file(1, 1, WRITE, MAP_PRIVATE, (fd, 1))?;
    area.is_joined(1)
}

fn merge_all_memory() -> Option<()> {
    const PR_SET_MEMORY_MERGE: usize = 67;
    call(libc::SYS_prctl, &[PR_SET_MEMORY_MERGE, 1])
        .ok()
        .map(drop)
}
