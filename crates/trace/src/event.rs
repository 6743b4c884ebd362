//! The events of a trace: what happened to address spaces, in the order in which it took effect.
//!
//! A trace is one [`Header`] and a stream of [`Event`]s. Everything is written as Linux said it
//! (system call number and raw arguments, result or negative errno, addresses in bytes); what it
//! means is for the reader. Nothing here reads or writes files: see [`crate::reader`] and
//! [`crate::writer`].
//!
//! # Invariants
//! E1  Events of one mm stand in the order in which they took effect; where the recorder could not
//!     know that order it says so ([`Order`]).
//! E2  An id is announced before it is used: an [`Inode`] before the first event that names it, an
//!     mm by [`MmStart`], a task by [`Event::TaskStart`].
//! E3  A whole trace ends with [`Event::End`]; one without it was cut off.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// An address space, numbered by the recorder from 1; never reused within a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MmId(pub u32);

/// An inode, numbered by the recorder from 1; never reused within a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct InodeId(pub u32);

/// An open file description (`struct file`), numbered by the recorder from 1. Two opens of one
/// path are two descriptions, and their mappings never merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileId(pub u32);

impl FileId {
    /// Which description it is was not found out.
    pub const UNKNOWN: FileId = FileId(0);
}

/// Thread id as the kernel gave it, in the recorder's pid namespace. May be reused after
/// [`Event::TaskEnd`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Tid(pub i32);

/// What is known of the machine and the recording before the first event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// `uname -r`, for example `6.18.44-amd64`.
    pub kernel_release: String,
    /// `uname -m`; system call numbers in the trace are those of this machine.
    pub machine: String,
    /// Bytes in a base page.
    pub page_size: u32,
    /// Settings that shape an address space, by the name of their file:
    /// `vm.max_map_count`, `vm.overcommit_memory`, `vm.mmap_min_addr`, `vm.legacy_va_layout`,
    /// `kernel.randomize_va_space`, `thp.enabled`, `thp.shmem_enabled`, `ksm.run`, `swap` (`0`/`1`),
    /// `stack_guard_gap` (pages), `mm.lowest_addr` (the lowest address that the kernel gives out by
    /// itself), ...
    pub settings: BTreeMap<String, String>,
    /// The command that was recorded, with its arguments.
    pub command: Vec<String>,
    /// Where the page faults come from.
    pub faults: FaultSource,
    /// True where the kernel's own view (`task_vma` iterator) was read with the maps.
    pub kernel_view: bool,
    /// Program and version that wrote the trace.
    pub writer: String,
}

/// Where the recorder learnt of page faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum FaultSource {
    /// No faults in this trace (an import, or no permission).
    #[default]
    None,
    /// `exceptions:page_fault_user` and `_kernel`: every fault, read told from write.
    Tracepoints,
    /// Perf software events of user mode: faults that the kernel takes are missing, and reads are
    /// not told from writes.
    SoftwareUser,
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// A file that later events name.
    Inode(Inode),
    /// A new address space.
    MmStart(MmStart),
    /// The last user of an address space has left it.
    MmEnd {
        /// Which one.
        mm: MmId,
        /// When.
        t: Nanos,
    },
    /// A thread or process begins in `mm`, or moves to it by `execve`.
    TaskStart {
        /// The thread.
        tid: Tid,
        /// Its thread group.
        pid: Tid,
        /// Its address space.
        mm: MmId,
        /// When.
        t: Nanos,
    },
    /// A thread ends.
    TaskEnd {
        /// The thread.
        tid: Tid,
        /// Wait status as `wait4` gives it.
        status: i32,
        /// When.
        t: Nanos,
    },
    /// A system call that shapes an address space, with its result.
    Call(Call),
    /// A page fault.
    Fault(Fault),
    /// An access that page-fault recording cannot see (`O_DIRECT`, `vmsplice`, `process_vm_writev`,
    /// `/proc/PID/mem`, ...).
    Touch(Touch),
    /// The kernel's own list of VMAs, read at this point.
    Snapshot(Snapshot),
    /// Samples that were lost before this point; what follows of this mm is to be trusted less.
    Lost {
        /// How many.
        count: u64,
        /// When it was noticed.
        t: Nanos,
    },
    /// A remark for people: a mode that was changed, a thing that could not be recorded.
    Note(String),
    /// The recording is whole.
    End {
        /// Wait status of the command as `wait4` gives it.
        status: i32,
        /// When.
        t: Nanos,
    },
}

/// A file, as far as mappings depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inode {
    /// Its number in this trace.
    pub id: InodeId,
    /// Device as `makedev` packs it for `/proc/PID/maps`: `major << 20 | minor`.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// What it is.
    pub kind: InodeKind,
    /// File-system magic of `statfs`, 0 where unknown.
    pub fs_magic: u64,
    /// Mount flags of `statvfs` (`ST_NOEXEC` ...), 0 where unknown.
    pub mount_flags: u64,
    /// Size in bytes when first seen.
    pub size: u64,
    /// Path as `/proc/PID/maps` shows it, ` (deleted)` included.
    pub path: String,
}

/// Kinds of inode that map differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InodeKind {
    /// A regular file.
    Regular,
    /// A file of tmpfs, memfd included.
    Shmem,
    /// The nameless shmem file behind a shared anonymous mapping or System V segment.
    SharedAnon,
    /// hugetlbfs.
    Hugetlb,
    /// `/dev/zero`.
    DevZero,
    /// Any other character device: what its mapping does is the driver's.
    Device,
    /// Anything else.
    Other,
}

/// A mapped file of a call: the inode and the open description.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRef {
    /// The file.
    pub inode: InodeId,
    /// The description through which it is mapped.
    pub file: FileId,
    /// `F_GETFL` of the description (`O_ACCMODE` and others).
    pub open_flags: u32,
    /// `F_GET_SEALS`, 0 where it has none.
    pub seals: u32,
    /// Size of the file in bytes at the call.
    pub size: u64,
}

/// How sure the place of a call or fault in the stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Order {
    /// Known: nothing else of this mm ran, or the lock was seen to be taken here.
    #[default]
    Exact,
    /// It overlapped another event of this mm and no evidence decides between them.
    Overlapping,
}

/// A system call that shapes an address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The calling thread.
    pub tid: Tid,
    /// Its address space at entry.
    pub mm: MmId,
    /// System call number of [`Header::machine`]. `clone3` is written as `clone` with
    /// `args = [flags | exit_signal, stack, 0, 0, 0, 0]`; the `vm.` calls are as Linux has them.
    pub nr: u32,
    /// Raw arguments. Pointers to structures are followed by the recorder and put in `data`.
    pub args: [u64; 6],
    /// Result, or negative errno.
    pub ret: i64,
    /// When it took effect (the lock was taken), as near as is known.
    pub t: Nanos,
    /// Place in the stream.
    pub order: Order,
    /// For calls with a file descriptor that names a mappable file.
    pub file: Option<FileRef>,
    /// What a pointer argument pointed to, as far as the call needs it (`process_madvise`: the
    /// iovecs as pairs of u64; `mbind`/`set_mempolicy`: the node mask; `prlimit64`/`setrlimit`: new
    /// limit as two u64, and for `prlimit64` a third: the process, as [`Event::TaskStart::pid`] has
    /// it, 0 for one that is not in the trace; `setuid` and its kin, `capset`, `unshare`, `setns`:
    /// the effective capabilities in the first user namespace after it as one u64;
    /// `prctl(PR_SET_VMA)`: the name; `io_uring`: see its note).
    pub data: Vec<u8>,
}

/// A page fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// The faulting thread.
    pub tid: Tid,
    /// Its address space.
    pub mm: MmId,
    /// The address that was touched.
    pub addr: u64,
    /// What kind of access it was.
    pub access: Access,
    /// Page-fault taken in kernel mode (a copy to or from user memory).
    pub kernel: bool,
    /// When it took effect.
    pub t: Nanos,
    /// Place in the stream.
    pub order: Order,
}

/// Kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
    /// The source does not tell ([`FaultSource::SoftwareUser`]).
    Unknown,
}

/// Access to a range of an address space by other means than a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Touch {
    /// Who did it.
    pub tid: Tid,
    /// Whose memory was touched.
    pub mm: MmId,
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Read or write.
    pub access: Access,
    /// When.
    pub t: Nanos,
    /// Place in the stream.
    pub order: Order,
}

/// The birth of an address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MmStart {
    /// The new one.
    pub mm: MmId,
    /// From what.
    pub origin: Origin,
    /// When.
    pub t: Nanos,
}

/// From what an address space came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// `execve`: a [`Snapshot`] with [`Reason::Exec`] follows and is its content.
    Exec,
    /// `fork`, or `clone` without `CLONE_VM`: a copy of `parent` as it is at this point.
    Fork {
        /// Whose copy.
        parent: MmId,
    },
    /// It was running when the recording began: a [`Snapshot`] with [`Reason::Attach`] follows.
    Attach,
}

/// The kernel's own list of the VMAs of one mm.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Whose.
    pub mm: MmId,
    /// Why it was read.
    pub reason: Reason,
    /// When.
    pub t: Nanos,
    /// False where other threads of this mm ran while it was read.
    pub exact: bool,
    /// What stands in the mm itself, where it was read.
    pub info: Option<MmInfo>,
    /// The mappings by address, `[vsyscall]` left out.
    pub vmas: Vec<SnapVma>,
}

/// Why a snapshot was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reason {
    /// First content after `execve`.
    Exec,
    /// First content of a process that was already running.
    Attach,
    /// Every N calls, or at a place where a look is cheap.
    Checkpoint,
    /// The last user is about to leave.
    Exit,
}

/// Fields of `mm_struct` and of the task that shape later calls. Unknown ones are `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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
    /// `mm->total_vm`, pages.
    pub total_vm: Option<u64>,
    /// `mm->locked_vm`, pages.
    pub locked_vm: Option<u64>,
    /// `personality(2)`.
    pub personality: Option<u64>,
    /// Soft limits in bytes, `u64::MAX` for none: `RLIMIT_AS`.
    pub rlimit_as: Option<u64>,
    /// `RLIMIT_DATA`.
    pub rlimit_data: Option<u64>,
    /// `RLIMIT_STACK`.
    pub rlimit_stack: Option<u64>,
    /// `RLIMIT_MEMLOCK`.
    pub rlimit_memlock: Option<u64>,
    /// The task has `CAP_IPC_LOCK`.
    pub cap_ipc_lock: Option<bool>,
    /// Transparent huge pages are off for this process.
    pub thp_disabled: Option<bool>,
}

/// One VMA of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapVma {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Protection and sharing as in `/proc/PID/maps`.
    pub perms: Perms,
    /// Offset in bytes as `/proc/PID/maps` prints it (0 for anonymous mappings).
    pub offset: u64,
    /// The file, where there is one.
    pub inode: Option<InodeId>,
    /// What the last column says where it is not a file.
    pub kind: SnapKind,
    /// What the kernel itself says, where it could be read.
    pub kernel: Option<KernelVma>,
}

/// The four letters of `/proc/PID/maps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Perms {
    /// `r`
    pub read: bool,
    /// `w`
    pub write: bool,
    /// `x`
    pub exec: bool,
    /// `s` rather than `p`
    pub shared: bool,
}

/// What a mapping is called when it is not a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SnapKind {
    /// Anonymous, or a file.
    #[default]
    Plain,
    /// `[heap]`
    Heap,
    /// `[stack]`
    Stack,
    /// `[vdso]`, `[vvar]`, `[vvar_vclock]` and their kin: made by the kernel.
    Special(String),
    /// `[anon:NAME]` or `[anon_shmem:NAME]`.
    Named(String),
}

/// A VMA as the `task_vma` iterator reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelVma {
    /// `vm_pgoff`, pages.
    pub pgoff: u64,
    /// `vm_flags` of the recorded kernel.
    pub flags: u64,
    /// `anon_vma`: 0 for none, else a number that is the same wherever in this trace the kernel's
    /// pointer is the same. The kernel may use a pointer again after its anon_vma is gone.
    pub anon_vma: u64,
    /// `anon_vma->root`, numbered alike.
    pub root: u64,
    /// True where the VMA hangs on one anon_vma only (or none).
    pub chain_singular: bool,
    /// `vm_file`: 0 for none, else numbered like `anon_vma`.
    pub file: u64,
    /// True where the VMA has a memory policy of its own.
    pub policy: bool,
}
