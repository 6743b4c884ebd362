//! Why a repair could not be done.

use std::io;
use std::time::Duration;

use vmarea_process::rights::{self, Capability};

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
        "process {0} holds the tools of another merge, the journal of which is elsewhere: one is at work, or \
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
