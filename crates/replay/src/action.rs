//! Actions: the effects of recorded calls.
//!
//! An action is either a [`Syscall`] of the core or a change that only the replayer tracks.
//!
//! [`super::decode`] derives the effect from the recorded numbers.

use vmarea::syscall::Syscall;
use vmarea::types::Errno;
use vmarea_trace::event::{MmId, Tid};

pub use super::files::Files;

/// Effect of a recorded call on the replay.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A system call in the caller's address space.
    Call(Syscall),
    /// A system call in another address space: the one that a userfaultfd was created for.
    CallOn(MmId, Syscall),
    /// The call fails before the kernel accesses any address space.
    Refuse(Errno),
    /// `setrlimit`, `prlimit64`: new soft and hard limits of the calling process or of process
    /// `of`.
    Limit {
        /// Number of the resource (`RLIMIT_*`).
        resource: u32,
        /// The soft limit.
        soft: u64,
        /// The hard limit.
        hard: u64,
        /// The process whose limit changes, if it is not the caller.
        of: Option<Tid>,
    },
    /// `setuid` and its variants, `capset`, `unshare`, `setns`: new capabilities of the calling
    /// thread.
    Capabilities {
        /// Mask with one bit per capability.
        mask: u64,
    },
    /// `personality` sets or clears `READ_IMPLIES_EXEC`.
    ReadImpliesExec(bool),
    /// `PR_SET_MM_MAP`: start and end of the data, start and end of the heap, start of the stack.
    Parts([u64; 5]),
    /// The call has no effect on an address space, or a later event records its effect.
    Nothing,
    /// A userfaultfd command that adds, removes or protects pages, or whose userfaultfd context is
    /// unknown.
    Userfault {
        /// Address of the first byte.
        start: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A call that is not modelled.
    Opaque(Opaque),
}

/// A call that is not modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// Name of the call.
    pub what: &'static str,
    /// Affected range: first byte and the byte after the last. `None` if it may be anywhere.
    pub range: Option<(u64, u64)>,
}
