//! A child process in a session of its own, which goes on if its parent is killed.
//!
//! The child is a fork and executes no other program, so it has everything that its parent has read
//! so far. It may allocate memory: the C library makes its allocator usable in the child of a
//! multithreaded process. It must not take locks that another thread of the parent may hold, such as
//! those of the standard streams.

use std::io;
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
