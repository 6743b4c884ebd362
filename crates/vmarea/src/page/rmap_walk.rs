//! Reverse-map walk: finds every page-table entry that maps a frame.
//!
//! # Locking
//! The walk holds the family lock of the frame's anon_vma, and reads the frame's anon_vma again
//! under that lock. A change of a page's anon_vma holds the locks of both families, so a walk finds
//! the page either under the old anon_vma or under the new one. Page-table locks nest inside these
//! locks.
//!
//! # Linux
//! `mm/rmap.c` `rmap_walk_anon`, `folio_lock_anon_vma_read`: the interval tree of the frame's
//! anon_vma returns the VMAs that contain the frame's index; for each VMA the address is computed
//! from the page offset, and the entry at the address is checked. For KSM pages, `rmap_walk_ksm`;
//! here a list of entries is kept for each KSM frame.

use super::entry::Pte;
use super::table::PageTable;
use crate::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, FrameId, MmId, PAGE_SHIFT, Pgoff, VmaId};
use vmarea_sync::LockGuard;

/// One mapping of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mapping {
    /// The address space that contains the mapping.
    pub mm: MmId,
    /// The VMA that contains the mapping.
    pub vma: VmaId,
    /// The address of the page.
    pub addr: u64,
}

impl<E: Environment> Space<E> {
    /// Calls `f` for each mapping of `frame`, under the family lock of the frame's anon_vma.
    ///
    /// Migration entries count as mappings.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    /// let child = space.fork(mm)?;
    /// let frame = space.with_mapped(mm, at, |page| page.entry.frame())?.expect("present");
    ///
    /// let mut owners = Vec::new();
    /// space.rmap_walk(frame, |mapping| owners.push(mapping.mm));
    /// owners.sort();
    /// assert_eq!(owners, [mm, child]);
    /// assert_eq!(space.frame_mapcount(frame), Some(2));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn rmap_walk(&self, frame: FrameId, mut f: impl FnMut(Mapping)) {
        self.rmap_places(frame, &mut |table, mapping| {
            if table.get(mapping.addr).frame() == Some(frame) {
                f(mapping);
            }
        });
    }

    /// Like [`rmap_walk`](Self::rmap_walk), but also holds each mapping's page-table lock.
    pub(crate) fn rmap_look(&self, frame: FrameId, f: &mut dyn FnMut(Mapping)) {
        self.rmap_places(frame, &mut |table, mapping| {
            table.peek(mapping.addr, |entry| {
                if entry.frame() == Some(frame) {
                    f(mapping);
                }
            });
        });
    }

    /// Calls `f` to modify each entry that maps `frame`; first splits each huge mapping of it.
    pub(crate) fn rmap_change(
        &self,
        frame: FrameId,
        f: &mut dyn FnMut(&PageTable, Mapping, &mut Pte),
    ) {
        self.rmap_places(frame, &mut |table, mapping| {
            if table.get(mapping.addr).frame() != Some(frame) {
                return;
            }
            self.page_tables(table).split_huge_at(mapping.addr);
            let _ = table.update(mapping.addr, |entry| {
                if entry.frame() == Some(frame) {
                    f(table, mapping, entry);
                }
            });
        });
    }

    /// Calls `f` with each address at which an entry might map `frame`.
    fn rmap_places(&self, frame: FrameId, f: &mut dyn FnMut(&PageTable, Mapping)) {
        let Some(there) = self.frames.get(frame.0) else {
            return;
        };
        if there.is_ksm() {
            return self.rmap_places_ksm(frame, f);
        }
        loop {
            let Some(anon_vma) = there.mapping() else {
                return;
            };
            let Some(guard) = self.anon_vma_read_lock(anon_vma) else {
                // The anon_vma was freed: by now the frame has another one, or was freed as well.
                if there.mapping() == Some(anon_vma) {
                    return;
                }
                continue;
            };
            if there.mapping() == Some(anon_vma) {
                return self.rmap_places_anon(anon_vma, there.index(), &guard, f);
            }
        }
    }

    #[doc(alias = "rmap_walk_anon")]
    fn rmap_places_anon(
        &self,
        anon_vma: AnonVmaId,
        index: Pgoff,
        guard: &impl LockGuard,
        f: &mut dyn FnMut(&PageTable, Mapping),
    ) {
        let inner = self.anon_vma(anon_vma).inner.get(guard);
        inner.tree.for_each_overlapping(index.0, index.0, |vma| {
            let Some(v) = self.vmas.get(vma.0) else {
                return;
            };
            let Some(mm) = v.mm_index().and_then(|index| self.mms.key_at(index)) else {
                return;
            };
            let start = v.start();
            let first = v.offsets().anon_pgoff_at(start);
            let addr = start.wrapping_add(index.0.wrapping_sub(first.0) << PAGE_SHIFT);
            // The interval may extend beyond the VMA's end (see `span`).
            if addr < v.end()
                && let Some(owner) = self.mms.get(mm)
            {
                let mm = MmId(mm);
                f(&owner.pages, Mapping { mm, vma, addr });
            }
        });
    }

    #[doc(alias = "rmap_walk_ksm")]
    fn rmap_places_ksm(&self, frame: FrameId, f: &mut dyn FnMut(&PageTable, Mapping)) {
        let mut at = None;
        while let Some((mm, addr)) = self.ksm.next_item(frame, at) {
            at = Some((mm, addr));
            let Some(owner) = self.mms.get(mm.0) else {
                continue;
            };
            let entry = owner.index().get(addr);
            if let Some(vma) = entry.and_then(|e| VmaId::from_bits(e.value)) {
                f(&owner.pages, Mapping { mm, vma, addr });
            }
        }
    }
}
