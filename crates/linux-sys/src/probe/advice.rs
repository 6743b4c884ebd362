//! Experiments about `madvise` and `process_madvise`.

use super::area::{Area, HUGE, PAGE, PRIVATE, READ, WRITE, memfd};
use super::calls::vdso;
use super::lists;
use super::syscall::{call, is_filtered, is_known};
use libc::{EACCES, EINVAL, ENOMEM, EPERM, MADV_COLD, MADV_DONTNEED, MADV_WILLNEED, c_int};

const POPULATE_READ: c_int = 22;
const POPULATE_WRITE: c_int = 23;
const DONTNEED_LOCKED: c_int = 24;
const COLLAPSE: c_int = 25;
const GUARD_INSTALL: c_int = 102;
const HUGE_PAGES: usize = HUGE / PAGE;

/// Advice about no page at all is refused only if the kernel does not know it.
fn knows(area: &Area, advice: c_int) -> Option<bool> {
    is_known(area.advise(0, 0, advice), EINVAL)
}

pub(super) fn populate(area: &Area) -> Option<bool> {
    knows(area, POPULATE_READ)
}

pub(super) fn dontneed_locked(area: &Area) -> Option<bool> {
    knows(area, DONTNEED_LOCKED)
}

pub(super) fn collapse(area: &Area) -> Option<bool> {
    knows(area, COLLAPSE)
}

pub(super) fn guard_regions(area: &Area) -> Option<bool> {
    knows(area, GUARD_INSTALL)
}

/// Three pages with a hole in the middle are populated.
pub(super) fn populate_skips_holes(area: &Area) -> Option<bool> {
    area.map(0, 3, WRITE, PRIVATE)?;
    area.unmap(1, 1)?;
    if area.advise(0, 3, POPULATE_WRITE) != Err(ENOMEM) {
        return None;
    }
    let mut resident = 0u8;
    let args = [area.at(2), PAGE, (&raw mut resident) as usize];
    call(libc::SYS_mincore, &args).ok()?;
    Some(resident & 1 == 1)
}

/// A hole is made in a file by a read-only mapping that could become writable.
pub(super) fn remove_asks_write(area: &Area) -> Option<bool> {
    let fd = memfd(1, libc::MFD_CLOEXEC)?;
    area.map_file(0, 1, READ, libc::MAP_SHARED, (fd, 0))?;
    is_known(area.advise(0, 1, libc::MADV_REMOVE), EACCES).map(|allowed| !allowed)
}

/// A special mapping gets the advice for what it does anyway.
pub(super) fn dofork_refuses_special(_: &Area) -> Option<bool> {
    let args = [vdso()?, PAGE, libc::MADV_DOFORK as usize];
    is_known(call(libc::SYS_madvise, &args), EINVAL).map(|allowed| !allowed)
}

/// Maps as much as a huge page after `first` pages, with one page in it. That page is written before
/// the rest is mapped, so that no fault makes a huge page.
fn small_pages(area: &Area, first: usize) -> Option<()> {
    area.map(first, 1, WRITE, PRIVATE)?;
    area.write(first);
    area.map(first + 1, HUGE_PAGES - 1, WRITE, PRIVATE)
}

/// Makes sure that a collapse is possible here at all.
fn collapses(area: &Area) -> Option<()> {
    small_pages(area, HUGE_PAGES)?;
    let collapsed = area.advise(HUGE_PAGES, HUGE_PAGES, COLLAPSE);
    collapsed.ok().map(drop)
}

/// Memory that is not writable is collapsed.
pub(super) fn collapse_asks_write(area: &Area) -> Option<bool> {
    collapses(area)?;
    small_pages(area, 0)?;
    area.protect(0, HUGE_PAGES, READ).ok()?;
    is_known(area.advise(0, HUGE_PAGES, COLLAPSE), EINVAL).map(|allowed| !allowed)
}

/// A single page is collapsed.
pub(super) fn collapse_of_none(area: &Area) -> Option<bool> {
    collapses(area)?;
    small_pages(area, 0)?;
    is_known(area.advise(100, 1, COLLAPSE), EINVAL)
}

/// The only page of a page table is discarded.
pub(super) fn dontneed_frees_tables(area: &Area) -> Option<bool> {
    small_pages(area, 0)?;
    let before = lists::page_tables_kib()?;
    area.advise(0, HUGE_PAGES, MADV_DONTNEED).ok()?;
    Some(lists::page_tables_kib()? < before)
}

/// A guard is installed.
pub(super) fn guard_flag(area: &Area) -> Option<bool> {
    area.map(0, 1, WRITE, PRIVATE)?;
    area.advise(0, 1, GUARD_INSTALL).ok()?;
    lists::has_flag(area.at(0), b"gu")
}

/// Calls `process_madvise` for this process.
fn advise_process(area: &Area, len: usize, advice: c_int) -> Result<usize, i32> {
    let own = call(libc::SYS_getpid, &[])?;
    let fd = call(libc::SYS_pidfd_open, &[own, 0])?;
    let range = [area.at(0), len];
    let args = [fd, range.as_ptr() as usize, 1, advice as usize, 0];
    let done = call(libc::SYS_process_madvise, &args);
    call(libc::SYS_close, &[fd])?;
    done
}

pub(super) fn process_willneed(area: &Area) -> Option<bool> {
    area.map(0, 1, WRITE, PRIVATE)?;
    match advise_process(area, PAGE, MADV_WILLNEED) {
        // The advice is checked before the capability.
        Err(EPERM) if !is_filtered() => Some(true),
        answer => is_known(answer, EINVAL),
    }
}

/// Advice that no kernel knows is given about nothing.
pub(super) fn process_checks_first(area: &Area) -> Option<bool> {
    const UNKNOWN: c_int = 9999;
    is_known(advise_process(area, 0, UNKNOWN), EINVAL).map(|allowed| !allowed)
}

pub(super) fn process_own(area: &Area) -> Option<bool> {
    area.map(0, 1, WRITE, PRIVATE)?;
    is_known(advise_process(area, PAGE, MADV_DONTNEED), EINVAL)
}

/// Advice is given after the capability for other processes has been dropped.
pub(super) fn process_own_free(area: &Area) -> Option<bool> {
    const VERSION_3: u32 = 0x2008_0522;
    const SYS_NICE: u32 = 1 << 23;
    let header = [VERSION_3, 0];
    // Effective, permitted and inheritable capabilities, the lower 32 of each and then the upper.
    let mut sets = [0u32; 6];
    let exchange = |nr, sets: &mut [u32; 6]| {
        let args = [header.as_ptr() as usize, sets.as_mut_ptr() as usize];
        call(nr, &args).ok()
    };
    exchange(libc::SYS_capget, &mut sets)?;
    sets[0] &= !SYS_NICE;
    exchange(libc::SYS_capset, &mut sets)?;
    area.map(0, 1, WRITE, PRIVATE)?;
    let answer = advise_process(area, PAGE, MADV_COLD);
    is_known(answer, EPERM).filter(|free| *free || !is_filtered())
}
