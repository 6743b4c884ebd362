//! The last step of a fault on a machine with an MMU: maps the page in the hardware page tables.
//!
//! # Linux
//! `mm/memory.c` `set_pte_at`, `update_mmu_cache`. Linux's page table is the hardware's; here the
//! entry is read again under its lock, because it may have changed since the fault set it.

use super::{Access, FaultContext, Faulted};
use crate::mm::mapped::Mapped;
use crate::types::mmu::Mmu;
use crate::types::platform::Environment;
use crate::vma::VmaView;

impl<E: Environment> FaultContext<'_, E> {
    /// Handles a user-mode access and also maps the page in the hardware page tables.
    pub(super) fn user_page(&self, vma: &VmaView, addr: u64, access: Access) -> Faulted {
        let faulted = self.page(vma, addr, access);
        if E::Mmu::PRESENT && matches!(faulted, Faulted::Done | Faulted::Spurious) {
            self.show(vma, addr, faulted)
        } else {
            faulted
        }
    }

    fn show(&self, vma: &VmaView, addr: u64, faulted: Faulted) -> Faulted {
        let Some(mm) = self.pages.owner() else {
            return faulted;
        };
        let shown = self.pages.peek(addr, |entry| {
            match Mapped::of(vma, addr, entry).translation() {
                Some(to) => self.space.mmu.set_entry(mm, addr, to),
                None => Ok(()),
            }
        });
        match shown {
            Ok(()) => faulted,
            Err(_) => Faulted::OutOfMemory,
        }
    }
}
