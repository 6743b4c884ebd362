//! System calls as values, with typed arguments.
//!
//! A program that drives the core from a list of calls, such as a replay, a comparison with a
//! kernel or a fuzzer, converts each call to a [`Syscall`] and passes it to [`Space::syscall`].
//! `fork` and `exit` are not included, because they create and remove address spaces; see
//! [`Space::fork`] and [`Space::mm_exit`].
//!
//! # Errors
//! The errors of each call are documented in the module named after it.

use super::madvise::Advice;
use super::mmap::MmapRequest;
use super::mremap::MremapRequest;
use super::process_madvise::Advised;
use super::shm::ShmatRequest;
use super::userfaultfd::WatchMode;
use crate::Space;
use crate::types::call_flags::{MapFlags, MbindFlags, MclFlags, MlockFlags, Pkey, Prot};
use crate::types::mempolicy::MpolMode;
use crate::types::platform::Environment;
use crate::types::prctl::PrctlOption;
use crate::types::{Errno, MmId};
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// A system call with its arguments. The names are those of the manual pages.
///
/// `addr` and `len` are in bytes. Arguments that Linux rejects can also be represented.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the names are those of the manual pages")]
pub enum Syscall {
    /// `brk`; returns the break afterwards.
    Brk { addr: u64 },
    /// `madvise`.
    Madvise { addr: u64, len: u64, advice: Advice },
    /// `mbind`; `mode` includes the mode flags, and `nodes` has one bit for each node.
    Mbind {
        addr: u64,
        len: u64,
        mode: MpolMode,
        nodes: u64,
        flags: MbindFlags,
    },
    /// `mlock2`; also `mlock`, if `flags` is empty.
    Mlock {
        addr: u64,
        len: u64,
        flags: MlockFlags,
    },
    /// `mlockall`.
    Mlockall { flags: MclFlags },
    /// `mmap`; returns the address of the mapping.
    Mmap(MmapRequest),
    /// `pkey_mprotect`; also `mprotect`, if `pkey` is `None`.
    Mprotect {
        addr: u64,
        len: u64,
        prot: Prot,
        pkey: Option<Pkey>,
    },
    /// `mremap`; returns the new address.
    Mremap(MremapRequest),
    /// `mseal`, whose flags must be 0.
    Mseal { addr: u64, len: u64, flags: u64 },
    /// `munlock`.
    Munlock { addr: u64, len: u64 },
    /// `munlockall`.
    Munlockall,
    /// `munmap`.
    Munmap { addr: u64, len: u64 },
    /// `personality`; returns the old values of the bits that the core stores.
    Personality { bits: u32 },
    /// `pkey_alloc`, whose flags must be 0; `denied` contains the denied rights. Returns the key.
    PkeyAlloc { flags: u64, denied: u64 },
    /// `pkey_free`.
    PkeyFree { pkey: Pkey },
    /// `prctl`, with an option and its arguments.
    Prctl { option: PrctlOption, args: [u64; 4] },
    /// `process_madvise` on the ranges `(addr, len)`; returns how many bytes were advised.
    ProcessMadvise {
        ranges: Vec<(u64, u64)>,
        advice: Advice,
        advised: Advised,
    },
    /// `remap_file_pages`.
    RemapFilePages {
        addr: u64,
        len: u64,
        prot: Prot,
        pgoff: u64,
        flags: MapFlags,
    },
    /// `set_mempolicy`; `mode` includes the mode flags, and `nodes` has one bit for each node.
    SetMempolicy { mode: MpolMode, nodes: u64 },
    /// `shmat`; returns the address at which the segment is attached.
    Shmat(ShmatRequest),
    /// `shmdt`; `sizes` lists every segment as a pair `(inode, size in bytes)`.
    Shmdt { addr: u64, sizes: Vec<(u64, u64)> },
    /// `UFFDIO_REGISTER`.
    UserfaultfdRegister {
        context: NonZeroU32,
        addr: u64,
        len: u64,
        mode: WatchMode,
    },
    /// `UFFDIO_UNREGISTER`.
    UserfaultfdUnregister {
        context: NonZeroU32,
        addr: u64,
        len: u64,
    },
}

impl<E: Environment> Space<E> {
    /// Performs a call and returns its result, which is 0 unless the variant documents another
    /// result.
    ///
    /// # Errors
    /// Those of the call, as the method of the same name returns them.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// // Calls as values can come from a recording, or from a fuzzer.
    /// let at = space.syscall(mm, &Syscall::Mmap(MmapRequest::anonymous(2 * PAGE_SIZE)))?;
    /// let unmap = Syscall::Munmap { addr: at, len: 2 * PAGE_SIZE };
    /// assert_eq!(space.syscall(mm, &unmap), Ok(0));
    /// assert_eq!(space.maps(mm).count(), 0);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn syscall(&self, mm: MmId, call: &Syscall) -> Result<u64, Errno> {
        let done = match *call {
            Syscall::Brk { addr } => return self.brk(mm, addr),
            Syscall::Mmap(ref request) => return self.mmap(mm, request),
            Syscall::Mremap(ref request) => return self.mremap(mm, request),
            Syscall::Shmat(ref request) => return self.shmat(mm, request),
            Syscall::Personality { bits } => return self.personality(mm, bits),
            Syscall::PkeyAlloc { flags, denied } => {
                return self.pkey_alloc(mm, flags, denied).map(|key| key.0 as u64);
            }
            Syscall::Prctl { option, args } => return self.prctl(mm, option, args),
            Syscall::ProcessMadvise {
                ref ranges,
                advice,
                advised,
            } => return self.process_madvise(mm, ranges, advice, advised),
            Syscall::Madvise { addr, len, advice } => self.madvise(mm, addr, len, advice),
            Syscall::Mbind {
                addr,
                len,
                mode,
                nodes,
                flags,
            } => self.mbind(mm, addr, len, (mode, nodes), flags),
            Syscall::Mlock { addr, len, flags } => self.mlock(mm, addr, len, flags),
            Syscall::Mlockall { flags } => self.mlockall(mm, flags),
            Syscall::Mprotect {
                addr,
                len,
                prot,
                pkey,
            } => self.mprotect(mm, addr, len, prot, pkey),
            Syscall::Mseal { addr, len, flags } => self.mseal(mm, addr, len, flags),
            Syscall::Munlock { addr, len } => self.munlock(mm, addr, len),
            Syscall::Munlockall => self.munlockall(mm),
            Syscall::Munmap { addr, len } => self.munmap(mm, addr, len),
            Syscall::PkeyFree { pkey } => self.pkey_free(mm, pkey),
            Syscall::RemapFilePages {
                addr,
                len,
                prot,
                pgoff,
                flags,
            } => self.remap_file_pages(mm, addr, len, prot, pgoff, flags),
            Syscall::SetMempolicy { mode, nodes } => self.set_mempolicy(mode, nodes),
            Syscall::Shmdt { addr, ref sizes } => {
                self.shmdt(mm, addr, |inode| size_of(sizes, inode))
            }
            Syscall::UserfaultfdRegister {
                context,
                addr,
                len,
                mode,
            } => self.userfaultfd_register(mm, context, (addr, len), mode),
            Syscall::UserfaultfdUnregister { context, addr, len } => {
                self.userfaultfd_unregister(mm, context, (addr, len))
            }
        };
        done.map(|()| 0)
    }
}

/// Looks up the size of a segment in a list of pairs `(inode, size)`.
fn size_of(sizes: &[(u64, u64)], inode: u64) -> Option<u64> {
    sizes.iter().find(|s| s.0 == inode).map(|s| s.1)
}
