//! Swap-in: handles a fault on a page that has been swapped out.
//!
//! The page gets its anon_vma and index from the VMA of the faulting access. If other page-table
//! entries also refer to the page's swap slot, the page belongs to the root of that anon_vma
//! instead, because every VMA that shares the page is linked to the root.
//!
//! # Linux
//! `mm/memory.c` `do_swap_page`, `mm/ksm.c` `ksm_might_need_to_copy`, `__folio_set_anon`, 6.18.

use super::{Access, FaultContext, Faulted};
use crate::page::Pte;
use crate::page::swap::{Cached, Left};
use crate::types::platform::{Environment, Platform};
use crate::types::{AnonVmaId, Errno, FrameId, SwapId, VmFlags};
use crate::vma::VmaView;

impl<E: Environment> FaultContext<'_, E> {
    /// Handles an access to a page that has been swapped out to `slot`.
    #[cold]
    #[doc(alias = "do_swap_page")]
    pub(super) fn swapped(
        &self,
        vma: &VmaView,
        addr: u64,
        slot: SwapId,
        access: Access,
    ) -> Faulted {
        let Ok(anon_vma) = self.anon_vma_prepare(vma) else {
            return Faulted::OutOfMemory;
        };
        let faulted = match self.cached(addr, slot) {
            Cached::Frame(frame) if self.may_map(vma, addr, frame) => {
                self.map_cached(addr, slot, frame)
            }
            Cached::Frame(frame) => {
                let faulted = self.swap_copy(vma, addr, (slot, frame), anon_vma);
                self.space.frame_unmap(frame);
                faulted
            }
            Cached::Migrating(frame) if self.space.platform.wait_on_migration(frame) => {
                Faulted::Spurious
            }
            Cached::Migrating(_) => Faulted::Retry,
            Cached::No => self.swap_read(vma, addr, slot, anon_vma),
        };
        match faulted {
            // The page may have been mapped without write permission.
            Faulted::Done if access == Access::Write => {
                match self.again().page(vma, addr, access) {
                    Faulted::Spurious => Faulted::Done,
                    other => other,
                }
            }
            other => other,
        }
    }

    /// Looks up the cached frame of a swap slot, if the entry at `addr` still refers to the slot.
    fn cached(&self, addr: u64, slot: SwapId) -> Cached {
        self.pages.peek(addr, |entry| {
            if entry == (Pte::Swap { slot }) {
                self.space.swap.lookup(self.space, slot)
            } else {
                Cached::No
            }
        })
    }

    /// True if a reverse-map walk starting at the frame would find this VMA and address.
    fn may_map(&self, vma: &VmaView, addr: u64, frame: FrameId) -> bool {
        let there = self.space.frame(frame);
        let chain = self.space.vma(vma.id).chain.lock();
        !there.is_ksm()
            && there.index() == vma.offsets.anon_pgoff_at(addr)
            && chain.iter().any(|l| Some(l.anon_vma) == there.mapping())
    }

    /// Maps a cached frame read-only; the new entry takes over the caller's map count.
    fn map_cached(&self, addr: u64, slot: SwapId, frame: FrameId) -> Faulted {
        let mapped = self.pages.update(addr, |entry| {
            let same = *entry == Pte::Swap { slot };
            if same {
                *entry = Pte::Anon {
                    frame,
                    writable: false,
                };
                self.space.swap.put(self.space, slot);
            }
            same
        });
        if mapped == Some(true) {
            Faulted::Done
        } else {
            self.space.frame_unmap(frame);
            Faulted::Spurious
        }
    }

    /// Maps a private copy of a cached frame that this VMA cannot map.
    fn swap_copy(
        &self,
        vma: &VmaView,
        addr: u64,
        (slot, cached): (SwapId, FrameId),
        anon_vma: AnonVmaId,
    ) -> Faulted {
        let copy = |frame| self.space.platform.copy(frame, cached);
        self.replace_swap(addr, slot, || {
            let page = (anon_vma, vma.offsets.anon_pgoff_at(addr));
            let frame = self.space.frame_filled(page, copy)?;
            self.space.swap.put(self.space, slot);
            let writable = vma.body.flags.contains(VmFlags::WRITE);
            Ok(Some(Pte::Anon { frame, writable }))
        })
    }

    /// Reads the page from its swap slot into a new frame and maps the frame.
    fn swap_read(&self, vma: &VmaView, addr: u64, slot: SwapId, anon_vma: AnonVmaId) -> Faulted {
        self.replace_swap(addr, slot, || {
            let index = vma.offsets.anon_pgoff_at(addr);
            let frame = self.space.frame_alloc(anon_vma, index)?;
            let filled = self.space.swap.fill(self.space, slot, frame);
            let Ok(Some(left)) = filled else {
                self.space.frame_abandon(frame);
                return filled.map(|_| None);
            };
            if left == Left::Others {
                let root = self.space.anon_vma_root(anon_vma);
                self.space.frame(frame).set_mapping(root, index);
            }
            let writable = left == Left::None && vma.body.flags.contains(VmFlags::WRITE);
            Ok(Some(Pte::Anon { frame, writable }))
        })
    }

    /// Replaces an entry that refers to `slot` by the entry that `bring` returns, if any.
    fn replace_swap(
        &self,
        addr: u64,
        slot: SwapId,
        bring: impl FnOnce() -> Result<Option<Pte>, Errno>,
    ) -> Faulted {
        let put = self.pages.update(addr, |entry| {
            if *entry != (Pte::Swap { slot }) {
                return Ok(Faulted::Spurious);
            }
            Ok(match bring()? {
                Some(brought) => {
                    *entry = brought;
                    Faulted::Done
                }
                None => Faulted::Spurious,
            })
        });
        put.map_or(Faulted::Spurious, |put| put.unwrap_or_else(Faulted::failed))
    }
}
