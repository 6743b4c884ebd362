//! Address spaces: creation, fork, exit, and the pages that are mapped.

use crate::boundary::{destination, optional, place, status};
use crate::page::{Page, VMAREA_PAGE_NONE};
use crate::space::{SpaceHandle, address_space, handle};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use vmarea::mm::{Layout, Limits};
use vmarea::types::{Errno, MmId, PAGE_MASK};

/// `vmarea_process.capabilities`: CAP_IPC_LOCK.
pub const VMAREA_CAP_IPC_LOCK: u32 = 1;
/// `vmarea_process.capabilities`: CAP_SYS_RAWIO.
pub const VMAREA_CAP_SYS_RAWIO: u32 = 2;
/// `vmarea_process.capabilities`: CAP_SYS_RESOURCE.
pub const VMAREA_CAP_SYS_RESOURCE: u32 = 4;

/// Memory layout and limits of a process. Addresses are page-aligned, and at most `task_size`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Process {
    /// Address below which mappings are placed, from high addresses to low ones.
    pub mmap_base: u64,
    /// Address from which mappings are placed if there is no room below `mmap_base`.
    pub legacy_base: u64,
    /// Start of the heap (brk).
    pub start_brk: u64,
    /// RLIMIT_AS in bytes. For this and the other limits, UINT64_MAX means unlimited.
    pub limit_as: u64,
    /// RLIMIT_DATA in bytes.
    pub limit_data: u64,
    /// RLIMIT_STACK in bytes.
    pub limit_stack: u64,
    /// RLIMIT_MEMLOCK in bytes.
    pub limit_memlock: u64,
    /// VMAREA_CAP_IPC_LOCK and other capabilities.
    pub capabilities: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Returns the values of `usual`, with `mmap_base` and `legacy_base` limited to `task_size`.
fn usual_below(task_size: u64) -> Process {
    let process = usual();
    Process {
        mmap_base: process.mmap_base.min(task_size),
        legacy_base: process.legacy_base.min(task_size),
        ..process
    }
}

/// Returns the values of an x86-64 process without address randomization.
fn usual() -> Process {
    let limits = Limits::default();
    Process {
        mmap_base: 0x7fff_f7ff_f000,
        legacy_base: 0x2aaa_aaaa_b000,
        start_brk: 0x5555_5555_9000,
        limit_as: limits.address_space,
        limit_data: limits.data,
        limit_stack: limits.stack,
        limit_memlock: limits.memlock,
        ..Process::default()
    }
}

impl Process {
    /// # Errors
    /// EINVAL if a member is wrong.
    fn checked(self, task_size: u64) -> Result<Process, Errno> {
        let capabilities = VMAREA_CAP_IPC_LOCK | VMAREA_CAP_SYS_RAWIO | VMAREA_CAP_SYS_RESOURCE;
        let addresses = [self.mmap_base, self.legacy_base, self.start_brk];
        let possible = |addr: u64| addr <= task_size && addr & !PAGE_MASK == 0;
        let known = self.reserved == 0 && self.capabilities & !capabilities == 0;
        if !known || !addresses.into_iter().all(possible) {
            return Err(Errno::EINVAL);
        }
        Ok(self)
    }

    fn layout(&self) -> Layout {
        Layout {
            mmap_base: self.mmap_base,
            legacy_base: self.legacy_base,
            start_brk: self.start_brk,
            brk: self.start_brk,
            ..Layout::default()
        }
    }

    fn limits(&self) -> Limits {
        let has = |capability| self.capabilities & capability != 0;
        Limits {
            address_space: self.limit_as,
            data: self.limit_data,
            stack: self.limit_stack,
            memlock: self.limit_memlock,
            ipc_lock: has(VMAREA_CAP_IPC_LOCK),
            raw_io: has(VMAREA_CAP_SYS_RAWIO),
            sys_resource: has(VMAREA_CAP_SYS_RESOURCE),
            ..Limits::default()
        }
    }
}

/// Sets `*process` to the values of an x86-64 process without address randomization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_process_init(process: *mut Process) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { place(process) }.map(|process| {
        process.write(usual());
        0
    }))
}

/// Creates an empty address space and stores its number, which is not 0, in `*mm`. If `process` is
/// NULL, the values of vmarea_process_init apply, with `mmap_base` and `legacy_base` limited to
/// `task_size`.
///
/// Errors: -ENOMEM; -EINVAL for an invalid member of `process`; those of the callback `mm_created`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_mm_create(
    space: *const SpaceHandle,
    process: *const Process,
    mm: *mut u64,
) -> c_int {
    // SAFETY: `space` is as the header demands.
    status(unsafe { handle(space) }.and_then(|space| {
        let to = destination(mm)?;
        // SAFETY: so is `process`.
        let process = unsafe { optional(process) }?.copied();
        let task_size = space.core.system().task_size;
        let process = match process {
            Some(process) => process.checked(task_size)?,
            None => usual_below(task_size),
        };
        let mm = space.core.mm_create(process.layout(), process.limits())?;
        // SAFETY: so is `mm`.
        unsafe { to.write(counted(space, mm)) };
        Ok(0)
    }))
}

/// Copies the address space `parent` copy-on-write and stores the number of the copy in `*child`.
///
/// Errors: -ESRCH, -ENOMEM; those of the callback `mm_created`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_fork(
    space: *const SpaceHandle,
    parent: u64,
    child: *mut u64,
) -> c_int {
    // SAFETY: `space` is as the header demands.
    status(unsafe { handle(space) }.and_then(|space| {
        let to = destination(child)?;
        let parent = MmId::from_bits(parent).ok_or(Errno::ESRCH)?;
        let child = counted(space, space.core.fork(parent)?);
        // SAFETY: so is `child`.
        unsafe { to.write(child) };
        Ok(0)
    }))
}

/// Counts `mm` as an address space of `space`, and returns its number for C.
fn counted(space: &SpaceHandle, mm: MmId) -> u64 {
    // ORDERING: Relaxed; only `vmarea_space_destroy` reads it, after all other uses of the space.
    space.mms.fetch_add(1, Ordering::Relaxed);
    mm.to_bits()
}

/// Unmaps everything and ends an address space, which no other function may use meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_exit(space: *const SpaceHandle, mm: u64) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { handle(space) }.and_then(|space| {
        space
            .core
            .mm_exit(MmId::from_bits(mm).ok_or(Errno::ESRCH)?)?;
        // ORDERING: Relaxed; see `counted`.
        space.mms.fetch_sub(1, Ordering::Relaxed);
        Ok(0)
    }))
}

/// Describes the page at `addr`. The answer may be out of date when this function returns. An
/// embedder with several threads therefore keeps its own table of translations, which `set_entry`,
/// `clear` and `protect` change under a lock, and copies bytes under that lock.
///
/// Errors: -ESRCH if the address space has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_page_at(
    space: *const SpaceHandle,
    mm: u64,
    addr: u64,
    page: *mut Page,
) -> c_int {
    // SAFETY: `space` and `page` are as the header demands.
    status(unsafe { address_space(space, mm) }.and_then(|(space, mm)| {
        // SAFETY: as above.
        let place = unsafe { place(page) }?;
        let found = space.with_mapped(mm, addr & PAGE_MASK, |mapped| mapped.translation())?;
        let none = Page {
            kind: VMAREA_PAGE_NONE,
            ..Page::default()
        };
        place.write(found.map_or(none, Page::from));
        Ok(0)
    }))
}
