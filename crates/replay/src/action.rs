//! What a recorded call does: a [`Syscall`] of the core, or something that only the replayer knows.
//! How it follows from the recorded numbers is in [`super::decode`].

use super::uncertain::Uncertain;
use vmarea::syscall::Syscall;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::Errno;
use vmarea_trace::event::{MmId, Tid};

pub use super::files::Files;

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A call, in the address space of the caller.
    Call(Syscall),
    /// A call in another address space: the one that a userfaultfd was made for.
    CallOn(MmId, Syscall),
    /// Refused before any address space is looked at.
    Refuse(Errno),
    /// `setrlimit`, `prlimit64`: a soft and a hard limit of a process: the caller's own, or that
    /// of number `of`.
    Limit {
        /// `RLIMIT_` number.
        resource: u32,
        /// The soft limit.
        soft: u64,
        /// The hard limit.
        hard: u64,
        /// The process, where it is not the caller.
        of: Option<Tid>,
    },
    /// `setuid` and its kin, `capset`, `unshare`, `setns`: the capabilities of the calling thread
    /// from here on.
    Capabilities {
        /// A bit for each.
        mask: u64,
    },
    /// `READ_IMPLIES_EXEC` of `personality`.
    ReadImpliesExec(bool),
    /// `PR_SET_MM_MAP`: begin and end of the data, begin and end of the heap, begin of the stack.
    Parts([u64; 5]),
    /// Nothing for an address space, or nothing that shows before another event.
    Nothing,
    /// Pages that a userfaultfd brings, takes or protects, or a registration whose context is not
    /// known.
    Userfault {
        /// First byte.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// Not modelled.
    Opaque(Opaque),
}

/// A call that is not modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// What it was.
    pub what: &'static str,
    /// Where it had its effect, first byte and the one after the last; none for anywhere.
    pub range: Option<(u64, u64)>,
}

impl Action {
    /// Does its result hang on memory of which something is not known?
    pub(super) fn touches(&self, uncertain: &Uncertain) -> bool {
        let touches = |addr: u64, len: u64| uncertain.touches((addr, addr.saturating_add(len)));
        let call = match self {
            Action::Call(call) => call,
            // Whatever a context says of its own ranges: they are so already.
            Action::CallOn(..) => return true,
            _ => return false,
        };
        match *call {
            Syscall::Mremap(MremapRequest { addr, old_len, .. }) => touches(addr, old_len),
            Syscall::Mprotect { addr, len, .. }
            | Syscall::Madvise { addr, len, .. }
            | Syscall::Mlock { addr, len, .. }
            | Syscall::Munlock { addr, len }
            | Syscall::Mseal { addr, len, .. }
            | Syscall::Mbind { addr, len, .. }
            | Syscall::RemapFilePages { addr, len, .. }
            | Syscall::Munmap { addr, len } => touches(addr, len),
            Syscall::ProcessMadvise { ref ranges, .. } => {
                ranges.iter().any(|(addr, len)| touches(*addr, *len))
            }
            _ => false,
        }
    }
}
