//! Checks whether a running process can be recorded.

use super::RecordError;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use vmarea_process::rights::{self, Capability};

/// Class of a 64-bit program in the fifth byte of an ELF file.
const ELF_CLASS_64: u8 = 2;

/// Checks a process before the recorder does anything to it.
///
/// # Errors
/// [`RecordError::NoProcess`], [`RecordError::Ended`], [`RecordError::Thread`],
/// [`RecordError::KernelThread`], [`RecordError::OwnProcess`], [`RecordError::TracedAlready`],
/// [`RecordError::NotPermitted`], [`RecordError::ThirtyTwoBitProcess`].
pub(super) fn check(pid: i32) -> Result<(), RecordError> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.map_err(|_| RecordError::NoProcess(pid))?;
    let number = |name: &str| -> i32 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
    };
    let group = number("Tgid:");
    if group != pid {
        return Err(RecordError::Thread {
            tid: pid,
            pid: group,
        });
    }
    if pid == rustix::process::getpid().as_raw_nonzero().get() {
        return Err(RecordError::OwnProcess(pid));
    }
    if !status.contains("\nVmSize:") {
        // Kernel threads, which are children of process 2, never have memory. A process that is
        // exiting loses its memory before its state shows that it has ended.
        return Err(match pid == 2 || number("PPid:") == 2 {
            true => RecordError::KernelThread(pid),
            false => RecordError::Ended(pid),
        });
    }
    let tracer = number("TracerPid:");
    if tracer != 0 {
        return Err(RecordError::TracedAlready { pid, tracer });
    }
    match elf_class(format!("/proc/{pid}/exe").as_ref()) {
        Ok(ELF_CLASS_64) => Ok(()),
        Ok(_) => Err(RecordError::ThirtyTwoBitProcess(pid)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(forbidden(pid)),
        // Without a readable file, the attempt to trace the process decides.
        Err(_) => Ok(()),
    }
}

/// Returns the error for a process that this process is not permitted to trace.
pub(super) fn forbidden(pid: i32) -> RecordError {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let advice = rights::remedy(&[Capability::SysPtrace]);
    let remedy = match scope.trim() {
        "" | "0" => advice,
        scope => format!("{advice}; kernel.yama.ptrace_scope is {scope}"),
    };
    RecordError::NotPermitted { pid, remedy }
}

fn elf_class(path: &Path) -> io::Result<u8> {
    let mut ident = [0; 5];
    File::open(path)?.read_exact(&mut ident)?;
    Ok(ident[4])
}
