//! The embedder's memory as the core's [`vmarea::types::Platform`].

use crate::boundary::{WithSize, done};
use crate::callbacks::call;
use core::ffi::{c_int, c_void};
use vmarea::types::{Errno, FileId, FileKind, FrameId, SwapId};

/// `vmarea_file.flags`: opened for reading.
pub const VMAREA_FILE_READABLE: u32 = 1;
/// `vmarea_file.flags`: opened for writing.
pub const VMAREA_FILE_WRITABLE: u32 = 2;
/// `vmarea_file.flags`: on a file system that is mounted noexec.
pub const VMAREA_FILE_NOEXEC: u32 = 4;
/// `vmarea_file.flags`: append-only.
pub const VMAREA_FILE_APPEND_ONLY: u32 = 8;
/// `vmarea_file.flags`: sealed against new writable shared mappings.
pub const VMAREA_FILE_WRITE_SEALED: u32 = 16;

/// `vmarea_file.kind`: a regular file.
pub const VMAREA_FILE_REGULAR: u32 = 0;
/// `vmarea_file.kind`: a regular file whose large mappings are aligned to huge pages.
pub const VMAREA_FILE_HUGE_ALIGNED: u32 = 1;
/// `vmarea_file.kind`: a tmpfs file or memfd.
pub const VMAREA_FILE_SHMEM: u32 = 2;
/// `vmarea_file.kind`: a hugetlbfs file.
pub const VMAREA_FILE_HUGETLB: u32 = 3;
/// `vmarea_file.kind`: /dev/zero.
pub const VMAREA_FILE_DEV_ZERO: u32 = 4;
/// `vmarea_file.kind`: a device.
pub const VMAREA_FILE_DEVICE: u32 = 5;
/// `vmarea_file.kind`: memfd_secret.
pub const VMAREA_FILE_SECRET: u32 = 6;

/// An open file that a program maps.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct File {
    /// Number of the open file description: not 0, and below 2^62. Mappings of different
    /// descriptions never merge. A number must not be reused while vmarea_maps shows it.
    pub id: u64,
    /// Inode number, below 2^62, by which callbacks identify the file.
    pub inode: u64,
    /// VMAREA_FILE_REGULAR or another kind.
    pub kind: u32,
    /// VMAREA_FILE_READABLE and other flags.
    pub flags: u32,
}

impl File {
    fn checked(&self) -> Result<vmarea::types::File, Errno> {
        let has = |flag| self.flags & flag != 0;
        let kind = match self.kind {
            VMAREA_FILE_REGULAR => FileKind::Regular,
            VMAREA_FILE_HUGE_ALIGNED => FileKind::RegularHugeAligned,
            VMAREA_FILE_SHMEM => FileKind::Shmem,
            VMAREA_FILE_HUGETLB => FileKind::Hugetlb,
            VMAREA_FILE_DEV_ZERO => FileKind::DevZero,
            VMAREA_FILE_DEVICE => FileKind::Device,
            VMAREA_FILE_SECRET => FileKind::Secret,
            _ => return Err(Errno::EINVAL),
        };
        // The core numbers the nameless files and their inodes alike.
        if self.id == 0 || FileId(self.id).is_nameless() || self.inode >= FileId::NAMELESS {
            return Err(Errno::EINVAL);
        }
        Ok(vmarea::types::File {
            id: FileId(self.id),
            inode: self.inode,
            kind,
            readable: has(VMAREA_FILE_READABLE),
            writable: has(VMAREA_FILE_WRITABLE),
            noexec: has(VMAREA_FILE_NOEXEC),
            append_only: has(VMAREA_FILE_APPEND_ONLY),
            write_sealed: has(VMAREA_FILE_WRITE_SEALED),
        })
    }
}

/// The memory of a machine. `zero`, `copy`, `copy_file` and `free` must be set.
///
/// Frame and swap slot numbers are small, so that they can index arrays; those in use need not be
/// contiguous. A callback may reject too large a number with -ENOMEM.
///
/// Callbacks of type `int` return 0, or a negative errno on failure; predicates return 1 or 0.
/// `zero`, `copy`, `copy_file`, `free`, `swap_in` and `swap_free` run with a page-table lock held.
///
/// A callback that fails must leave everything unchanged. A system call then fails with this errno,
/// except for MADV_PAGEOUT and for pages that mmap and brk prefault, as in Linux. A fault returns
/// VMAREA_FAULT_OUT_OF_MEMORY for -ENOMEM, VMAREA_FAULT_NEED_PAGE for -EAGAIN from `copy_file` or
/// `file_bring`, VMAREA_FAULT_RETRY for any other -EAGAIN, and VMAREA_FAULT_NO_PAGE otherwise.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Platform {
    /// sizeof(struct vmarea_platform).
    pub size: usize,
    /// Passed to every callback.
    pub context: *mut c_void,
    /// Allocates `frame`, filled with zeros.
    pub zero: Option<unsafe extern "C" fn(context: *mut c_void, frame: u64) -> c_int>,
    /// Allocates the frame `to`, as a copy of `from`.
    pub copy: Option<unsafe extern "C" fn(context: *mut c_void, to: u64, from: u64) -> c_int>,
    /// Allocates the frame `to`, as a private copy of a page of a file.
    pub copy_file: Option<
        unsafe extern "C" fn(context: *mut c_void, to: u64, inode: u64, index: u64) -> c_int,
    >,
    /// Frees the frame.
    pub free: Option<unsafe extern "C" fn(context: *mut c_void, frame: u64)>,
    /// Checks whether two frames have equal bytes. If NULL, none are, so KSM shares nothing.
    pub same: Option<unsafe extern "C" fn(context: *mut c_void, one: u64, other: u64) -> c_int>,
    /// Copies `frame` to `slot`. If `vmarea_system.swap` is 1, the swap callbacks are required.
    pub swap_out:
        Option<unsafe extern "C" fn(context: *mut c_void, slot: u32, frame: u64) -> c_int>,
    /// Allocates `frame` as a copy of a swap slot, which stays allocated.
    pub swap_in: Option<unsafe extern "C" fn(context: *mut c_void, frame: u64, slot: u32) -> c_int>,
    /// Frees a slot.
    pub swap_free: Option<unsafe extern "C" fn(context: *mut c_void, slot: u32)>,
    /// Creates the file of a shared anonymous mapping. The inode number is 2^62 or more. The file
    /// is needed until `file_released`. If NULL, no file is created.
    pub shared_anon:
        Option<unsafe extern "C" fn(context: *mut c_void, inode: u64, pages: u64) -> c_int>,
    /// Zeroes pages `first` up to `end` of a file. If NULL, MADV_REMOVE gives -EOPNOTSUPP.
    pub punch_hole: Option<
        unsafe extern "C" fn(context: *mut c_void, inode: u64, first: u64, end: u64) -> c_int,
    >,
    /// Checks whether the page cache contains a page. If NULL, every page is cached.
    pub file_is_cached:
        Option<unsafe extern "C" fn(context: *mut c_void, inode: u64, index: u64) -> c_int>,
    /// Notifies that a page of a file is about to be mapped. If NULL, no preparation is needed.
    pub file_bring:
        Option<unsafe extern "C" fn(context: *mut c_void, inode: u64, index: u64) -> c_int>,
    /// Checks whether a file has a page; if not, accesses raise SIGBUS. If NULL, all pages exist.
    pub file_holds:
        Option<unsafe extern "C" fn(context: *mut c_void, inode: u64, index: u64) -> c_int>,
    /// Describes the file of a descriptor passed to mmap. If NULL, every descriptor gives -EBADF.
    pub describe_file:
        Option<unsafe extern "C" fn(context: *mut c_void, fd: c_int, file: *mut File) -> c_int>,
    /// Notifies that no shared mapping can write to a file any more. Runs without locks, and may
    /// call functions of the library, like `file_released`.
    pub file_unwritable: Option<unsafe extern "C" fn(context: *mut c_void, inode: u64)>,
    /// Notifies that the last mapping of a file has gone, and that vmarea_file_put has returned all
    /// references, if there were any. A file of `shared_anon` can be freed; another one only if
    /// vmarea_file_is_used returns 0, because another thread may have mapped it since.
    pub file_released: Option<unsafe extern "C" fn(context: *mut c_void, inode: u64)>,
}

// SAFETY: `size` is the first member.
unsafe impl WithSize for Platform {}

impl Platform {
    /// True if pages can be swapped out and in.
    pub fn has_swap(&self) -> bool {
        self.swap_out.is_some() && self.swap_in.is_some() && self.swap_free.is_some()
    }
}

/// The embedder's memory, or none.
#[derive(Debug)]
pub struct Memory(Platform);

// SAFETY: the header says that any thread may run the callbacks with the context, at the same time.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory without bytes, for the study of layouts.
    pub const NONE: Memory = Memory(Platform {
        size: size_of::<Platform>(),
        context: core::ptr::null_mut(),
        zero: None,
        copy: None,
        copy_file: None,
        free: None,
        same: None,
        swap_out: None,
        swap_in: None,
        swap_free: None,
        shared_anon: None,
        punch_hole: Some(punch_no_bytes),
        file_is_cached: None,
        file_bring: None,
        file_holds: None,
        describe_file: None,
        file_unwritable: None,
        file_released: None,
    });

    /// Checks the embedder's structure. Returns a message if the structure is invalid.
    pub fn new(platform: Platform) -> Result<Memory, &'static str> {
        let Platform {
            zero: Some(_),
            copy: Some(_),
            copy_file: Some(_),
            free: Some(_),
            ..
        } = platform
        else {
            return Err("vmarea_platform needs zero, copy, copy_file and free");
        };
        Ok(Memory(platform))
    }

    /// Asks the embedder for the file behind a descriptor.
    pub fn describe_file(&self, fd: c_int) -> Result<vmarea::types::File, Errno> {
        let mut file = File::default();
        let ebadf = -Errno::EBADF.number();
        done(call!(self.0, describe_file(fd, &raw mut file), else ebadf))?;
        file.checked()
    }
}

impl vmarea::types::Platform for Memory {
    fn zero(&self, frame: FrameId) -> Result<(), Errno> {
        done(call!(self.0, zero(number(frame)), else 0))
    }
    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
        done(call!(self.0, copy(number(to), number(from)), else 0))
    }
    fn copy_file(&self, to: FrameId, inode: u64, index: u64) -> Result<(), Errno> {
        done(call!(self.0, copy_file(number(to), inode, index), else 0))
    }
    fn free(&self, frame: FrameId) {
        call!(self.0, free(number(frame)), else ());
    }
    fn same(&self, one: FrameId, other: FrameId) -> bool {
        call!(self.0, same(number(one), number(other)), else 0) == 1
    }
    fn swap_out(&self, slot: SwapId, frame: FrameId) -> Result<(), Errno> {
        done(call!(self.0, swap_out(slot.number(), number(frame)), else 0))
    }
    fn swap_in(&self, frame: FrameId, slot: SwapId) -> Result<(), Errno> {
        done(call!(self.0, swap_in(number(frame), slot.number()), else 0))
    }
    fn swap_free(&self, slot: SwapId) {
        call!(self.0, swap_free(slot.number()), else ());
    }
    fn shared_anon(&self, inode: u64, pages: u64) -> Result<(), Errno> {
        done(call!(self.0, shared_anon(inode, pages), else 0))
    }
    fn punch_hole(&self, inode: u64, first: u64, end: u64) -> Result<(), Errno> {
        let unsupported = -Errno::EOPNOTSUPP.number();
        done(call!(self.0, punch_hole(inode, first, end), else unsupported))
    }
    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        call!(self.0, file_is_cached(inode, index), else 1) != 0
    }
    fn file_bring(&self, inode: u64, index: u64) -> Result<(), Errno> {
        done(call!(self.0, file_bring(inode, index), else 0))
    }
    fn file_unwritable(&self, inode: u64) {
        call!(self.0, file_unwritable(inode), else ());
    }
    fn file_released(&self, inode: u64) {
        call!(self.0, file_released(inode), else ());
    }
    fn file_holds(&self, inode: u64, index: u64) -> bool {
        call!(self.0, file_holds(inode, index), else 1) != 0
    }
}

/// Punches a hole into memory without bytes, where there is nothing to zero.
unsafe extern "C" fn punch_no_bytes(_: *mut c_void, _: u64, _: u64, _: u64) -> c_int {
    0
}

/// Returns the number by which C identifies a frame.
fn number(frame: FrameId) -> u64 {
    frame.index() as u64
}
