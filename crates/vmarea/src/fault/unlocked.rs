//! Faults without `mmap_lock`, under the lock of the VMA.
//!
//! A fault without `mmap_lock` can proceed while another thread maps or unmaps other ranges. A
//! fault that cannot be handled under the VMA lock alone is retried under `mmap_lock`, and counted
//! by reason ([`FellBack`]): the VMA could not be locked ([`lock_vma`](Space::lock_vma)), the VMA
//! has no anon_vma yet, or the fault may map a huge page.
//!
//! # Locking
//! The fault holds the lock of one VMA for reading until the page is mapped, and never waits for
//! `mmap_lock` while it holds the VMA lock.
//!
//! # Linux
//! `arch/x86/mm/fault.c` `do_user_addr_fault`, 6.18. In Linux, a fault that needs an anon_vma tries
//! to take `mmap_lock` while it holds the VMA lock; here the fault falls back immediately.

use super::{Access, FaultContext, Faulted, Neighbours, is_forbidden};
use crate::Space;
use crate::mm::{FellBack, Mm, ThpDisabled};
use crate::page::FaultPath;
use crate::types::platform::Environment;
use crate::types::{PAGE_MASK, VmFlags, VmaId};
use crate::vma::VmaView;
use vmarea_range_tree::Entry;
use vmarea_sync::Found;

impl<E: Environment> Space<E> {
    /// Handles a fault without `mmap_lock`; see [`fault`](Self::fault).
    ///
    /// # Errors
    /// The reason why the fault needs `mmap_lock`; no state was changed except counters.
    #[inline]
    pub(super) fn fault_unlocked(
        &self,
        there: Found<'_, Mm<E>>,
        addr: u64,
        access: Access,
    ) -> Result<Faulted, FellBack> {
        let locked = self.lock_vma_of(there, addr)?;
        let mm = there.value();
        let view = &locked.view();
        let context = FaultContext {
            path: FaultPath::Unlocked,
            ..FaultContext::of(self, &mm.pages, &Alone)
        };
        let forbidden = is_forbidden(view.body.flags, access);
        if !forbidden && let Some(why) = context.needs_mmap_lock(view, addr, access) {
            return Err(why);
        }
        // The lookup is counted only now, because a fault that falls back is counted under
        // `mmap_lock`.
        if self.notes_lookups() {
            let found = Entry {
                start: view.range.start,
                end: view.range.end,
                value: view.id.to_bits(),
            };
            self.note_lookup(mm, Some(found), addr);
        }
        if forbidden {
            mm.pages.count_fault(FaultPath::Unlocked, addr);
            return Ok(Faulted::NoAccess);
        }
        Ok(context.user_page(view, addr & PAGE_MASK, access))
    }

    /// Resumes a fault in the VMA `vma`; returns `None` if the fault has to start again.
    pub(super) fn fault_in(
        &self,
        there: Found<'_, Mm<E>>,
        vma: VmaId,
        addr: u64,
        access: Access,
    ) -> Option<Faulted> {
        let locked = self.try_lock_vma(there, vma, addr).ok()?;
        let view = &locked.view();
        let context = FaultContext::of(self, &there.value().pages, &Alone);
        let forbidden = is_forbidden(view.body.flags, access);
        let goes_on = !forbidden && context.needs_mmap_lock(view, addr, access).is_none();
        goes_on.then(|| context.user_page(view, addr & PAGE_MASK, access))
    }
}

impl<E: Environment> FaultContext<'_, E> {
    /// Returns why the access needs `mmap_lock`; `None` if the VMA lock suffices.
    #[inline]
    fn needs_mmap_lock(&self, vma: &VmaView, addr: u64, access: Access) -> Option<FellBack> {
        if self.tries_huge(vma, addr) {
            Some(FellBack::HugePage)
        } else if vma.anon_vma.is_none() && needs_anon_vma(vma, access) {
            Some(FellBack::NoAnonVma)
        } else {
            None
        }
    }
}

/// True if an access that maps a small page may require the VMA to have an anon_vma.
fn needs_anon_vma(vma: &VmaView, access: Access) -> bool {
    let private = !vma
        .body
        .flags
        .intersects(VmFlags::SHARED | VmFlags::MAYSHARE);
    // A page that hugetlbfs supplies for a private mapping is anonymous from the start.
    private && (access == Access::Write || vma.body.flags.contains(VmFlags::HUGETLB))
}

/// Implementation of [`Neighbours`] that finds none, for faults that never choose an anon_vma.
struct Alone;

impl Neighbours for Alone {
    fn prev_of(&self, _: &VmaView) -> Option<VmaView> {
        debug_assert!(false, "an anon_vma is made under mmap_lock");
        None
    }
    fn thp_disabled(&self) -> ThpDisabled {
        // Not used: a fault that may map a huge page falls back to `mmap_lock`.
        ThpDisabled::No
    }
    fn next_of(&self, _: &VmaView) -> Option<VmaView> {
        None
    }
}
