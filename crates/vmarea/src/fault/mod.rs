//! Page faults: handling an access to an address and mapping the page.
//!
//! # Picture
//! ```text
//! access ─▶ VMA? ─no─▶ stack below? ─▶ grow        else SEGV (no mapping)
//!            │ yes
//!            ▼ allowed? ─no─▶ SEGV (no access)
//!          anonymous                              private file              shared file
//!          read:  zero page, no anon_vma           read: page of the file    page of the file
//!          write: anon_vma, page                   write: anon_vma, copy
//! ```
//!
//! # Linux
//! `arch/x86/mm/fault.c`, `mm/memory.c` `handle_mm_fault`, 6.18. Huge pages are handled in `huge`,
//! swapped pages in `swap`. A fault changes an entry only if the entry is still the one that the
//! decision was based on; otherwise the fault is spurious and the access faults again.

mod anon_vma;
mod faulted;
mod hardware;
pub(crate) mod huge;
mod ksm;
mod pin;
pub mod populate;
pub mod stack;
mod swap;
mod unlocked;
mod user;

pub use faulted::{Faulted, NeedPage, Ticket};
pub use user::Stopped;

use crate::Space;
use crate::mm::{MmapGuard, ThpDisabled};
use crate::page::{Blocked, FaultPath, Pte};
use crate::types::platform::{Environment, Platform, Standard};
use crate::types::writers::Token;
use crate::types::{AnonVmaId, Errno, FrameId, MmId, PAGE_MASK, VmFlags};
use crate::vma::VmaView;
use core::cell::Cell;
use vmarea_sync::VmaLockKind;

/// The type of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
}

impl<E: Environment> Space<E> {
    /// Handles a fault at `addr` for an access by, or on behalf of, user mode.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist. Signals are not errors but values of [`Faulted`],
    /// which has an example.
    pub fn fault(&self, mm: MmId, addr: u64, access: Access) -> Result<Faulted, Errno> {
        if E::VmaLock::HAS_READERS {
            let there = self.mms.find(mm.0).ok_or(Errno::ESRCH)?;
            match self.fault_unlocked(there, addr, access) {
                Ok(faulted) => return Ok(faulted),
                Err(why) => there.value().fault_counters.fell_back(why),
            }
        }
        self.fault_locked(mm, addr, access)
    }

    /// Handles a fault like [`fault`](Self::fault), but always under `mmap_lock`.
    fn fault_locked(&self, mm: MmId, addr: u64, access: Access) -> Result<Faulted, Errno> {
        if let Some(r) = self.read_part_at(mm, addr)
            && let Some(vma) = r.vma_lookup(addr)
        {
            return Ok(r.handle(&vma, addr, access));
        }
        let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        match r.find_vma(addr) {
            None => Ok(Faulted::NoMapping),
            Some(vma) if vma.range.start <= addr => Ok(r.handle(&vma, addr, access)),
            Some(vma) if !vma.body.flags.contains(VmFlags::GROWSDOWN) => Ok(Faulted::NoMapping),
            Some(_) => {
                drop(r);
                let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
                if w.expand_stack(addr).is_err() {
                    return Ok(Faulted::NoMapping);
                }
                drop(w);
                let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
                Ok(r.vma_lookup(addr)
                    .map_or(Faulted::NoMapping, |vma| r.handle(&vma, addr, access)))
            }
        }
    }
}

/// True if the VMA flags do not permit the access.
#[doc(alias = "access_error")]
fn is_forbidden(flags: VmFlags, access: Access) -> bool {
    match access {
        Access::Write => !flags.contains(VmFlags::WRITE),
        Access::Exec => !flags.contains(VmFlags::EXEC),
        Access::Read => !flags.is_accessible(),
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> MmapGuard<'s, E, T> {
    #[doc(alias = "handle_mm_fault")]
    fn handle(&self, vma: &VmaView, addr: u64, access: Access) -> Faulted {
        if is_forbidden(vma.body.flags, access) {
            return Faulted::NoAccess;
        }
        FaultContext::of(self.space, &self.mm.pages, self).user_page(vma, addr & PAGE_MASK, access)
    }
}

/// Lookup of a VMA's neighbours, for choosing the VMA's anon_vma.
pub(crate) trait Neighbours {
    /// Returns the nearest VMA that ends at or below the start of `vma`.
    fn prev_of(&self, vma: &VmaView) -> Option<VmaView>;
    /// Returns the nearest VMA that begins at or above the end of `vma`.
    fn next_of(&self, vma: &VmaView) -> Option<VmaView>;
    /// Returns the process's setting that disables huge pages (`PR_SET_THP_DISABLE`).
    fn thp_disabled(&self) -> ThpDisabled;
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> Neighbours for MmapGuard<'s, E, T> {
    fn prev_of(&self, vma: &VmaView) -> Option<VmaView> {
        self.prev(vma.range.start)
    }
    fn next_of(&self, vma: &VmaView) -> Option<VmaView> {
        self.find(vma.range.end)
    }
    fn thp_disabled(&self) -> ThpDisabled {
        self.state().layout.thp_disabled
    }
}

/// The context of a fault: the machine, the page table, and access to the neighbouring VMAs.
///
/// The fault holds either `mmap_lock`, in which case `tree` is the guard, or only the lock of one
/// VMA.
pub(crate) struct FaultContext<'a, E: Environment = Standard> {
    pub(crate) space: &'a Space<E>,
    pub(crate) pages: &'a crate::page::PageTable,
    pub(crate) tree: &'a dyn Neighbours,
    path: FaultPath,
    /// True once the hardware maps what the fault has mapped.
    shown: Cell<bool>,
}

/// The kind of small page that a fault installs if it finds an empty entry.
#[derive(Clone, Copy)]
enum Small {
    /// The shared zero page.
    Zero,
    /// A new page owned by this anon_vma.
    Page(AnonVmaId),
}

impl<'a, E: Environment> FaultContext<'a, E> {
    /// Creates a context for a caller that holds `mmap_lock`.
    pub(crate) fn of(
        space: &'a Space<E>,
        pages: &'a crate::page::PageTable,
        tree: &'a dyn Neighbours,
    ) -> Self {
        FaultContext {
            space,
            pages,
            tree,
            path: FaultPath::Locked,
            shown: Cell::new(false),
        }
    }
}

impl<E: Environment> FaultContext<'_, E> {
    /// Handles an access to the page at `addr`; the caller has checked that the VMA permits it.
    pub(crate) fn page(&self, vma: &VmaView, addr: u64, access: Access) -> Faulted {
        if vma.body.flags.intersects(VmFlags::PFNMAP | VmFlags::IO) {
            self.pages.count_fault(self.path, addr);
            return Faulted::Done;
        }
        match self.first_look(vma, addr, access) {
            Ok(faulted) => faulted,
            Err(entry) => self.there(vma, addr, entry, access),
        }
    }

    /// Handles the most common faults under a single page-table lock: an access to an empty entry,
    /// and a write to a page that becomes writable in place.
    ///
    /// Returns the current entry as `Err` if this fast path does not apply.
    #[inline]
    fn first_look(&self, vma: &VmaView, addr: u64, access: Access) -> Result<Faulted, Pte> {
        let Some(small) = self.small(vma, addr, access) else {
            return Err(self.pages.get_for(self.path, addr));
        };
        let looked = self.pages.install_for(self.path, addr, |entry| {
            if *entry != Pte::None {
                return match (small, *entry) {
                    (
                        Small::Page(anon_vma),
                        Pte::Anon {
                            writable: false, ..
                        },
                    ) if self.reuse(vma, addr, anon_vma, entry) => Ok(self.done(vma, addr, *entry)),
                    _ => Err(*entry),
                };
            }
            *entry = match small {
                Small::Zero => Pte::Zero,
                Small::Page(anon_vma) => {
                    let zero = |frame| self.space.platform.zero(frame);
                    let page = (anon_vma, vma.offsets.anon_pgoff_at(addr));
                    match self.space.frame_filled(page, zero) {
                        Ok(frame) => {
                            let writable = vma.body.flags.contains(VmFlags::WRITE);
                            Pte::Anon { frame, writable }
                        }
                        Err(error) => return Ok(Faulted::failed(error)),
                    }
                }
            };
            Ok(self.done(vma, addr, *entry))
        });
        match looked {
            Ok(looked) => looked,
            Err(Blocked::InUse) => Err(self.pages.get(addr)),
            Err(Blocked::NoMemory) => Ok(Faulted::OutOfMemory),
        }
    }

    /// Returns the outcome of a fault that has set `entry`, and maps it in the hardware.
    #[inline]
    fn done(&self, vma: &VmaView, addr: u64, entry: Pte) -> Faulted {
        match self.show(vma, addr, entry) {
            Ok(()) => Faulted::Done,
            Err(_) => Faulted::OutOfMemory,
        }
    }

    #[inline]
    fn small(&self, vma: &VmaView, addr: u64, access: Access) -> Option<Small> {
        let watched = vma.body.flags.contains(VmFlags::UFFD_MISSING);
        if !vma.is_anonymous() || watched || self.wants_huge(vma, addr) {
            return None;
        }
        if access != Access::Write {
            return Some(Small::Zero);
        }
        let own = || self.space.vma(vma.id).anon_vma();
        vma.anon_vma.or_else(own).map(Small::Page)
    }

    /// Returns the context for retrying the same fault; the retry is not counted as another fault.
    pub(super) fn again(&self) -> Self {
        FaultContext::of(self.space, self.pages, self.tree)
    }

    /// Handles an access to a page whose entry is `entry`.
    fn there(&self, vma: &VmaView, addr: u64, entry: Pte, access: Access) -> Faulted {
        match (entry, access) {
            (Pte::None, _) => self.missing(vma, addr, access),
            (Pte::Guard, _) => Faulted::NoMapping,
            (
                Pte::Anon {
                    writable: false, ..
                }
                | Pte::Zero
                | Pte::File { writable: false }
                | Pte::Ksm { .. },
                Access::Write,
            ) => self.write_protected(vma, addr, entry),
            (Pte::Swap { slot }, _) => self.swapped(vma, addr, slot, access),
            (Pte::Migration { frame, .. }, _) => self.migrating(vma, addr, frame, access),
            _ => Faulted::Spurious,
        }
    }

    /// Waits until the page's migration ends, then retries the fault.
    #[cold]
    #[doc(alias = "migration_entry_wait")]
    fn migrating(&self, vma: &VmaView, addr: u64, frame: FrameId, access: Access) -> Faulted {
        if self.space.platform.wait_on_migration(frame) {
            self.again().page(vma, addr, access)
        } else {
            Faulted::Retry
        }
    }

    #[doc(alias = "do_pte_missing")]
    fn missing(&self, vma: &VmaView, addr: u64, access: Access) -> Faulted {
        let write = access == Access::Write;
        let shared = vma
            .body
            .flags
            .intersects(VmFlags::SHARED | VmFlags::MAYSHARE);
        if vma.is_anonymous() {
            if self.tries_huge(vma, addr)
                && let Some(faulted) = self.huge_missing(vma, addr, access)
            {
                return faulted;
            }
            let watched = vma.body.flags.contains(VmFlags::UFFD_MISSING);
            if watched && self.pages.make_table(addr) == Err(Blocked::NoMemory) {
                return Faulted::OutOfMemory;
            }
            if !write && !watched {
                return self.put_if(vma, addr, Pte::None, Pte::Zero);
            }
            if !write {
                return Faulted::Userfault;
            }
            let Ok(anon_vma) = self.anon_vma_prepare(vma) else {
                return Faulted::OutOfMemory;
            };
            if watched {
                return Faulted::Userfault;
            }
            return self.new_page(vma, addr, anon_vma, Source::Zeros, Pte::None);
        }
        // A page that hugetlbfs supplies for a private mapping is anonymous from the start.
        let copied = (write || vma.body.flags.contains(VmFlags::HUGETLB)) && !shared;
        let Ok(anon_vma) = copied.then(|| self.anon_vma_prepare(vma)).transpose() else {
            return Faulted::OutOfMemory;
        };
        let source = Source::of_file(vma, addr);
        if let Source::File { inode, index } = source {
            let platform = &self.space.platform;
            if !platform.file_holds(inode, index) {
                return Faulted::NoPage;
            }
            let watched = vma.body.flags.contains(VmFlags::UFFD_MISSING);
            if watched && !platform.file_is_cached(inode, index) {
                return Faulted::Userfault;
            }
            if let Err(error) = platform.file_bring(inode, index) {
                return source.failed(error);
            }
        }
        match anon_vma {
            Some(anon_vma) => self.new_page(vma, addr, anon_vma, source, Pte::None),
            None => self.put_if(vma, addr, Pte::None, Pte::File { writable: write }),
        }
    }

    /// Replaces the entry at `addr` by `to` if it still equals `seen`; neither refers to a frame.
    fn put_if(&self, vma: &VmaView, addr: u64, seen: Pte, to: Pte) -> Faulted {
        let put = self.pages.install(addr, |entry| {
            if *entry != seen {
                return Faulted::Spurious;
            }
            *entry = to;
            self.done(vma, addr, to)
        });
        put.unwrap_or_else(blocked)
    }

    /// Handles a write to a page that is mapped read-only.
    #[doc(alias = "do_wp_page")]
    fn write_protected(&self, vma: &VmaView, addr: u64, seen: Pte) -> Faulted {
        if vma
            .body
            .flags
            .intersects(VmFlags::SHARED | VmFlags::MAYSHARE)
        {
            return self.put_if(vma, addr, seen, Pte::File { writable: true });
        }
        let Ok(anon_vma) = self.anon_vma_prepare(vma) else {
            return Faulted::OutOfMemory;
        };
        let reused = self.pages.update(addr, |entry| {
            self.reuse(vma, addr, anon_vma, entry)
                .then(|| self.done(vma, addr, *entry))
        });
        match reused {
            None => self.huge_write_protected(vma, addr, anon_vma),
            Some(Some(faulted)) => faulted,
            Some(None) => self.new_page(vma, addr, anon_vma, Source::of(vma, addr, seen), seen),
        }
    }

    /// Makes an anonymous page writable in place if it has no other user; returns true on success.
    #[doc(alias = "wp_can_reuse_anon_folio")]
    fn reuse(&self, vma: &VmaView, addr: u64, anon_vma: AnonVmaId, entry: &mut Pte) -> bool {
        let Pte::Anon { frame, writable } = entry else {
            return false;
        };
        let page = self.space.frame(*frame);
        let alone =
            page.mapcount() == 1 && (!page.is_marked() || self.space.may_reuse_marked(*frame));
        if !alone {
            return false;
        }
        page.set_mapping(anon_vma, vma.offsets.anon_pgoff_at(addr));
        *writable = true;
        true
    }

    /// Installs a new anonymous page at `addr` if the entry is still `seen`.
    fn new_page(
        &self,
        vma: &VmaView,
        addr: u64,
        anon_vma: AnonVmaId,
        source: Source,
        seen: Pte,
    ) -> Faulted {
        let page = (anon_vma, vma.offsets.anon_pgoff_at(addr));
        let put = self.pages.install(addr, |entry| {
            if *entry != seen {
                return Ok(Faulted::Spurious);
            }
            let platform = &self.space.platform;
            let frame = self.space.frame_filled(page, |frame| match source {
                Source::Zeros => platform.zero(frame),
                Source::Frame(from) => platform.copy(frame, from),
                Source::File { inode, index } => platform.copy_file(frame, inode, index),
            })?;
            self.space.entry_clear(self.pages, addr, seen);
            let writable = vma.body.flags.contains(VmFlags::WRITE);
            *entry = Pte::Anon { frame, writable };
            Ok(self.done(vma, addr, *entry))
        });
        match put {
            Ok(Ok(faulted)) => faulted,
            Ok(Err(error)) => source.failed(error),
            Err(why) => blocked(why),
        }
    }

    /// Replaces the KSM page at `addr` by a private copy.
    #[doc(alias = "break_ksm")]
    pub(crate) fn unshare(&self, vma: &VmaView, addr: u64) -> Faulted {
        match self.pages.get(addr) {
            Pte::Migration { frame, .. } if self.space.platform.wait_on_migration(frame) => {
                self.unshare(vma, addr)
            }
            Pte::Migration { .. } => Faulted::Retry,
            seen @ Pte::Ksm { .. } => match self.anon_vma_prepare(vma) {
                Ok(anon_vma) => {
                    self.new_page(vma, addr, anon_vma, Source::of(vma, addr, seen), seen)
                }
                Err(_) => Faulted::OutOfMemory,
            },
            _ => Faulted::Spurious,
        }
    }
}

/// Returns the outcome of a fault that could not install an entry.
fn blocked(why: Blocked) -> Faulted {
    match why {
        Blocked::InUse => Faulted::Spurious,
        Blocked::NoMemory => Faulted::OutOfMemory,
    }
}

/// The source of a new page's content.
#[derive(Clone, Copy)]
enum Source {
    Zeros,
    Frame(FrameId),
    File { inode: u64, index: u64 },
}

impl Source {
    /// Returns the file page that `vma` maps at `addr`, or zeros if `vma` is anonymous.
    fn of_file(vma: &VmaView, addr: u64) -> Source {
        match vma.body.file {
            Some(file) if !vma.is_anonymous() => Source::File {
                inode: file.inode,
                index: vma.pgoff_at(addr).0,
            },
            _ => Source::Zeros,
        }
    }

    /// Returns the content source for a private copy of the page that `entry` maps.
    fn of(vma: &VmaView, addr: u64, entry: Pte) -> Source {
        match entry {
            Pte::Anon { frame, .. } | Pte::Ksm { frame } => Source::Frame(frame),
            Pte::File { .. } => Source::of_file(vma, addr),
            _ => Source::Zeros,
        }
    }

    /// Returns the outcome of a fault for which the platform could not supply the page's content.
    #[cold]
    fn failed(self, error: Errno) -> Faulted {
        match self {
            Source::File { .. } if error == Errno::EAGAIN => Faulted::NeedPage,
            _ => Faulted::failed(error),
        }
    }
}
