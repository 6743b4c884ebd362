//! Page faults: what an access to an address does to its VMA and its page.
//!
//! # Picture
//! ```text
//! access ─▶ VMA? ─no─▶ stack below? ─▶ grow        else SEGV (no mapping)
//!            │ yes
//!            ▼ allowed? ─no─▶ SEGV (no access)
//!          anonymous                              private file              shared file
//!          read:  page of zeros, no anon_vma       read: page of the file    page of the file
//!          write: anon_vma, page                   write: anon_vma, copy
//! ```
//!
//! # Linux
//! `arch/x86/mm/fault.c`, `mm/memory.c` `handle_mm_fault`, 6.18. Huge pages are in `huge`, swapped ones
//! in `swap`. An entry is changed only if it is still what was decided upon; else the fault is spurious
//! and the access faults again.

mod anon_vma;
pub(crate) mod huge;
mod ksm;
mod pin;
pub mod populate;
pub mod stack;
mod swap;
mod unlocked;

use crate::mm::{MmapReadGuard, MmapWriteGuard, ThpDisabled};
use crate::mutant::{self, Mutant};
use crate::page::{FaultPath, Pte};
use crate::space::Space;
use crate::types::platform::{Environment, Platform, Standard};
use crate::types::{AnonVmaId, Errno, FrameId, MmId, PAGE_MASK, VmFlags};
use crate::vma::VmaView;
use vmarea_sync::VmaLockKind;

/// What an access wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
}

/// What a fault came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faulted {
    /// A page was brought or made writable.
    Done,
    /// The page was there already; the processor had not noticed, or another source brought it.
    Spurious,
    /// SIGSEGV: nothing is mapped there, or a guard lies there (`SEGV_MAPERR`).
    NoMapping,
    /// SIGSEGV: the mapping forbids it (`SEGV_ACCERR`).
    NoAccess,
    /// SIGBUS: the file has no such page (`BUS_ADRERR`).
    NoPage,
    /// No memory.
    OutOfMemory,
    /// A userfaultfd context watches the page: the embedder says what happens. Linux waits, or gives
    /// SIGBUS.
    Userfault,
    /// The page migrates and the platform does not wait: the access is to be tried again later.
    MustWait,
}

impl<E: Environment> Space<E> {
    /// An access to `addr` in user mode, or by the kernel on its behalf.
    pub fn fault(&self, mm: MmId, addr: u64, access: Access) -> Result<Faulted, Errno> {
        if E::VmaLock::HAS_READERS {
            let there = self.mms.get(mm.0).ok_or(Errno::ESRCH)?;
            match self.fault_unlocked((mm, there), addr, access) {
                Ok(faulted) => return Ok(faulted),
                Err(why) => there.fault_counters.fell_back(why),
            }
        }
        self.fault_locked(mm, addr, access)
    }

    /// As [`fault`](Self::fault), under `mmap_lock`.
    fn fault_locked(&self, mm: MmId, addr: u64, access: Access) -> Result<Faulted, Errno> {
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

/// Does the mapping forbid it?
#[doc(alias = "access_error")]
fn is_forbidden(flags: VmFlags, access: Access) -> bool {
    match access {
        Access::Write => !flags.contains(VmFlags::WRITE),
        Access::Exec => !flags.contains(VmFlags::EXEC),
        Access::Read => !flags.is_accessible(),
    }
}

impl<E: Environment> MmapReadGuard<'_, E> {
    #[doc(alias = "handle_mm_fault")]
    fn handle(&self, vma: &VmaView, addr: u64, access: Access) -> Faulted {
        if is_forbidden(vma.body.flags, access) {
            return Faulted::NoAccess;
        }
        FaultContext::of(self.space, &self.mm.pages, self).page(vma, addr & PAGE_MASK, access)
    }
}

/// Neighbours of a VMA, for choosing its anon_vma.
pub(crate) trait Neighbours {
    /// The VMA that ends nearest below.
    fn prev_of(&self, vma: &VmaView) -> Option<VmaView>;
    /// The VMA that begins nearest above.
    fn next_of(&self, vma: &VmaView) -> Option<VmaView>;
    /// Huge pages that the process does without.
    fn thp_disabled(&self) -> ThpDisabled;
}

impl<E: Environment> Neighbours for MmapReadGuard<'_, E> {
    fn prev_of(&self, vma: &VmaView) -> Option<VmaView> {
        self.prev(vma.range.start)
    }
    fn next_of(&self, vma: &VmaView) -> Option<VmaView> {
        self.mm
            .tree
            .find(vma.range.end)
            .and_then(|e| crate::types::VmaId::from_bits(e.value))
            .map(|id| self.view(id))
    }
    fn thp_disabled(&self) -> ThpDisabled {
        self.state().layout.thp_disabled
    }
}

impl<E: Environment> Neighbours for MmapWriteGuard<'_, E> {
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

/// What a fault works with: the address space, its page table, and the VMAs that a held lock protects.
///
/// The lock is `mmap_lock`, held by `tree`, or that of the VMA, where the fault came without `mmap_lock`.
pub(crate) struct FaultContext<'a, E: Environment = Standard> {
    pub(crate) space: &'a Space<E>,
    pub(crate) pages: &'a crate::page::PageTable,
    pub(crate) tree: &'a dyn Neighbours,
    path: FaultPath,
}

/// What comes where nothing is, if it is decided without a look at the page table.
#[derive(Clone, Copy)]
enum Small {
    /// The page of zeros.
    Zero,
    /// A page of this anon_vma.
    Page(AnonVmaId),
}

impl<'a, E: Environment> FaultContext<'a, E> {
    /// With the mm's lock held.
    pub(crate) fn of(
        space: &'a Space<E>,
        pages: &'a crate::page::PageTable,
        tree: &'a dyn Neighbours,
    ) -> Self {
        let path = FaultPath::Locked;
        FaultContext {
            space,
            pages,
            tree,
            path,
        }
    }
}

impl<E: Environment> FaultContext<'_, E> {
    /// The page at `addr`, for an access that the VMA allows.
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

    /// Brings what most faults are for: a small page where nothing is, with the page table locked once.
    /// Else gives the entry.
    #[inline]
    fn first_look(&self, vma: &VmaView, addr: u64, access: Access) -> Result<Faulted, Pte> {
        let Some(small) = self.small(vma, addr, access) else {
            return Err(self.pages.get_for(self.path, addr));
        };
        let looked = self.pages.update_for(self.path, addr, |entry| {
            if *entry != Pte::None {
                return Err(*entry);
            }
            *entry = match small {
                Small::Zero => Pte::Zero,
                Small::Page(anon_vma) => {
                    let Ok(frame) = self.space.frame_alloc(anon_vma, vma.pgoff_at(addr)) else {
                        return Ok(Faulted::OutOfMemory);
                    };
                    self.space.platform.zero(frame);
                    let writable = vma.body.flags.contains(VmFlags::WRITE);
                    Pte::Anon { frame, writable }
                }
            };
            Ok(Faulted::Done)
        });
        looked.unwrap_or_else(|| Err(self.pages.get(addr)))
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

    /// The same fault once more, which is not counted again.
    pub(super) fn again(&self) -> Self {
        let path = FaultPath::Locked;
        FaultContext { path, ..*self }
    }

    /// What an access to `entry` does.
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

    /// Waits for a migration, and tries again.
    #[cold]
    #[doc(alias = "migration_entry_wait")]
    fn migrating(&self, vma: &VmaView, addr: u64, frame: FrameId, access: Access) -> Faulted {
        if self.space.platform.wait_on_migration(frame) {
            self.again().page(vma, addr, access)
        } else {
            Faulted::MustWait
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
            if watched {
                self.pages.make_table(addr);
            }
            if !write && !watched {
                return self.put_if(addr, Pte::None, Pte::Zero);
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
            return self.new_page(vma, addr, anon_vma, Content::Zeros, Pte::None);
        }
        let holds = vma.body.file.is_none_or(|file| {
            let index = vma.pgoff_at(addr).0;
            self.space.platform.file_holds(file.inode, index)
        });
        // What hugetlbfs gives to a private mapping is anonymous from the first.
        if (write || vma.body.flags.contains(VmFlags::HUGETLB)) && !shared {
            let Ok(anon_vma) = self.anon_vma_prepare(vma) else {
                return Faulted::OutOfMemory;
            };
            return match self.watched_file_page(vma, addr, holds) {
                Some(faulted) => faulted,
                None => self.new_page(vma, addr, anon_vma, Content::File, Pte::None),
            };
        }
        if let Some(faulted) = self.watched_file_page(vma, addr, holds) {
            return faulted;
        }
        self.put_if(addr, Pte::None, Pte::File { writable: write })
    }

    /// Why a page of a file does not come, if it does not.
    fn watched_file_page(&self, vma: &VmaView, addr: u64, holds: bool) -> Option<Faulted> {
        if !holds {
            return Some(Faulted::NoPage);
        }
        let file = vma.body.file?;
        let index = vma.pgoff_at(addr).0;
        let missing = vma.body.flags.contains(VmFlags::UFFD_MISSING)
            && !self.space.platform.file_is_cached(file.inode, index);
        if !missing {
            self.space.platform.file_bring(file.inode, index);
        }
        missing.then_some(Faulted::Userfault)
    }

    /// Puts an entry that holds on to nothing in the place of another of the kind.
    fn put_if(&self, addr: u64, seen: Pte, to: Pte) -> Faulted {
        let put = self.pages.update(addr, |entry| {
            let same = *entry == seen;
            if same {
                *entry = to;
            }
            same
        });
        if put == Some(true) {
            Faulted::Done
        } else {
            Faulted::Spurious
        }
    }

    /// A write to a page that may only be read now.
    #[doc(alias = "do_wp_page")]
    fn write_protected(&self, vma: &VmaView, addr: u64, seen: Pte) -> Faulted {
        if vma
            .body
            .flags
            .intersects(VmFlags::SHARED | VmFlags::MAYSHARE)
        {
            return self.put_if(addr, seen, Pte::File { writable: true });
        }
        let Ok(anon_vma) = self.anon_vma_prepare(vma) else {
            return Faulted::OutOfMemory;
        };
        let Some(reused) = self
            .pages
            .update(addr, |entry| self.reuse(vma, addr, anon_vma, entry))
        else {
            return self.huge_write_protected(vma, addr, anon_vma);
        };
        if reused {
            Faulted::Done
        } else {
            self.new_page(vma, addr, anon_vma, Content::WhatIsThere, seen)
        }
    }

    /// A page that nobody else has may be written where it is.
    #[doc(alias = "wp_can_reuse_anon_folio")]
    fn reuse(&self, vma: &VmaView, addr: u64, anon_vma: AnonVmaId, entry: &mut Pte) -> bool {
        let Pte::Anon { frame, writable } = entry else {
            return false;
        };
        let page = self.space.frame(*frame);
        let alone =
            page.mapcount() == 1 && (!page.is_marked() || self.space.may_reuse_marked(*frame));
        if !alone && !mutant::is_on(Mutant::WriteGoesToBoth) {
            return false;
        }
        page.set_mapping(anon_vma, vma.pgoff_at(addr));
        *writable = true;
        true
    }

    /// An anonymous page at `addr`, in place of what was seen there.
    fn new_page(
        &self,
        vma: &VmaView,
        addr: u64,
        anon_vma: AnonVmaId,
        content: Content,
        seen: Pte,
    ) -> Faulted {
        let Ok(frame) = self.space.frame_alloc(anon_vma, vma.pgoff_at(addr)) else {
            return Faulted::OutOfMemory;
        };
        let writable = vma.body.flags.contains(VmFlags::WRITE);
        let put = self.pages.update(addr, |entry| {
            let same = *entry == seen;
            if same {
                self.fill(frame, vma, addr, content, seen);
                self.space.entry_drop(self.pages, addr, seen);
                *entry = Pte::Anon { frame, writable };
            }
            same
        });
        if put == Some(true) {
            Faulted::Done
        } else {
            self.space.frame_abandon(frame);
            Faulted::Spurious
        }
    }

    /// A KSM page at `addr` gets a frame of its own.
    #[doc(alias = "break_ksm")]
    pub(crate) fn unshare(&self, vma: &VmaView, addr: u64) -> Faulted {
        match self.pages.get(addr) {
            Pte::Migration { frame, .. } if self.space.platform.wait_on_migration(frame) => {
                self.unshare(vma, addr)
            }
            Pte::Migration { .. } => Faulted::MustWait,
            seen @ Pte::Ksm { .. } => match self.anon_vma_prepare(vma) {
                Ok(anon_vma) => self.new_page(vma, addr, anon_vma, Content::WhatIsThere, seen),
                Err(_) => Faulted::OutOfMemory,
            },
            _ => Faulted::Spurious,
        }
    }

    fn fill(&self, frame: FrameId, vma: &VmaView, addr: u64, content: Content, there: Pte) {
        let platform = &self.space.platform;
        let file = vma.body.file.filter(|_| !vma.is_anonymous());
        match (content, there, file) {
            (Content::WhatIsThere, Pte::Anon { frame: old, .. } | Pte::Ksm { frame: old }, _) => {
                platform.copy(frame, old);
            }
            (Content::WhatIsThere, Pte::File { .. }, Some(f)) | (Content::File, _, Some(f)) => {
                platform.copy_file(frame, f.inode, vma.pgoff_at(addr).0);
            }
            _ => platform.zero(frame),
        }
    }
}

/// What a new page holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Zeros,
    File,
    WhatIsThere,
}
