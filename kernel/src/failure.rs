//! Results of system calls: the value of a successful one, and the error number of a failed one.

use vmarea::types::Errno;

/// Result of a successful system call.
pub type Value = u64;

/// Internal result of a system call that was interrupted by a signal and may be restarted.
///
/// If a handler without `SA_RESTART` runs, the call fails with EINTR instead of being restarted.
/// Linux calls this result `ERESTARTSYS`; programs never see it.
pub const RESTART: u32 = 512;

/// Error number of a failed system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure(u32);

impl From<u32> for Failure {
    fn from(errno: u32) -> Failure {
        Failure(errno)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure(errno.number() as u32)
    }
}

impl Failure {
    /// Returns the error number.
    pub fn errno(self) -> u32 {
        self.0
    }
}
