//! Experiments about `mremap`.

use super::area::{Area, EMPTY, MOVE, PRIVATE, READ, WRITE};
use super::lists::locked_kib;
use super::syscall::is_known;
use libc::{EFAULT, MADV_DOFORK, MADV_DONTFORK, MAP_ANONYMOUS, MAP_PRIVATE};

/// Moves fail, and show by their destination what the kernel has done before.
pub(super) fn mremap_checks(area: &Area) -> Option<usize> {
    area.map(40, 4, WRITE, PRIVATE)?;
    area.unmap(0, 4)?;
    let refused = |answer| (answer == Err(EFAULT)).then_some(());
    refused(area.remap(0, [1, 1], MOVE, 40))?;
    if !area.is_mapped(40) {
        return Some(2);
    }
    area.map(0, 1, WRITE, PRIVATE)?;
    refused(area.remap(0, [2, 3], MOVE, 41))?;
    Some(usize::from(!area.is_mapped(41)))
}

/// Two mappings are moved by one call.
pub(super) fn mremap_many(area: &Area) -> Option<bool> {
    area.map(0, 1, WRITE, PRIVATE)?;
    area.map(1, 1, READ, PRIVATE)?;
    is_known(area.remap(0, [2, 2], MOVE, 40), EFAULT)
}

/// An emptied page becomes equal to its neighbour, which has an anon_vma of its own.
pub(super) fn loses_anon_vma(area: &Area) -> Option<bool> {
    area.map(0, 1, WRITE, PRIVATE)?;
    area.advise(0, 1, MADV_DONTFORK).ok()?;
    area.write(0);
    area.map(1, 1, WRITE, PRIVATE)?;
    area.write(1);
    area.remap(0, [1, 1], EMPTY, 10).ok()?;
    area.advise(0, 1, MADV_DOFORK).ok()?;
    area.is_joined(1)
}

/// An emptied page that came from elsewhere becomes equal to its neighbour.
pub(super) fn resets_pgoff(area: &Area) -> Option<bool> {
    area.map(2, 1, WRITE, PRIVATE)?;
    area.map(9, 1, WRITE, PRIVATE)?;
    area.write(9);
    area.remap(9, [1, 1], MOVE, 3).ok()?;
    area.remap(3, [1, 1], EMPTY, 13).ok()?;
    area.advise(2, 2, MADV_DONTFORK).ok()?;
    area.is_joined(3)
}

/// One of two locked pages is emptied.
pub(super) fn cuts_locked(area: &Area) -> Option<bool> {
    area.map(0, 2, WRITE, PRIVATE)?;
    area.lock(0, 2).ok()?;
    area.remap(0, [1, 1], EMPTY, 10).ok()?;
    area.is_joined(1).map(|joined| !joined)
}

/// A page that was never written to is copied next to itself.
pub(super) fn stays_apart(area: &Area) -> Option<bool> {
    area.map(0, 1, WRITE, PRIVATE)?;
    area.remap(0, [1, 1], EMPTY, 1).ok()?;
    area.is_joined(1).map(|joined| !joined)
}

/// A locked page is moved, and leaves an unlocked one behind.
pub(super) fn counts_locked(area: &Area) -> Option<bool> {
    area.map(0, 1, WRITE, PRIVATE)?;
    area.lock(0, 1).ok()?;
    let before = locked_kib()?;
    area.remap(0, [1, 1], EMPTY, 10).ok()?;
    Some(locked_kib()? > before)
}

/// A page inside of a charged mapping is emptied; the next mapping is not charged.
pub(super) fn charges_next(area: &Area) -> Option<bool> {
    let charged = MAP_PRIVATE | MAP_ANONYMOUS;
    area.map(0, 3, WRITE, charged)?;
    area.map(3, 1, READ, charged)?;
    area.remap(1, [1, 1], EMPTY, 10).ok()?;
    area.map(4, 1, READ, charged)?;
    area.is_joined(4).map(|joined| !joined)
}
