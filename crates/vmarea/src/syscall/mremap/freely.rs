//! Extensions to `mremap`: moving several VMAs without FIXED, and to overlapping destinations.
//!
//! # Picture
//! ```text
//! spanning     AAAA..BBBB          grows after B if that range is free, otherwise moves:
//!                                  AAAA..BBBB++++ at a new address, gaps kept
//! overlapping  AAAABBBB            to a temporary address first, then to the destination:
//!                ↓ 2 pages up        ........AAAABBBB ▶ ..AAAABBBB
//! ```
//!
//! # Linux
//! Not in Linux, which since 6.17 moves several VMAs, but only with FIXED and equal lengths
//! (`remap_move`); the thesis names both extensions.

use super::Populate;
use super::context::Remap;
use crate::mm::MmapWriteGuard;
use crate::refused::{Growing, Rule};
use crate::syscall::unmapped_area::{Room, pages_of};
use crate::types::call_flags::{MapFlags, MremapFlags};
use crate::types::platform::Environment;
use crate::types::{Errno, VmFlags, VmRange};
use crate::vma::VmaView;

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// True if the call grows an old range that extends beyond its first VMA.
    pub(super) fn spans_several(&self, r: &Remap, first: &VmaView) -> bool {
        !r.flags
            .intersects(MremapFlags::FIXED | MremapFlags::DONTUNMAP)
            && r.new_len > r.old_len
            && r.old_len > first.range.end - r.addr
    }

    /// Grows a range of several VMAs: grows the last VMA in place or moves the whole range.
    pub(super) fn remap_spanning(&mut self, r: Remap) -> Result<(u64, Populate), Errno> {
        let end = self.end_of(&r)?;
        self.check_seals(VmRange::new(r.addr, end))?;
        let grow = r.new_len - r.old_len;
        let last = self.mapping_at(end - 1)?;
        let populate = self.check_growth(&last, grow)?;
        if last.range.end == end && self.is_expandable(&last, grow) {
            self.expand_in_place(&last, grow)?;
            return Ok((r.addr, populate));
        }
        if !r.flags.contains(MremapFlags::MAYMOVE) {
            return Err(self.refuse_growth(last.range.end, grow));
        }
        let to = self.free_place(r.new_len)?;
        self.move_all(&r, r.addr, to, r.old_len)?;
        let moved = self.mapping_at(to + r.old_len - 1)?;
        if let Err(error) = self.expand_in_place(&moved, grow) {
            self.move_all(&r, to, r.addr, r.old_len)?;
            return Err(error);
        }
        Ok((to, populate))
    }

    /// Checks that the last VMA can grow, so that growing it cannot fail after the move.
    fn check_growth(&mut self, last: &VmaView, grow: u64) -> Result<Populate, Errno> {
        let flags = last.body.flags;
        if flags.intersects(VmFlags::DONTEXPAND | VmFlags::PFNMAP) {
            return Err(self.space.refuse(Errno::EFAULT, Rule::CanGrow));
        }
        if !self.mlock_future_ok(flags, grow) {
            return Err(self.refuse_memlock(Errno::EAGAIN, grow));
        }
        if !self.may_expand(flags, pages_of(grow)) {
            return Err(self.refuse_expansion(flags, pages_of(grow)));
        }
        if flags.contains(VmFlags::ACCOUNT) {
            // `mmap_lock` is held: what fits now fits later as well.
            self.charge(pages_of(grow))?;
            self.uncharge(pages_of(grow));
        }
        Ok(match flags.contains(VmFlags::LOCKED) {
            true => Populate::Yes,
            false => Populate::No,
        })
    }

    /// Moves a range to a destination that overlaps the range.
    pub(super) fn remap_overlapping(&mut self, r: Remap) -> Result<(u64, Populate), Errno> {
        if r.flags.contains(MremapFlags::DONTUNMAP) || r.old_len == 0 {
            return Err(self.space.refuse(Errno::EINVAL, Rule::RangesApart));
        }
        let old = VmRange::new(r.addr, self.end_of(&r)?);
        self.check_movable(old)?;
        let kept = r.old_len.min(r.new_len);
        let mut populate = Populate::No;
        if r.new_len > kept {
            let last = self.mapping_at(old.end - 1)?;
            populate = self.check_growth(&last, r.new_len - kept)?;
        }
        let between = self.free_place(kept)?;
        if kept < r.old_len {
            self.unmap_range(VmRange::new(old.start + kept, old.end))?;
        }
        self.move_all(&r, old.start, between, kept)?;
        let wanted = VmRange::new(r.new_addr, r.new_addr + r.new_len);
        if let Err(error) = self.unmap_range(wanted) {
            self.move_all(&r, between, old.start, kept)?;
            return Err(error);
        }
        if let Err(error) = self.move_all(&r, between, r.new_addr, kept) {
            self.move_all(&r, between, old.start, kept)?;
            return Err(error);
        }
        if r.new_len > kept {
            let last = self.mapping_at(r.new_addr + kept - 1)?;
            self.expand_in_place(&last, r.new_len - kept)?;
        }
        Ok((r.new_addr, populate))
    }

    /// Checks that a move cannot fail midway: all VMAs can move, and the map count limit allows it.
    fn check_movable(&self, range: VmRange) -> Result<(), Errno> {
        let first = self.vmas_in(range).next();
        if first.is_none_or(|vma| vma.range.start > range.start) {
            return Err(self.refuse_unmapped(Errno::EFAULT, range.start));
        }
        self.check_seals(range)?;
        let mut count = 0;
        for vma in self.vmas_in(range) {
            count += 1;
            let flags = vma.body.flags;
            if flags.intersects(VmFlags::UFFD_ANY | VmFlags::PFNMAP | VmFlags::HUGETLB) {
                return Err(self.space.refuse(Errno::EFAULT, Rule::MovesWithOthers));
            }
        }
        let room = u64::from(self.state().map_count) + 2 * count + 8;
        if room > u64::from(self.space.system.max_map_count) {
            let needed = u32::try_from(2 * count + 8).unwrap_or(u32::MAX);
            Err(self.refuse_mappings(Errno::ENOMEM, Growing::Move(needed)))
        } else {
            Ok(())
        }
    }

    /// Returns EPERM if a VMA in the range is sealed, even one that a call would not change: Linux
    /// looks at the first VMA first.
    fn end_of(&self, r: &Remap) -> Result<u64, Errno> {
        let end = r.addr.checked_add(r.old_len);
        end.ok_or_else(|| self.space.refuse(Errno::EINVAL, Rule::EndFits))
    }

    fn check_seals(&self, range: VmRange) -> Result<(), Errno> {
        let sealed = |vma: &VmaView| vma.body.flags.contains(VmFlags::SEALED);
        match self.vmas_in(range).find(sealed) {
            Some(vma) => Err(self.refuse_sealed(vma.range)),
            None => Ok(()),
        }
    }

    /// Moves all VMAs in a range. If one VMA cannot move, the VMAs that have moved are moved back,
    /// unless there is too little memory to do so.
    fn move_all(&mut self, r: &Remap, from: u64, to: u64, len: u64) -> Result<(), Errno> {
        let flags = MremapFlags::MAYMOVE | MremapFlags::FIXED;
        let all = |addr, new_addr| Remap {
            addr,
            old_len: len,
            new_len: len,
            flags,
            new_addr,
            ..*r
        };
        let moved = self.remap_move(all(from, to)).map(drop);
        if moved.is_err() {
            // The first error counts, whether or not something had moved.
            let _ = self.remap_move(all(to, from));
        }
        moved
    }

    fn free_place(&self, len: u64) -> Result<u64, Errno> {
        self.unmapped_area(&Room {
            file: None,
            shared_anon: false,
            hint: 0,
            len,
            offset: 0,
            flags: MapFlags::empty(),
            vm_flags: VmFlags::empty(),
        })
    }
}
