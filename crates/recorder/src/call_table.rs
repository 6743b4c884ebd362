//! The calls at which a recording stops, and what is done at each.
//!
//! One table from which the filter is made and by which a stop is handled: what is not in it is
//! never stopped. A call has several rows where its arguments decide what it is; the first row
//! that fits counts. Absent, because no filter can tell them or nothing of an address space hangs
//! on them: writes to `/proc/PID/mem`, `io_uring_enter`, truncation of a mapped file.
//!
//! # Linux
//! Numbers of x86-64, kernel 6.18.

/// A call under a condition.
#[derive(Debug)]
pub(crate) struct Row {
    /// System call number.
    pub nr: u32,
    /// Which calls of this number: those that pass all of these.
    pub when: &'static [Test],
    /// What is to be done.
    pub role: Role,
    /// What its pointers lead to.
    pub data: Data,
}

/// A test of one argument, of which only the low 32 bits count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// `args[arg] & mask == value`.
    Masked { arg: u8, mask: u32, value: u32 },
    /// `args[arg] != value`.
    Not { arg: u8, value: u32 },
    /// `args[arg]` is one of these.
    OneOf { arg: u8, values: &'static [u32] },
}

/// How a call is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Changes the address space of the caller: calls of one address space are let in one after
    /// another.
    Shapes,
    /// Changes what later calls do (limits, policies, personality), or pages only.
    Sets,
    /// Makes a task.
    Clones,
    /// Leaves the address space for another.
    Executes,
    /// Reaches memory without a fault.
    Touches(Reach),
    /// Opens a file for direct input and output, which reaches memory without faults.
    OpensDirect,
    /// Sets a seccomp filter of the program's own.
    SetsFilter,
    /// May change the capabilities of the thread.
    SetsCapabilities,
    /// Wants to trace, which is the recorder's alone.
    Traces,
}

/// Whose memory a call reaches, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// `process_vm_readv`: reads that of another process.
    ReadsOther,
    /// `process_vm_writev`: writes that of another process.
    WritesOther,
    /// `vmsplice`: reads the caller's.
    ReadsOwn,
    /// `io_submit`: whatever its blocks say.
    Blocks,
    /// `io_uring_register` of buffers: they are pinned, for writing.
    PinsOwn,
    /// `read` and its kin from a file that bypasses the page cache.
    FromFile(Buffer),
    /// `write` and its kin to such a file.
    ToFile(Buffer),
}

/// How a call says where its memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffer {
    /// Address and length in the second and third argument.
    Plain,
    /// An array of `struct iovec` and its length there.
    Iovecs,
}

/// What the pointer arguments of a call lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    /// No pointer that matters.
    None,
    /// An array of `struct iovec`.
    Iovecs { at: u8, count: u8 },
    /// A node mask of `bits` bits and one.
    NodeMask { at: u8, bits: u8 },
    /// A `struct rlimit`.
    Limit { at: u8 },
    /// The name of `PR_SET_VMA_ANON_NAME`.
    VmaName,
    /// The structure of an `ioctl`, whose size is in the command.
    Ioctl,
    /// `struct prctl_mm_map` of `PR_SET_MM_MAP`.
    MmMap,
    /// The steps of a `struct sock_fprog`.
    Filter { at: u8 },
}

/// Numbers that libc lacks, or has in another type.
pub(crate) mod number {
    /// `map_shadow_stack`
    pub(crate) const MAP_SHADOW_STACK: i64 = 453;
    /// `PR_SET_VMA`
    pub(crate) const PR_SET_VMA: u32 = 0x5356_4d41;
    /// `PR_SET_MM`
    pub(crate) const PR_SET_MM: u32 = 35;
    /// `PR_SET_MM_MAP`
    pub(crate) const PR_SET_MM_MAP: u64 = 14;
    /// `PR_SET_THP_DISABLE`, `PR_SET_MDWE`, `PR_SET_MEMORY_MERGE`
    pub(crate) const PR_OF_THE_MM: &[u32] = &[41, 65, 67];
}

/// Requests that make a tracer.
const TRACING: &[u32] = &[
    libc::PTRACE_TRACEME,
    libc::PTRACE_ATTACH,
    libc::PTRACE_SEIZE,
];
const NEW_USER: u32 = libc::CLONE_NEWUSER as u32;
const DIRECT: u32 = libc::O_DIRECT as u32;
/// The limits that calls on address spaces ask for.
const LIMITS: &[u32] = &[
    libc::RLIMIT_DATA,
    libc::RLIMIT_STACK,
    libc::RLIMIT_MEMLOCK,
    libc::RLIMIT_AS,
];

const fn row(nr: i64, when: &'static [Test], role: Role, data: Data) -> Row {
    Row {
        nr: nr as u32,
        when,
        role,
        data,
    }
}

const fn shapes(nr: i64) -> Row {
    row(nr, &[], Role::Shapes, Data::None)
}

const fn sets(nr: i64) -> Row {
    row(nr, &[], Role::Sets, Data::None)
}

/// The user's other ids decide capabilities on files only, group ids none, and what `prctl` changes
/// (bounding and ambient set, secure bits) counts from the next `execve` or `setuid` on.
const fn capabilities(nr: i64, when: &'static [Test]) -> Row {
    row(nr, when, Role::SetsCapabilities, Data::None)
}

const fn touches(nr: i64, reach: Reach) -> Row {
    row(nr, &[], Role::Touches(reach), Data::None)
}

/// A test of a whole 32-bit argument.
const fn is(arg: u8, value: u32) -> Test {
    masked(arg, u32::MAX, value)
}

const fn masked(arg: u8, mask: u32, value: u32) -> Test {
    Test::Masked { arg, mask, value }
}

const fn not(arg: u8, value: u32) -> Test {
    Test::Not { arg, value }
}

const fn one_of(arg: u8, values: &'static [u32]) -> Test {
    Test::OneOf { arg, values }
}

/// All of it. The filter hands back the index of a row.
pub(crate) static ROWS: &[Row] = &[
    shapes(libc::SYS_mmap),
    shapes(libc::SYS_munmap),
    shapes(libc::SYS_mprotect),
    shapes(libc::SYS_pkey_mprotect),
    sets(libc::SYS_pkey_alloc),
    sets(libc::SYS_pkey_free),
    shapes(libc::SYS_mremap),
    shapes(libc::SYS_brk),
    shapes(libc::SYS_madvise),
    row(
        libc::SYS_process_madvise,
        &[],
        Role::Shapes,
        Data::Iovecs { at: 1, count: 2 },
    ),
    shapes(libc::SYS_mlock),
    shapes(libc::SYS_mlock2),
    shapes(libc::SYS_munlock),
    shapes(libc::SYS_mlockall),
    shapes(libc::SYS_munlockall),
    shapes(libc::SYS_shmat),
    shapes(libc::SYS_shmdt),
    shapes(libc::SYS_remap_file_pages),
    shapes(libc::SYS_mseal),
    shapes(number::MAP_SHADOW_STACK),
    row(
        libc::SYS_mbind,
        &[],
        Role::Shapes,
        Data::NodeMask { at: 3, bits: 4 },
    ),
    shapes(libc::SYS_set_mempolicy_home_node),
    row(
        libc::SYS_set_mempolicy,
        &[],
        Role::Sets,
        Data::NodeMask { at: 1, bits: 2 },
    ),
    sets(libc::SYS_migrate_pages),
    sets(libc::SYS_move_pages),
    row(libc::SYS_clone, &[], Role::Clones, Data::None),
    row(libc::SYS_clone3, &[], Role::Clones, Data::None),
    // Calls that only older architectures have.
    #[cfg(target_arch = "x86_64")]
    row(libc::SYS_fork, &[], Role::Clones, Data::None),
    #[cfg(target_arch = "x86_64")]
    row(libc::SYS_vfork, &[], Role::Clones, Data::None),
    row(libc::SYS_execve, &[], Role::Executes, Data::None),
    row(libc::SYS_execveat, &[], Role::Executes, Data::None),
    row(
        libc::SYS_prctl,
        &[is(0, number::PR_SET_VMA)],
        Role::Shapes,
        Data::VmaName,
    ),
    row(
        libc::SYS_prctl,
        &[is(0, number::PR_SET_MM)],
        Role::Shapes,
        Data::MmMap,
    ),
    row(
        libc::SYS_prctl,
        &[one_of(0, number::PR_OF_THE_MM)],
        Role::Shapes,
        Data::None,
    ),
    // ARCH_MAP_VDSO_X32, _32 and _64; ARCH_SHSTK_ENABLE and _DISABLE map and unmap a stack.
    #[cfg(target_arch = "x86_64")]
    row(
        libc::SYS_arch_prctl,
        &[one_of(0, &[0x2001, 0x2002, 0x2003, 0x5001, 0x5002])],
        Role::Shapes,
        Data::None,
    ),
    // 0xffffffff asks only.
    row(
        libc::SYS_personality,
        &[not(0, u32::MAX)],
        Role::Sets,
        Data::None,
    ),
    row(
        libc::SYS_setrlimit,
        &[one_of(0, LIMITS)],
        Role::Sets,
        Data::Limit { at: 1 },
    ),
    // Without a new limit it asks only.
    row(
        libc::SYS_prlimit64,
        &[one_of(1, LIMITS), not(2, 0)],
        Role::Sets,
        Data::Limit { at: 2 },
    ),
    sets(libc::SYS_userfaultfd),
    // UFFDIO_REGISTER and _UNREGISTER change mappings, and UFFDIO_API says which faults will wait.
    // The other commands of that family fill, move, protect or poison pages, often while the
    // thread that waits for them is inside of a call, and by the hundred thousand: they are not
    // stopped. The one thing that they change about a mapping is that it may get an anon_vma
    // (COPY, ZEROPAGE, MOVE, POISON into private memory), and so whether it has one is not known
    // from its registration on.
    row(
        libc::SYS_ioctl,
        &[masked(1, 0xffff, 0xaa00)],
        Role::Shapes,
        Data::Ioctl,
    ),
    row(
        libc::SYS_ioctl,
        &[masked(1, 0xffff, 0xaa01)],
        Role::Shapes,
        Data::Ioctl,
    ),
    row(
        libc::SYS_ioctl,
        &[masked(1, 0xffff, 0xaa3f)],
        Role::Sets,
        Data::Ioctl,
    ),
    sets(libc::SYS_io_uring_setup),
    // IORING_REGISTER_BUFFERS and _BUFFERS2.
    row(
        libc::SYS_io_uring_register,
        &[one_of(1, &[0, 15])],
        Role::Touches(Reach::PinsOwn),
        Data::None,
    ),
    touches(libc::SYS_process_vm_readv, Reach::ReadsOther),
    touches(libc::SYS_process_vm_writev, Reach::WritesOther),
    touches(libc::SYS_vmsplice, Reach::ReadsOwn),
    touches(libc::SYS_io_submit, Reach::Blocks),
    #[cfg(target_arch = "x86_64")]
    row(
        libc::SYS_open,
        &[masked(1, DIRECT, DIRECT)],
        Role::OpensDirect,
        Data::None,
    ),
    row(
        libc::SYS_openat,
        &[masked(2, DIRECT, DIRECT)],
        Role::OpensDirect,
        Data::None,
    ),
    row(libc::SYS_openat2, &[], Role::OpensDirect, Data::None),
    capabilities(libc::SYS_setuid, &[]),
    capabilities(libc::SYS_setreuid, &[]),
    capabilities(libc::SYS_setresuid, &[]),
    capabilities(libc::SYS_capset, &[]),
    capabilities(libc::SYS_unshare, &[masked(0, NEW_USER, NEW_USER)]),
    // The namespace is told by the descriptor where no flag says which one it is.
    capabilities(libc::SYS_setns, &[one_of(1, &[0, NEW_USER])]),
    row(
        libc::SYS_ptrace,
        &[one_of(0, TRACING)],
        Role::Traces,
        Data::None,
    ),
    row(
        libc::SYS_seccomp,
        &[is(0, libc::SECCOMP_SET_MODE_FILTER)],
        Role::SetsFilter,
        Data::Filter { at: 2 },
    ),
    row(
        libc::SYS_prctl,
        &[
            is(0, libc::PR_SET_SECCOMP as u32),
            is(1, libc::SECCOMP_MODE_FILTER),
        ],
        Role::SetsFilter,
        Data::Filter { at: 2 },
    ),
    row(
        libc::SYS_fcntl,
        &[is(1, libc::F_SETFL as u32), masked(2, DIRECT, DIRECT)],
        Role::OpensDirect,
        Data::None,
    ),
];

/// Calls on files that bypass the page cache. They are not in the filter: who has such a file is
/// stopped at every call.
static DIRECT_CALLS: &[Row] = &[
    touches(libc::SYS_read, Reach::FromFile(Buffer::Plain)),
    touches(libc::SYS_pread64, Reach::FromFile(Buffer::Plain)),
    touches(libc::SYS_readv, Reach::FromFile(Buffer::Iovecs)),
    touches(libc::SYS_preadv, Reach::FromFile(Buffer::Iovecs)),
    touches(libc::SYS_preadv2, Reach::FromFile(Buffer::Iovecs)),
    touches(libc::SYS_write, Reach::ToFile(Buffer::Plain)),
    touches(libc::SYS_pwrite64, Reach::ToFile(Buffer::Plain)),
    touches(libc::SYS_writev, Reach::ToFile(Buffer::Iovecs)),
    touches(libc::SYS_pwritev, Reach::ToFile(Buffer::Iovecs)),
    touches(libc::SYS_pwritev2, Reach::ToFile(Buffer::Iovecs)),
];

/// The row of a call that reads or writes a file.
pub(crate) fn file_row(nr: u64) -> Option<&'static Row> {
    DIRECT_CALLS.iter().find(|row| u64::from(row.nr) == nr)
}
