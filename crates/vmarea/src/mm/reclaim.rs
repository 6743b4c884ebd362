//! Reclaim: swaps out pages that no process has used recently, so that their frames become free.
//!
//! The embedder decides when memory is short. It visits the frames in an order of its choice,
//! usually cyclically by frame number, like a clock hand. [`reclaim_frame`](Space::reclaim_frame)
//! gives a page that has been accessed since the last visit a second chance. Only anonymous pages
//! are reclaimed; reclaiming file pages is up to the embedder.
//!
//! # Picture
//! ```text
//! frame ─▶ every mapping: accessed bit, VMA flags ─┬─ accessed, or mlocked ─▶ stays
//!                                                  └─▶ every mapping: lock the VMA, replace the entry
//!                                                         by a swap entry ─▶ to the device
//! ```
//!
//! # Locking
//! The caller holds no lock of the crate. Each VMA is locked for reading, without waiting, while
//! its entry is replaced. An `mlock` that has returned therefore finds the page present: either the
//! entry was replaced before `mlock` locked the VMA, and `mlock` faults the page in, or reclaim
//! sees that the VMA is mlocked. A page in a VMA that is being changed is not reclaimed.
//!
//! # Linux
//! `mm/vmscan.c` `shrink_folio_list`, `mm/rmap.c` `folio_referenced`, `try_to_unmap`, 6.18. Linux
//! keeps several lists of pages by age; it reads the VMA's flags without locking the VMA.

use super::HeldVma;
use crate::Space;
use crate::page::rmap_walk::Mapping;
use crate::types::mmu::Mmu;
use crate::types::platform::Environment;
use crate::types::{Errno, FrameId, SwapId, VmFlags, VmRange};

/// Why a page was not reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Retained {
    /// The frame is not in use, or no entry maps it.
    Unmapped,
    /// A process has accessed the page since the last attempt to reclaim it.
    Accessed,
    /// The page is mapped by an mlocked VMA or by a hugetlb VMA.
    Mlocked,
    /// The page is pinned, or another thread is swapping out, migrating, merging or mapping the
    /// page, or is changing a VMA that maps the page.
    Busy,
    /// There is no swap device, the device is full, or there is no memory for the swap map.
    NoSlot,
}

impl<E: Environment> Space<E> {
    /// Swaps out the page in `frame`, unless it has been accessed since the last call or is not
    /// reclaimable.
    ///
    /// The accessed bits of the page's mappings are cleared. If this method succeeds, the frame is
    /// free, unless a process has mapped the page again in the meantime. In an environment whose
    /// VMA locks have no readers
    /// ([`VmaLockKind::HAS_READERS`](vmarea_sync::VmaLockKind::HAS_READERS)), all pages are
    /// retained as [`Busy`](Retained::Busy).
    ///
    /// # Errors
    /// The reason why the page stays. If it is [`Busy`](Retained::Busy), some processes may have to
    /// fault the page in again.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let system = System { swap: true, ..System::default() };
    /// # let space = Space::new(Policy::LINUX, system);
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
    /// for page in 0..4 {
    ///     space.fault(mm, at + page * PAGE_SIZE, Access::Write)?;
    /// }
    /// // Memory is short: visit the frames until two of them are free.
    /// let frames = (0..space.frame_bound()).filter_map(|index| space.frame_at(index));
    /// let reclaimed = frames.filter(|frame| space.reclaim_frame(*frame).is_ok());
    /// assert_eq!(reclaimed.take(2).count(), 2);
    /// assert_eq!((space.frames_in_use(), space.swap_slots_in_use()), (2, 2));
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "shrink_folio_list")]
    pub fn reclaim_frame(&self, frame: FrameId) -> Result<SwapId, Retained> {
        if !self.system.swap {
            return Err(Retained::NoSlot);
        }
        let mut locked = Err(Retained::Unmapped);
        let mut verdict = Ok(());
        let mut accessed = false;
        self.rmap_look(frame, &mut |mapping| {
            // The frame is locked while an entry that maps it is: it cannot be new, or be freed.
            if matches!(locked, Err(Retained::Unmapped)) {
                locked = self.frame_lock(frame).map_err(|_| Retained::Busy);
            }
            accessed |= self.mmu.accessed(mapping.mm, VmRange::page(mapping.addr));
            verdict = verdict.and(self.lock_reclaimable(mapping).map(drop));
        });
        let locked = locked?;
        let verdict = match accessed {
            true => verdict.and(Err(Retained::Accessed)),
            false => verdict,
        };
        if let Err(why) = verdict {
            self.frame_unlock(locked);
            return Err(why);
        }
        let out = self.swap_out_locked(locked, &mut |mapping| self.lock_reclaimable(mapping).ok());
        out.map_err(|error| match error {
            Errno::ENOSPC | Errno::ENOMEM => Retained::NoSlot,
            _ => Retained::Busy,
        })
    }

    /// Read-locks the VMA of a mapping without waiting; fails if that VMA is mlocked or hugetlb.
    fn lock_reclaimable(&self, mapping: Mapping) -> Result<HeldVma<'_, E>, Retained> {
        let mm = self.mms.find(mapping.mm.0).ok_or(Retained::Busy)?;
        let vma = self
            .try_lock_vma(mm, mapping.vma, mapping.addr)
            .map_err(|_| Retained::Busy)?;
        match vma
            .view()
            .body
            .flags
            .intersects(VmFlags::LOCKED | VmFlags::HUGETLB)
        {
            true => Err(Retained::Mlocked),
            false => Ok(vma),
        }
    }
}
