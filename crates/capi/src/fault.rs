//! Page faults, and the pages of files that they need.

use crate::boundary::{place, status};
use crate::space::{SpaceHandle, address_space};
use core::ffi::c_int;
use vmarea::fault::{Access, Faulted, Ticket};
use vmarea::types::Errno;

/// Access of a fault: a load.
pub const VMAREA_READ: u32 = 0;
/// Access of a fault: a store.
pub const VMAREA_WRITE: u32 = 1;
/// Access of a fault: an instruction fetch.
pub const VMAREA_EXEC: u32 = 2;

/// Result of a fault: a page was mapped or made writable. Repeat the access.
pub const VMAREA_FAULT_DONE: c_int = 0;
/// Result of a fault: the access is allowed already. Repeat the access.
pub const VMAREA_FAULT_SPURIOUS: c_int = 1;
/// Result of a fault: SIGSEGV, no mapping (SEGV_MAPERR).
pub const VMAREA_FAULT_NO_MAPPING: c_int = 2;
/// Result of a fault: SIGSEGV, the mapping does not allow the access (SEGV_ACCERR).
pub const VMAREA_FAULT_NO_ACCESS: c_int = 3;
/// Result of a fault: SIGBUS, beyond the end of the file (BUS_ADRERR).
pub const VMAREA_FAULT_NO_PAGE: c_int = 4;
/// Result of a fault: no memory.
pub const VMAREA_FAULT_OUT_OF_MEMORY: c_int = 5;
/// Result of a fault: a userfaultfd watches the page.
pub const VMAREA_FAULT_USERFAULT: c_int = 6;
/// Result of a fault: nothing has changed. Repeat the access later.
pub const VMAREA_FAULT_RETRY: c_int = 7;
/// Result of a fault: a page of a file has to be read first. vmarea_needed_page tells which page.
pub const VMAREA_FAULT_NEED_PAGE: c_int = 8;

/// A page of a file that a fault needs in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NeededPage {
    /// Inode number of the file.
    pub inode: u64,
    /// Number of the page in the file.
    pub index: u64,
    /// Identifies the mapping for vmarea_fault_again. Not 0.
    pub ticket: u64,
}

/// Returns the access that C names.
///
/// # Errors
/// EINVAL for another number.
fn access_of(number: u32) -> Result<Access, Errno> {
    match number {
        VMAREA_READ => Ok(Access::Read),
        VMAREA_WRITE => Ok(Access::Write),
        VMAREA_EXEC => Ok(Access::Exec),
        _ => Err(Errno::EINVAL),
    }
}

/// Converts the result of a fault to its `VMAREA_FAULT_` constant.
fn number(faulted: Faulted) -> c_int {
    match faulted {
        Faulted::Done => VMAREA_FAULT_DONE,
        Faulted::Spurious => VMAREA_FAULT_SPURIOUS,
        Faulted::NoMapping => VMAREA_FAULT_NO_MAPPING,
        Faulted::NoAccess => VMAREA_FAULT_NO_ACCESS,
        Faulted::NoPage => VMAREA_FAULT_NO_PAGE,
        Faulted::OutOfMemory => VMAREA_FAULT_OUT_OF_MEMORY,
        Faulted::Userfault => VMAREA_FAULT_USERFAULT,
        Faulted::NeedPage => VMAREA_FAULT_NEED_PAGE,
        Faulted::Retry => VMAREA_FAULT_RETRY,
    }
}

/// Handles a fault caused by an `access`, such as VMAREA_READ. Returns a VMAREA_FAULT_ constant.
///
/// Errors: -ESRCH; -EINVAL for an unknown `access`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_fault(
    space: *const SpaceHandle,
    mm: u64,
    addr: u64,
    access: u32,
) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { address_space(space, mm) }.and_then(|(space, mm)| {
        let faulted = space.fault(mm, addr, access_of(access)?)?;
        Ok(number(faulted))
    }))
}

/// Tells which page an access to `addr` needs, after a fault returned VMAREA_FAULT_NEED_PAGE.
///
/// Errors: -ESRCH; -ENOENT if no file is mapped there any more; repeat the access then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_needed_page(
    space: *const SpaceHandle,
    mm: u64,
    addr: u64,
    page: *mut NeededPage,
) -> c_int {
    // SAFETY: `space` and `page` are as the header demands.
    status(unsafe { address_space(space, mm) }.and_then(|(space, mm)| {
        // SAFETY: as above.
        let place = unsafe { place(page) }?;
        // `needed_page` does not tell a missing mapping from a missing address space.
        let missing = || {
            space
                .mmap_read_lock(mm)
                .map_or(Errno::ESRCH, |_| Errno::ENOENT)
        };
        let needed = space.needed_page(mm, addr).ok_or_else(missing)?;
        place.write(NeededPage {
            inode: needed.inode,
            index: needed.index,
            ticket: needed.ticket.to_bits(),
        });
        Ok(0)
    }))
}

/// Resumes a fault once the needed page has been read, or could not be read (`copy_file` or
/// `file_bring` then fails). Returns what vmarea_fault returns. If the ticket's mapping is gone or
/// does not allow the access, the fault starts again and may need another page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_fault_again(
    space: *const SpaceHandle,
    mm: u64,
    addr: u64,
    access: u32,
    ticket: u64,
) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { address_space(space, mm) }.and_then(|(space, mm)| {
        let access = access_of(access)?;
        let faulted = match Ticket::from_bits(ticket) {
            Some(ticket) => space.fault_again(mm, addr, access, ticket)?,
            None => space.fault(mm, addr, access)?,
        };
        Ok(number(faulted))
    }))
}
