//! Names of flags, modes and errors in system call arguments, for `dump` and the importers.
//!
//! A [`Names`] describes one argument: an enumerated value in the bits of a mask, flags in the
//! other bits, or both. Bits without a name are shown in hexadecimal, so no bit is hidden.
//!
//! # Linux
//! include/uapi of 6.18 for x86-64.

use std::fmt;

/// Names of the values and flags of one argument.
#[derive(Debug)]
pub struct Names {
    /// Mask of the bits that encode the enumerated value; 0 if there is none.
    mask: u64,
    /// Enumerated values; one of them applies.
    choices: &'static [(u64, &'static str)],
    /// Flags. A flag that includes another flag's bits comes before that flag.
    bits: &'static [(u64, &'static str)],
}

impl Names {
    /// Returns `value` as names joined by `|`.
    pub fn show(&'static self, value: u64) -> Shown {
        Shown { names: self, value }
    }

    /// Returns the value of a name, which may lack its prefix (`READ` for `PROT_READ`).
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        let without = |known: &str| {
            let prefix = known.strip_suffix(name);
            prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('_'))
        };
        let mut known = self.choices.iter().chain(self.bits).copied();
        let found = known.find(|(_, known)| without(known));
        found.map(|(value, _)| value)
    }

    /// Returns the value of a name, if this set contains it.
    fn value(&self, name: &str) -> Option<u64> {
        let known = self.choices.iter().chain(self.bits);
        known.copied().find(|(_, n)| *n == name).map(|(v, _)| v)
    }
}

/// A value with its names, ready to be printed.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    names: &'static Names,
    value: u64,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.value;
        let mut bar = "";
        let choice = left & self.names.mask;
        if let Some((value, name)) = self.names.choices.iter().find(|(v, _)| *v == choice) {
            // A choice of 0 is shown only if nothing else is.
            if *value != 0 || left == 0 {
                f.write_str(name)?;
                bar = "|";
            }
            left &= !self.names.mask;
        }
        for (bit, name) in self.names.bits {
            if left & bit == *bit {
                write!(f, "{bar}{name}")?;
                bar = "|";
                left &= !bit;
            }
        }
        match (left, bar) {
            (0, "") => f.write_str("0"),
            (0, _) => Ok(()),
            (left, bar) => write!(f, "{bar}{left:#x}"),
        }
    }
}

/// Returns the names of an argument that is an enumerated value.
const fn choices(choices: &'static [(u64, &'static str)]) -> Names {
    Names {
        mask: u64::MAX,
        choices,
        bits: &[],
    }
}

/// Returns the names of a bit mask; `zero` names the value 0.
const fn bits(zero: &'static [(u64, &'static str)], bits: &'static [(u64, &'static str)]) -> Names {
    Names {
        mask: 0,
        choices: zero,
        bits,
    }
}

/// Protection argument of `mmap`, `mprotect`, `pkey_mprotect`.
pub const PROT: Names = bits(
    &[(0, "PROT_NONE")],
    &[
        (1, "PROT_READ"),
        (2, "PROT_WRITE"),
        (4, "PROT_EXEC"),
        (8, "PROT_SEM"),
        (0x0100_0000, "PROT_GROWSDOWN"),
        (0x0200_0000, "PROT_GROWSUP"),
    ],
);

/// Flags of `mmap`; the size of huge pages in the high bits is shown as a number.
pub const MAP: Names = Names {
    mask: 0xf,
    choices: &[
        (0, "MAP_FILE"),
        (1, "MAP_SHARED"),
        (2, "MAP_PRIVATE"),
        (3, "MAP_SHARED_VALIDATE"),
        (8, "MAP_DROPPABLE"),
    ],
    bits: &[
        (0x10, "MAP_FIXED"),
        (0x20, "MAP_ANONYMOUS"),
        (0x40, "MAP_32BIT"),
        (0x80, "MAP_ABOVE4G"),
        (0x100, "MAP_GROWSDOWN"),
        (0x800, "MAP_DENYWRITE"),
        (0x1000, "MAP_EXECUTABLE"),
        (0x2000, "MAP_LOCKED"),
        (0x4000, "MAP_NORESERVE"),
        (0x8000, "MAP_POPULATE"),
        (0x1_0000, "MAP_NONBLOCK"),
        (0x2_0000, "MAP_STACK"),
        (0x4_0000, "MAP_HUGETLB"),
        (0x8_0000, "MAP_SYNC"),
        (0x10_0000, "MAP_FIXED_NOREPLACE"),
    ],
};

/// Flags of `mremap`.
pub const MREMAP: Names = bits(
    &[],
    &[
        (1, "MREMAP_MAYMOVE"),
        (2, "MREMAP_FIXED"),
        (4, "MREMAP_DONTUNMAP"),
    ],
);

/// Advice argument of `madvise` and `process_madvise`.
pub const MADV: Names = choices(&[
    (0, "MADV_NORMAL"),
    (1, "MADV_RANDOM"),
    (2, "MADV_SEQUENTIAL"),
    (3, "MADV_WILLNEED"),
    (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"),
    (9, "MADV_REMOVE"),
    (10, "MADV_DONTFORK"),
    (11, "MADV_DOFORK"),
    (12, "MADV_MERGEABLE"),
    (13, "MADV_UNMERGEABLE"),
    (14, "MADV_HUGEPAGE"),
    (15, "MADV_NOHUGEPAGE"),
    (16, "MADV_DONTDUMP"),
    (17, "MADV_DODUMP"),
    (18, "MADV_WIPEONFORK"),
    (19, "MADV_KEEPONFORK"),
    (20, "MADV_COLD"),
    (21, "MADV_PAGEOUT"),
    (22, "MADV_POPULATE_READ"),
    (23, "MADV_POPULATE_WRITE"),
    (24, "MADV_DONTNEED_LOCKED"),
    (25, "MADV_COLLAPSE"),
    (100, "MADV_HWPOISON"),
    (101, "MADV_SOFT_OFFLINE"),
    (102, "MADV_GUARD_INSTALL"),
    (103, "MADV_GUARD_REMOVE"),
]);

/// Flags of `mlockall`.
pub const MCL: Names = bits(
    &[],
    &[(1, "MCL_CURRENT"), (2, "MCL_FUTURE"), (4, "MCL_ONFAULT")],
);

/// Flags of `mlock2`.
pub const MLOCK: Names = bits(&[], &[(1, "MLOCK_ONFAULT")]);

/// Flags of `msync`.
pub const MS: Names = bits(
    &[],
    &[(1, "MS_ASYNC"), (2, "MS_INVALIDATE"), (4, "MS_SYNC")],
);

/// Flags of `shmat`.
pub const SHM: Names = bits(
    &[],
    &[
        (0o10000, "SHM_RDONLY"),
        (0o20000, "SHM_RND"),
        (0o40000, "SHM_REMAP"),
        (0o100000, "SHM_EXEC"),
    ],
);

/// Mode of `mbind` and `set_mempolicy`, with its flags.
pub const MPOL: Names = Names {
    mask: 0x1fff,
    choices: &[
        (0, "MPOL_DEFAULT"),
        (1, "MPOL_PREFERRED"),
        (2, "MPOL_BIND"),
        (3, "MPOL_INTERLEAVE"),
        (4, "MPOL_LOCAL"),
        (5, "MPOL_PREFERRED_MANY"),
        (6, "MPOL_WEIGHTED_INTERLEAVE"),
    ],
    bits: &[
        (1 << 13, "MPOL_F_NUMA_BALANCING"),
        (1 << 14, "MPOL_F_RELATIVE_NODES"),
        (1 << 15, "MPOL_F_STATIC_NODES"),
    ],
};

/// Last argument of `mbind`.
pub const MPOL_MF: Names = bits(
    &[],
    &[
        (1, "MPOL_MF_STRICT"),
        (2, "MPOL_MF_MOVE"),
        (4, "MPOL_MF_MOVE_ALL"),
    ],
);

/// First argument of `prctl`, for the options that concern memory.
pub const PR: Names = choices(&[
    (35, "PR_SET_MM"),
    (41, "PR_SET_THP_DISABLE"),
    (42, "PR_GET_THP_DISABLE"),
    (65, "PR_SET_MDWE"),
    (66, "PR_GET_MDWE"),
    (67, "PR_SET_MEMORY_MERGE"),
    (68, "PR_GET_MEMORY_MERGE"),
    (0x5356_4d41, "PR_SET_VMA"),
]);

/// Second argument of `prctl(PR_SET_MM)`.
pub const PR_SET_MM: Names = choices(&[
    (1, "PR_SET_MM_START_CODE"),
    (2, "PR_SET_MM_END_CODE"),
    (3, "PR_SET_MM_START_DATA"),
    (4, "PR_SET_MM_END_DATA"),
    (5, "PR_SET_MM_START_STACK"),
    (6, "PR_SET_MM_START_BRK"),
    (7, "PR_SET_MM_BRK"),
    (8, "PR_SET_MM_ARG_START"),
    (9, "PR_SET_MM_ARG_END"),
    (10, "PR_SET_MM_ENV_START"),
    (11, "PR_SET_MM_ENV_END"),
    (12, "PR_SET_MM_AUXV"),
    (13, "PR_SET_MM_EXE_FILE"),
    (14, "PR_SET_MM_MAP"),
    (15, "PR_SET_MM_MAP_SIZE"),
]);

/// Second argument of `prctl(PR_SET_VMA)`.
pub const PR_SET_VMA: Names = choices(&[(0, "PR_SET_VMA_ANON_NAME")]);

/// Resource argument of `setrlimit` and `prlimit64`.
pub const RLIMIT: Names = choices(&[
    (0, "RLIMIT_CPU"),
    (1, "RLIMIT_FSIZE"),
    (2, "RLIMIT_DATA"),
    (3, "RLIMIT_STACK"),
    (4, "RLIMIT_CORE"),
    (5, "RLIMIT_RSS"),
    (6, "RLIMIT_NPROC"),
    (7, "RLIMIT_NOFILE"),
    (8, "RLIMIT_MEMLOCK"),
    (9, "RLIMIT_AS"),
    (10, "RLIMIT_LOCKS"),
    (11, "RLIMIT_SIGPENDING"),
    (12, "RLIMIT_MSGQUEUE"),
    (13, "RLIMIT_NICE"),
    (14, "RLIMIT_RTPRIO"),
    (15, "RLIMIT_RTTIME"),
]);

/// Flags of `clone`, with the exit signal in the low byte.
pub const CLONE: Names = Names {
    mask: 0xff,
    choices: &[(0, "0"), (17, "SIGCHLD"), (0x80, "CLONE_NEWTIME")],
    bits: &[
        (0x100, "CLONE_VM"),
        (0x200, "CLONE_FS"),
        (0x400, "CLONE_FILES"),
        (0x800, "CLONE_SIGHAND"),
        (0x1000, "CLONE_PIDFD"),
        (0x2000, "CLONE_PTRACE"),
        (0x4000, "CLONE_VFORK"),
        (0x8000, "CLONE_PARENT"),
        (0x1_0000, "CLONE_THREAD"),
        (0x2_0000, "CLONE_NEWNS"),
        (0x4_0000, "CLONE_SYSVSEM"),
        (0x8_0000, "CLONE_SETTLS"),
        (0x10_0000, "CLONE_PARENT_SETTID"),
        (0x20_0000, "CLONE_CHILD_CLEARTID"),
        (0x40_0000, "CLONE_DETACHED"),
        (0x80_0000, "CLONE_UNTRACED"),
        (0x100_0000, "CLONE_CHILD_SETTID"),
        (0x200_0000, "CLONE_NEWCGROUP"),
        (0x400_0000, "CLONE_NEWUTS"),
        (0x800_0000, "CLONE_NEWIPC"),
        (0x1000_0000, "CLONE_NEWUSER"),
        (0x2000_0000, "CLONE_NEWPID"),
        (0x4000_0000, "CLONE_NEWNET"),
        (0x8000_0000, "CLONE_IO"),
        (0x1_0000_0000, "CLONE_CLEAR_SIGHAND"),
        (0x2_0000_0000, "CLONE_INTO_CGROUP"),
    ],
};

/// Flags of `open`, some of which `dup3` and `userfaultfd` accept, too.
pub const OPEN: Names = Names {
    mask: 3,
    choices: &[(0, "O_RDONLY"), (1, "O_WRONLY"), (2, "O_RDWR")],
    bits: &[
        (0o100, "O_CREAT"),
        (0o200, "O_EXCL"),
        (0o400, "O_NOCTTY"),
        (0o1000, "O_TRUNC"),
        (0o2000, "O_APPEND"),
        (0o4000, "O_NONBLOCK"),
        (0o4010000, "O_SYNC"),
        (0o10000, "O_DSYNC"),
        (0o40000, "O_DIRECT"),
        (0o20200000, "O_TMPFILE"),
        (0o200000, "O_DIRECTORY"),
        (0o400000, "O_NOFOLLOW"),
        (0o1000000, "O_NOATIME"),
        (0o2000000, "O_CLOEXEC"),
        (0o10000000, "O_PATH"),
    ],
};

/// Flags of `memfd_create`.
pub const MFD: Names = bits(
    &[],
    &[
        (1, "MFD_CLOEXEC"),
        (2, "MFD_ALLOW_SEALING"),
        (4, "MFD_HUGETLB"),
        (8, "MFD_NOEXEC_SEAL"),
        (16, "MFD_EXEC"),
    ],
);

/// Operations of `fcntl` that create descriptors.
pub const FCNTL: Names = choices(&[(0, "F_DUPFD"), (1030, "F_DUPFD_CLOEXEC")]);

/// Constants that other tools print as complete arguments.
const ALONE: Names = choices(&[
    (0, "NULL"),
    (u64::MAX, "RLIM64_INFINITY"),
    (u64::MAX, "RLIM_INFINITY"),
    (26, "MAP_HUGE_SHIFT"),
]);

/// All sets of names. A name has the same value in every set that contains it.
static ALL: &[&Names] = &[
    &PROT,
    &MAP,
    &MREMAP,
    &MADV,
    &MCL,
    &MLOCK,
    &MS,
    &SHM,
    &MPOL,
    &MPOL_MF,
    &PR,
    &PR_SET_MM,
    &PR_SET_VMA,
    &RLIMIT,
    &CLONE,
    &OPEN,
    &MFD,
    &FCNTL,
    &ALONE,
];

/// Returns the value of a name in any set.
pub fn value(name: &str) -> Option<u64> {
    ALL.iter().find_map(|names| names.value(name))
}

/// Names of the errors, starting at error number 1; two numbers are unused.
#[rustfmt::skip]
static ERRNO: [&str; 133] = [
    "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD",
    "EAGAIN", "ENOMEM", "EACCES", "EFAULT", "ENOTBLK", "EBUSY", "EEXIST", "EXDEV", "ENODEV",
    "ENOTDIR", "EISDIR", "EINVAL", "ENFILE", "EMFILE", "ENOTTY", "ETXTBSY", "EFBIG", "ENOSPC",
    "ESPIPE", "EROFS", "EMLINK", "EPIPE", "EDOM", "ERANGE", "EDEADLK", "ENAMETOOLONG", "ENOLCK",
    "ENOSYS", "ENOTEMPTY", "ELOOP", "", "ENOMSG", "EIDRM", "ECHRNG", "EL2NSYNC", "EL3HLT",
    "EL3RST", "ELNRNG", "EUNATCH", "ENOCSI", "EL2HLT", "EBADE", "EBADR", "EXFULL", "ENOANO",
    "EBADRQC", "EBADSLT", "", "EBFONT", "ENOSTR", "ENODATA", "ETIME", "ENOSR", "ENONET", "ENOPKG",
    "EREMOTE", "ENOLINK", "EADV", "ESRMNT", "ECOMM", "EPROTO", "EMULTIHOP", "EDOTDOT", "EBADMSG",
    "EOVERFLOW", "ENOTUNIQ", "EBADFD", "EREMCHG", "ELIBACC", "ELIBBAD", "ELIBSCN", "ELIBMAX",
    "ELIBEXEC", "EILSEQ", "ERESTART", "ESTRPIPE", "EUSERS", "ENOTSOCK", "EDESTADDRREQ",
    "EMSGSIZE", "EPROTOTYPE", "ENOPROTOOPT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EOPNOTSUPP",
    "EPFNOSUPPORT", "EAFNOSUPPORT", "EADDRINUSE", "EADDRNOTAVAIL", "ENETDOWN", "ENETUNREACH",
    "ENETRESET", "ECONNABORTED", "ECONNRESET", "ENOBUFS", "EISCONN", "ENOTCONN", "ESHUTDOWN",
    "ETOOMANYREFS", "ETIMEDOUT", "ECONNREFUSED", "EHOSTDOWN", "EHOSTUNREACH", "EALREADY",
    "EINPROGRESS", "ESTALE", "EUCLEAN", "ENOTNAM", "ENAVAIL", "EISNAM", "EREMOTEIO", "EDQUOT",
    "ENOMEDIUM", "EMEDIUMTYPE", "ECANCELED", "ENOKEY", "EKEYEXPIRED", "EKEYREVOKED",
    "EKEYREJECTED", "EOWNERDEAD", "ENOTRECOVERABLE", "ERFKILL", "EHWPOISON",
];

/// Returns the name of an error number, such as `ENOMEM`.
pub fn errno_name(errno: i64) -> Option<&'static str> {
    let place = usize::try_from(errno).ok()?.checked_sub(1)?;
    ERRNO.get(place).copied().filter(|name| !name.is_empty())
}

/// Returns the error number for a name such as `ENOMEM`.
pub fn errno(name: &str) -> Option<i64> {
    if name.is_empty() {
        return None;
    }
    let place = ERRNO.iter().position(|n| *n == name)?;
    Some(place as i64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_by_name_and_the_rest_as_a_number() {
        assert_eq!(PROT.show(0).to_string(), "PROT_NONE");
        assert_eq!(PROT.show(3).to_string(), "PROT_READ|PROT_WRITE");
        assert_eq!(MAP.show(0x22).to_string(), "MAP_PRIVATE|MAP_ANONYMOUS");
        assert_eq!(MAP.show(0x20).to_string(), "MAP_ANONYMOUS");
        assert_eq!(
            MAP.show(21 << 26 | 0x4_0021).to_string(),
            "MAP_SHARED|MAP_ANONYMOUS|MAP_HUGETLB|0x54000000"
        );
        assert_eq!(MAP.show(0xf).to_string(), "0xf");
        assert_eq!(MADV.show(4).to_string(), "MADV_DONTNEED");
        assert_eq!(MADV.show(77).to_string(), "0x4d");
        assert_eq!(MREMAP.show(0).to_string(), "0");
        assert_eq!(MPOL.show(1 << 15).to_string(), "MPOL_F_STATIC_NODES");
        assert_eq!(CLONE.show(17).to_string(), "SIGCHLD");
        assert_eq!(OPEN.show(0o2000002).to_string(), "O_RDWR|O_CLOEXEC");
    }

    #[test]
    fn every_name_has_one_value() {
        for names in ALL {
            for (number, name) in names.choices.iter().chain(names.bits) {
                if *name != "0" {
                    assert_eq!(value(name), Some(*number), "{name}");
                }
            }
        }
        for (place, name) in ERRNO.iter().enumerate() {
            let number = place as i64 + 1;
            assert_eq!(
                errno_name(number).and_then(errno),
                (!name.is_empty()).then_some(number)
            );
        }
        assert_eq!(
            (errno_name(0), errno_name(134), errno("")),
            (None, None, None)
        );
        assert_eq!((errno("EHWPOISON"), errno("ENOMEM")), (Some(133), Some(12)));
    }
}
