//! Actions: the effects of recorded calls.
//!
//! An action is either a [`Syscall`] of the core or a change that only the replayer tracks.
//!
//! [`super::decode`] derives an action from the call's recorded number and arguments.

use vmarea::syscall::Syscall;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::Errno;
use vmarea_trace::event::{MmId, Tid};

pub use super::files::Files;

/// Effect of a recorded call on the replay.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A system call in the caller's address space.
    Call(Syscall),
    /// A system call in the address space for which a userfaultfd was created.
    CallOn(MmId, Syscall),
    /// The call fails before the kernel accesses any address space.
    Refuse(Errno),
    /// `setrlimit` or `prlimit64` sets the limits of the calling process or of process `of`.
    Limit {
        /// Number of the resource (`RLIMIT_*`).
        resource: u32,
        /// The soft limit.
        soft: u64,
        /// The hard limit.
        hard: u64,
        /// The process whose limit changes; `None` for the caller's process.
        of: Option<Tid>,
    },
    /// `setuid` or a variant, `capset`, `unshare` or `setns` sets the calling thread's
    /// capabilities.
    Capabilities {
        /// Mask with one bit per capability.
        mask: u64,
    },
    /// `personality` sets or clears `READ_IMPLIES_EXEC`.
    ReadImpliesExec(bool),
    /// `PR_SET_MM_MAP` sets the bounds of the data, the bounds of the heap, and the start of the
    /// stack.
    Parts([u64; 5]),
    /// The call has no effect on an address space, or a later event records its effect.
    Nothing,
    /// A userfaultfd command that adds, removes or protects pages, or whose context is unknown.
    Userfault {
        /// Address of the first byte.
        start: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A call that the core does not model.
    Opaque(Opaque),
}

/// A call that the core does not model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// Name of the call.
    pub what: &'static str,
    /// The affected range: its first address and the address after its last byte. `None` if any
    /// memory may be affected.
    pub range: Option<(u64, u64)>,
}

/// Returns the existing ranges that a call works on: each range's first address and its length in
/// bytes, as the caller gave them. The range that a call creates is not included.
pub(crate) fn ranges(call: &Syscall) -> Vec<(u64, u64)> {
    match *call {
        Syscall::Mremap(MremapRequest { addr, old_len, .. }) => vec![(addr, old_len)],
        Syscall::Mprotect { addr, len, .. }
        | Syscall::Madvise { addr, len, .. }
        | Syscall::Mlock { addr, len, .. }
        | Syscall::Munlock { addr, len }
        | Syscall::Mseal { addr, len, .. }
        | Syscall::Mbind { addr, len, .. }
        | Syscall::RemapFilePages { addr, len, .. }
        | Syscall::Munmap { addr, len } => vec![(addr, len)],
        Syscall::ProcessMadvise { ref ranges, .. } => ranges.clone(),
        _ => Vec::new(),
    }
}
