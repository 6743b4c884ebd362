//! `mremap` to another address: unmaps the destination, chooses an address and moves each VMA.
//!
//! # Picture
//! ```text
//!                  source      destination
//! one VMA          VVVVVV      XXXX........
//! unmap            VVVV..      ............    the FIXED range, and the tail when shrinking
//! move             ....        VVVV++......    with new pages after the moved pages
//!
//! several (6.17)   AAAA..BB    XXXX..XX....    FIXED with equal length: one VMA after the other,
//!                  ....  ..    AAAA..BB....    with the gaps kept
//! ```
//!
//! # Linux
//! `mm/mremap.c` `mremap_to`, `remap_move`, `vrm_set_new_addr`, 6.18.

use super::context::{Remap, Resize};
use crate::mm::MmapWriteGuard;
use crate::refused::Rule;
use crate::syscall::mmap::Placement;
use crate::syscall::unmapped_area::Room;
use crate::types::call_flags::{MapFlags, MremapFlags};
use crate::types::platform::Environment;
use crate::types::{Errno, FileKind, PAGE_SHIFT, VmFlags, VmRange};
use crate::vma::VmaView;

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Moves the old range, which is in `vma`, to the address that the caller requested.
    #[doc(alias = "mremap_to")]
    pub(super) fn remap_to(&mut self, mut r: Remap, vma: &VmaView) -> Result<u64, Errno> {
        let mut vma = *vma;
        if self.unmap_destination(&r)? {
            // If the old length wraps, the destination may overlap the source.
            vma = self.mapping_at(r.addr)?;
        }
        if self.drop_tail(&mut r)? {
            vma = self.mapping_at(r.addr)?;
        }
        self.relocate_named(r, &vma)
    }

    /// Unmaps the destination of a FIXED move; returns true if anything was mapped there.
    pub(super) fn unmap_destination(&mut self, r: &Remap) -> Result<bool, Errno> {
        Ok(r.flags.contains(MremapFlags::FIXED) && self.munmap(r.new_addr, r.new_len)?)
    }

    /// Unmaps the tail of a source that shrinks; returns true if there was a tail.
    pub(super) fn drop_tail(&mut self, r: &mut Remap) -> Result<bool, Errno> {
        if r.resize() != Resize::Shrink {
            return Ok(false);
        }
        self.unmap_tail(r)?;
        r.old_len = r.new_len;
        Ok(true)
    }

    /// Checks the address space limit for DONTUNMAP, then moves the range to the requested address.
    pub(super) fn relocate_named(&mut self, r: Remap, vma: &VmaView) -> Result<u64, Errno> {
        if r.flags.contains(MremapFlags::DONTUNMAP)
            && !self.may_expand(vma.body.flags, r.old_len >> PAGE_SHIFT)
        {
            return Err(self.refuse_expansion(vma.body.flags, r.old_len >> PAGE_SHIFT));
        }
        self.relocate(r, vma)
    }

    /// Chooses a destination and moves the range there.
    pub(super) fn relocate(&mut self, mut r: Remap, vma: &VmaView) -> Result<u64, Errno> {
        r.new_addr = self.new_place(&r, vma)?;
        self.move_vma(&r, vma)
    }

    #[doc(alias = "vrm_set_new_addr")]
    pub(super) fn new_place(&self, r: &Remap, vma: &VmaView) -> Result<u64, Errno> {
        let fixed = r.flags.contains(MremapFlags::FIXED);
        if let (Placement::At(addr), false) = (r.placement, fixed) {
            return Ok(addr);
        }
        self.unmapped_area(&Room {
            file: vma.body.file.map(|f| f.kind),
            shared_anon: false,
            hint: if r.implies_new_addr() { r.new_addr } else { 0 },
            len: r.new_len,
            offset: vma.pgoff_at(r.addr).0 << PAGE_SHIFT,
            flags: if fixed {
                MapFlags::FIXED
            } else {
                MapFlags::empty()
            },
            vm_flags: vma.body.flags,
        })
    }

    /// Moves several VMAs at once, keeping the gaps between them.
    pub(super) fn remap_move(&mut self, r: Remap) -> Result<u64, Errno> {
        let end = r
            .addr
            .checked_add(r.old_len)
            .ok_or_else(|| self.space.refuse(Errno::EFAULT, Rule::EndFits))?;
        let mut result = None;
        let mut at = r.addr;
        while at < end
            && let Some(vma) = self.find_vma(at).filter(|v| v.range.start < end)
        {
            let first = result.is_none();
            let part = vma.range.clip(VmRange::new(r.addr, end));
            if first && vma.range.start > r.addr {
                break;
            }
            let movable_with_others = !vma.body.flags.intersects(VmFlags::UFFD_ANY)
                && vma.body.file.is_none_or(|f| !places_itself(f.kind));
            if !movable_with_others && (!first || vma.range.end < end) {
                return Err(self.space.refuse(Errno::EFAULT, Rule::MovesWithOthers));
            }
            let to = r.new_addr + (part.start - r.addr);
            let len = part.len_bytes();
            let mut one = Remap {
                addr: part.start,
                old_len: len,
                new_len: len,
                new_addr: to,
                ..r
            };
            self.check_vma(&mut one, &vma)?;
            let moved = self.remap_to(one, &vma)?;
            if first {
                result = Some(moved);
            }
            at = part.end;
        }
        result.ok_or_else(|| self.refuse_unmapped(Errno::EFAULT, r.addr))
    }
}

/// True if the file's driver can choose the address itself, so that a fixed address may be ignored.
#[doc(alias = "vma_multi_allowed")]
fn places_itself(kind: FileKind) -> bool {
    matches!(
        kind,
        FileKind::Device | FileKind::DevZero | FileKind::SysvShm
    )
}
