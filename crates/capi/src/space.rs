//! Creation and destruction of spaces, and the handles that C holds.
//!
//! A handle begins with a word that marks it as a handle until the space is destroyed. A check of
//! the word rejects a pointer to something else, and some pointers to destroyed spaces. It cannot
//! reject all of the latter, so callers must not pass them.

use crate::boundary::{copy_text, place, places, required, sized, status, text};
use crate::mmu::Tables;
use crate::options::{Options, System};
use crate::platform::Memory;
use alloc::boxed::Box;
use alloc::string::String;
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vmarea::policy::Policy;
use vmarea::syscall::file_change::Copies;
use vmarea::types::platform::Environment;
use vmarea::types::{Errno, MmId};
use vmarea::vma::lock::VmaLock;

/// The types that the core uses for an embedder in C.
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl Environment for Embedded {
    type VmaLock = VmaLock;
    type Platform = Memory;
    type Mmu = Tables;
    type Wait = Waits;
    type Writers = vmarea::types::writers::OneWriter;
}

/// Waits for a lock by polling, and lets other threads run if there is a scheduler.
#[derive(Debug)]
pub struct Waits;

impl vmarea::types::platform::Wait for Waits {
    const SLEEPS: bool = false;

    fn wait(_: usize, until: &mut dyn FnMut() -> bool) {
        while !until() {
            #[cfg(feature = "std")]
            std::thread::yield_now();
            #[cfg(not(feature = "std"))]
            core::hint::spin_loop();
        }
    }

    fn wake(_: usize) {}
}

/// The core's machine.
pub type Core = vmarea::Space<Embedded>;

/// First word of the handle of a space that exists.
const HANDLE: u64 = u64::from_ne_bytes(*b"vmarea:0");

/// A machine: a set of address spaces that are forked from each other and share pages.
#[derive(Debug)]
#[repr(C)]
pub struct SpaceHandle {
    /// [`HANDLE`] until the space is destroyed.
    handle: AtomicU64,
    /// Number of address spaces.
    pub(crate) mms: AtomicUsize,
    pub(crate) core: Core,
}

/// Returns the space behind a handle.
///
/// # Errors
/// EFAULT for NULL and a misaligned pointer, EBADF if it is not a handle.
///
/// # Safety
/// The pointer is NULL, misaligned, or leads to a space that is not destroyed during `'a`.
pub unsafe fn handle<'a>(space: *const SpaceHandle) -> Result<&'a SpaceHandle, Errno> {
    if space.is_null() || !space.is_aligned() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller's promise; of something that is not a space, only this word is read.
    let word = unsafe { &(*space).handle };
    // ORDERING: Relaxed; the program orders the creation of a space before all other uses.
    if word.load(Ordering::Relaxed) != HANDLE {
        return Err(Errno::EBADF);
    }
    // SAFETY: the caller's promise.
    unsafe { required(space) }
}

/// Returns the core behind a handle, and the id of an address space.
///
/// # Errors
/// As [`handle`]; ESRCH for 0, which is no address space.
///
/// # Safety
/// As for [`handle`].
pub unsafe fn address_space<'a>(
    space: *const SpaceHandle,
    mm: u64,
) -> Result<(&'a Core, MmId), Errno> {
    // SAFETY: the caller's promise.
    let space = unsafe { handle(space) }?;
    Ok((&space.core, MmId::from_bits(mm).ok_or(Errno::ESRCH)?))
}

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn vmarea_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Sets Linux's defaults for an x86-64 machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_system_init(system: *mut System) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { place(system) }.map(|system| {
        system.write(vmarea::System::default().into());
        0
    }))
}

/// Creates a space and stores its handle in `*space`. The structures are copied. The callbacks and
/// their contexts are used until the space is destroyed.
///
/// Errors: -EINVAL for a wrong policy, value or structure size, explained in `options->message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_space_create(
    options: *const Options,
    space: *mut *mut SpaceHandle,
) -> c_int {
    // SAFETY: `space` is as the header demands.
    status(unsafe { place(space) }.and_then(|place| {
        place.write(core::ptr::null_mut());
        // If the size is wrong, the position of the message buffer is not known.
        // SAFETY: so is `options`.
        let options = unsafe { sized(options) }?.ok_or(Errno::EFAULT)?;
        // SAFETY: `options` is as the header demands.
        match unsafe { create(options) } {
            Ok(space) => {
                place.write(Box::into_raw(space));
                Ok(0)
            }
            Err((errno, message)) => {
                // SAFETY: as above.
                copy_text(&message, unsafe {
                    places(options.message, options.message_size)
                }?);
                Err(errno)
            }
        }
    }))
}

/// Creates a space.
///
/// # Safety
/// The pointers in the options are as the header demands.
unsafe fn create(options: &Options) -> Result<Box<SpaceHandle>, (Errno, String)> {
    // SAFETY: the caller's promise.
    let checked = unsafe { options.checked() }?;
    // SAFETY: as above.
    let policy = unsafe { text(options.policy) };
    let policy = policy.map_err(|errno| (errno, "the policy's name is not UTF-8".into()))?;
    let named = Policy::parse(policy.unwrap_or(Policy::LINUX.name));
    let policy = named.map_err(|message| (Errno::EINVAL, message))?.policy;
    let mut core = Core::with_mmu(policy, checked.system, checked.memory, checked.tables);
    if let Some(changes) = checked.changes {
        core.set_change_observer(Box::new(changes));
    }
    Ok(Box::new(SpaceHandle {
        handle: AtomicU64::new(HANDLE),
        mms: AtomicUsize::new(0),
        core,
    }))
}

/// Destroys a space that has no address spaces left. No other function may use it meanwhile or
/// later. NULL is allowed.
///
/// Errors: -EBUSY if an address space has not ended; the space then stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_space_destroy(space: *mut SpaceHandle) -> c_int {
    if space.is_null() {
        return 0;
    }
    // SAFETY: as the header demands.
    let unused = unsafe { handle(space) }.and_then(|found| {
        // ORDERING: Relaxed, here and below; no other thread uses the space any more.
        if found.mms.load(Ordering::Relaxed) != 0 {
            return Err(Errno::EBUSY);
        }
        found.handle.store(0, Ordering::Relaxed);
        Ok(0)
    });
    if unused.is_ok() {
        // SAFETY: `vmarea_space_create` made the box, the handle shows that it exists, and no
        // reference to it is left.
        drop(unsafe { Box::from_raw(space) });
    }
    status(unused)
}

/// Returns the memory of objects that are gone to the allocator: for when memory is scarce, or a
/// large process has ended. No other thread may be in a call with the space meanwhile; threads that
/// share it need a lock that each call takes for reading and this one for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_space_shrink(space: *mut SpaceHandle) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { handle(space) }.map(|_| {
        // SAFETY: the handle shows that the space exists, and no other thread uses it.
        unsafe { &mut *space }.core.shrink();
        0
    }))
}

/// Checks every invariant of a space that no other thread uses. If an invariant does not hold,
/// describes it in `message`, which has `size` bytes, and returns -EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_validate(
    space: *const SpaceHandle,
    message: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { handle(space) }.and_then(|space| {
        // SAFETY: as above.
        let message = unsafe { places(message, size) }?;
        space.core.validate_all().map_err(|violation| {
            copy_text(&violation.0, message);
            Errno::EIO
        })?;
        Ok(0)
    }))
}

/// Removes pages `first` up to `end` of a file from all mappings. `private_copies` is 1 if the file
/// was truncated (private copies are removed, too), and 0 if a hole was punched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_unmap_mapping(
    space: *const SpaceHandle,
    inode: u64,
    first: u64,
    end: u64,
    private_copies: c_int,
) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { handle(space) }.map(|space| {
        let copies = match private_copies {
            0 => Copies::Stay,
            _ => Copies::Go,
        };
        space.core.unmap_mapping(inode, first, end, copies);
        0
    }))
}

/// How many mappings a file has, in all address spaces.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct FileCounts {
    /// Number of mappings.
    pub all: u32,
    /// Number of shared mappings of the file when it was opened for writing, whatever their
    /// protection is.
    pub writable: u32,
}

/// Takes a reference to a file, so that `file_released` does not run before vmarea_file_put.
///
/// Errors: -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_file_get(space: *const SpaceHandle, inode: u64) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { handle(space) }.and_then(|space| space.core.file_get(inode).map(|()| 0)))
}

/// Returns a reference to a file. If nothing else uses the file, `file_released` runs.
///
/// Errors: -EINVAL if vmarea_file_get has not taken the reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_file_put(space: *const SpaceHandle, inode: u64) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { handle(space) }.and_then(|space| space.core.file_put(inode).map(|()| 0)))
}

/// Returns 1 if a mapping, a call that is about to map the file, or a reference uses the file, and
/// otherwise 0. `file_released` can run late. Therefore a thread that adds a file to a table takes a
/// reference first, and `file_released` locks the table and removes the file only if this returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_file_is_used(space: *const SpaceHandle, inode: u64) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { handle(space) }.map(|space| space.core.file_is_used(inode).into()))
}

/// Counts the mappings of a file. A call that maps the file counts as a mapping while it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_file_mappings(
    space: *const SpaceHandle,
    inode: u64,
    mappings: *mut FileCounts,
) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { handle(space) }.and_then(|space| {
        // SAFETY: as above.
        let place = unsafe { place(mappings) }?;
        let counted = space.core.file_mappings(inode);
        place.write(FileCounts {
            all: counted.all,
            writable: counted.writable,
        });
        Ok(0)
    }))
}
