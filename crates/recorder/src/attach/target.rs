//! Checks whether a running process can be recorded.

use super::RecordError;
use crate::lifecycle::thread_group;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};
use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_process::processes;
use vmarea_process::rights::{self, Capability};

/// Class of a 64-bit program in the fifth byte of an ELF file.
const ELF_CLASS_64: u8 = 2;

/// Milliseconds for which a process that executes a program may seem to have ended.
const EXECUTING: u32 = 20;

/// Checks a process before the recorder does anything to it.
///
/// # Errors
/// [`RecordError::NoProcess`], [`RecordError::Ended`], [`RecordError::Thread`],
/// [`RecordError::KernelThread`], [`RecordError::OwnProcess`], [`RecordError::NotPermitted`],
/// [`RecordError::ThirtyTwoBitProcess`].
pub(super) fn check(pid: i32) -> Result<(), RecordError> {
    let status = TaskStatus::read(pid).map_err(|_| RecordError::NoProcess(pid))?;
    let group = status.process().unwrap_or(0);
    if group != pid {
        return Err(RecordError::Thread {
            tid: pid,
            pid: group,
        });
    }
    if pid == rustix::process::getpid().as_raw_nonzero().get() {
        return Err(RecordError::OwnProcess(pid));
    }
    if !status.has_memory() && !runs_on(pid) {
        // A process that is exiting loses its memory before its state shows that it has ended.
        return Err(match status.is_of_kernel() {
            true => RecordError::KernelThread(pid),
            false => RecordError::Ended(pid),
        });
    }
    match elf_class(format!("/proc/{pid}/exe").as_ref()) {
        Ok(ELF_CLASS_64) => Ok(()),
        Ok(_) => Err(RecordError::ThirtyTwoBitProcess(pid)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(forbidden(pid)),
        // Without a readable file, the attempt to trace the process decides.
        Err(_) => Ok(()),
    }
}

/// True if the process has memory, which none of its threads shows for a moment while one of them
/// executes a program.
pub(super) fn runs_on(pid: i32) -> bool {
    let has_memory = || {
        let first = processes::facts(pid).is_ok_and(|facts| facts.anonymous_bytes.is_some());
        first || processes::other_thread(pid).is_some()
    };
    (0..EXECUTING).any(|_| {
        has_memory() || {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
    })
}

/// Checks that no thread traces the process yet; a process that is only observed may be traced.
///
/// # Errors
/// [`RecordError::TracedAlready`].
pub(super) fn check_untraced(pid: i32) -> Result<(), RecordError> {
    match tracing_of(pid) {
        Tracing::By(tracer) => Err(traced_already(pid, tracer)),
        Tracing::Exited | Tracing::Nobody => Ok(()),
    }
}

/// Returns the error for a process that this process is not permitted to trace.
pub(super) fn forbidden(pid: i32) -> RecordError {
    let scope = rights::ptrace_scope();
    let advice = rights::remedy(&[Capability::SysPtrace]);
    let remedy = match scope.as_str() {
        "" | "0" => advice,
        scope => format!("{advice}; kernel.yama.ptrace_scope is {scope}"),
    };
    RecordError::NotPermitted { pid, remedy }
}

/// Returns the error for a process that thread `tracer` already traces.
pub(super) fn traced_already(pid: i32, tracer: i32) -> RecordError {
    let tracer = thread_group(tracer).unwrap_or(tracer);
    RecordError::TracedAlready { pid, tracer }
}

fn elf_class(path: &Path) -> io::Result<u8> {
    let mut ident = [0; 5];
    File::open(path)?.read_exact(&mut ident)?;
    Ok(ident[4])
}

/// True if the process has opened a file for I/O that bypasses the page cache.
pub(super) fn has_direct_file(pid: i32) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten();
    entries.flatten().any(|entry| {
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        flags.is_some_and(|flags| flags & libc::O_DIRECT != 0)
    })
}

/// Waits until the thread that traced a process has ended, for at most a second.
pub(super) fn until_let_go(pid: i32) {
    let until = Instant::now() + Duration::from_secs(1);
    while matches!(tracing_of(pid), Tracing::By(_)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Who traces a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tracing {
    /// The thread has exited.
    Exited,
    /// The thread with this id traces it.
    By(i32),
    /// Nobody traces it.
    Nobody,
}

/// Returns who traces a thread.
pub(super) fn tracing_of(tid: i32) -> Tracing {
    let Ok(status) = TaskStatus::read(tid) else {
        return Tracing::Exited;
    };
    if status.has_ended() {
        return Tracing::Exited;
    }
    match status.tracer() {
        None => Tracing::Nobody,
        Some(tracer) => Tracing::By(tracer),
    }
}
