//! Changes the protection of the pages in a range, for `mprotect`.
//!
//! A page that loses a permission loses it at once, in the hardware as well. A page that gains a
//! permission gets it at its next fault, except that a private page that nobody else can map
//! becomes writable at once: a write fault would do no more than that.
//!
//! # Linux
//! `mm/mprotect.c` `change_protection`, `can_change_private_pte_writable`, 6.12. Linux marks a page
//! as exclusive (`PageAnonExclusive`) and clears the mark in a fork; here a page is exclusive if
//! its map count is 1 and its anon_vma is that of the VMA.

use super::entry::Pte;
use super::huge::Huge;
use super::slot::{Cover, HugeFate, Visitor};
use super::table::PageTable;
use super::tables::PageTables;
use crate::Space;
use crate::types::mmu::Mmu;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, VmFlags, VmRange};

struct WriteProtector<'a, E: Environment>(&'a Space<E>);

impl<E: Environment> Visitor for WriteProtector<'_, E> {
    fn page(&mut self, _: u64, entry: &mut Pte) {
        *entry = entry.write_protected();
    }

    fn huge(&mut self, _: u64, huge: &mut Huge, cover: Cover) -> HugeFate {
        if cover == Cover::Part {
            return self.0.huge_split(huge);
        }
        huge.write_protect();
        HugeFate::Keep
    }
}

/// Makes the exclusive pages of a VMA writable again.
struct Restorer<'a, E: Environment> {
    space: &'a Space<E>,
    table: &'a PageTable,
    /// The VMA's own anon_vma.
    anon_vma: AnonVmaId,
    /// Consecutive pages that have become writable in the core, but not in the hardware yet.
    run: VmRange,
}

impl<E: Environment> Restorer<'_, E> {
    fn end_run(&mut self) {
        if E::Mmu::PRESENT
            && !self.run.is_empty()
            && let Some(mm) = self.table.owner()
        {
            self.space.mmu.allow_writes(mm, self.run);
        }
        self.run = VmRange::new(0, 0);
    }
}

impl<E: Environment> Visitor for Restorer<'_, E> {
    #[inline]
    #[doc(alias = "can_change_private_pte_writable")]
    fn page(&mut self, addr: u64, entry: &mut Pte) {
        let Pte::Anon { frame, writable } = entry else {
            return;
        };
        let page = self.space.frame(*frame);
        // A page that is being swapped out or compared stays read-only, and so does one in the swap
        // cache, whose copy on the swap device would be outdated.
        let exclusive =
            page.mapcount() == 1 && !page.is_marked() && page.mapping() == Some(self.anon_vma);
        if !exclusive {
            return;
        }
        *writable = true;
        if E::Mmu::PRESENT {
            let page = VmRange::page(addr);
            if self.run.end != page.start {
                self.end_run();
                self.run = page;
            }
            self.run.end = page.end;
        }
    }

    fn huge(&mut self, _: u64, _: &mut Huge, _: Cover) -> HugeFate {
        HugeFate::Keep
    }

    fn leave(&mut self) {
        self.end_run();
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Removes write permission from every entry in `range`; a fault can restore the permission.
    pub(crate) fn write_protect(&self, range: VmRange) {
        self.table.visit(range, &mut WriteProtector(self.space));
    }

    /// Adapts the entries in `range` to a VMA whose flags have changed from `old` to `new`.
    /// `anon_vma` is the VMA's own anon_vma.
    pub(crate) fn change_protection(
        &self,
        range: VmRange,
        (old, new): (VmFlags, VmFlags),
        anon_vma: Option<AnonVmaId>,
    ) {
        let PageTables { space, table } = *self;
        if old.contains(VmFlags::WRITE) && !new.contains(VmFlags::WRITE) {
            self.write_protect(range);
        }
        if E::Mmu::PRESENT {
            if (old ^ new).intersects(VmFlags::PKEY) {
                space.clear_flush(table, range);
            } else if (old - new).intersects(VmFlags::ACCESS) {
                space.restrict_flush(table, range, new);
            }
        }
        let gains = (new - old).contains(VmFlags::WRITE);
        let faults = VmFlags::SHARED | VmFlags::UFFD_WP | VmFlags::UFFD_RWP;
        if let Some(anon_vma) = anon_vma.filter(|_| gains && !new.intersects(faults)) {
            let mut restorer = Restorer {
                space,
                table,
                anon_vma,
                run: VmRange::new(0, 0),
            };
            self.table.visit(range, &mut restorer);
        }
    }
}
