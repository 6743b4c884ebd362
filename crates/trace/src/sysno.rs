//! System call numbers of x86-64 that affect an address space or name a mapped file.
//!
//! Traces contain raw numbers; this module defines their names. It omits calls that neither change
//! an address space nor affect which file a later call maps.
//!
//! # Linux
//! arch/x86/entry/syscalls/syscall_64.tbl, 6.18.

/// Defines the constants, and functions that convert a number to its name and back.
macro_rules! numbers {
    ($($(#[$doc:meta])* $constant:ident = $number:literal, $name:literal;)*) => {
        $($(#[$doc])* #[doc = concat!("`", $name, "`")] pub const $constant: u32 = $number;)*

        /// Returns the name of a system call in this module.
        pub fn name(nr: u32) -> Option<&'static str> {
            match nr {
                $($constant => Some($name),)*
                _ => None,
            }
        }

        /// Returns the number of a system call in this module.
        pub fn number(name: &str) -> Option<u32> {
            match name {
                $($name => Some($constant),)*
                _ => None,
            }
        }
    };
}

numbers! {
    READ = 0, "read";
    OPEN = 2, "open";
    CLOSE = 3, "close";
    FSTAT = 5, "fstat";
    MMAP = 9, "mmap";
    MPROTECT = 10, "mprotect";
    MUNMAP = 11, "munmap";
    BRK = 12, "brk";
    IOCTL = 16, "ioctl";
    PREAD64 = 17, "pread64";
    READV = 19, "readv";
    MREMAP = 25, "mremap";
    MSYNC = 26, "msync";
    MADVISE = 28, "madvise";
    SHMGET = 29, "shmget";
    SHMAT = 30, "shmat";
    SHMCTL = 31, "shmctl";
    DUP = 32, "dup";
    DUP2 = 33, "dup2";
    CLONE = 56, "clone";
    FORK = 57, "fork";
    VFORK = 58, "vfork";
    EXECVE = 59, "execve";
    EXIT = 60, "exit";
    SHMDT = 67, "shmdt";
    FCNTL = 72, "fcntl";
    TRUNCATE = 76, "truncate";
    FTRUNCATE = 77, "ftruncate";
    CREAT = 85, "creat";
    SETUID = 105, "setuid";
    SETREUID = 113, "setreuid";
    SETRESUID = 117, "setresuid";
    CAPSET = 126, "capset";
    PERSONALITY = 135, "personality";
    MLOCK = 149, "mlock";
    MUNLOCK = 150, "munlock";
    MLOCKALL = 151, "mlockall";
    MUNLOCKALL = 152, "munlockall";
    PRCTL = 157, "prctl";
    ARCH_PRCTL = 158, "arch_prctl";
    SETRLIMIT = 160, "setrlimit";
    IO_SETUP = 206, "io_setup";
    IO_DESTROY = 207, "io_destroy";
    IO_SUBMIT = 209, "io_submit";
    REMAP_FILE_PAGES = 216, "remap_file_pages";
    EXIT_GROUP = 231, "exit_group";
    MBIND = 237, "mbind";
    SET_MEMPOLICY = 238, "set_mempolicy";
    MIGRATE_PAGES = 256, "migrate_pages";
    OPENAT = 257, "openat";
    UNSHARE = 272, "unshare";
    VMSPLICE = 278, "vmsplice";
    MOVE_PAGES = 279, "move_pages";
    FALLOCATE = 285, "fallocate";
    DUP3 = 292, "dup3";
    PREADV = 295, "preadv";
    PRLIMIT64 = 302, "prlimit64";
    SETNS = 308, "setns";
    PROCESS_VM_READV = 310, "process_vm_readv";
    PROCESS_VM_WRITEV = 311, "process_vm_writev";
    MEMFD_CREATE = 319, "memfd_create";
    EXECVEAT = 322, "execveat";
    USERFAULTFD = 323, "userfaultfd";
    MLOCK2 = 325, "mlock2";
    PREADV2 = 327, "preadv2";
    PKEY_MPROTECT = 329, "pkey_mprotect";
    PKEY_ALLOC = 330, "pkey_alloc";
    PKEY_FREE = 331, "pkey_free";
    IO_URING_SETUP = 425, "io_uring_setup";
    IO_URING_ENTER = 426, "io_uring_enter";
    IO_URING_REGISTER = 427, "io_uring_register";
    CLONE3 = 435, "clone3";
    OPENAT2 = 437, "openat2";
    PROCESS_MADVISE = 440, "process_madvise";
    MEMFD_SECRET = 447, "memfd_secret";
    PROCESS_MRELEASE = 448, "process_mrelease";
    SET_MEMPOLICY_HOME_NODE = 450, "set_mempolicy_home_node";
    MAP_SHADOW_STACK = 453, "map_shadow_stack";
    MSEAL = 462, "mseal";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the number of each name maps back to that name.
    #[test]
    fn names_and_numbers_belong_together() {
        let mut known = 0;
        for nr in 0..1000 {
            if let Some(name) = name(nr) {
                assert_eq!(number(name), Some(nr));
                known += 1;
            }
        }
        assert!(known > 60);
        assert_eq!(name(1), None);
        assert_eq!(number("write"), None);
    }
}
