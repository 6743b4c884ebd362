//! `mremap` in the order of kernels before 6.17, which unmap first and check afterwards.
//!
//! Only the order of the stages differs from later kernels. The partial effects of a failing call
//! differ accordingly: the destination, or the tail of the source, has already been unmapped.
//!
//! # Picture
//! ```text
//! since 6.17   check ─▶ unmap ─▶ move
//! before       unmap ─▶ check ─▶ move
//! ```
//!
//! # Linux
//! `mm/mremap.c` `mremap_to`, `vma_to_resize`, 5.10, 6.1 and 6.12.

use super::Populate;
use super::context::{Remap, Resize};
use crate::mm::MmapWriteGuard;
use crate::policy::rules::MremapChecks;
use crate::refused::Rule;
use crate::types::Errno;
use crate::types::platform::Environment;

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Resizes or moves a mapping, and returns its address.
    pub(super) fn mremap_legacy(&mut self, mut r: Remap) -> Result<(u64, Populate), Errno> {
        if self.space.policy.rules.mremap_checks == MremapChecks::AfterUnmapping {
            let vma = self.mapping_at(r.addr)?;
            self.check_seal_and_align(&mut r, &vma)?;
        }
        if r.implies_new_addr() {
            r.check_new_addr(self.space.system.task_size)
                .map_err(|why| self.space.refuse(Errno::EINVAL, why))?;
            if r.overlaps() {
                return Err(self.space.refuse(Errno::EINVAL, Rule::RangesApart));
            }
            self.check_room(&r)?;
            self.unmap_destination(&r)?;
            self.drop_tail(&mut r)?;
        } else if r.resize() != Resize::Grow {
            return self.remap_at(r).map(|addr| (addr, Populate::No));
        }
        let vma = self.mapping_at(r.addr)?;
        let populate = self.check_resize(&r, &vma)?;
        let addr = match r.implies_new_addr() {
            true => self.relocate_named(r, &vma)?,
            false => self.remap_at(r)?,
        };
        Ok((addr, populate))
    }
}
