//! Events of a trace: operations on address spaces, in the order in which they took effect.
//!
//! A trace is one [`Header`] and a stream of [`Event`]s. Events contain what Linux reports (system
//! call number and raw arguments, result or negative errno, addresses in bytes); interpreting them
//! is up to the program that reads the trace. [`crate::reader`] and [`crate::writer`] do the file
//! I/O.
//!
//! # Invariants
//! E1  Events of one mm are in the order in which they took effect; [`Order`] marks those whose
//!     position is uncertain.
//! E2  An id is announced before it is used: an [`Inode`] before the first event that names it, an
//!     mm by [`MmStart`], a task by [`Event::TaskStart`].
//! E3  A complete trace ends with [`Event::End`]; one without it was cut off.

pub use crate::perms::Perms;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// Id of an address space. The recorder assigns ids from 1 and reuses none within a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MmId(pub u32);

/// Id of an inode. The recorder assigns ids from 1 and reuses none within a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InodeId(pub u32);

/// Id of an open file description (`struct file`), assigned by the recorder from 1.
///
/// An id from 2^31 on is the number of the description in the kernel's view. Such an id may come to
/// stand for another description once no mapping refers to the first.
///
/// If a path is opened and mapped twice, the two mappings have different descriptions and never
/// merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileId(pub u32);

impl FileId {
    /// Id that stands for an unknown open file description.
    pub const UNKNOWN: FileId = FileId(0);
    /// First of the ids that are numbers of the kernel's view.
    const OF_VIEW: u32 = 1 << 31;

    /// Returns the id of the description with a number of the kernel's view ([`KernelVma::file`]);
    /// [`UNKNOWN`](Self::UNKNOWN) if there are too many.
    pub fn of_view(number: u64) -> FileId {
        let number = u32::try_from(number).ok().filter(|n| *n < Self::OF_VIEW);
        number.map_or(FileId::UNKNOWN, |number| FileId(Self::OF_VIEW + number))
    }

    /// Returns the number in the kernel's view; `None` for an id that the recorder assigned itself.
    pub fn in_view(self) -> Option<u64> {
        self.0.checked_sub(Self::OF_VIEW).map(u64::from)
    }
}

/// Thread id in the recorder's pid namespace; it may be reused after [`Event::TaskEnd`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tid(pub i32);

/// Data about the machine and the recording that is known before the first event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Header {
    /// `uname -r`, for example `6.18.44-amd64`.
    pub kernel_release: String,
    /// `uname -m`; system call numbers in the trace are those of this machine.
    pub machine: String,
    /// Size of a base page in bytes.
    pub page_size: u32,
    /// Settings that affect address spaces, keyed by the names of their files.
    ///
    /// `vm.max_map_count`, `vm.overcommit_memory`, `vm.mmap_min_addr`, `vm.legacy_va_layout`,
    /// `kernel.randomize_va_space`, `thp.enabled`, `thp.shmem_enabled`, `ksm.run`, `swap`
    /// (`0`/`1`), `stack_guard_gap` (pages), `mm.lowest_addr` (the lowest address that the kernel
    /// chooses by itself), `kernel.build` (the version with its stable update), `rules.mseal` and
    /// others (what the recorder found the kernel's rules to be), ...
    pub settings: BTreeMap<String, String>,
    /// The command that was recorded, with its arguments.
    pub command: Vec<String>,
    /// Source of the page faults.
    pub faults: FaultSource,
    /// True if snapshots include the kernel's own data, which the `task_vma` iterator reads.
    pub kernel_view: bool,
    /// Program and version that wrote the trace.
    pub writer: String,
    /// Time at which the recording began, in milliseconds since 1970, if known.
    pub started_unix_ms: Option<u64>,
}

/// Source of a trace's page faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum FaultSource {
    /// The trace contains no faults (because it was imported, or permission was missing).
    #[default]
    None,
    /// `exceptions:page_fault_user` and `_kernel`: every fault, with reads and writes
    /// distinguished.
    Tracepoints,
    /// Perf software events in user mode.
    ///
    /// Faults taken in kernel mode are missing, and reads are not distinguished from writes.
    SoftwareUser,
}

/// One event of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Event {
    /// A file to which later events refer.
    Inode(Inode),
    /// A new address space.
    MmStart(MmStart),
    /// The last user of an address space exited or left it by `execve`.
    MmEnd {
        /// The address space that ends.
        mm: MmId,
        /// Time at which the address space ended.
        t: Nanos,
    },
    /// A thread or process starts in `mm`, or moves to it by `execve`.
    TaskStart {
        /// The thread that starts.
        tid: Tid,
        /// Id of the thread's thread group.
        pid: Tid,
        /// The thread's address space.
        mm: MmId,
        /// Time at which the thread started or moved.
        t: Nanos,
    },
    /// A thread exits.
    TaskEnd {
        /// The thread that exits.
        tid: Tid,
        /// Wait status: of a leader, that of its process.
        status: i32,
        /// Time at which the thread exited.
        t: Nanos,
    },
    /// A system call that affects an address space, with its result.
    Call(Call),
    /// A page fault.
    Fault(Fault),
    /// An access that causes no recorded page fault (`O_DIRECT`, `vmsplice`, `process_vm_writev`,
    /// ...).
    Touch(Touch),
    /// The kernel's own list of VMAs at this point.
    Snapshot(Snapshot),
    /// Samples were lost before this point, so faults may be missing.
    Lost {
        /// Number of lost samples.
        count: u64,
        /// Time at which the recorder noticed the loss.
        t: Nanos,
    },
    /// A remark for the user: a changed mode, or data that could not be recorded.
    Note(String),
    /// The recording is complete.
    End {
        /// Wait status of the command from `wait4`.
        status: i32,
        /// Time at which the recording ended.
        t: Nanos,
    },
}

/// Properties of a file that affect its mappings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inode {
    /// Id of the inode in this trace.
    pub id: InodeId,
    /// Device as `makedev` packs it for `/proc/PID/maps`: `major << 20 | minor`.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Kind of inode.
    pub kind: InodeKind,
    /// File-system magic from `statfs`, 0 if unknown.
    pub fs_magic: u64,
    /// Mount flags from `statvfs` (`ST_NOEXEC` ...), 0 if unknown.
    pub mount_flags: u64,
    /// Size in bytes when the recorder first saw the file.
    pub size: u64,
    /// Path as `/proc/PID/maps` shows it, including ` (deleted)`.
    pub path: String,
}

/// Kinds of inode that behave differently when mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum InodeKind {
    /// A regular file.
    Regular,
    /// A file on tmpfs, or a memfd.
    Shmem,
    /// The unnamed shmem file behind a shared anonymous mapping or System V segment.
    SharedAnon,
    /// A hugetlbfs file.
    Hugetlb,
    /// `/dev/zero`.
    DevZero,
    /// A character device other than `/dev/zero`: its driver determines the behaviour of a mapping.
    Device,
    /// Any other kind of inode.
    Other,
}

/// File that a call maps: its inode and open file description.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileRef {
    /// The mapped inode.
    pub inode: InodeId,
    /// The open file description of the mapping.
    pub file: FileId,
    /// Result of `F_GETFL` on the description (`O_ACCMODE` and other flags).
    pub open_flags: u32,
    /// Result of `F_GET_SEALS`, or 0 if the file has no seals.
    pub seals: u32,
    /// Size of the file in bytes when the call was made.
    pub size: u64,
}

/// Certainty of an event's position in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Order {
    /// The position is known: no other thread ran in this mm, or a sample shows when the call took
    /// `mmap_lock`.
    #[default]
    Exact,
    /// The event overlapped another event of this mm, and their order is unknown.
    Overlapping,
}

/// A system call that affects an address space, with its result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Call {
    /// The calling thread.
    pub tid: Tid,
    /// The caller's address space when the call began.
    pub mm: MmId,
    /// System call number on [`Header::machine`].
    ///
    /// `clone3` is recorded as `clone` with `args = [flags | exit_signal, stack, 0, 0, 0, 0]`, and
    /// `io_setup` as the `mmap` of a ring that the kernel makes.
    pub nr: u32,
    /// Raw arguments; `data` holds the content of structures that they point to.
    pub args: [u64; 6],
    /// Result, or negative errno.
    pub ret: i64,
    /// Time at which the call took effect (took `mmap_lock`), as precisely as it is known.
    pub t: Nanos,
    /// Certainty of the call's position in the stream.
    pub order: Order,
    /// File behind the descriptor argument, if the file can be mapped.
    pub file: Option<FileRef>,
    /// Content of the memory behind a pointer argument, or other data on which the call's effect
    /// depends; otherwise empty.
    ///
    /// - `process_madvise`: the iovecs as pairs of u64.
    /// - `mbind`, `set_mempolicy`: the node mask.
    /// - `setrlimit`, `prlimit64`: the new limit as two u64. For `prlimit64`, a third u64 is the
    ///   [`Event::TaskStart::pid`] of the process whose limit changes, or 0 if that process is not
    ///   in the trace.
    /// - `setuid` and its variants, `capset`, `unshare`, `setns`: the effective capabilities after
    ///   the call, in the initial user namespace, as one u64.
    /// - `prctl(PR_SET_VMA)`: the name.
    pub data: Vec<u8>,
}

/// A page fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// The faulting thread.
    pub tid: Tid,
    /// The thread's address space.
    pub mm: MmId,
    /// The faulting address.
    pub addr: u64,
    /// Kind of access.
    pub access: Access,
    /// True if the fault was taken in kernel mode (during a copy to or from user memory).
    pub kernel: bool,
    /// Time at which the fault took effect.
    pub t: Nanos,
    /// Certainty of the fault's position in the stream.
    pub order: Order,
}

/// Kind of memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
    /// The source does not distinguish accesses ([`FaultSource::SoftwareUser`]).
    Unknown,
}

/// A range of memory that was accessed without a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Touch {
    /// The thread that made the access.
    pub tid: Tid,
    /// The address space that was accessed.
    pub mm: MmId,
    /// Address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Kind of access: read or write.
    pub access: Access,
    /// Time of the access.
    pub t: Nanos,
    /// Certainty of the access's position in the stream.
    pub order: Order,
}

/// An address space was created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MmStart {
    /// The new address space.
    pub mm: MmId,
    /// The way in which the address space was created.
    pub origin: Origin,
    /// Time of creation.
    pub t: Nanos,
}

/// Ways in which an address space is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Origin {
    /// `execve`: a [`Snapshot`] with [`SnapReason::Exec`] follows and contains the mappings.
    Exec,
    /// `fork`, or `clone` without `CLONE_VM`: a copy of `parent` at this point.
    Fork {
        /// The copied address space.
        parent: MmId,
    },
    /// The address space existed before the recording: a [`Snapshot`] with [`SnapReason::Attach`]
    /// follows.
    Attach,
}

/// The kernel's own list of the VMAs of one mm.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// The address space that the snapshot shows.
    pub mm: MmId,
    /// Reason for the snapshot.
    pub reason: SnapReason,
    /// Time of the snapshot.
    pub t: Nanos,
    /// False if other threads of this mm ran during the snapshot.
    pub exact: bool,
    /// Fields of the mm itself, if they could be read.
    pub info: Option<MmInfo>,
    /// The mappings in address order, without `[vsyscall]`.
    pub vmas: Vec<SnapVma>,
}

/// Reason for a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SnapReason {
    /// The snapshot shows the mappings right after `execve`.
    Exec,
    /// The snapshot shows the first recorded mappings of a process that was already running.
    Attach,
    /// The snapshot was taken after a fixed number of calls, or at a point where a snapshot is
    /// cheap.
    Checkpoint,
    /// The last user of the address space is about to exit.
    Exit,
}

/// Fields of `mm_struct` and of the task that affect later calls; an unknown field is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MmInfo {
    /// `mm->mmap_base`.
    pub mmap_base: Option<u64>,
    /// `mm->start_brk`.
    pub start_brk: Option<u64>,
    /// `mm->brk`.
    pub brk: Option<u64>,
    /// `mm->start_data`.
    pub start_data: Option<u64>,
    /// `mm->end_data`.
    pub end_data: Option<u64>,
    /// `mm->start_stack`.
    pub start_stack: Option<u64>,
    /// `mm->def_flags`.
    pub def_flags: Option<u64>,
    /// `mm->total_vm` in pages.
    pub total_vm: Option<u64>,
    /// `mm->locked_vm` in pages.
    pub locked_vm: Option<u64>,
    /// `personality(2)`.
    pub personality: Option<u64>,
    /// Soft limit `RLIMIT_AS` in bytes; `u64::MAX` if unlimited, as for the other limits.
    pub rlimit_as: Option<u64>,
    /// Soft limit `RLIMIT_DATA`.
    pub rlimit_data: Option<u64>,
    /// Soft limit `RLIMIT_STACK`.
    pub rlimit_stack: Option<u64>,
    /// Soft limit `RLIMIT_MEMLOCK`.
    pub rlimit_memlock: Option<u64>,
    /// True if the task has `CAP_IPC_LOCK`.
    pub cap_ipc_lock: Option<bool>,
    /// True if transparent huge pages are disabled for this process.
    pub thp_disabled: Option<bool>,
}

/// One VMA of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapVma {
    /// Address of the first byte.
    pub start: u64,
    /// Address of the byte after the last.
    pub end: u64,
    /// Protection and sharing as in `/proc/PID/maps`.
    pub perms: Perms,
    /// Offset in bytes as `/proc/PID/maps` prints it (0 for anonymous mappings).
    pub offset: u64,
    /// The mapped file, if there is one.
    pub inode: Option<InodeId>,
    /// Name in the last column of `/proc/PID/maps`, unless it is a file name.
    pub kind: SnapKind,
    /// The kernel's own data, if it could be read.
    pub kernel: Option<KernelVma>,
}

/// Name of a mapping that is not backed by a named file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SnapKind {
    /// Anonymous memory without a name, or a file.
    #[default]
    Plain,
    /// `[heap]`
    Heap,
    /// `[stack]`
    Stack,
    /// `[vdso]`, `[vvar]`, `[vvar_vclock]` and other mappings that the kernel creates.
    Special(String),
    /// `[anon:NAME]` or `[anon_shmem:NAME]`.
    Named(String),
}

/// A VMA as the `task_vma` iterator reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelVma {
    /// `vm_pgoff` in pages.
    pub pgoff: u64,
    /// `vm_flags` of the recorded kernel.
    pub flags: u64,
    /// Number that identifies the `anon_vma` pointer; 0 if the VMA has no anon_vma, and
    /// [`UNKNOWN_ANON_VMA`](Self::UNKNOWN_ANON_VMA) if this is not known.
    ///
    /// Within a trace, equal pointers have equal numbers. The kernel may reuse an address after the
    /// anon_vma there has been freed, so equal numbers can refer to different anon_vmas at
    /// different times.
    pub anon_vma: u64,
    /// Number that identifies the `anon_vma->root` pointer; 0 if the VMA has no anon_vma.
    pub root: u64,
    /// True if the VMA is linked to at most one anon_vma.
    pub chain_singular: bool,
    /// Number that identifies the `vm_file` pointer; 0 if the VMA has no file.
    pub file: u64,
    /// True if the VMA has its own memory policy.
    pub policy: bool,
}

impl KernelVma {
    /// Value of `anon_vma` and `root` of a VMA whose pages may have been touched while it was read.
    pub const UNKNOWN_ANON_VMA: u64 = u64::MAX;

    /// True if the recorder knows whether the VMA has an anon_vma, and which one.
    pub fn knows_anon_vma(&self) -> bool {
        self.anon_vma != Self::UNKNOWN_ANON_VMA
    }
}
