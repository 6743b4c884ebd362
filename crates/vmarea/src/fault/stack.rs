//! Stack growth: expands a stack VMA downwards when an address below it is accessed.
//!
//! # Linux
//! `mm/vma.c` `expand_downwards`, `acct_stack_growth`, 6.18.

use super::FaultContext;
use crate::mm::MmapGuard;
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{AnonVmaId, Errno, PAGE_MASK, PAGE_SHIFT, VmFlags, VmRange};
use crate::vma::VmaView;

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Expands the stack VMA above `addr` down to the page that contains `addr`.
    ///
    /// A fault maps only the page that was accessed, even in a locked stack. Linux populates the
    /// rest of the stack only if another process accesses it (`find_extend_vma_locked`).
    pub(crate) fn expand_stack(&mut self, addr: u64) -> Result<(), Errno> {
        let vma = self.find(addr).ok_or(Errno::EFAULT)?;
        if vma.range.start <= addr {
            return Ok(());
        }
        if !vma.body.flags.contains(VmFlags::GROWSDOWN) {
            return Err(Errno::EFAULT);
        }
        let start = addr & PAGE_MASK;
        if start < self.space.system.lowest_addr() {
            return Err(Errno::EPERM);
        }
        let gap = self.space.system.stack_guard_gap;
        let crowded = self.prev(vma.range.start).is_some_and(|p| {
            let flags = p.body.flags;
            !flags.contains(VmFlags::GROWSDOWN)
                && flags.is_accessible()
                && start.wrapping_sub(p.range.end) < gap
        });
        if crowded {
            return Err(Errno::ENOMEM);
        }
        self.anon_vma_prepare(&vma)?;
        let grow = (vma.range.start - start) >> PAGE_SHIFT;
        if grow > vma.pgoff().0 {
            return Err(Errno::ENOMEM);
        }
        self.account_growth(&vma, vma.range.end - start, grow)?;
        if vma.body.flags.contains(VmFlags::LOCKED) {
            self.state_mut().locked_vm += grow;
        }
        self.stat_account(vma.body.flags, grow as i64);
        self.set_range(vma.id, VmRange::new(start, vma.range.end), vma.offsets);
        self.mapped(VmRange::new(start, vma.range.start), vma.offsets, &vma.body);
        Ok(())
    }

    #[doc(alias = "acct_stack_growth")]
    fn account_growth(&mut self, vma: &VmaView, size: u64, grow: u64) -> Result<(), Errno> {
        let flags = vma.body.flags;
        let refused = !self.may_expand(flags, grow)
            || size > self.state().limits.stack
            || !self.mlock_future_ok(flags, grow << PAGE_SHIFT);
        if refused {
            Err(Errno::ENOMEM)
        } else {
            self.charge(grow)
        }
    }

    /// Prepares the anon_vma of a VMA; see [`FaultContext::anon_vma_prepare`].
    pub(crate) fn anon_vma_prepare(&self, vma: &VmaView) -> Result<AnonVmaId, Errno> {
        FaultContext::of(self.space, &self.mm.pages, self).anon_vma_prepare(vma)
    }
}
