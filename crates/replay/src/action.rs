//! What a world can do: recorded calls with arguments of their own types. What the numbers of a
//! call mean is in [`super::meaning`].

use super::uncertain::Uncertain;
use std::num::NonZeroU32;
use vmarea::call::mlock::LockPages;
use vmarea::call::process_madvise::Advised;
use vmarea::call::shm::ShmFlags;
use vmarea::call::userfaultfd::WatchMode;
use vmarea::values::call_flags::{MclFlags, MremapFlags};
use vmarea::values::{Errno, File};
use vmarea_trace::event::{MmId, Tid};

pub use super::files::Files;

/// What to do. The arguments have the names of the manual pages.
#[expect(missing_docs, reason = "the names are those of the manual pages")]
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// `mmap`.
    Mmap {
        addr: u64,
        len: u64,
        prot: u32,
        flags: u32,
        file: Option<File>,
        offset: u64,
        refused: Option<Errno>,
    },
    /// Refused before any address space is looked at.
    Refuse(Errno),
    /// `remap_file_pages`.
    RemapFilePages {
        addr: u64,
        len: u64,
        prot: u32,
        pgoff: u64,
        flags: u32,
    },
    /// `mbind`; a node is a bit.
    Mbind {
        addr: u64,
        len: u64,
        mode: u32,
        nodes: u64,
        flags: u32,
    },
    /// `process_madvise`.
    ProcessMadvise {
        ranges: Vec<(u64, u64)>,
        advice: i32,
        advised: Advised,
    },
    /// `UFFDIO_REGISTER`, in the address space that the context was made for.
    Watch {
        owner: MmId,
        context: NonZeroU32,
        start: u64,
        len: u64,
        mode: WatchMode,
    },
    /// `UFFDIO_UNREGISTER`.
    Unwatch {
        owner: MmId,
        context: NonZeroU32,
        start: u64,
        len: u64,
    },
    /// `munmap`.
    Munmap { addr: u64, len: u64 },
    /// `mprotect`, `pkey_mprotect`.
    Mprotect {
        addr: u64,
        len: u64,
        prot: u32,
        pkey: i32,
    },
    /// `pkey_alloc`.
    PkeyAlloc { flags: u64, denied: u64 },
    /// `pkey_free`.
    PkeyFree { pkey: i32 },
    /// `mremap`.
    Mremap {
        addr: u64,
        old_len: u64,
        new_len: u64,
        flags: MremapFlags,
        new_addr: u64,
    },
    /// `brk`.
    Brk { addr: u64 },
    /// `madvise`.
    Madvise { addr: u64, len: u64, advice: i32 },
    /// `mlock`, `mlock2`.
    Mlock {
        addr: u64,
        len: u64,
        pages: LockPages,
    },
    /// `munlock`.
    Munlock { addr: u64, len: u64 },
    /// `mlockall`.
    Mlockall { flags: MclFlags },
    /// `munlockall`.
    Munlockall,
    /// `mseal`.
    Mseal { addr: u64, len: u64, flags: u64 },
    /// `shmat` of a segment that exists.
    Shmat {
        segment: File,
        len: u64,
        addr: u64,
        flags: ShmFlags,
    },
    /// `shmdt`; with the sizes of all segments in bytes, by inode.
    Shmdt { addr: u64, sizes: Vec<(u64, u64)> },
    /// `setrlimit`, `prlimit64`: a soft and a hard limit of a process: the caller's own, or that
    /// of number `of`.
    Limit {
        resource: u32,
        soft: u64,
        hard: u64,
        of: Option<Tid>,
    },
    /// `setuid` and its kin, `capset`, `unshare`, `setns`: the capabilities of the calling thread
    /// from here on.
    Capabilities { mask: u64 },
    /// `prctl`, as far as it matters: the option and its arguments.
    Prctl { args: [u64; 5] },
    /// `READ_IMPLIES_EXEC` of `personality`.
    ReadImpliesExec(bool),
    /// `PR_SET_MM_MAP`: begin and end of the data, begin and end of the heap, begin of the stack.
    Parts([u64; 5]),
    /// Nothing for an address space, or nothing that shows before another event.
    Nothing,
    /// Pages that a userfaultfd brings, takes or protects, or a registration whose context is not
    /// known.
    Userfault { start: u64, len: u64 },
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
        match *self {
            Action::Mremap { addr, old_len, .. } => touches(addr, old_len),
            Action::Mprotect { addr, len, .. }
            | Action::Madvise { addr, len, .. }
            | Action::Mlock { addr, len, .. }
            | Action::Munlock { addr, len }
            | Action::Mseal { addr, len, .. }
            | Action::Mbind { addr, len, .. }
            | Action::RemapFilePages { addr, len, .. }
            | Action::Munmap { addr, len } => touches(addr, len),
            Action::ProcessMadvise { ref ranges, .. } => {
                ranges.iter().any(|(addr, len)| touches(*addr, *len))
            }
            // Whatever a context says of its own ranges: they are so already.
            Action::Watch { .. } | Action::Unwatch { .. } => true,
            _ => false,
        }
    }
}
