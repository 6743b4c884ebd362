//! Decodes system calls from registers, if all arguments are plain numbers.
//!
//! A call is not decoded if it has an argument that only the embedder can resolve: a file
//! descriptor, a segment, or an address in the program's memory.
//!
//! # Linux
//! `arch/x86/entry/syscalls/syscall_64.tbl`, 6.18.

use super::Syscall;
use super::madvise::Advice;
use super::mremap::MremapRequest;
use crate::types::call_flags::{
    MapFlags, MclFlags, MlockFlags, MremapFlags, Pkey, Prot, from_register,
};

/// x86-64 numbers of the calls that are decoded.
mod number {
    pub(super) const MPROTECT: u32 = 10;
    pub(super) const MUNMAP: u32 = 11;
    pub(super) const BRK: u32 = 12;
    pub(super) const MREMAP: u32 = 25;
    pub(super) const MADVISE: u32 = 28;
    pub(super) const MLOCK: u32 = 149;
    pub(super) const MUNLOCK: u32 = 150;
    pub(super) const MLOCKALL: u32 = 151;
    pub(super) const MUNLOCKALL: u32 = 152;
    pub(super) const REMAP_FILE_PAGES: u32 = 216;
    pub(super) const MLOCK2: u32 = 325;
    pub(super) const PKEY_MPROTECT: u32 = 329;
    pub(super) const PKEY_ALLOC: u32 = 330;
    pub(super) const PKEY_FREE: u32 = 331;
    pub(super) const MSEAL: u32 = 462;
}

/// Returns the call with the x86-64 number `nr`, decoded from its arguments.
///
/// Returns `None` if the registers do not completely determine the call, or if the call does not
/// change an address space.
///
/// ```
/// use vmarea::syscall::{Syscall, registers};
///
/// let munmap = registers::syscall(11, [0x1000, 0x2000, 0, 0, 0, 0]);
/// assert_eq!(munmap, Some(Syscall::Munmap { addr: 0x1000, len: 0x2000 }));
/// assert_eq!(registers::syscall(9, [0; 6]), None, "mmap may name a file");
/// ```
pub fn syscall(nr: u32, args: [u64; 6]) -> Option<Syscall> {
    let [addr, len, c, d, e, _] = args;
    let mprotect = |pkey| Syscall::Mprotect {
        addr,
        len,
        prot: Prot::from_bits_retain(from_register(c)),
        pkey,
    };
    let mlock = |flags| Syscall::Mlock {
        addr,
        len,
        flags: MlockFlags::from_bits_retain(flags),
    };
    Some(match nr {
        number::BRK => Syscall::Brk { addr },
        number::MADVISE => Syscall::Madvise {
            addr,
            len,
            advice: Advice::from_number(c as i32),
        },
        number::MLOCK => mlock(0),
        number::MLOCK2 => mlock(c as u32), // an `int`
        number::MLOCKALL => Syscall::Mlockall {
            flags: MclFlags::from_bits_retain(addr as u32),
        },
        number::MPROTECT => mprotect(None),
        number::PKEY_MPROTECT => mprotect(Pkey::from_argument(d as i32)),
        number::MREMAP => Syscall::Mremap(MremapRequest {
            addr,
            old_len: len,
            new_len: c,
            flags: MremapFlags::from_bits_retain(from_register(d)),
            new_addr: e,
            ..MremapRequest::default()
        }),
        number::MSEAL => Syscall::Mseal {
            addr,
            len,
            flags: c,
        },
        number::MUNLOCK => Syscall::Munlock { addr, len },
        number::MUNLOCKALL => Syscall::Munlockall,
        number::MUNMAP => Syscall::Munmap { addr, len },
        number::PKEY_ALLOC => Syscall::PkeyAlloc {
            flags: addr,
            denied: len,
        },
        number::PKEY_FREE => Syscall::PkeyFree {
            pkey: Pkey(addr as i32),
        },
        number::REMAP_FILE_PAGES => Syscall::RemapFilePages {
            addr,
            len,
            prot: Prot::from_bits_retain(from_register(c)),
            pgoff: d,
            flags: MapFlags::from_bits_retain(e as u32),
        },
        _ => return None,
    })
}
