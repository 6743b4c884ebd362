//! Finds the command in `PATH`, checks it, and starts it under the tracer.
//!
//! The command is checked before the fork, because after the fork the recorder would see only an
//! errno from the child, and could not suggest a remedy in the error message.

use super::RecordError;
use super::filter::{self, Stopping};
use nix::sys::ptrace;
use nix::unistd::Pid;
use rustix::fs::Access;
use rustix::process::WaitOptions;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vmarea_linux_sys::ptrace::{Resume, resume};
use vmarea_linux_sys::spawn::{self, Privileges, Waiting};
use vmarea_linux_sys::task_status::TaskStatus;

/// Bit number of `CAP_SYS_ADMIN` in a capability set.
pub(crate) const SYS_ADMIN: u32 = 21;
/// Bit number of `CAP_SYS_PTRACE` in a capability set.
pub(crate) const SYS_PTRACE: u32 = 19;
const SETUID_OR_SETGID: u32 = 0o6000;

/// Path, arguments and privileges of the program to record.
#[derive(Debug)]
pub(crate) struct Command {
    /// Path of the program's file.
    pub path: PathBuf,
    /// Whether set-user-ID programs can gain privileges.
    pub privileges: Privileges,
    argv: Vec<CString>,
}

impl Command {
    /// Finds the program and checks whether it can be recorded.
    ///
    /// # Errors
    /// [`RecordError::NoCommand`], [`RecordError::NotFound`], [`RecordError::NotExecutable`],
    /// [`RecordError::Setuid`].
    pub(crate) fn find(words: &[OsString]) -> Result<Command, RecordError> {
        let name = words.first().ok_or(RecordError::NoCommand)?;
        let path = find_program(name)?;
        let privileges = match has_capability(SYS_ADMIN) {
            true => Privileges::Kept,
            false => Privileges::NoNew,
        };
        if privileges == Privileges::NoNew && is_setuid(&path) {
            return Err(RecordError::Setuid(path));
        }
        let argv = words
            .iter()
            .map(|word| CString::new(word.as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|e| RecordError::Start(e.into()))?;
        Ok(Command {
            path,
            privileges,
            argv,
        })
    }

    /// Forks the child and seizes it. The child waits before its `execve`.
    ///
    /// # Errors
    /// [`RecordError::Start`], [`RecordError::TracingForbidden`].
    pub(crate) fn fork(&self, stopping: Stopping) -> Result<Waiting, RecordError> {
        let path = CString::new(self.path.as_os_str().as_bytes())
            .map_err(|e| RecordError::Start(e.into()))?;
        let filter = filter::program(stopping);
        let waiting = spawn::fork_waiting(&path, &self.argv, &filter, self.privileges)
            .map_err(RecordError::Start)?;
        let options = ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_TRACESECCOMP
            | ptrace::Options::PTRACE_O_TRACECLONE
            | ptrace::Options::PTRACE_O_TRACEFORK
            | ptrace::Options::PTRACE_O_TRACEVFORK
            | ptrace::Options::PTRACE_O_TRACEEXEC
            | ptrace::Options::PTRACE_O_TRACEEXIT
            | ptrace::Options::PTRACE_O_EXITKILL;
        let pid = Pid::from_raw(waiting.pid());
        if let Err(e) = ptrace::seize(pid, options) {
            abandon(waiting);
            return Err(RecordError::TracingForbidden(e.into()));
        }
        Ok(waiting)
    }
}

impl Command {
    /// Returns the reason why the child did not execute the command.
    pub(crate) fn explain(&self, failure: Option<io::Error>) -> RecordError {
        let path = self.path.clone();
        match failure {
            // The program exists, so its interpreter is missing.
            Some(cause) if cause.kind() == io::ErrorKind::NotFound => RecordError::NotExecutable {
                path,
                cause: io::Error::other("its interpreter does not exist"),
            },
            Some(cause) => match cause.raw_os_error() {
                Some(libc::ENOEXEC | libc::EACCES | libc::ETXTBSY | libc::ELIBBAD) => {
                    RecordError::NotExecutable { path, cause }
                }
                _ => RecordError::Start(cause),
            },
            None => RecordError::Start(io::Error::other("it was killed before it began")),
        }
    }
}

/// Ends a child that has not yet executed the command.
pub(crate) fn abandon(waiting: Waiting) {
    let child = rustix::process::Pid::from_raw(waiting.pid());
    // Closing the pipe makes the child exit, after the stop that the seizure causes.
    drop(waiting);
    while let Ok(Some((pid, status))) = rustix::process::waitpid(child, WaitOptions::empty()) {
        if !status.stopped() {
            break;
        }
        let _ = resume(pid.as_raw_nonzero().get(), Resume::Continue, 0);
    }
}

/// True if a file is set-user-ID or set-group-ID.
pub(crate) fn is_setuid(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.mode() & SETUID_OR_SETGID != 0)
}

fn find_program(name: &OsStr) -> Result<PathBuf, RecordError> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(RecordError::NotFound(path.display().to_string()))
            }
            Err(cause) => Err(RecordError::NotExecutable { path, cause }),
        };
    }
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut refused = None;
    for folder in std::env::split_paths(&search) {
        // An empty entry represents the current directory.
        let path = Path::new(".").join(folder).join(name);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                refused.get_or_insert(RecordError::NotExecutable { path, cause });
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| RecordError::NotFound(name.to_string_lossy().into_owned())))
}

fn executable(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(rustix::fs::access(path, Access::EXEC_OK)?)
}

/// True if this process has a capability.
pub(crate) fn has_capability(number: u32) -> bool {
    TaskStatus::own().has_capability(number)
}
