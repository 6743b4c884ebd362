//! Allocation of huge pages by faults and by `MADV_COLLAPSE`.
//!
//! # Linux
//! `mm/huge_memory.c` `do_huge_pmd_anonymous_page`, `do_huge_pmd_wp_page`; `mm/khugepaged.c`
//! `madvise_collapse`, 6.18. If the allocation fails, the fault falls back to a small page.

use super::{Access, FaultContext, Faulted, blocked};
use crate::mm::ThpDisabled;
use crate::page::huge::Huge;
use crate::page::thp::{HugeEvent, huge_page_addr, huge_start};
use crate::page::{Blocked, Pte, SlotKind};
use crate::types::HugePages;
use crate::types::platform::{Environment, Platform};
use crate::types::{AnonVmaId, Errno, PMD_SIZE, VmFlags, VmRange};
use crate::vma::VmaView;

impl<E: Environment> FaultContext<'_, E> {
    /// True if Linux would try to map a huge page at `addr`, which must be in an empty slot.
    pub(super) fn tries_huge(&self, vma: &VmaView, addr: u64) -> bool {
        self.wants_huge(vma, addr) && self.pages.slot_kind(addr) == SlotKind::Empty
    }

    /// True if Linux would try to map a huge page at `addr` assuming that the slot is empty.
    #[inline]
    #[doc(alias = "thp_vma_allowable_order")]
    pub(super) fn wants_huge(&self, vma: &VmaView, addr: u64) -> bool {
        let wanted = match self.space.system.huge_pages {
            HugePages::Never => false,
            HugePages::Madvise => vma.body.flags.contains(VmFlags::HUGEPAGE),
            HugePages::Always => true,
        };
        let allowed = || !is_disabled(self.tree.thp_disabled(), vma.body.flags, Wish::Fault);
        wanted && vma.is_anonymous() && may_be_huge(vma, addr) && allowed()
    }

    /// Maps a huge page in an empty 2 MiB slot; returns `None` if the fault must map a small page.
    #[doc(alias = "do_huge_pmd_anonymous_page")]
    pub(super) fn huge_missing(&self, vma: &VmaView, addr: u64, access: Access) -> Option<Faulted> {
        let Ok(anon_vma) = self.anon_vma_prepare(vma) else {
            return Some(Faulted::OutOfMemory);
        };
        if vma.body.flags.contains(VmFlags::UFFD_MISSING) {
            return Some(Faulted::Userfault);
        }
        let start = huge_start(addr);
        let (huge, event) = if access == Access::Write {
            (self.huge_zeroed(vma, start, anon_vma)?, HugeEvent::Made)
        } else {
            match Huge::zero() {
                Ok(huge) => (huge, HugeEvent::Zero),
                Err(_) => return Some(Faulted::OutOfMemory),
            }
        };
        match self.pages.insert_huge(start, huge) {
            Ok(()) => {
                self.space.huge.count(event);
                Some(Faulted::Done)
            }
            Err((mut huge, why)) => {
                self.space.huge_drop(&mut huge);
                Some(blocked(why))
            }
        }
    }

    fn huge_zeroed(&self, vma: &VmaView, start: u64, anon_vma: AnonVmaId) -> Option<Huge> {
        self.space
            .huge_alloc(anon_vma, vma.offsets.anon_pgoff_at(start), |_, frame| {
                self.space.platform.zero(frame)
            })
            .ok()
    }

    /// Handles a write to a huge page that is mapped read-only.
    #[doc(alias = "do_huge_pmd_wp_page")]
    pub(super) fn huge_write_protected(
        &self,
        vma: &VmaView,
        addr: u64,
        anon_vma: AnonVmaId,
    ) -> Faulted {
        let start = huge_start(addr);
        if self.pages.get(addr) == Pte::Zero
            && let Some(huge) = self.huge_zeroed(vma, start, anon_vma)
        {
            return match self.space.huge_replace_zero(self.pages, start, huge) {
                Ok(()) => {
                    self.space.huge.count(HugeEvent::Made);
                    Faulted::Done
                }
                Err(mut huge) => {
                    self.space.huge_drop(&mut huge);
                    Faulted::Spurious
                }
            };
        }
        let index = vma.offsets.anon_pgoff_at(start);
        let reused = self
            .space
            .huge_reuse_or_split(self.pages, start, anon_vma, index);
        match reused {
            Some(true) => Faulted::Done,
            // The huge page was split, or is gone: retry the write.
            _ => self.again().page(vma, addr, Access::Write),
        }
    }

    /// Collapses the pages in the aligned 2 MiB block at `start` into one huge page.
    ///
    /// # Errors
    /// EINVAL if nothing is mapped, if there is a guard or file page, if a page cannot be swapped
    /// in, or if no page is writable and the rules require a writable page; EBUSY if userfaultfd
    /// watches for missing pages; EAGAIN if a page is being migrated or swapped out; ENOMEM.
    #[doc(alias = "collapse_huge_page")]
    pub(crate) fn collapse(&self, vma: &VmaView, start: u64) -> Result<(), Errno> {
        match self.pages.slot_kind(start) {
            SlotKind::Empty => return Err(Errno::EINVAL),
            SlotKind::Huge => return Ok(()),
            SlotKind::Table => {}
        }
        let anon_vma = vma.anon_vma.ok_or(Errno::EINVAL)?;
        let asks_write = self.space.policy.rules.advice.collapse_asks_write;
        if self.swap_in_all(vma, start)? == 0 && asks_write {
            return Err(Errno::EINVAL);
        }
        let range = VmRange::new(start, start + PMD_SIZE);
        // Until the flush, another thread may still write to the pages that are copied.
        self.space.clear_flush(self.pages, range);
        let mut huge =
            self.space
                .huge_alloc(anon_vma, vma.offsets.anon_pgoff_at(start), |at, frame| {
                    let addr = huge_page_addr(start, at);
                    self.pages.peek(addr, |entry| match entry {
                        Pte::Anon { frame: old, .. } | Pte::Ksm { frame: old } => {
                            self.space.platform.copy(frame, old)
                        }
                        Pte::None | Pte::Zero => self.space.platform.zero(frame),
                        // A page shared with another process began to migrate or was swapped out.
                        _ => Err(Errno::EAGAIN),
                    })
                })?;
        if !vma.body.flags.contains(VmFlags::WRITE) {
            huge.write_protect();
        }
        self.space
            .page_tables(self.pages)
            .zap(range, crate::page::range::Zap::All);
        self.pages.free_tables(range);
        match self.pages.insert_huge(start, huge) {
            Ok(()) => {
                self.space.huge.count(HugeEvent::Collapsed);
                Ok(())
            }
            Err((mut huge, blocked)) => {
                self.space.huge_drop(&mut huge);
                Err(match blocked {
                    Blocked::InUse => Errno::EAGAIN,
                    Blocked::NoMemory => Errno::ENOMEM,
                })
            }
        }
    }

    /// Swaps in all pages of a 2 MiB slot, checks that each can become part of a huge page, and
    /// returns the number of writable pages.
    fn swap_in_all(&self, vma: &VmaView, start: u64) -> Result<usize, Errno> {
        let mut at = start;
        let mut writable = 0;
        while at < start + PMD_SIZE {
            match self.pages.get(at) {
                Pte::Guard | Pte::File { .. } => return Err(Errno::EINVAL),
                Pte::Migration { .. } => return Err(Errno::EAGAIN),
                Pte::Swap { .. } => match self.page(vma, at, Access::Read).result() {
                    Err(Errno::EFAULT) => return Err(Errno::EINVAL),
                    done => done?,
                },
                Pte::None | Pte::Zero if vma.body.flags.intersects(VmFlags::UFFD_ANY) => {
                    return Err(Errno::EBUSY);
                }
                Pte::Anon { writable: w, .. } => writable += usize::from(w),
                Pte::None | Pte::Zero | Pte::Ksm { .. } => {}
            }
            at += crate::types::PAGE_SIZE;
        }
        Ok(writable)
    }
}

/// What requests a huge page: a fault or `MADV_COLLAPSE`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A page fault.
    Fault,
    /// `MADV_COLLAPSE`.
    Collapse,
}

/// True if the VMA flags or the process setting disable huge pages.
#[doc(alias = "vma_thp_disabled")]
fn is_disabled(process: ThpDisabled, flags: VmFlags, wish: Wish) -> bool {
    if flags.contains(VmFlags::NOHUGEPAGE) {
        return true;
    }
    match process {
        ThpDisabled::No => false,
        ThpDisabled::ExceptAdvised => wish == Wish::Fault && !flags.contains(VmFlags::HUGEPAGE),
        ThpDisabled::Completely => true,
    }
}

/// True if the VMA allows `MADV_COLLAPSE`; false for file mappings, which the embedder handles.
#[doc(alias = "thp_vma_allowable_order")]
pub(crate) fn may_collapse(vma: &VmaView, process: ThpDisabled) -> bool {
    let never = VmFlags::SPECIAL | VmFlags::HUGETLB;
    let room = vma.range.end & !(PMD_SIZE - 1);
    vma.is_anonymous()
        && vma.anon_vma.is_some()
        && !vma.body.flags.intersects(never)
        && !is_disabled(process, vma.body.flags, Wish::Collapse)
        && room >= vma.range.start.saturating_add(PMD_SIZE)
        && vma.range.start.next_multiple_of(PMD_SIZE) + PMD_SIZE <= room
}

/// True if the aligned 2 MiB block around `addr` fits into the VMA and the VMA's flags allow a huge
/// page.
fn may_be_huge(vma: &VmaView, addr: u64) -> bool {
    let start = huge_start(addr);
    let flags = vma.body.flags;
    !flags.intersects(VmFlags::NOHUGEPAGE | VmFlags::SPECIAL)
        && vma.range.start <= start
        && start + PMD_SIZE <= vma.range.end
}
