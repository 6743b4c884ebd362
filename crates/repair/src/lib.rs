//! Repair of live address spaces: neighbouring mappings that could be one become one.
//!
//! Linux never merges VMAs whose anon_vmas differ or whose page offsets are not contiguous. Since 6.8
//! user space can move pages between mappings (`UFFDIO_MOVE`), which gives each page a new index and
//! anon_vma. A repair therefore replaces a run of equal neighbours, piece by piece, with fresh
//! mappings whose page offset follows from their address (`piece`). [`merge_range`] repairs the
//! calling process, `remote` another one. The core decides which neighbours can be merged (`plan`);
//! boundaries with a purpose (protection, files, gaps) stay.
//!
//! # Invariants
//! R1  no byte that the program can read differs from what it would have read without us
//! R2  a refusal leaves the mappings as they were, but for cuts at the ends of a piece, which
//!     the kernel joins again
//! R3  no memory that a repair works with is itself on its way: tables lie in shared memory
//!
//! # Linux
//! `mm/userfaultfd.c`, `fs/userfaultfd.c` and `mm/mremap.c`, 6.8 and later.
#![forbid(unsafe_code)]

mod driver;
mod fixes;
mod in_process;
mod journal;
mod pace;
mod piece;
#[allow(clippy::large_enum_variant, reason = "one exists at a time")]
mod plan;
mod proc_status;
mod remote;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use vmarea::vma::merge::Refusal;
use vmarea_process::rights::{self, Capability};

pub use fixes::{Fix, Fixed, MOST_GUARD_PAGES};
pub use in_process::{Merger, can_repair_itself, merge_range};
pub use plan::CAN_BE_GIVEN;
pub use remote::{Remote, Survey};
pub use vmarea_linux_sys::own::{NoSignals, file_of_program, separate_descriptors};

/// Why two neighbours stay apart, or a piece was left as it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The mappings differ in something that matters.
    Differ(Refusal),
    /// A page is shared: with a child after a fork, or by KSM.
    Shared,
    /// A page is pinned for a device or another process.
    Pinned,
    /// The mapping is mlocked.
    Locked,
    /// A page is a guard page.
    Guard,
    /// A userfaultfd of the program watches it.
    Userfaultfd,
    /// It may not be written, and the kernel moves pages of writable mappings only.
    NotWritable,
    /// It is not plain anonymous memory.
    NotAnonymous,
    /// It has flags that a fresh mapping cannot be given.
    Special,
    /// We work with it ourselves.
    InUse,
    /// It changed while we looked.
    Changed,
    /// The other threads could not be stopped: one is traced already, or does not stop.
    CannotStop,
    /// There is no room for the few mappings that the work itself takes.
    NoRoom,
}

impl Reason {
    /// Short name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Differ(refusal) => refusal.name(),
            Reason::Shared => "shared",
            Reason::Pinned => "pinned",
            Reason::Locked => "locked",
            Reason::Guard => "guard",
            Reason::Userfaultfd => "userfaultfd",
            Reason::NotWritable => "not_writable",
            Reason::NotAnonymous => "not_anonymous",
            Reason::Special => "special",
            Reason::InUse => "in_use",
            Reason::Changed => "changed",
            Reason::CannotStop => "cannot_stop",
            Reason::NoRoom => "no_room",
        }
    }

    /// True for what came between us and a run of neighbours that could be one, rather than for what
    /// rightly keeps mappings apart.
    pub fn is_obstacle(self) -> bool {
        !matches!(
            self,
            Reason::Differ(_) | Reason::NotAnonymous | Reason::NotWritable | Reason::InUse
        )
    }

    /// What it means, for people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Differ(_) => "the mappings differ",
            Reason::Shared => "a page is shared after a fork, or by KSM; see --copy",
            Reason::Pinned => "a page is pinned for a device",
            Reason::Locked => "the memory is locked",
            Reason::Guard => "it has guard pages inside",
            Reason::Userfaultfd => "a userfaultfd of the program watches it",
            Reason::NotWritable => "the memory is not writable",
            Reason::NotAnonymous => "it is not plain anonymous memory",
            Reason::Special => "it has flags that a fresh mapping cannot be given",
            Reason::InUse => "the repair itself works with it",
            Reason::Changed => "it changed meanwhile",
            Reason::CannotStop => "the other threads could not be stopped",
            Reason::NoRoom => {
                "the limit of mappings leaves no room to work: raise vm.max_map_count by 16"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What stayed apart, by reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Mappings that were looked at.
    pub(crate) mappings: u64,
    /// Boundaries or pieces for each reason.
    pub by_reason: BTreeMap<Reason, u64>,
}

impl Kept {
    pub(crate) fn add(&mut self, reason: Reason) {
        *self.by_reason.entry(reason).or_default() += 1;
    }
}

/// What the caller knows of the flags that the process gave its mappings by `madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hidden {
    /// Nothing: they are read, by BPF where that is permitted, else from `smaps`.
    #[default]
    Read,
    /// There are none in the range, as its owner knows.
    Plain,
}

/// Whether the mappings may be changed by others while they are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Owner {
    /// The caller owns the range: until the repair has ended nobody unmaps, moves or protects any
    /// of it. Reading, writing and forking are free.
    #[default]
    Caller,
    /// Anybody may do anything at any time. The other threads are stopped for the one step that
    /// puts a fresh mapping in place, by a short-lived process that traces them.
    Anybody,
}

/// How pages come to another mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// They are moved, by the kernel (6.8 or later).
    Move,
    /// They are copied, within a process that stands.
    Copy,
}

/// How to repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// How long a thread may be kept from its memory; no bound where it is `None`.
    pub max_pause: Option<Duration>,
    /// How many pages may be copied because they are shared.
    pub copy_pages: u64,
    /// See [`Hidden`].
    pub hidden: Hidden,
    /// See [`Owner`].
    pub owner: Owner,
    /// How pages get there; where it is `None`, as the kernel can. From within they are moved in any case.
    pub way: Option<Way>,
}

/// What a repair did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Mappings in the range before.
    pub before: u64,
    /// Mappings in the range after, counted anew.
    pub after: u64,
    /// Runs of neighbours that could be one.
    pub runs: u64,
    /// Pieces that were joined.
    pub pieces: u64,
    /// Bytes of address space in them.
    pub bytes: u64,
    /// Pages that were copied: because they were shared, or all of them where none can be moved.
    pub copied: u64,
    /// How long the longest piece took.
    pub longest_pause: Duration,
    /// How long all of it took.
    pub total: Duration,
    /// Forks that came while pages were out and were completed.
    pub forks: u64,
    /// What stayed apart.
    pub kept: Kept,
}

/// Why a repair could not be done.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The range is not made of whole pages, or is empty.
    #[error("the range {0:#x}-{1:#x} is not made of whole pages, or is empty")]
    BadRange(u64, u64),
    /// No userfaultfd for us.
    #[error(
        "no permission to use userfaultfd: needs CAP_SYS_PTRACE, vm.unprivileged_userfaultfd=1, \
         or access to /dev/userfaultfd"
    )]
    Userfaultfd,
    /// The kernel cannot move pages.
    #[error(
        "moving pages needs Linux 6.8 or later with userfaultfd (UFFDIO_MOVE); vmarea merge -p PID copies \
         them on older ones"
    )]
    TooOld,
    /// The pause is too short.
    #[error("a pause of {asked:?} cannot be kept: the smallest piece takes about {needed:?}")]
    PauseTooShort {
        /// What was allowed.
        asked: Duration,
        /// What it takes.
        needed: Duration,
    },
    /// The list of mappings cannot be read.
    #[error("reading the mappings of process {pid}: {cause}")]
    Maps {
        /// Whose.
        pid: i32,
        /// Why.
        cause: io::Error,
    },
    /// Something failed that should not.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// The numbers that we are given are not those that our calls take.
    #[error(
        "/proc is that of another pid namespace, in which {0} may be another process than here: \
         mount a /proc of this namespace, or do it in the other one"
    )]
    ForeignNumbers(i32),
    /// It has no memory.
    #[error("process {0} has no memory of its own (it is a kernel thread)")]
    NoMemory(i32),
    /// It has ended meanwhile.
    #[error("process {0} has ended")]
    Ended(i32),
    /// It runs another program now.
    #[error("process {0} has become another program (execve); nothing is left in it of ours")]
    Replaced(i32),
    /// Somebody traces it.
    #[error("process {pid} is traced by process {tracer} already: end that first")]
    Traced {
        /// Which.
        pid: i32,
        /// By whom.
        tracer: i32,
    },
    /// It may not be traced.
    #[error(
        "no permission to trace process {}: needs CAP_SYS_PTRACE ({}), or the same user \
         where kernel.yama.ptrace_scope is 0",
        .0, rights::remedy(&[Capability::SysPtrace])
    )]
    Forbidden(i32),
    /// A program of another kind.
    #[error("process {0} is a 32-bit program; only 64-bit ones can be repaired")]
    Bits32(i32),
    /// Its filters would see our calls.
    #[error(
        "process {0} runs under a seccomp filter that may end it for our calls; to suspend the \
         filter needs CAP_SYS_ADMIN"
    )]
    Seccomp(i32),
    /// Somebody else uses the same memory.
    #[error("process {pid} shares its memory with process {other}: wait until one has ended")]
    SharedMemory {
        /// Which.
        pid: i32,
        /// With whom.
        other: i32,
    },
    /// A thread does not stop.
    #[error("thread {tid} of process {pid} does not stop (it waits in vfork, or for a device)")]
    CannotStop {
        /// Which.
        pid: i32,
        /// Which of its threads.
        tid: i32,
    },
    /// No instruction to use.
    #[error("process {0} has no instruction that makes a system call")]
    NoSyscall(i32),
    /// It may not have a userfaultfd.
    #[error("process {0} may not use userfaultfd (a sandbox forbids it, or SELinux)")]
    TargetUserfaultfd(i32),
    /// Its limits are reached.
    #[error(
        "process {0} has no room for the few mappings that the work takes: raise vm.max_map_count \
         by 16, or its RLIMIT_AS"
    )]
    NoRoom(i32),
    /// Somebody was here.
    #[error(
        "an earlier repair of process {0} was left in the middle: vmarea merge --resume -p {0}"
    )]
    Unfinished(i32),
    /// Somebody is at it.
    #[error("another merge{} is at work on process {pid}", by.map_or(String::new(), |by| format!(", pid {by},")))]
    AtWork {
        /// Which.
        pid: i32,
        /// By whom, where that can be seen.
        by: Option<i32>,
    },
    /// Somebody was here, and no journal says who.
    #[error(
        "process {0} holds the agent of another merge, the journal of which is elsewhere: one is at work, or \
         was ended in the middle (vmarea merge --resume -p {0} --journal FOLDER)"
    )]
    AgentThere(i32),
    /// A journal that cannot be what we wrote.
    #[error("the journal {path} is not followed: {why}")]
    Journal {
        /// Where it is.
        path: String,
        /// Why.
        why: String,
    },
    /// It must not run as it is.
    #[error(
        "process {pid} is left stopped: {what}: {cause}; vmarea merge --resume -p {pid} tries again"
    )]
    LeftStopped {
        /// Which.
        pid: i32,
        /// Why, and where what of its memory is.
        what: String,
        /// What the kernel answered.
        cause: io::Error,
    },
    /// It is whole and runs on, with something of ours in it.
    #[error(
        "process {pid} is whole and runs on, but the kernel would not take out what the repair had put \
         into it: {cause}; vmarea merge --resume -p {pid} tries again"
    )]
    LeftBehind {
        /// Which.
        pid: i32,
        /// What the kernel answered.
        cause: io::Error,
    },
    /// Pages could not be brought back; they are where it says.
    #[error("pages of {start:#x}-{end:#x} could not be brought back from {temporary:#x}: {cause}")]
    Stranded {
        /// Where they belong.
        start: u64,
        /// Where they belong, end.
        end: u64,
        /// Where they are.
        temporary: u64,
        /// Why.
        cause: io::Error,
    },
}

impl RepairError {
    /// True where a permission is missing.
    pub fn is_permission(&self) -> bool {
        match self {
            RepairError::Userfaultfd
            | RepairError::TooOld
            | RepairError::Forbidden(_)
            | RepairError::Traced { .. }
            | RepairError::Seccomp(_)
            | RepairError::TargetUserfaultfd(_) => true,
            RepairError::Maps { cause, .. } | RepairError::System { cause, .. } => {
                matches!(cause.raw_os_error(), Some(libc::EPERM | libc::EACCES))
            }
            _ => false,
        }
    }

    /// True where something was used up that may be had again: descriptors, memory.
    pub fn is_passing(&self) -> bool {
        let (RepairError::Maps { cause, .. } | RepairError::System { cause, .. }) = self else {
            return false;
        };
        matches!(
            cause.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN)
        )
    }

    /// The list of mappings could not be read, most likely because the process has ended.
    pub(crate) fn maps(pid: i32) -> impl Fn(io::Error) -> RepairError {
        move |cause| match cause.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => RepairError::Ended(pid),
            _ => RepairError::Maps { pid, cause },
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> RepairError {
        move |cause| RepairError::System { what, cause }
    }
}
