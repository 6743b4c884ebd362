//! The error type of repairs.

use std::io;
use std::time::Duration;

use vmarea_process::rights::{self, Capability};

/// Reason why a repair failed.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The range is not page-aligned, or is empty.
    #[error("the range {0:x}-{1:x} is not made of whole pages, or is empty")]
    BadRange(u64, u64),
    /// This process has no permission to use userfaultfd.
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
    /// The maximum pause is too short even for the smallest piece.
    #[error(
        "a pause of {asked:?} cannot be kept: to stop all threads and make the smallest change takes \
         about {} ms; --max-pause {}ms permits it",
        needed.as_millis() + 1, needed.as_millis() * 2 + 1
    )]
    PauseTooShort {
        /// The maximum pause that the caller allowed.
        asked: Duration,
        /// The shortest pause in which the threads can be stopped and a piece be changed.
        needed: Duration,
    },
    /// The list of mappings cannot be read.
    #[error("cannot read the mappings of process {pid}: {cause}")]
    Maps {
        /// Id of the process.
        pid: i32,
        /// The underlying error.
        cause: io::Error,
    },
    /// A system call failed unexpectedly.
    #[error("cannot {what}: {cause}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The underlying error.
        cause: io::Error,
    },
    /// There is no such process.
    #[error(
        "there is no process {0} (inside of a container it has another number: see NSpid in \
         /proc/*/status)"
    )]
    NoProcess(i32),
    /// `/proc` belongs to another pid namespace. Its process ids differ from those in this
    /// process's own namespace.
    #[error(
        "/proc is that of another pid namespace, in which {0} may be another process than here: \
         mount a /proc of this namespace, or do it in the other one"
    )]
    ForeignNumbers(i32),
    /// The process has no memory (kernel thread).
    #[error("process {0} has no memory of its own (it is a kernel thread)")]
    NoMemory(i32),
    /// The process has ended.
    #[error("process {0} has ended")]
    Ended(i32),
    /// The process has executed another program (`execve`).
    #[error("process {0} has become another program (execve); nothing is left in it of ours")]
    Replaced(i32),
    /// Another process traces the process.
    #[error("process {pid} is traced by process {tracer} already: end that first")]
    Traced {
        /// Id of the process.
        pid: i32,
        /// Id of the tracer.
        tracer: i32,
    },
    /// This process has no permission to trace the target process.
    #[error(
        "no permission to trace process {}: {}", .0, why_forbidden()
    )]
    Forbidden(i32),
    /// The process is a 32-bit program.
    #[error(
        "process {0} is a 32-bit program, or all its threads are in 32-bit code; only 64-bit ones can be repaired"
    )]
    Bits32(i32),
    /// The process has a seccomp filter, which would also apply to the repair's own system calls.
    #[error(
        "process {0} runs under a seccomp filter that may end it for our calls: suspending the \
         filter needs CAP_SYS_ADMIN"
    )]
    Seccomp(i32),
    /// Another process uses the same memory.
    #[error("process {pid} shares its memory with process {other}: wait until one has ended")]
    SharedMemory {
        /// Id of the process.
        pid: i32,
        /// Id of the other process that uses the same memory.
        other: i32,
    },
    /// A thread of the process does not stop.
    #[error(
        "thread {tid} of process {pid} does not stop (it waits in vfork, or for a device): try again later"
    )]
    CannotStop {
        /// Id of the process.
        pid: i32,
        /// Id of the thread that does not stop.
        tid: i32,
    },
    /// The process has no vDSO with unused bytes, in which vmarea's first instructions would run.
    #[error("process {0} has no place for a first instruction: its vDSO is missing or full")]
    NoSlack(i32),
    /// The process runs with a shadow stack.
    #[error("process {0} runs with a shadow stack (CET), with which this was never tried")]
    ShadowStack(i32),
    /// There is no agent for this processor, or the kernel is too old for it.
    #[error("live processes can be merged on x86-64 with Linux 5.13 or later only")]
    Unsupported,
    /// The process has no permission to use userfaultfd.
    #[error("process {0} may not use userfaultfd (a sandbox or SELinux forbids it)")]
    TargetUserfaultfd(i32),
    /// The process has reached its limit on mappings or address space.
    #[error(
        "process {0} has no room for the few mappings that the work takes: raise vm.max_map_count \
         by 16, or its RLIMIT_AS"
    )]
    NoRoom(i32),
    /// The process cannot have one more thread.
    #[error(
        "process {pid} cannot have the thread that does the work: {cause}; raise its pids.max (cgroup) or \
         its RLIMIT_NPROC by 2"
    )]
    NoThread {
        /// Id of the process.
        pid: i32,
        /// The error of `clone`.
        cause: io::Error,
    },
    /// The process may not have new executable memory.
    #[error("process {0} may not map executable memory (SELinux execmem, or a sandbox)")]
    NoCode(i32),
    /// Another repair of the process is running.
    #[error("another merge{} is at work on process {pid}: wait until it has ended", by.map_or(String::new(), |by| format!(", pid {by},")))]
    AtWork {
        /// Id of the process.
        pid: i32,
        /// Id of the process that runs the other repair, if known.
        by: Option<i32>,
    },
    /// A signal handler of the process returns to code of a repair whose tracer was killed.
    #[error(
        "thread {tid} of process {pid} is in a signal handler that returns to code of an earlier merge: try again when the handler has returned"
    )]
    InHandler {
        /// Id of the process.
        pid: i32,
        /// Id of the thread.
        tid: i32,
    },
    /// The process is running and its memory is complete, but memory of the repair remains in it.
    #[error(
        "process {pid} is whole and runs on, but what the merge had mapped in it could not be unmapped: \
         {cause}; vmarea merge --resume -p {pid} tries again"
    )]
    LeftBehind {
        /// Id of the process.
        pid: i32,
        /// The error of the kernel, or why the process could not be stopped.
        cause: io::Error,
    },
    /// A guard page was made accessible, and neither call that would guard it again succeeded.
    #[error("process {pid} runs on, but its guard page at {guard:#x} is accessible: {cause}")]
    GuardOpen {
        /// Id of the process.
        pid: i32,
        /// Address of the guard page.
        guard: u64,
        /// The error that the kernel returned.
        cause: io::Error,
    },
    /// The process that traces for this one was killed.
    #[error(
        "the process that traced process {0} for this one was killed; process {0} is whole and runs on, \
         and the same command goes on"
    )]
    Tracer(i32),
    /// The repair was asked to end, and will do so by itself.
    #[error(
        "process {0} cannot be stopped at the moment; the merge ends by itself as soon as it can be"
    )]
    GoesOn(i32),
}

impl RepairError {
    /// True if the cause is a missing permission or a kernel that is too old.
    pub fn is_permission(&self) -> bool {
        match self {
            RepairError::Userfaultfd
            | RepairError::TooOld
            | RepairError::Unsupported
            | RepairError::Forbidden(_)
            | RepairError::Traced { .. }
            | RepairError::Seccomp(_)
            | RepairError::NoCode(_)
            | RepairError::TargetUserfaultfd(_) => true,
            RepairError::Maps { cause, .. } | RepairError::System { cause, .. } => {
                matches!(cause.raw_os_error(), Some(libc::EPERM | libc::EACCES))
            }
            _ => false,
        }
    }

    /// Converts an error from reading the list of mappings, usually because the process has ended.
    pub(crate) fn maps(pid: i32) -> impl Fn(io::Error) -> RepairError {
        move |cause| match cause.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => RepairError::Ended(pid),
            // The files of an address space that is gone are empty.
            None if cause.kind() == io::ErrorKind::UnexpectedEof => {
                match std::fs::read(format!("/proc/{pid}/auxv")) {
                    Ok(another) if !another.is_empty() => RepairError::Replaced(pid),
                    _ => RepairError::Ended(pid),
                }
            }
            _ => RepairError::Maps { pid, cause },
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> RepairError {
        move |cause| RepairError::System { what, cause }
    }
}

/// Returns what a process needs to trace another one here.
fn why_forbidden() -> String {
    match rights::ptrace_scope().as_str() {
        "3" => "kernel.yama.ptrace_scope is 3, with which nobody may trace until the next boot"
            .to_owned(),
        _ => format!(
            "needs CAP_SYS_PTRACE ({}), or the same user where kernel.yama.ptrace_scope is 0",
            rights::remedy(&[Capability::SysPtrace])
        ),
    }
}
