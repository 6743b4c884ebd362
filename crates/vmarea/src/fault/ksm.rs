//! Unmerges KSM pages: replaces every KSM page in a range by a private copy, as writes would.
//!
//! `MADV_UNMERGEABLE` unmerges KSM pages, and so does moving a mapping, because a KSM page records
//! no owner that the move could update. The opposite operation, merging two pages into one, is in
//! `page::ksm`.
//!
//! # Linux
//! `mm/ksm.c` `unmerge_ksm_pages`, 6.18.

use super::FaultContext;
use crate::mm::MmapGuard;
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{Errno, VmFlags, VmRange};
use crate::vma::VmaView;
use alloc::vec::Vec;
use core::ops::ControlFlow;

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Replaces every KSM page in `range`, which is part of `vma`, by a private copy.
    ///
    /// # Errors
    /// ENOMEM; EAGAIN if a page is being migrated and the platform does not wait. Pages before the
    /// failing page have been unmerged.
    #[doc(alias = "unmerge_ksm_pages")]
    pub(crate) fn unmerge_range(&self, vma: &VmaView, range: VmRange) -> Result<(), Errno> {
        if self.space.ksm.is_empty() || !vma.body.flags.contains(VmFlags::MERGEABLE) {
            return Ok(());
        }
        let mut merged = Vec::new();
        let mut room = Ok(());
        self.mm.pages.for_each(range, |addr, entry| {
            if entry.frame().is_some_and(|f| self.space.frame(f).is_ksm()) {
                room = merged.try_reserve(1);
                if room.is_err() {
                    return ControlFlow::Break(());
                }
                merged.push(addr);
            }
            ControlFlow::Continue(())
        });
        room.map_err(|_| Errno::ENOMEM)?;
        let context = FaultContext::of(self.space, &self.mm.pages, self);
        for addr in merged {
            context.unshare(vma, addr).result()?;
        }
        Ok(())
    }
}
