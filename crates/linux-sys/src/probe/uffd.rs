//! Experiments about userfaultfd.

use super::area::{Area, MOVE, PRIVATE, WRITE, memfd};
use super::syscall::{Answer, call, is_known};
use crate::uffd::{API, MODE_MISSING, MODE_WRITE_PROTECT};
use crate::uffd::{UFFDIO_API, UFFDIO_REGISTER, UFFDIO_WAKE};
use libc::{EBUSY, EINVAL, MAP_SHARED};

const MAP_DROPPABLE: libc::c_int = 8;

/// Opens a userfaultfd without features.
fn open() -> Option<usize> {
    let fd = create()?;
    request(fd, UFFDIO_API, &mut [API, 0, 0]).ok()?;
    Some(fd)
}

/// Creates a userfaultfd for faults in user mode, which needs no permission.
fn create() -> Option<usize> {
    const USER_MODE_ONLY: usize = 1;
    let opened = call(libc::SYS_userfaultfd, &[USER_MODE_ONLY])
        .or_else(|_| call(libc::SYS_userfaultfd, &[0]));
    opened.ok()
}

fn request<const N: usize>(fd: usize, what: u64, words: &mut [u64; N]) -> Answer {
    call(
        libc::SYS_ioctl,
        &[fd, what as usize, words.as_mut_ptr() as usize],
    )
}

fn register(fd: usize, area: &Area, page: usize, modes: u64) -> Answer {
    let (start, len) = (area.at(page) as u64, crate::PAGE);
    request(fd, UFFDIO_REGISTER, &mut [start, len, modes, 0])
}

/// Memory that may be dropped is watched.
pub(super) fn takes_droppable(area: &Area) -> Option<bool> {
    let fd = open()?;
    area.map(0, 1, WRITE, MAP_DROPPABLE | libc::MAP_ANONYMOUS)?;
    is_known(register(fd, area, 0, MODE_MISSING), EINVAL)
}

/// A range at address 0, where nothing waits, is woken.
pub(super) fn asks_min_addr(_: &Area) -> Option<bool> {
    let woken = request(open()?, UFFDIO_WAKE, &mut [0, crate::PAGE]);
    is_known(woken, EINVAL).map(|allowed| !allowed)
}

/// A userfaultfd asks for the mode RWP.
pub(super) fn rwp(_: &Area) -> Option<bool> {
    const FEATURE: u64 = 1 << 17;
    let asked = request(create()?, UFFDIO_API, &mut [API, FEATURE, 0]);
    is_known(asked, EINVAL)
}

/// A protected range is registered again, without the protection.
pub(super) fn keeps_protection(area: &Area) -> Option<bool> {
    let fd = open()?;
    area.map(0, 1, WRITE, PRIVATE)?;
    register(fd, area, 0, MODE_MISSING | MODE_WRITE_PROTECT).ok()?;
    is_known(register(fd, area, 0, MODE_MISSING), EBUSY).map(|allowed| !allowed)
}

/// A watched page is moved next to another watched page.
pub(super) fn moves_apart(area: &Area) -> Option<bool> {
    let fd = open()?;
    for page in [0, 20] {
        area.map(page, 1, WRITE, PRIVATE)?;
        register(fd, area, page, MODE_MISSING).ok()?;
    }
    area.remap(20, [1, 1], MOVE, 1).ok()?;
    area.is_joined(1).map(|joined| !joined)
}

/// Shared memory is write-protected.
pub(super) fn protects_files(area: &Area) -> Option<bool> {
    let fd = open()?;
    let file = memfd(1, libc::MFD_CLOEXEC)?;
    area.map_file(0, 1, WRITE, MAP_SHARED, (file, 0))?;
    is_known(register(fd, area, 0, MODE_WRITE_PROTECT), EINVAL)
}
