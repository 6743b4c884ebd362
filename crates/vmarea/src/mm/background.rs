//! The work of kernel threads: swapping out a page, or merging two pages by KSM.
//!
//! This module finds the pages and checks their mappings; `page::swap` and `page::ksm` change the
//! pages.

use crate::Space;
use crate::page::Pte;
use crate::types::platform::Environment;
use crate::types::{Errno, FrameId, MmId, PAGE_MASK, SwapId, VmFlags};

impl<E: Environment> Space<E> {
    /// Swaps out the anonymous page at `addr`, in every process that maps the page.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist; EINVAL if no anonymous page is mapped at `addr`
    /// or the system has no swap; EPERM for a locked mapping; EBUSY if the page is already being
    /// swapped out, migrated or merged, or is pinned; EAGAIN if the page was mapped again during
    /// the call; ENOSPC if the swap device is full; ENOMEM.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let system = System { swap: true, ..System::default() };
    /// # let space = Space::new(Policy::LINUX, system);
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    /// let slot = space.swap_out(mm, at)?;
    /// assert_eq!(space.frames_in_use(), 0);
    /// assert_eq!(space.swap_map(slot).0, 1, "one entry refers to the slot");
    /// // The next access brings the page back.
    /// space.fault(mm, at, Access::Write)?;
    /// assert_eq!((space.frames_in_use(), space.swap_slots_in_use()), (1, 0));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn swap_out(&self, mm: MmId, addr: u64) -> Result<SwapId, Errno> {
        let frame = {
            let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
            let vma = r.vma_lookup(addr).ok_or(Errno::EINVAL)?;
            if vma.body.flags.contains(VmFlags::LOCKED) {
                return Err(Errno::EPERM);
            }
            match r.pages().get(addr & PAGE_MASK) {
                Pte::Migration { .. } => return Err(Errno::EBUSY),
                entry => entry.frame().ok_or(Errno::EINVAL)?,
            }
        };
        self.swap_out_frame(frame)
    }

    /// Merges two identical pages in `MADV_MERGEABLE` mappings; returns their common frame.
    ///
    /// # Errors
    /// ESRCH if an address space does not exist; EINVAL if an address has no anonymous page in a
    /// mergeable mapping, or both addresses are the same page of one process; EEXIST if both map
    /// the same frame already; EBUSY if one page is already being swapped out, migrated or merged,
    /// or is pinned; EAGAIN if the pages differ, or one was written to during the call; ENOMEM.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::syscall::madvise::Advice;
    ///
    /// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// space.madvise(mm, at, 2 * PAGE_SIZE, Advice::Mergeable)?;
    /// space.fault(mm, at, Access::Write)?;
    /// space.fault(mm, at + PAGE_SIZE, Access::Write)?;
    /// // The embedder has found two pages with equal bytes.
    /// let frame = space.ksm_merge((mm, at), (mm, at + PAGE_SIZE))?;
    /// assert_eq!(space.frame_mapcount(frame), Some(2));
    /// // A write makes a copy again.
    /// space.fault(mm, at, Access::Write)?;
    /// assert_eq!(space.frames_in_use(), 2);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn ksm_merge(&self, one: (MmId, u64), two: (MmId, u64)) -> Result<FrameId, Errno> {
        let (one, two) = ((one.0, one.1 & PAGE_MASK), (two.0, two.1 & PAGE_MASK));
        if one == two {
            return Err(Errno::EINVAL);
        }
        // The address space with the lower id is locked first, as everywhere; equal ids need only
        // one lock.
        let lower = self.mmap_read_lock(one.0.min(two.0)).ok_or(Errno::ESRCH)?;
        let higher = (one.0 != two.0)
            .then(|| {
                self.mmap_read_lock_nested(one.0.max(two.0))
                    .ok_or(Errno::ESRCH)
            })
            .transpose()?;
        let mergeable = |(mm, addr)| {
            let r = match &higher {
                Some(higher) if higher.id == mm => higher,
                _ => &lower,
            };
            let vma = r.vma_lookup(addr).ok_or(Errno::EINVAL)?;
            match vma.body.flags.contains(VmFlags::MERGEABLE) {
                true => Ok((r.pages(), addr)),
                false => Err(Errno::EINVAL),
            }
        };
        self.ksm_merge_pages(mergeable(one)?, mergeable(two)?)
    }
}
