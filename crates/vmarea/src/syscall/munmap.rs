//! `munmap`, and the unmapping of a range before a fixed mapping.
//!
//! # Errors
//! EINVAL for a range that is misaligned, empty or outside the address space; ENOMEM if the map
//! limit forbids punching a hole into one VMA; EPERM if a VMA is sealed.
//!
//! # Linux
//! `mm/vma.c` 6.18: `do_vmi_munmap`, `vms_gather_munmap_vmas`, `vms_complete_munmap_vmas`. Partial
//! effects: if a later VMA fails, a first VMA that was split remains split.

use crate::Space;
use crate::changes;
use crate::lookup::Change;
use crate::mm::split::{NewHalf, Upper};
use crate::mm::{Growth, MmapGuard};
use crate::page::range::Zap;
use crate::refused::{Growing, Refused, Rule};
use crate::types::mmu::Mmu;
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{Errno, MmId, PAGE_MASK, PMD_SIZE, VmFlags, VmRange, VmaId, page_align};
use crate::vma::VmaView;
use smallvec::SmallVec;

/// The VMAs that are about to be unmapped; VMAs at the edges of the range have been split.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    vmas: SmallVec<[VmaId; 4]>,
    /// Number of pages in the listed VMAs.
    pub(crate) pages: u64,
    /// Number of pages in the listed VMAs that are charged against the commit limit.
    pub(crate) accounted: u64,
}

/// What happens to the pages in VMAs that are being unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    /// The pages are unmapped and freed.
    Drop,
    /// `mremap` has moved the pages, so nothing is freed.
    Moved,
}

impl<E: Environment> Space<E> {
    /// Unmaps all mappings in `[addr, addr + len)`.
    ///
    /// # Errors
    /// See the [module](crate::syscall::munmap).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
    /// space.munmap(mm, at + PAGE_SIZE, PAGE_SIZE)?;
    /// assert_eq!(space.maps(mm).count(), 2, "a hole splits the mapping");
    /// // Unmapping nothing is no error.
    /// space.munmap(mm, at + PAGE_SIZE, PAGE_SIZE)?;
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn munmap(&self, mm: MmId, addr: u64, len: u64) -> Result<(), Errno> {
        // A range of which only the ends remain has one more VMA.
        let growth = Growth { vmas: 2, pages: 0 };
        // The arguments are checked under the lock.
        let end = page_align(len).map_or(u64::MAX, |len| addr.saturating_add(len));
        let unmapped = match self.write_part_around(mm, VmRange::new(addr, end), growth) {
            Some(mut w) => w.munmap(addr, len),
            None => self
                .mmap_write_lock(mm)
                .ok_or(Errno::ESRCH)?
                .munmap(addr, len),
        };
        unmapped.map(drop)
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Unmaps `[addr, addr + len)`; returns true if anything was mapped there.
    #[doc(alias = "do_vmi_munmap")]
    pub(crate) fn munmap(&mut self, addr: u64, len: u64) -> Result<bool, Errno> {
        let task_size = self.space.system.task_size;
        if addr & !PAGE_MASK != 0 || addr > task_size || len > task_size - addr {
            return Err(self.refuse_munmap(addr, len));
        }
        let range = VmRange::of_pages(addr, len).filter(|r| !r.is_empty());
        self.unmap_range(range.ok_or_else(|| self.refuse_munmap(addr, len))?)
    }

    #[cold]
    #[inline(never)]
    fn refuse_munmap(&self, addr: u64, len: u64) -> Errno {
        self.space
            .refuse_with(Errno::EINVAL, || match (addr & !PAGE_MASK, len) {
                (0, 0) => Rule::SomeLength.into(),
                (0, _) => Refused::Outside {
                    start: addr,
                    len,
                    end: self.space.system.task_size,
                },
                _ => Rule::AlignedAddress.into(),
            })
    }

    /// Unmaps `range`; returns true if anything was mapped there.
    pub(crate) fn unmap_range(&mut self, range: VmRange) -> Result<bool, Errno> {
        let gathered = self.gather(range)?;
        let any = !gathered.vmas.is_empty();
        if any {
            self.uncharge(gathered.accounted);
            self.complete(range, gathered, Pages::Drop);
        }
        Ok(any)
    }

    /// Lists a VMA that will be unmapped as a whole; EPERM if the VMA is sealed.
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
            return Err(self.refuse_sealed(vma.range));
        }
        if vma.range.end > range.end {
            self.split_unlimited(vma.id, range.end, NewHalf::Above, Upper::Stays)?;
        }
        gathered.vmas.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let pages = vma.range.clip(range).pages();
        gathered.pages += pages;
        if vma.body.flags.contains(VmFlags::ACCOUNT) {
            gathered.accounted += pages;
        }
        self.start_write(vma.id);
        gathered.vmas.push(vma.id);
        Ok(())
    }

    /// Splits the VMAs at the edges of `range` and lists the VMAs inside it.
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
                return Err(self.refuse_mappings(Errno::ENOMEM, Growing::Hole));
            }
            if first.body.flags.contains(VmFlags::SEALED) {
                return Err(self.refuse_sealed(first.range));
            }
            let upper = if first.range.end <= range.end {
                Upper::Goes
            } else {
                Upper::Stays
            };
            self.split_unlimited(first.id, range.start, NewHalf::Below, upper)?;
        }
        let mut gathered = Gathered::default();
        let mut at = range.start;
        while let Some(vma) = self.find(at).filter(|v| v.range.start < range.end) {
            at = vma.range.end;
            self.gather_part(&mut gathered, &vma, range)?;
        }
        Ok(gathered)
    }

    /// Removes the listed VMAs; `pages` tells whether to free their pages.
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
            if pages == Pages::Drop {
                self.changed(|| changes::Change::Unmapped {
                    range: self.view(id).range,
                });
            }
            let vma = self.view(id);
            let pages = vma.range.pages();
            self.stat_account(vma.body.flags, -(pages as i64));
            if vma.body.flags.contains(VmFlags::LOCKED) {
                self.state_mut().locked_vm -= pages;
            }
            self.forget(id);
        }
        self.lookups().note_change(|| Change::Unmapped);
        self.free_tables(range);
    }

    /// Frees the page tables that have become empty because `range` has been unmapped.
    ///
    /// Frees all tables inside the range, and the tables at its ends if no neighbouring VMA uses
    /// them.
    #[doc(alias = "free_pgtables")]
    fn free_tables(&self, range: VmRange) {
        let table = &self.mm.pages;
        let start = range.start & !(PMD_SIZE - 1);
        let end = ((range.end - 1) | (PMD_SIZE - 1)) + 1;
        if !E::Mmu::PRESENT && !table.has_empty_table(VmRange::new(start, end)) {
            return;
        }
        let low = self.index().prev(range.start).map_or(0, |e| e.end);
        let high = self.index().find(range.end).map_or(end, |e| e.start);
        let unused = VmRange::new(start.max(low), end.min(high));
        table.free_tables(unused);
        self.space.mmu.free_tables(self.id, unused);
    }
}
