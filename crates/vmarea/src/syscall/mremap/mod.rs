//! `mremap`: resizes a mapping in place or moves it.
//!
//! A call goes through several stages, each in its own file.
//!
//! `context` converts the arguments to a `Remap`; this file checks the VMA; `resize` resizes the
//! VMA in place. For a move, `relocate` unmaps the destination and finds an address, `move_vma`
//! creates a VMA there and moves the pages to it, and `dontunmap` updates the old mapping that
//! DONTUNMAP leaves in place. `legacy` runs the stages in the order of kernels before 6.17;
//! `freely` contains extensions that no kernel has.
//!
//! # Picture
//! ```text
//!                     FIXED or DONTUNMAP?
//!                   no │               │ yes
//!        shrink, keep, grow            │
//!           │     │     │ free after?  │
//!           │     │ yes │          no  │
//!           ▼     ▼     ▼          ▼   ▼
//!           in place (resize)      move (relocate ─▶ move_vma ─▶ dontunmap)
//! ```
//!
//! # Errors
//! EINVAL for invalid flags, misalignment, a new length of 0, overlapping ranges, or duplicating a
//! private mapping; EFAULT for a hole, a range of several VMAs if that is not allowed, or a mapping
//! that must not grow; ENOMEM for lack of a free range, resource limits, or the map limit; EAGAIN
//! beyond RLIMIT_MEMLOCK; EPERM for a sealed VMA.
//!
//! # Linux
//! `mm/mremap.c` and `copy_vma` in `mm/vma.c`, 6.18. Partial effects: with FIXED the destination,
//! and the tail of a shrinking source, are unmapped before the move can still fail; of several
//! VMAs, those before the one that fails have moved.

mod context;
mod dontunmap;
mod freely;
mod legacy;
mod move_vma;
mod relocate;
mod resize;

use super::mmap::Placement;
use crate::Space;
use crate::mm::{Growth, MmapGuard, MmapWriteGuard};
use crate::policy::rules::{MremapChecks, MremapRoom};
use crate::refused::{Growing, Refused, Rule};
use crate::types::call_flags::MremapFlags;
use crate::types::platform::Environment;
use crate::types::writers::{WriteToken, Writers};
use crate::types::{Errno, MmId, PAGE_SHIFT, VmFlags, VmRange};
use crate::vma::VmaView;
use context::{Remap, Resize};

/// The arguments of `mremap`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MremapRequest {
    /// Start of the old range.
    pub addr: u64,
    /// Length of the old range in bytes.
    pub old_len: u64,
    /// New length in bytes.
    pub new_len: u64,
    /// A combination of MAYMOVE, FIXED and DONTUNMAP.
    pub flags: MremapFlags,
    /// Destination address with FIXED; address hint with DONTUNMAP.
    pub new_addr: u64,
    /// How the new address is chosen without FIXED.
    pub placement: Placement,
}

/// Whether the added pages must be faulted in, because a locked mapping has grown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Populate {
    No,
    Yes,
}

impl<E: Environment> Space<E> {
    /// Resizes or moves a mapping, and returns its address.
    ///
    /// # Errors
    /// See the [module](crate::syscall::mremap).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let other = MmapRequest { prot: Prot::READ, ..MmapRequest::anonymous(PAGE_SIZE) };
    /// let above = space.mmap(mm, &other)?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// let grow = MremapRequest {
    ///     addr: at,
    ///     old_len: PAGE_SIZE,
    ///     new_len: 2 * PAGE_SIZE,
    ///     ..MremapRequest::default()
    /// };
    /// assert_eq!(space.mremap(mm, &grow), Err(Errno::ENOMEM), "`above` is in the way");
    /// let moves = MremapRequest { flags: MremapFlags::MAYMOVE, ..grow };
    /// let moved = space.mremap(mm, &moves)?;
    /// assert!(moved + 2 * PAGE_SIZE <= above);
    /// assert_eq!(space.maps(mm).count(), 2);
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "do_mremap")]
    pub fn mremap(&self, mm: MmId, request: &MremapRequest) -> Result<u64, Errno> {
        let r = Remap::new(request);
        let first = self.policy.rules.mremap_checks == MremapChecks::First;
        r.check_arguments()
            .map_err(|rule| self.refuse(Errno::EINVAL, rule))?;
        if first {
            self.check_places(&r)?;
        } else if r.flags.contains(MremapFlags::DONTUNMAP) && request.old_len != request.new_len {
            // The lengths are compared before they are rounded to pages.
            return Err(self.refuse(Errno::EINVAL, Rule::KeepsLength));
        }
        let (addr, populate) = match self.mremap_in_part(mm, r).transpose() {
            Some(resized) => resized?,
            None => {
                let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
                let moved = match first {
                    true => w.mremap(r),
                    false => w.mremap_legacy(r),
                };
                w.note_peak();
                moved?
            }
        };
        if populate == Populate::Yes && r.resize() == Resize::Grow {
            self.mm_populate(mm, VmRange::new(addr + r.old_len, addr + r.new_len));
        }
        Ok(addr)
    }

    /// Resizes the mapping in place under one part; `None` if the call may move the mapping, or needs
    /// all parts for another reason. Nothing has changed then.
    #[inline]
    fn mremap_in_part(&self, mm: MmId, r: Remap) -> Result<Option<(u64, Populate)>, Errno> {
        let special = self.policy.merging.remap_freely
            || self.policy.rules.mremap_checks != MremapChecks::First;
        if E::Writers::PARTS == 0 || special || r.implies_new_addr() {
            return Ok(None);
        }
        let growth = Growth {
            vmas: 2,
            pages: r.new_len.saturating_sub(r.old_len) >> PAGE_SHIFT,
        };
        let Some(whole) = VmRange::of_len(r.addr, r.old_len.max(r.new_len)) else {
            return Ok(None);
        };
        match self.write_part_around(mm, whole, growth) {
            Some(mut w) => {
                let resized = w.resize(r);
                w.note_peak();
                resized
            }
            None => Ok(None),
        }
    }

    /// Returns the address that a move without FIXED would choose now, without moving anything.
    ///
    /// # Errors
    /// As [`mremap`](Self::mremap).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let other = MmapRequest { prot: Prot::READ, ..MmapRequest::anonymous(PAGE_SIZE) };
    /// space.mmap(mm, &other)?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// let grow = MremapRequest {
    ///     addr: at,
    ///     old_len: PAGE_SIZE,
    ///     new_len: 2 * PAGE_SIZE,
    ///     flags: MremapFlags::MAYMOVE,
    ///     ..MremapRequest::default()
    /// };
    /// let to = space.predict_mremap(mm, &grow)?;
    /// assert_eq!(space.mremap(mm, &grow)?, to);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn predict_mremap(&self, mm: MmId, request: &MremapRequest) -> Result<u64, Errno> {
        let r = Remap {
            placement: Placement::Search,
            ..Remap::new(request)
        };
        let w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        let vma = w.mapping_at(r.addr)?;
        w.new_place(&r, &vma)
    }

    /// Returns EINVAL for lengths and addresses that are invalid regardless of the mappings.
    #[doc(alias = "check_mremap_params")]
    fn check_places(&self, r: &Remap) -> Result<(), Errno> {
        let task_size = self.system.task_size;
        if r.new_len > task_size {
            let why = Refused::Outside {
                start: r.addr,
                len: r.new_len,
                end: task_size,
            };
            return Err(self.refuse(Errno::EINVAL, why));
        }
        if !r.implies_new_addr() {
            return Ok(());
        }
        r.check_new_addr(task_size)
            .map_err(|why| self.refuse(Errno::EINVAL, why))?;
        let resized = r.flags.contains(MremapFlags::DONTUNMAP) && r.resize() != Resize::Keep;
        let refused = r.overlaps() && !self.policy.merging.remap_freely;
        if resized {
            Err(self.refuse(Errno::EINVAL, Rule::KeepsLength))
        } else if refused {
            Err(self.refuse(Errno::EINVAL, Rule::RangesApart))
        } else {
            Ok(())
        }
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Resizes or moves a mapping, and returns its address.
    ///
    /// This method checks as much as possible before it changes anything.
    #[doc(alias = "mremap_to", alias = "mremap_at")]
    fn mremap(&mut self, mut r: Remap) -> Result<(u64, Populate), Errno> {
        self.check_room(&r)?;
        if r.implies_new_addr() && r.overlaps() {
            return self.remap_overlapping(r);
        }
        if r.move_only() && self.space.policy.rules.mremap_many {
            return self.remap_move(r).map(|addr| (addr, Populate::No));
        }
        let vma = self.mapping_at(r.addr)?;
        if self.space.policy.merging.remap_freely && self.spans_several(&r, &vma) {
            return self.remap_spanning(r);
        }
        let populate = self.check_vma(&mut r, &vma)?;
        let addr = match r.implies_new_addr() {
            true => self.remap_to(r, &vma)?,
            false => self.remap_at(r)?,
        };
        Ok((addr, populate))
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Resizes a mapping in place; `None` if it would have to move.
    fn resize(&mut self, mut r: Remap) -> Result<Option<(u64, Populate)>, Errno> {
        self.check_room(&r)?;
        let vma = self.mapping_at(r.addr)?;
        let populate = self.check_vma(&mut r, &vma)?;
        let resized = self.resize_at(&r)?;
        Ok(resized.is_ok().then_some((r.addr, populate)))
    }

    /// Returns ENOMEM if the call could exceed the map count limit, before it changes anything.
    ///
    /// A move may split VMAs at both ends of the source and at both ends of the destination.
    #[doc(alias = "check_map_count_against_split_early")]
    fn check_room(&self, r: &Remap) -> Result<(), Errno> {
        let (count, limit) = (self.state().map_count, self.space.system.max_map_count);
        let dontunmap = u32::from(r.flags.contains(MremapFlags::DONTUNMAP));
        let (exceeded, needed) = match self.space.policy.rules.mremap_room {
            MremapRoom::Moves => (
                r.implies_new_addr() && count + 2 >= limit.saturating_sub(3),
                6,
            ),
            MremapRoom::Always => (count + 4 + dontunmap > limit, 4 + dontunmap),
        };
        if exceeded {
            Err(self.refuse_mappings(Errno::ENOMEM, Growing::Move(needed)))
        } else {
            Ok(())
        }
    }

    /// Checks whether the request can resize or move this VMA.
    #[doc(alias = "check_prep_vma")]
    fn check_vma(&self, r: &mut Remap, vma: &VmaView) -> Result<Populate, Errno> {
        self.check_seal_and_align(r, vma)?;
        if r.resize() != Resize::Grow && !r.implies_new_addr() {
            return Ok(Populate::No);
        }
        self.check_resize(r, vma)
    }

    /// Checks whether the VMA can have the new length; disregards a tail that will be unmapped.
    #[doc(alias = "vma_to_resize")]
    fn check_resize(&self, r: &Remap, vma: &VmaView) -> Result<Populate, Errno> {
        let flags = vma.body.flags;
        if r.old_len == 0 && !flags.intersects(VmFlags::SHARED | VmFlags::MAYSHARE) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::SharedCopy));
        }
        let rigid = flags.intersects(VmFlags::DONTEXPAND | VmFlags::PFNMAP);
        let late = self.space.policy.rules.mremap_checks == MremapChecks::Late;
        let never_emptied = match late {
            true => !vma.is_anonymous() || flags.contains(VmFlags::SHARED),
            false => rigid,
        };
        if r.flags.contains(MremapFlags::DONTUNMAP) && never_emptied {
            return Err(self.space.refuse(Errno::EINVAL, Rule::CanBeEmptied));
        }
        if late && flags.contains(VmFlags::HUGETLB) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::HugetlbGrows));
        }
        let old_len = r.old_len.min(r.new_len);
        if old_len > vma.range.end - r.addr {
            return Err(self.refuse_several(vma.range, r.addr.saturating_add(old_len)));
        }
        if r.new_len == old_len {
            return Ok(Populate::No);
        }
        let pgoff = vma.pgoff_at(r.addr);
        if pgoff.0.checked_add(r.new_len >> PAGE_SHIFT).is_none() {
            return Err(self.space.refuse(Errno::EINVAL, Rule::OffsetFits));
        }
        if rigid {
            return Err(self.space.refuse(Errno::EFAULT, Rule::CanGrow));
        }
        let delta = r.new_len - r.old_len;
        if !self.mlock_future_ok(flags, delta) {
            return Err(self.refuse_memlock(Errno::EAGAIN, delta));
        }
        if !self.may_expand(flags, delta >> PAGE_SHIFT) {
            return Err(self.refuse_expansion(flags, delta >> PAGE_SHIFT));
        }
        Ok(match flags.contains(VmFlags::LOCKED) {
            true => Populate::Yes,
            false => Populate::No,
        })
    }

    /// Returns EPERM for a sealed VMA; rounds up the lengths of a hugetlb request to huge pages.
    fn check_seal_and_align(&self, r: &mut Remap, vma: &VmaView) -> Result<(), Errno> {
        if vma.body.flags.contains(VmFlags::SEALED) {
            return Err(self.refuse_sealed(vma.range));
        }
        if vma.body.flags.contains(VmFlags::HUGETLB) {
            r.align_hugetlb()
                .map_err(|rule| self.space.refuse(Errno::EINVAL, rule))?;
        }
        Ok(())
    }

    /// Returns the VMA at an address; EFAULT if there is none.
    fn mapping_at(&self, addr: u64) -> Result<VmaView, Errno> {
        self.vma_lookup(addr)
            .ok_or_else(|| self.refuse_unmapped(Errno::EFAULT, addr))
    }
}
