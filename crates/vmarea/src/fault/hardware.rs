//! The last step of a fault on a machine with an MMU: maps the page in the hardware page tables.
//!
//! A fault that changes an entry maps the page while it holds the entry's lock. After other faults,
//! the entry is looked up once more, because it may have changed since the fault saw it.
//!
//! # Linux
//! `mm/memory.c` `set_pte_at`, `update_mmu_cache`. Linux's page table is the hardware's.

use super::{Access, FaultContext, Faulted};
use crate::mm::mapped;
use crate::page::Pte;
use crate::types::Errno;
use crate::types::mmu::Mmu;
use crate::types::platform::Environment;
use crate::vma::VmaView;

impl<E: Environment> FaultContext<'_, E> {
    /// Handles a user-mode access and also maps the page in the hardware page tables.
    #[inline(always)]
    pub(super) fn user_page(&self, vma: &VmaView, addr: u64, access: Access) -> Faulted {
        let faulted = self.page(vma, addr, access);
        if E::Mmu::PRESENT
            && !self.shown.get()
            && matches!(faulted, Faulted::Done | Faulted::Spurious)
        {
            return match self.pages.peek(addr, |entry| self.show(vma, addr, entry)) {
                Ok(()) => faulted,
                Err(_) => Faulted::OutOfMemory,
            };
        }
        faulted
    }

    /// Maps the page of `entry` in the hardware page tables. The caller holds the page-table lock.
    ///
    /// # Errors
    /// ENOMEM; the hardware maps nothing at `addr`.
    #[inline]
    pub(super) fn show(&self, vma: &VmaView, addr: u64, entry: Pte) -> Result<(), Errno> {
        if !E::Mmu::PRESENT {
            return Ok(());
        }
        self.shown.set(true);
        let to = mapped::translation(entry, vma.body.flags, || mapped::file_page(vma, addr));
        match (self.pages.owner(), to) {
            (Some(mm), Some(to)) => self.space.mmu.set_entry(mm, addr, to),
            _ => Ok(()),
        }
    }
}
