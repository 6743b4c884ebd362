//! Table of the calls at which the recorder stops a thread, and how it handles each call.
//!
//! The recorder generates its filter from this table and uses the table to decide how to handle
//! each stop, so the filter never stops a thread at a call that is not listed. If the handling of a
//! call depends on its arguments, the call has several rules, and the first one that matches
//! applies. The table omits some operations, because no filter can recognise them or because they
//! do not affect an address space's mappings: writes to `/proc/PID/mem`, `io_uring_enter`, and
//! truncation of a mapped file.
//!
//! # Linux
//! Call numbers of x86-64, kernel 6.18.

use vmarea_linux_sys::arch;

/// Rule for a system call whose arguments meet certain conditions.
#[derive(Debug)]
pub(crate) struct CallRule {
    /// System call number.
    pub nr: u32,
    /// Conditions on the arguments; all of them must hold.
    pub when: &'static [Test],
    /// Role of the call, which determines its handling.
    pub role: Role,
    /// Data behind the call's pointer arguments.
    pub data: Data,
}

/// A test of the low 32 bits of one argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// True if `args[arg] & mask == value`.
    Masked { arg: u8, mask: u32, value: u32 },
    /// True if `args[arg] != value`.
    Not { arg: u8, value: u32 },
    /// True if `args[arg]` is one of `values`.
    OneOf { arg: u8, values: &'static [u32] },
}

impl Test {
    fn holds(&self, args: &[u64; 6]) -> bool {
        // The filter tests the low 32 bits as well.
        let low = |arg: u8| args[usize::from(arg)] as u32;
        match *self {
            Test::Masked { arg, mask, value } => low(arg) & mask == value,
            Test::Not { arg, value } => low(arg) != value,
            Test::OneOf { arg, values } => values.contains(&low(arg)),
        }
    }
}

/// Flag `MAP_ANONYMOUS` of `mmap`.
pub(crate) const ANONYMOUS: u32 = libc::MAP_ANONYMOUS as u32;

/// Whether a recorder that need not stop threads observes a call instead.
///
/// The observed calls are those that programs make often and whose arguments say everything. A call
/// that maps a file is not one of them, because its descriptor has to be looked at in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Observable {
    /// The call always stops the thread.
    Never,
    /// The call never stops the thread.
    Always,
    /// The call stops the thread if it maps a file.
    IfAnonymous,
}

/// Role of a call, which determines how the recorder handles it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Changes the caller's address space. The recorder lets such calls on the same address space
    /// run only one after another.
    ChangesMappings,
    /// Changes the effect of later calls (limits, policies, personality), or changes only pages.
    Sets,
    /// Creates a task.
    Clones,
    /// Replaces the address space with another.
    Executes,
    /// Accesses memory without causing a fault that the recorder sees.
    AccessesMemory(KernelAccess),
    /// Opens a file for direct I/O, which accesses memory without faults.
    OpensDirect,
    /// Installs a seccomp filter for the program.
    SetsFilter,
    /// Can change the capabilities of the thread.
    SetsCapabilities,
    /// Ends the calling thread.
    Exits,
    /// Attempts to trace another task, which fails because the recorder already traces that task.
    Traces,
}

/// Memory that a call accesses, and the kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelAccess {
    /// `process_vm_readv`: reads the memory of another process.
    ReadsOther,
    /// `process_vm_writev`: writes to the memory of another process.
    WritesOther,
    /// `vmsplice`: reads the caller's memory.
    ReadsOwn,
    /// `io_submit`: the accesses are described by its control blocks.
    Blocks,
    /// `io_uring_register` with buffers: pins the buffers for writing.
    PinsOwn,
    /// `read` and its variants, on a descriptor that bypasses the page cache.
    FromFile(Buffer),
    /// `write` and its variants, on a descriptor that bypasses the page cache.
    ToFile(Buffer),
}

/// Form in which a call specifies the memory that it accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffer {
    /// The second and third arguments are an address and a length.
    Plain,
    /// The second and third arguments are an array of `struct iovec` and the number of its entries.
    Iovecs,
}

/// Data behind the pointer arguments of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    /// No relevant data.
    None,
    /// An array of `struct iovec`.
    Iovecs { at: u8, count: u8 },
    /// A node mask. The value of argument `bits` is the number of bits in the mask plus one.
    NodeMask { at: u8, bits: u8 },
    /// A `struct rlimit`.
    Limit { at: u8 },
    /// The name passed with `PR_SET_VMA_ANON_NAME`.
    VmaName,
    /// The structure passed to an `ioctl`; the command number contains the structure's size.
    Ioctl,
    /// The `struct prctl_mm_map` passed with `PR_SET_MM_MAP`.
    MmMap,
    /// The instructions in a `struct sock_fprog`.
    Filter { at: u8 },
}

/// Constants that libc does not define, or defines with another type.
pub(crate) mod number {
    /// System call `map_shadow_stack`.
    pub(crate) const MAP_SHADOW_STACK: i64 = 453;
    /// `prctl` option `PR_SET_VMA`.
    pub(crate) const PR_SET_VMA: u32 = 0x5356_4d41;
    /// `prctl` option `PR_SET_MM`.
    pub(crate) const PR_SET_MM: u32 = 35;
    /// `PR_SET_MM` option `PR_SET_MM_MAP`.
    pub(crate) const PR_SET_MM_MAP: u64 = 14;
    /// `prctl` options `PR_SET_THP_DISABLE`, `PR_SET_MDWE` and `PR_SET_MEMORY_MERGE`.
    pub(crate) const PR_OF_THE_MM: &[u32] = &[41, 65, 67];
}

/// `ptrace` requests that start tracing.
#[allow(
    clippy::unnecessary_cast,
    reason = "the type of the constants depends on the C library"
)]
const TRACING: &[u32] = &[
    libc::PTRACE_TRACEME as u32,
    libc::PTRACE_ATTACH as u32,
    libc::PTRACE_SEIZE as u32,
];
const NEW_USER: u32 = libc::CLONE_NEWUSER as u32;
const DIRECT: u32 = libc::O_DIRECT as u32;
/// Resource limits that are checked by calls that change an address space.
#[allow(
    clippy::unnecessary_cast,
    reason = "the type of the constants depends on the C library"
)]
const LIMITS: &[u32] = &[
    libc::RLIMIT_DATA as u32,
    libc::RLIMIT_STACK as u32,
    libc::RLIMIT_MEMLOCK as u32,
    libc::RLIMIT_AS as u32,
];

const fn rule(nr: i64, when: &'static [Test], role: Role, data: Data) -> CallRule {
    CallRule {
        nr: nr as u32,
        when,
        role,
        data,
    }
}

const fn changes_mappings(nr: i64) -> CallRule {
    rule(nr, &[], Role::ChangesMappings, Data::None)
}

const fn sets(nr: i64) -> CallRule {
    rule(nr, &[], Role::Sets, Data::None)
}

/// Creates the rule for a call that can change the effective capabilities.
///
/// `setfsuid` affects only capabilities that concern files, and group IDs affect no capabilities.
/// The state that `prctl` changes (bounding set, ambient set, secure bits) takes effect at the next
/// `execve` or `setuid`.
const fn capabilities(nr: i64, when: &'static [Test]) -> CallRule {
    rule(nr, when, Role::SetsCapabilities, Data::None)
}

const fn accesses(nr: i64, kind: KernelAccess) -> CallRule {
    rule(nr, &[], Role::AccessesMemory(kind), Data::None)
}

/// Creates a test that compares a whole 32-bit argument.
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

/// Table of all rules. The filter's return value identifies a rule by its index.
pub(crate) static RULES: &[CallRule] = &[
    changes_mappings(libc::SYS_mmap),
    changes_mappings(libc::SYS_munmap),
    changes_mappings(libc::SYS_mprotect),
    changes_mappings(libc::SYS_pkey_mprotect),
    sets(libc::SYS_pkey_alloc),
    sets(libc::SYS_pkey_free),
    changes_mappings(libc::SYS_mremap),
    changes_mappings(libc::SYS_brk),
    changes_mappings(libc::SYS_madvise),
    rule(
        libc::SYS_process_madvise,
        &[],
        Role::ChangesMappings,
        Data::Iovecs { at: 1, count: 2 },
    ),
    changes_mappings(libc::SYS_mlock),
    changes_mappings(libc::SYS_mlock2),
    changes_mappings(libc::SYS_munlock),
    changes_mappings(libc::SYS_mlockall),
    changes_mappings(libc::SYS_munlockall),
    changes_mappings(libc::SYS_shmat),
    changes_mappings(libc::SYS_shmdt),
    changes_mappings(libc::SYS_remap_file_pages),
    changes_mappings(libc::SYS_io_setup),
    changes_mappings(libc::SYS_io_destroy),
    changes_mappings(libc::SYS_mseal),
    changes_mappings(number::MAP_SHADOW_STACK),
    rule(
        libc::SYS_mbind,
        &[],
        Role::ChangesMappings,
        Data::NodeMask { at: 3, bits: 4 },
    ),
    changes_mappings(libc::SYS_set_mempolicy_home_node),
    rule(
        libc::SYS_set_mempolicy,
        &[],
        Role::Sets,
        Data::NodeMask { at: 1, bits: 2 },
    ),
    sets(libc::SYS_migrate_pages),
    sets(libc::SYS_move_pages),
    rule(libc::SYS_clone, &[], Role::Clones, Data::None),
    rule(libc::SYS_clone3, &[], Role::Clones, Data::None),
    rule(arch::SYS_FORK, &[], Role::Clones, Data::None),
    rule(arch::SYS_VFORK, &[], Role::Clones, Data::None),
    rule(libc::SYS_execve, &[], Role::Executes, Data::None),
    rule(libc::SYS_execveat, &[], Role::Executes, Data::None),
    rule(libc::SYS_exit, &[], Role::Exits, Data::None),
    rule(
        libc::SYS_prctl,
        &[is(0, number::PR_SET_VMA)],
        Role::ChangesMappings,
        Data::VmaName,
    ),
    rule(
        libc::SYS_prctl,
        &[is(0, number::PR_SET_MM)],
        Role::ChangesMappings,
        Data::MmMap,
    ),
    rule(
        libc::SYS_prctl,
        &[one_of(0, number::PR_OF_THE_MM)],
        Role::ChangesMappings,
        Data::None,
    ),
    // ARCH_MAP_VDSO_X32, _32 and _64; ARCH_SHSTK_ENABLE and _DISABLE map and unmap a stack.
    rule(
        arch::SYS_ARCH_PRCTL,
        &[one_of(0, &[0x2001, 0x2002, 0x2003, 0x5001, 0x5002])],
        Role::ChangesMappings,
        Data::None,
    ),
    // A call with the argument 0xffffffff is only a query.
    rule(
        libc::SYS_personality,
        &[not(0, u32::MAX)],
        Role::Sets,
        Data::None,
    ),
    rule(
        libc::SYS_setrlimit,
        &[one_of(0, LIMITS)],
        Role::Sets,
        Data::Limit { at: 1 },
    ),
    // A call without a new limit is only a query.
    rule(
        libc::SYS_prlimit64,
        &[one_of(1, LIMITS), not(2, 0)],
        Role::Sets,
        Data::Limit { at: 2 },
    ),
    sets(libc::SYS_userfaultfd),
    // UFFDIO_REGISTER and _UNREGISTER change mappings, and UFFDIO_API selects which faults will
    // wait. The other commands of that family fill, move, protect or poison pages, often hundreds
    // of thousands of times and while the thread that waits for them is inside a call, so the
    // recorder does not stop them. They change only one property of a mapping: COPY, ZEROPAGE, MOVE
    // and POISON into private memory may attach an anon_vma. Therefore, once a mapping is
    // registered, it is unknown whether it has an anon_vma.
    rule(
        libc::SYS_ioctl,
        &[masked(1, 0xffff, 0xaa00)],
        Role::ChangesMappings,
        Data::Ioctl,
    ),
    rule(
        libc::SYS_ioctl,
        &[masked(1, 0xffff, 0xaa01)],
        Role::ChangesMappings,
        Data::Ioctl,
    ),
    rule(
        libc::SYS_ioctl,
        &[masked(1, 0xffff, 0xaa3f)],
        Role::Sets,
        Data::Ioctl,
    ),
    sets(libc::SYS_io_uring_setup),
    // IORING_REGISTER_BUFFERS and _BUFFERS2.
    rule(
        libc::SYS_io_uring_register,
        &[one_of(1, &[0, 15])],
        Role::AccessesMemory(KernelAccess::PinsOwn),
        Data::None,
    ),
    accesses(libc::SYS_process_vm_readv, KernelAccess::ReadsOther),
    accesses(libc::SYS_process_vm_writev, KernelAccess::WritesOther),
    accesses(libc::SYS_vmsplice, KernelAccess::ReadsOwn),
    accesses(libc::SYS_io_submit, KernelAccess::Blocks),
    rule(
        arch::SYS_OPEN,
        &[masked(1, DIRECT, DIRECT)],
        Role::OpensDirect,
        Data::None,
    ),
    rule(
        libc::SYS_openat,
        &[masked(2, DIRECT, DIRECT)],
        Role::OpensDirect,
        Data::None,
    ),
    rule(libc::SYS_openat2, &[], Role::OpensDirect, Data::None),
    capabilities(libc::SYS_setuid, &[]),
    capabilities(libc::SYS_setreuid, &[]),
    capabilities(libc::SYS_setresuid, &[]),
    capabilities(libc::SYS_capset, &[]),
    capabilities(libc::SYS_unshare, &[masked(0, NEW_USER, NEW_USER)]),
    // Without a flag, the descriptor determines the kind of namespace.
    capabilities(libc::SYS_setns, &[one_of(1, &[0, NEW_USER])]),
    rule(
        libc::SYS_ptrace,
        &[one_of(0, TRACING)],
        Role::Traces,
        Data::None,
    ),
    rule(
        libc::SYS_seccomp,
        &[is(0, libc::SECCOMP_SET_MODE_FILTER)],
        Role::SetsFilter,
        Data::Filter { at: 2 },
    ),
    rule(
        libc::SYS_prctl,
        &[
            is(0, libc::PR_SET_SECCOMP as u32),
            is(1, libc::SECCOMP_MODE_FILTER),
        ],
        Role::SetsFilter,
        Data::Filter { at: 2 },
    ),
    rule(
        libc::SYS_fcntl,
        &[is(1, libc::F_SETFL as u32), masked(2, DIRECT, DIRECT)],
        Role::OpensDirect,
        Data::None,
    ),
];

/// Rules for calls on descriptors that bypass the page cache.
///
/// The filter does not contain these rules: a process that has opened a file to bypass the page
/// cache stops at every call anyway.
static DIRECT_CALLS: &[CallRule] = &[
    accesses(libc::SYS_read, KernelAccess::FromFile(Buffer::Plain)),
    accesses(libc::SYS_pread64, KernelAccess::FromFile(Buffer::Plain)),
    accesses(libc::SYS_readv, KernelAccess::FromFile(Buffer::Iovecs)),
    accesses(libc::SYS_preadv, KernelAccess::FromFile(Buffer::Iovecs)),
    accesses(libc::SYS_preadv2, KernelAccess::FromFile(Buffer::Iovecs)),
    accesses(libc::SYS_write, KernelAccess::ToFile(Buffer::Plain)),
    accesses(libc::SYS_pwrite64, KernelAccess::ToFile(Buffer::Plain)),
    accesses(libc::SYS_writev, KernelAccess::ToFile(Buffer::Iovecs)),
    accesses(libc::SYS_pwritev, KernelAccess::ToFile(Buffer::Iovecs)),
    accesses(libc::SYS_pwritev2, KernelAccess::ToFile(Buffer::Iovecs)),
];

impl CallRule {
    /// Returns whether the call can be observed.
    pub(crate) fn observable(&self) -> Observable {
        match i64::from(self.nr) {
            libc::SYS_mmap => Observable::IfAnonymous,
            libc::SYS_munmap
            | libc::SYS_mprotect
            | libc::SYS_pkey_mprotect
            | libc::SYS_mremap
            | libc::SYS_brk
            | libc::SYS_madvise
            | libc::SYS_mlock
            | libc::SYS_mlock2
            | libc::SYS_munlock => Observable::Always,
            _ => Observable::Never,
        }
    }

    /// True if this call does not stop the thread where calls are observed.
    pub(crate) fn is_observable(&self, args: &[u64; 6]) -> bool {
        match self.observable() {
            Observable::Never => false,
            Observable::Always => true,
            Observable::IfAnonymous => args[3] as u32 & ANONYMOUS != 0,
        }
    }
}

/// Returns the numbers of the calls that can be observed.
pub(crate) fn observable() -> impl Iterator<Item = u32> {
    let rules = RULES.iter();
    let rules = rules.filter(|rule| rule.observable() != Observable::Never);
    rules.map(|rule| rule.nr)
}

/// Returns the rule for a call that reads or writes a file.
pub(crate) fn direct_io_rule(nr: u64) -> Option<&'static CallRule> {
    DIRECT_CALLS.iter().find(|rule| u64::from(rule.nr) == nr)
}

/// Returns the rule for a call, as the filter does.
pub(crate) fn rule_for(nr: u64, args: &[u64; 6]) -> Option<&'static CallRule> {
    let holds = |test: &Test| test.holds(args);
    let mut rules = RULES.iter().filter(|rule| u64::from(rule.nr) == nr);
    rules.find(|rule| rule.when.iter().all(holds))
}
