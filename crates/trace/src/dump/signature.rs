//! Signatures of system calls: the number of arguments and the kind of each.
//!
//! `names` supplies the names of flags. A call that is missing here is shown with six unnamed
//! numbers.

use crate::names::{
    CLONE, FCNTL, MADV, MAP, MCL, MFD, MLOCK, MPOL, MPOL_MF, MREMAP, MS, Names, OPEN, PR, PROT,
    RLIMIT, SHM,
};
use crate::sysno;

/// Kind of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// An address; 0 is `NULL`.
    Address,
    /// A length, an offset or a count.
    Number,
    /// A descriptor, an id or another C `int`.
    Int,
    /// Flags without names.
    Bits,
    /// Flags or an enumerated value, with names.
    Named(&'static Names),
}

use Arg::{Address, Bits, Int, Named, Number};

/// A system call number, and the kinds of the arguments of that call.
type Signature = (u32, &'static [Arg]);

/// The calls with a known signature.
const SIGNATURES: &[Signature] = &[
    (sysno::READ, &[Int, Address, Number, Number]),
    (sysno::PREAD64, &[Int, Address, Number, Number]),
    (sysno::READV, &[Int, Address, Int, Number]),
    (sysno::PREADV, &[Int, Address, Int, Number]),
    (sysno::PREADV2, &[Int, Address, Int, Number]),
    (sysno::OPEN, &[Address, Named(&OPEN), Bits]),
    (sysno::OPENAT, &[Int, Address, Named(&OPEN), Bits]),
    (sysno::CLOSE, &[Int]),
    (
        sysno::MMAP,
        &[Address, Number, Named(&PROT), Named(&MAP), Int, Number],
    ),
    (sysno::MPROTECT, &[Address, Number, Named(&PROT)]),
    (sysno::PKEY_MPROTECT, &[Address, Number, Named(&PROT), Int]),
    (sysno::PKEY_ALLOC, &[Bits, Bits]),
    (sysno::MUNMAP, &[Address, Number]),
    (sysno::MLOCK, &[Address, Number]),
    (sysno::MUNLOCK, &[Address, Number]),
    (sysno::BRK, &[Address]),
    (sysno::SHMDT, &[Address]),
    (sysno::IOCTL, &[Int, Bits, Address]),
    (
        sysno::MREMAP,
        &[Address, Number, Number, Named(&MREMAP), Address],
    ),
    (sysno::MSYNC, &[Address, Number, Named(&MS)]),
    (sysno::MADVISE, &[Address, Number, Named(&MADV)]),
    (
        sysno::PROCESS_MADVISE,
        &[Int, Address, Number, Named(&MADV), Bits],
    ),
    (sysno::SHMAT, &[Int, Address, Named(&SHM)]),
    (sysno::DUP, &[Int]),
    (sysno::PKEY_FREE, &[Int]),
    (sysno::EXIT, &[Int]),
    (sysno::EXIT_GROUP, &[Int]),
    (sysno::DUP2, &[Int, Int]),
    (sysno::DUP3, &[Int, Int, Named(&OPEN)]),
    (sysno::FCNTL, &[Int, Named(&FCNTL), Bits]),
    (
        sysno::CLONE,
        &[Named(&CLONE), Address, Address, Address, Address],
    ),
    (sysno::FORK, &[]),
    (sysno::VFORK, &[]),
    (sysno::MUNLOCKALL, &[]),
    (sysno::EXECVE, &[Address, Address, Address]),
    (sysno::EXECVEAT, &[Int, Address, Address, Address, Bits]),
    (sysno::FTRUNCATE, &[Int, Number]),
    (sysno::TRUNCATE, &[Address, Number]),
    (sysno::FALLOCATE, &[Int, Bits, Number, Number]),
    (sysno::SETUID, &[Int]),
    (sysno::SETREUID, &[Int, Int]),
    (sysno::SETRESUID, &[Int, Int, Int]),
    (sysno::UNSHARE, &[Named(&CLONE)]),
    (sysno::SETNS, &[Int, Named(&CLONE)]),
    (sysno::CAPSET, &[Address, Address]),
    (sysno::PERSONALITY, &[Bits]),
    (sysno::MLOCKALL, &[Named(&MCL)]),
    (sysno::MLOCK2, &[Address, Number, Named(&MLOCK)]),
    (sysno::PRCTL, &[Named(&PR), Bits, Bits, Bits, Bits]),
    (sysno::ARCH_PRCTL, &[Bits, Bits]),
    (sysno::SETRLIMIT, &[Named(&RLIMIT), Address]),
    (sysno::PRLIMIT64, &[Int, Named(&RLIMIT), Address, Address]),
    (sysno::IO_SETUP, &[Int, Address]),
    (sysno::IO_DESTROY, &[Address]),
    (
        sysno::REMAP_FILE_PAGES,
        &[Address, Number, Named(&PROT), Number, Named(&MAP)],
    ),
    (
        sysno::MBIND,
        &[
            Address,
            Number,
            Named(&MPOL),
            Address,
            Number,
            Named(&MPOL_MF),
        ],
    ),
    (sysno::SET_MEMPOLICY, &[Named(&MPOL), Address, Number]),
    (
        sysno::SET_MEMPOLICY_HOME_NODE,
        &[Address, Number, Int, Bits],
    ),
    (sysno::MEMFD_CREATE, &[Address, Named(&MFD)]),
    (sysno::USERFAULTFD, &[Named(&OPEN)]),
    (sysno::VMSPLICE, &[Int, Address, Number, Bits]),
    (
        sysno::PROCESS_VM_READV,
        &[Int, Address, Number, Address, Number, Bits],
    ),
    (
        sysno::PROCESS_VM_WRITEV,
        &[Int, Address, Number, Address, Number, Bits],
    ),
    (sysno::PROCESS_MRELEASE, &[Int, Bits]),
    (sysno::MAP_SHADOW_STACK, &[Address, Number, Bits]),
    (sysno::MSEAL, &[Address, Number, Bits]),
];

/// Returns the kinds of the arguments of system call `nr`, if its signature is known.
pub fn arguments(nr: u32) -> Option<&'static [Arg]> {
    let known = SIGNATURES.iter().find(|(number, _)| *number == nr);
    known.map(|(_, arguments)| *arguments)
}

/// True if the result of system call `nr` is an address.
pub fn returns_address(nr: u32) -> bool {
    matches!(
        nr,
        sysno::MMAP | sysno::MREMAP | sysno::BRK | sysno::SHMAT | sysno::MAP_SHADOW_STACK
    )
}
