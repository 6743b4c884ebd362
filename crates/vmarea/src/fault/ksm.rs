//! Every KSM page of a range gets a frame of its own again, as a write to it would do.
//!
//! `MADV_UNMERGEABLE` asks for it, and so does a move: a KSM page has no owner that could follow. The
//! way there, two pages becoming one, is in `page::ksm`.
//!
//! # Linux
//! `mm/ksm.c` `unmerge_ksm_pages`, 6.18.

use super::{FaultContext, Faulted};
use crate::mm::MmapWriteGuard;
use crate::types::platform::Environment;
use crate::types::{Errno, VmFlags, VmRange};
use crate::vma::VmaView;
use alloc::vec::Vec;
use core::ops::ControlFlow;

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Gives every KSM page of `range`, which lies in `vma`, a frame of its own again.
    ///
    /// # Errors
    /// ENOMEM; EAGAIN where one migrates and cannot be waited for. What came before is done.
    #[doc(alias = "unmerge_ksm_pages")]
    pub(crate) fn unmerge_range(&self, vma: &VmaView, range: VmRange) -> Result<(), Errno> {
        if self.space.ksm.is_empty() || !vma.body.flags.contains(VmFlags::MERGEABLE) {
            return Ok(());
        }
        let mut merged = Vec::new();
        self.mm.pages.for_each(range, |addr, entry| {
            if entry.frame().is_some_and(|f| self.space.frame(f).is_ksm()) {
                merged.push(addr);
            }
            ControlFlow::Continue(())
        });
        let context = FaultContext::of(self.space, &self.mm.pages, self);
        for addr in merged {
            match context.unshare(vma, addr) {
                Faulted::OutOfMemory => return Err(Errno::ENOMEM),
                Faulted::MustWait => return Err(Errno::EAGAIN),
                _ => {}
            }
        }
        Ok(())
    }
}
