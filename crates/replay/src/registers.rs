//! Decodes calls whose arguments are all numbers from their registers.

use vmarea::syscall::Syscall;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{
    MapFlags, MclFlags, MlockFlags, MremapFlags, Pkey, Prot, from_register,
};
use vmarea_trace::sysno;

/// Returns the call with x86-64 number `nr`.
///
/// Returns `None` if the registers alone do not determine the call, or if the call does not change
/// an address space.
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
        sysno::BRK => Syscall::Brk { addr },
        sysno::MADVISE => Syscall::Madvise {
            addr,
            len,
            advice: Advice::from_number(c as i32),
        },
        sysno::MLOCK => mlock(0),
        sysno::MLOCK2 => mlock(c as u32), // an `int`
        sysno::MLOCKALL => Syscall::Mlockall {
            flags: MclFlags::from_bits_retain(addr as u32),
        },
        sysno::MPROTECT => mprotect(None),
        sysno::PKEY_MPROTECT => mprotect(Pkey::from_argument(d as i32)),
        sysno::MREMAP => Syscall::Mremap(MremapRequest {
            addr,
            old_len: len,
            new_len: c,
            flags: MremapFlags::from_bits_retain(from_register(d)),
            new_addr: e,
            ..MremapRequest::default()
        }),
        sysno::MSEAL => Syscall::Mseal {
            addr,
            len,
            flags: c,
        },
        sysno::MUNLOCK => Syscall::Munlock { addr, len },
        sysno::MUNLOCKALL => Syscall::Munlockall,
        sysno::MUNMAP => Syscall::Munmap { addr, len },
        sysno::PKEY_ALLOC => Syscall::PkeyAlloc {
            flags: addr,
            denied: len,
        },
        sysno::PKEY_FREE => Syscall::PkeyFree {
            pkey: Pkey(addr as i32),
        },
        sysno::REMAP_FILE_PAGES => Syscall::RemapFilePages {
            addr,
            len,
            prot: Prot::from_bits_retain(from_register(c)),
            pgoff: d,
            flags: MapFlags::from_bits_retain(e as u32),
        },
        _ => return None,
    })
}
