//! A child process that waits before it executes another program.
//!
//! Between `fork` and `execve`, the child of a multithreaded process may only make plain system
//! calls, so the parent prepares everything before the fork. The child waits until its tracer has
//! seized it, installs the seccomp filter, and executes the command. A failing child sends its
//! errno through a pipe that a successful `execve` closes.

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// Whether the child may gain privileges through `execve`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privileges {
    /// Set-user-ID programs work as usual; needs `CAP_SYS_ADMIN`.
    Kept,
    /// The child sets `no_new_privs`, without which an unprivileged user cannot install a filter.
    NoNew,
}

/// A forked child that has not yet executed the command.
#[derive(Debug)]
pub struct Waiting {
    pid: i32,
    go: OwnedFd,
    failure: OwnedFd,
}

/// A child that is about to call `execve`.
#[derive(Debug)]
pub struct Started {
    failure: OwnedFd,
}

/// Forks a child that will install the seccomp filter `filter` and execute `path` with `argv`.
///
/// # Errors
/// The errors of `pipe` and `fork`.
pub fn fork_waiting(
    path: &CString,
    argv: &[CString],
    filter: &[libc::sock_filter],
    privileges: Privileges,
) -> io::Result<Waiting> {
    let (go_read, go) = pipe_with(PipeFlags::CLOEXEC)?;
    let (failure, failure_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut pointers: Vec<*const c_char> = argv.iter().map(|a| a.as_ptr()).collect();
    pointers.push(ptr::null());
    let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: until it executes the command or exits, the child only makes system calls, on memory
    // that was prepared above.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let fds = (go.as_raw_fd(), go_read.as_raw_fd());
            // SAFETY: this code runs in the child; the pointers are valid and end with null.
            let errno = unsafe { become_command(fds, path, &pointers, &program, privileges) };
            let bytes = errno.to_ne_bytes();
            // SAFETY: the calls write four bytes of a local variable and end the process.
            unsafe {
                libc::write(failure_write.as_raw_fd(), bytes.as_ptr().cast(), 4);
                libc::_exit(127)
            }
        }
        pid => Ok(Waiting { pid, go, failure }),
    }
}

/// Executes the command in the child. Returns only if that fails, with an errno.
///
/// # Safety
/// Must be called in a freshly forked child; `argv` must end with null.
unsafe fn become_command(
    (go_write, go_read): (i32, i32),
    path: &CString,
    argv: &[*const c_char],
    program: &libc::sock_fprog,
    privileges: Privileges,
) -> i32 {
    let errno = || io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let mut byte = 0u8;
    // SAFETY: plain system calls on descriptors and memory that the caller guarantees to be valid.
    unsafe {
        // With this copy of the write end open, the child would never notice that its tracer died.
        libc::close(go_write);
        loop {
            match libc::read(go_read, (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if errno() == libc::EINTR => {}
                _ => libc::_exit(127),
            }
        }
        // The Rust runtime ignores SIGPIPE, and an ignored signal survives execve.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if privileges == Privileges::NoNew
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        {
            return errno();
        }
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        if libc::syscall(libc::SYS_seccomp, mode, 0, &raw const *program) == -1 {
            return errno();
        }
        // For a path with a slash, `execvp` is `execve`, except that it passes a script without
        // `#!` to the shell, as in any other program.
        libc::execvp(path.as_ptr(), argv.as_ptr());
        errno()
    }
}

impl Waiting {
    /// Process id of the child.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child continue to `execve`.
    ///
    /// # Errors
    /// `EPIPE` if the child was killed in the meantime.
    pub fn go(self) -> io::Result<Started> {
        rustix::io::write(&self.go, &[1])?;
        Ok(Started {
            failure: self.failure,
        })
    }
}

impl Started {
    /// Returns the error with which `execve` failed. Call this method after the child has exited.
    pub fn failure(&self) -> Option<io::Error> {
        let mut bytes = [0; 4];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.failure, &mut bytes)) {
            Ok(4) => Some(Errno::from_raw_os_error(i32::from_ne_bytes(bytes)).into()),
            _ => None,
        }
    }
}
