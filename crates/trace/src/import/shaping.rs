//! Which system calls an import turns into events, and what they say of tasks and files.
//!
//! The same for every text: only the numbers and flags count here.

use super::world::Kin;
use crate::event::InodeKind;
use crate::sysno;

/// Bytes are not of a file.
pub(super) const MAP_ANONYMOUS: u64 = 0x20;

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;

/// True for calls that become events.
pub(super) fn shapes_memory(nr: u32) -> bool {
    is_fork(nr)
        || matches!(
            nr,
            sysno::MMAP
                | sysno::MUNMAP
                | sysno::MPROTECT
                | sysno::PKEY_MPROTECT
                | sysno::PKEY_ALLOC
                | sysno::PKEY_FREE
                | sysno::MREMAP
                | sysno::BRK
                | sysno::MADVISE
                | sysno::PROCESS_MADVISE
                | sysno::MLOCK
                | sysno::MLOCK2
                | sysno::MUNLOCK
                | sysno::MLOCKALL
                | sysno::MUNLOCKALL
                | sysno::SHMAT
                | sysno::SHMDT
                | sysno::REMAP_FILE_PAGES
                | sysno::MBIND
                | sysno::SET_MEMPOLICY
                | sysno::MSEAL
                | sysno::MAP_SHADOW_STACK
                | sysno::PRCTL
                | sysno::PERSONALITY
                | sysno::SETRLIMIT
                | sysno::PRLIMIT64
                | sysno::EXECVE
                | sysno::EXECVEAT
        )
}

/// True for calls that make tasks.
pub(super) fn is_fork(nr: u32) -> bool {
    matches!(
        nr,
        sysno::CLONE | sysno::CLONE3 | sysno::FORK | sysno::VFORK
    )
}

/// True for `execve` and its twin.
pub(super) fn is_exec(nr: u32) -> bool {
    matches!(nr, sysno::EXECVE | sysno::EXECVEAT)
}

/// True where a `prctl` with this option can change an address space.
pub(super) fn is_option_of_memory(option: u64) -> bool {
    const SET_MM: u64 = 35;
    const SET_THP_DISABLE: u64 = 41;
    const SET_MDWE: u64 = 65;
    const SET_MEMORY_MERGE: u64 = 67;
    const SET_VMA: u64 = 0x5356_4d41;
    [SET_MM, SET_THP_DISABLE, SET_MDWE, SET_MEMORY_MERGE, SET_VMA].contains(&option)
}

/// True for calls that only read what they could set.
pub(super) fn only_asks(nr: u32, args: &[u64; 6]) -> bool {
    // RLIMIT_DATA, _STACK, _MEMLOCK, _AS
    let of_memory = |resource| matches!(resource, 2 | 3 | 8 | 9);
    match nr {
        sysno::PRLIMIT64 => args[2] == 0 || !of_memory(args[1]),
        sysno::SETRLIMIT => !of_memory(args[0]),
        sysno::PERSONALITY => args[0] == 0xffff_ffff,
        sysno::PRCTL => !is_option_of_memory(args[0]),
        _ => false,
    }
}

/// What the child of `clone` with these flags has in common with its parent.
pub(super) fn kin_of_flags(flags: u64) -> Kin {
    if flags & CLONE_THREAD != 0 {
        Kin::Thread
    } else if flags & CLONE_VM != 0 {
        Kin::SharesMemory
    } else {
        Kin::Copy
    }
}

/// Flags of a `clone` that makes such a child, where the text does not tell them.
pub(super) fn flags_of_kin(kin: Kin) -> u64 {
    match kin {
        Kin::Thread => CLONE_VM | CLONE_THREAD,
        Kin::SharesMemory => CLONE_VM | CLONE_VFORK,
        Kin::Copy => 0,
    }
}

/// What a path says of the file.
pub(super) fn kind_of_path(path: &str) -> InodeKind {
    match path {
        "/dev/zero" => InodeKind::DevZero,
        _ if path.starts_with("/SYSV") => InodeKind::SharedAnon,
        _ if path.starts_with("/dev/shm/") || path.starts_with("/memfd:") => InodeKind::Shmem,
        _ if path.starts_with("/dev/hugepages/") => InodeKind::Hugetlb,
        _ if path.starts_with("/dev/") => InodeKind::Device,
        _ => InodeKind::Regular,
    }
}
