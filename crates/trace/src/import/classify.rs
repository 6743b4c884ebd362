//! Decides which system calls an import converts to events, and how the calls affect tasks and
//! files.
//!
//! The decisions depend only on system call numbers, arguments and flags, so they apply to every
//! text format.

use super::state::Sharing;
use crate::event::InodeKind;
use crate::sysno;

/// Flag of a mapping without a file.
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

/// True for calls that create tasks.
pub(super) fn is_fork(nr: u32) -> bool {
    matches!(
        nr,
        sysno::CLONE | sysno::CLONE3 | sysno::FORK | sysno::VFORK
    )
}

/// True for `execve` and `execveat`.
pub(super) fn is_exec(nr: u32) -> bool {
    matches!(nr, sysno::EXECVE | sysno::EXECVEAT)
}

/// True if a `prctl` with this option can change an address space.
pub(super) fn is_option_of_memory(option: u64) -> bool {
    const SET_MM: u64 = 35;
    const SET_THP_DISABLE: u64 = 41;
    const SET_MDWE: u64 = 65;
    const SET_MEMORY_MERGE: u64 = 67;
    const SET_VMA: u64 = 0x5356_4d41;
    [SET_MM, SET_THP_DISABLE, SET_MDWE, SET_MEMORY_MERGE, SET_VMA].contains(&option)
}

/// True for a call that cannot affect memory because it only queries, or changes an unrelated
/// resource or option.
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

/// Returns the sharing between a parent and a child created by `clone` with these flags.
pub(super) fn sharing_of_flags(flags: u64) -> Sharing {
    if flags & CLONE_THREAD != 0 {
        Sharing::Thread
    } else if flags & CLONE_VM != 0 {
        Sharing::SharesMemory
    } else {
        Sharing::Copy
    }
}

/// Returns `clone` flags for a child with this sharing, for text that does not show the flags.
pub(super) fn flags_for_sharing(sharing: Sharing) -> u64 {
    match sharing {
        Sharing::Thread => CLONE_VM | CLONE_THREAD,
        Sharing::SharesMemory => CLONE_VM | CLONE_VFORK,
        Sharing::Copy => 0,
    }
}

/// Guesses the kind of a file from its path.
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
