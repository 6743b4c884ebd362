//! `munmap`, and making room for a fixed mapping.
//!
//! # Errors
//! EINVAL for a misaligned, empty or outlying range; ENOMEM when the map limit forbids to cut a hole
//! into one VMA; EPERM when a VMA is sealed.
//!
//! # Linux
//! `mm/vma.c` 6.18: `do_vmi_munmap`, `vms_gather_munmap_vmas`, `vms_complete_munmap_vmas`. By halves:
//! a first VMA that was split stays split when a later one refuses.

use crate::lookup::Change;
use crate::mm::MmapWriteGuard;
use crate::mutant::{self, Mutant};
use crate::page::range::Zap;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, PAGE_MASK, PMD_SIZE, VmFlags, VmRange, VmaId};
use crate::vma::VmaView;
use crate::vma::split::{NewHalf, Upper};
use smallvec::SmallVec;

/// VMAs that are about to go, cut to the range.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    vmas: SmallVec<[VmaId; 4]>,
    /// Pages in them.
    pub(crate) pages: u64,
    /// Pages that were charged.
    pub(crate) accounted: u64,
}

/// What is left of the pages of VMAs that go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    /// They are where they were, and are given back.
    Drop,
    /// `mremap` has moved them: nothing.
    Moved,
}

impl<E: Environment> Space<E> {
    /// Unmaps whatever lies in `[addr, addr + len)`.
    pub fn munmap(&self, mm: MmId, addr: u64, len: u64) -> Result<(), Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        w.munmap(addr, len).map(drop)
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// True where anything was there.
    #[doc(alias = "do_vmi_munmap")]
    pub(crate) fn munmap(&mut self, addr: u64, len: u64) -> Result<bool, Errno> {
        let task_size = self.space.system.task_size;
        if addr & !PAGE_MASK != 0 || addr > task_size || len > task_size - addr {
            return Err(Errno::EINVAL);
        }
        let range = VmRange::of_pages(addr, len).filter(|r| !r.is_empty());
        self.unmap_range(range.ok_or(Errno::EINVAL)?)
    }

    /// True where anything was there.
    pub(crate) fn unmap_range(&mut self, range: VmRange) -> Result<bool, Errno> {
        let gathered = self.gather(range)?;
        let any = !gathered.vmas.is_empty();
        if any {
            self.uncharge(gathered.accounted);
            self.complete(range, gathered, Pages::Drop);
        }
        Ok(any)
    }

    /// A VMA that goes as it is. EPERM where it is sealed.
    pub(crate) fn gather_whole(&mut self, vma: &VmaView) -> Result<Gathered, Errno> {
        let mut gathered = Gathered::default();
        self.gather_part(&mut gathered, vma, vma.range)?;
        Ok(gathered)
    }

    fn gather_part(
        &mut self,
        gathered: &mut Gathered,
        vma: &VmaView,
        range: VmRange,
    ) -> Result<(), Errno> {
        if vma.body.flags.contains(VmFlags::SEALED) {
            return Err(Errno::EPERM);
        }
        if vma.range.end > range.end {
            self.split_unlimited(vma.id, range.end, NewHalf::Above, Upper::Stays)?;
        }
        let pages = vma.range.clip(range).pages();
        gathered.pages += pages;
        if vma.body.flags.contains(VmFlags::ACCOUNT) {
            gathered.accounted += pages;
        }
        self.start_write(vma.id);
        gathered.vmas.push(vma.id);
        Ok(())
    }

    /// Cuts the VMAs at the edges of `range` and lists those within.
    #[doc(alias = "vms_gather_munmap_vmas")]
    pub(crate) fn gather(&mut self, range: VmRange) -> Result<Gathered, Errno> {
        let Some(first) = self.intersection(range) else {
            return Ok(Gathered::default());
        };
        if first.range == range {
            return self.gather_whole(&first);
        }
        if first.range.start < range.start {
            let at_limit = self.state().map_count >= self.space.system.max_map_count;
            if range.end < first.range.end && at_limit {
                return Err(Errno::ENOMEM);
            }
            if first.body.flags.contains(VmFlags::SEALED) {
                return Err(Errno::EPERM);
            }
            let upper = if first.range.end <= range.end {
                Upper::Goes
            } else {
                Upper::Stays
            };
            self.split_unlimited(first.id, range.start, NewHalf::Below, upper)?;
        }
        let mut gathered = Gathered::default();
        for id in self.vmas_in(range) {
            self.gather_part(&mut gathered, &self.view(id), range)?;
        }
        Ok(gathered)
    }

    /// Takes the listed VMAs away, with their pages.
    #[doc(alias = "vms_complete_munmap_vmas")]
    pub(crate) fn complete(&mut self, range: VmRange, gathered: Gathered, pages: Pages) {
        if gathered.vmas.is_empty() {
            return;
        }
        match pages {
            Pages::Drop => self.page_tables().zap(range, Zap::All),
            Pages::Moved => {}
        }
        for id in gathered.vmas {
            let vma = self.view(id);
            let pages = vma.range.pages();
            self.stat_account(vma.body.flags, -(pages as i64));
            let forgets = mutant::is_on(Mutant::MunmapForgetsLocks);
            if vma.body.flags.contains(VmFlags::LOCKED) && !forgets {
                self.state_mut().locked_vm -= pages;
            }
            self.forget(id);
        }
        self.lookups().note_change(|| Change::Unmapped);
        self.free_tables(range);
    }

    /// Frees the tables that are empty now that nothing is mapped in `range`: those within it, and those at
    /// its ends where no neighbour needs them.
    #[doc(alias = "free_pgtables")]
    fn free_tables(&self, range: VmRange) {
        let table = &self.mm.pages;
        let start = range.start & !(PMD_SIZE - 1);
        let end = ((range.end - 1) | (PMD_SIZE - 1)) + 1;
        if !table.has_empty_table(VmRange::new(start, end)) {
            return;
        }
        let low = self.mm.tree.prev(range.start).map_or(0, |e| e.end);
        let high = self.mm.tree.find(range.end).map_or(end, |e| e.start);
        table.free_tables(VmRange::new(start.max(low), end.min(high)));
    }
}
