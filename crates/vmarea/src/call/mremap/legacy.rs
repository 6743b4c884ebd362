//! `mremap` as kernels before 6.17 do it: what is in the way goes first, checks come after.
//!
//! The moves themselves are those of [`super::mremap`]; only the order differs, and with it what a
//! refused call leaves behind: a destination that is unmapped, a source without its tail.
//!
//! # Linux
//! `mm/mremap.c` `mremap_to`, `vma_to_resize`, 5.10, 6.1 and 6.12.

use super::mremap::Remap;
use crate::mm::MmapWriteGuard;
use crate::values::call_flags::MremapFlags;
use crate::values::rules::MremapChecks;
use crate::values::{Errno, PAGE_MASK, PAGE_SHIFT, VmFlags};
use crate::vma::VmaView;
use vmarea_sync::VmaLockKind;

impl Remap {
    /// What is refused whatever is mapped.
    pub(super) fn check_by_halves(&self) -> Result<(), Errno> {
        let known = MremapFlags::MAYMOVE | MremapFlags::FIXED | MremapFlags::DONTUNMAP;
        let silly = !(self.flags - known).is_empty()
            || self.addr & !PAGE_MASK != 0
            || self.new_len == 0
            || self.implies_new_addr() && !self.flags.contains(MremapFlags::MAYMOVE);
        if silly { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

impl<K: VmaLockKind> MmapWriteGuard<'_, K> {
    /// The new address, and whether new pages have to be faulted in.
    pub(super) fn mremap_by_halves(&mut self, mut r: Remap) -> Result<(u64, bool), Errno> {
        let looks = self.space.policy.rules.mremap_checks == MremapChecks::AfterUnmapping;
        if looks {
            let vma = self.lookup(r.addr).ok_or(Errno::EFAULT)?;
            let flags = vma.body.flags;
            if flags.contains(VmFlags::SEALED) {
                return Err(Errno::EPERM);
            }
            if flags.contains(VmFlags::HUGETLB) {
                r.align_hugetlb()?;
            }
        }
        if r.implies_new_addr() {
            return self.mremap_to_by_halves(r);
        }
        if r.old_len > r.new_len {
            self.munmap(r.addr.wrapping_add(r.new_len), r.old_len - r.new_len)?;
        }
        if r.old_len >= r.new_len {
            return Ok((r.addr, false));
        }
        let vma = self.resizable(&r)?;
        let populate = vma.body.flags.contains(VmFlags::LOCKED);
        self.mremap_at(r).map(|addr| (addr, populate))
    }

    fn mremap_to_by_halves(&mut self, mut r: Remap) -> Result<(u64, bool), Errno> {
        let space = self.space;
        let system = &space.system;
        let bad = r.new_addr & !PAGE_MASK != 0
            || r.new_len > system.task_size
            || r.new_addr > system.task_size - r.new_len
            || r.overlaps();
        if bad {
            return Err(Errno::EINVAL);
        }
        if self.state().map_count + 2 >= system.max_map_count.saturating_sub(3) {
            return Err(Errno::ENOMEM);
        }
        if r.flags.contains(MremapFlags::FIXED) {
            self.munmap(r.new_addr, r.new_len)?;
        }
        if r.old_len > r.new_len {
            self.munmap(r.addr.wrapping_add(r.new_len), r.old_len - r.new_len)?;
            r.old_len = r.new_len;
        }
        let vma = self.resizable(&r)?;
        if r.flags.contains(MremapFlags::DONTUNMAP)
            && !self.may_expand(vma.body.flags, r.old_len >> PAGE_SHIFT)
        {
            return Err(Errno::ENOMEM);
        }
        let populate = vma.body.flags.contains(VmFlags::LOCKED);
        r.new_addr = self.new_place(&r, &vma)?;
        self.move_vma(&r, &vma).map(|addr| (addr, populate))
    }

    /// The VMA, if it may have the new length.
    #[doc(alias = "vma_to_resize")]
    fn resizable(&self, r: &Remap) -> Result<VmaView, Errno> {
        let vma = self.lookup(r.addr).ok_or(Errno::EFAULT)?;
        let flags = vma.body.flags;
        if r.old_len == 0 && !flags.intersects(VmFlags::SHARED | VmFlags::MAYSHARE) {
            return Err(Errno::EINVAL);
        }
        let rigid = flags.intersects(VmFlags::DONTEXPAND | VmFlags::PFNMAP);
        let late = self.space.policy.rules.mremap_checks == MremapChecks::Late;
        let stays = match late {
            true => !vma.is_anonymous() || flags.contains(VmFlags::SHARED),
            false => rigid,
        };
        if r.flags.contains(MremapFlags::DONTUNMAP) && stays
            || late && flags.contains(VmFlags::HUGETLB)
        {
            return Err(Errno::EINVAL);
        }
        if r.old_len > vma.range.end - r.addr {
            return Err(Errno::EFAULT);
        }
        if r.new_len == r.old_len {
            return Ok(vma);
        }
        if vma
            .pgoff_at(r.addr)
            .0
            .checked_add(r.new_len >> PAGE_SHIFT)
            .is_none()
        {
            return Err(Errno::EINVAL);
        }
        if rigid {
            return Err(Errno::EFAULT);
        }
        let delta = r.new_len - r.old_len;
        if !self.mlock_future_ok(flags, delta) {
            return Err(Errno::EAGAIN);
        }
        if !self.may_expand(flags, delta >> PAGE_SHIFT) {
            return Err(Errno::ENOMEM);
        }
        Ok(vma)
    }
}
