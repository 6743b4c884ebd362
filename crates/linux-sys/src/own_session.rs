//! A child process in a session of its own, which goes on if its parent is killed.
//!
//! The child is a fork and executes no other program, so it has everything that its parent has read
//! so far. It may allocate memory: the C library makes its allocator usable in the child of a
//! multithreaded process. It must not take locks that another thread of the parent may hold, such as
//! those of the standard streams.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Exit status of a child that has panicked.
const PANICKED: i32 = 101;

/// A child process; dropping the value waits until it has ended.
#[derive(Debug)]
pub struct Apart {
    pid: i32,
}

/// Starts a child that runs `body` with its end of a socket pair. Returns the other end.
///
/// # Errors
/// The errors of `socketpair` and `fork`.
pub fn start(body: impl FnOnce(UnixStream)) -> io::Result<(Apart, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: the child runs `body` on its own copy of the memory, and ends without returning.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            // A terminal's signals do not reach another session.
            // SAFETY: the call takes no arguments; it fails for no child.
            unsafe { libc::setsid() };
            let done = catch_unwind(AssertUnwindSafe(|| body(theirs)));
            // SAFETY: the call ends this process at once.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { PANICKED }) }
        }
        pid => Ok((Apart { pid }, ours)),
    }
}

/// Starts a process that runs `body` and is nobody's child here: the init process, or a subreaper,
/// adopts it. Of this process's descriptors it keeps standard error only.
///
/// # Errors
/// The errors of `fork`.
pub fn start_detached(body: impl FnOnce()) -> io::Result<()> {
    let (child, mut from) = start(|mut to| {
        // SAFETY: the process below runs `body` on its own copy of the memory, and ends without
        // returning.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            // An `Apart` that was inherited must not be waited for, and nothing is dropped here.
            if keep_standard_error().is_ok() {
                let _ = catch_unwind(AssertUnwindSafe(body));
            }
            // SAFETY: the call ends this process at once.
            unsafe { libc::_exit(0) }
        }
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let result = if forked < 0 { errno } else { 0 };
        // The parent reads zero bytes if this fails.
        let _ = to.write_all(&result.to_ne_bytes());
    })?;
    let mut errno = [0; 4];
    from.read_exact(&mut errno)?;
    drop(child);
    match i32::from_ne_bytes(errno) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Opens `/dev/null` as standard error.
pub fn leave_standard_error() {
    // SAFETY: the path ends with a zero byte; standard error is not owned by any value.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if null >= 0 {
            libc::dup2(null, libc::STDERR_FILENO);
            libc::close(null);
        }
    }
}

/// Closes all descriptors but standard error, and opens `/dev/null` as the other two.
fn keep_standard_error() -> io::Result<()> {
    // SAFETY: the caller runs code that uses none of the descriptors that were open before; the
    // path ends with a zero byte.
    let is_done = unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        let is_done = null >= 0 && libc::dup2(null, 0) == 0 && libc::dup2(null, 1) == 1;
        is_done && libc::close_range(3, u32::MAX, 0) == 0 && libc::chdir(c"/".as_ptr()) == 0
    };
    match is_done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

impl Apart {
    /// Lets the child go on without waiting for its end.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        loop {
            // SAFETY: the call takes numbers and a null pointer, which is allowed; `pid` is this
            // process's child.
            let got = unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
            if got >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }
}
