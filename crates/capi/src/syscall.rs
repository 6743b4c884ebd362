//! System calls by number, with the arguments as they are in the registers.

use crate::boundary::register;
use crate::space::{Core, SpaceHandle, address_space};
use core::ffi::c_int;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::{Syscall, registers};
use vmarea::types::call_flags::{MapFlags, Prot, from_register};
use vmarea::types::prctl::PrctlOption;
use vmarea::types::{Errno, MmId, PAGE_MASK};

const MMAP: u32 = 9;
const BRK: u32 = 12;
const PERSONALITY: u32 = 135;
const PRCTL: u32 = 157;

/// Makes a system call of x86-64 and returns what the kernel returns: a value or a negative errno.
///
/// Supports mmap, munmap, mprotect, pkey_mprotect, mremap, brk, madvise, mlock, mlock2, munlock,
/// mlockall, munlockall, mseal, remap_file_pages, pkey_alloc, pkey_free, personality and the
/// options of prctl that concern memory. To map a file, mmap calls `describe_file`.
///
/// Errors: those of the system call; -ESRCH; -ENOSYS for other numbers, and for calls whose
/// arguments are in the program's memory (mbind, process_madvise) or name a segment (shmat).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_syscall(
    space: *const SpaceHandle,
    mm: u64,
    number: u64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
) -> i64 {
    // SAFETY: as the header demands.
    let found = unsafe { address_space(space, mm) };
    register(found.and_then(|(space, mm)| perform(space, mm, number, [a, b, c, d, e, f])))
}

fn perform(space: &Core, mm: MmId, number: u64, args: [u64; 6]) -> Result<u64, Errno> {
    let [a, b, c, d, e, _] = args;
    let call = match u32::try_from(number).map_err(|_| Errno::ENOSYS)? {
        MMAP => Syscall::Mmap(mmap(space, args)?),
        // Linux's `brk` returns no error: it returns the break that is in effect.
        BRK => return space.brk(mm, a).or_else(|_| space.brk(mm, 0)),
        PERSONALITY => Syscall::Personality { bits: a as u32 },
        PRCTL => Syscall::Prctl {
            option: PrctlOption(u64::from(a as u32)),
            args: [b, c, d, e],
        },
        number => registers::syscall(number, args).ok_or(Errno::ENOSYS)?,
    };
    space.syscall(mm, &call)
}

fn mmap(space: &Core, args: [u64; 6]) -> Result<MmapRequest, Errno> {
    let [addr, len, prot, flags, fd, offset] = args;
    if offset & !PAGE_MASK != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = MapFlags::from_bits_retain(from_register(flags));
    let file = match flags.contains(MapFlags::ANONYMOUS) {
        // There is no pool of huge pages.
        true if flags.contains(MapFlags::HUGETLB) => return Err(Errno::ENOMEM),
        true => None,
        false => Some(space.platform().describe_file(fd as c_int)?),
    };
    Ok(MmapRequest {
        addr,
        len,
        prot: Prot::from_bits_retain(from_register(prot)),
        flags,
        file,
        offset,
        ..MmapRequest::default()
    })
}
