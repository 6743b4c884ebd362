//! Faults without `mmap_lock`: finds a VMA without a lock, read-locks it and revalidates it.
//!
//! Faults can therefore proceed while another thread maps and unmaps other ranges. A fault that
//! cannot be handled this way is retried under `mmap_lock`, and counted by its reason
//! ([`FellBack`]). There are no read-side critical sections and no reader registration: the memory
//! of tree nodes and of VMA and address-space slots is type-stable, so any stale reference can be
//! read safely, and the checks after locking detect whether the slot was reused.
//!
//! # Picture
//! ```text
//! tree ─▶ slot of the VMA ─▶ its lock, for reading ─▶ same VMA, same mm, has the address? ─▶ page
//!  │    ┌──▶│                  │                        │ no
//!  │   hint │ gone             │ gone                   │
//!  │ busy   │                  │                        ▼
//!  └────────┴──────────────────┴──▶ search again, up to `TRIES` times
//!  no VMA there · locked by a writer · too many readers · no anon_vma yet
//!  · a huge page is possible ──▶ mmap_lock
//! ```
//!
//! # Locking
//! The fault holds the lock of one VMA for reading until the page is mapped, and never waits for
//! `mmap_lock` while it holds the VMA lock. A VMA cannot be removed from its mm while it is
//! read-locked, and an mm is freed only after its VMAs are removed. An mm that exists after the VMA
//! was locked therefore exists until the fault is done.
//!
//! # Linux
//! `mm/mmap_lock.c` `lock_vma_under_rcu`, `arch/x86/mm/fault.c` `do_user_addr_fault`, 6.18. In
//! Linux, a fault that needs an anon_vma tries to take `mmap_lock` while it holds the VMA lock;
//! here the fault falls back immediately.

use super::{Access, FaultContext, Faulted, Neighbours, is_forbidden};
use crate::mm::{FellBack, Mm, ThpDisabled};
use crate::page::FaultPath;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{MmId, PAGE_MASK, VmFlags, VmaId};
use crate::vma::VmaView;
use vmarea_range_tree::Entry;
use vmarea_sync::Refused;

/// Maximum number of searches for the VMA before a fault takes `mmap_lock`.
const TRIES: u32 = 4;

/// The reason why a fault without `mmap_lock` failed.
enum Missed {
    /// The tree or the VMA changed during the search: search again.
    Again,
    /// The fault has to be handled under `mmap_lock`.
    FallBack(FellBack),
}

impl<E: Environment> Space<E> {
    /// Handles a fault without `mmap_lock`; see [`fault`](Self::fault).
    ///
    /// # Errors
    /// The reason why the fault needs `mmap_lock`; no state was changed except counters.
    #[inline]
    pub(super) fn fault_unlocked(
        &self,
        (id, mm): (MmId, &Mm<E::Wait>),
        addr: u64,
        access: Access,
    ) -> Result<Faulted, FellBack> {
        // A stale hint does not count as a retry: the tree has not been searched yet.
        if let Some(near) = mm.pages.near(addr).at(addr) {
            match self.try_vma((id, mm), near, addr, access) {
                Ok(faulted) => return Ok(faulted),
                Err(Missed::Again) => {}
                Err(Missed::FallBack(why)) => return Err(why),
            }
        }
        for _ in 0..TRIES {
            match self.try_unlocked((id, mm), addr, access) {
                Ok(faulted) => return Ok(faulted),
                Err(Missed::Again) => mm.fault_counters.retried(),
                Err(Missed::FallBack(why)) => return Err(why),
            }
        }
        Err(FellBack::Changing)
    }

    #[inline]
    fn try_unlocked(
        &self,
        (id, mm): (MmId, &Mm<E::Wait>),
        addr: u64,
        access: Access,
    ) -> Result<Faulted, Missed> {
        let found = mm.tree.try_find(addr).map_err(|_| Missed::Again)?;
        let vma = found
            .filter(|entry| entry.start <= addr)
            .and_then(|entry| VmaId::from_bits(entry.value))
            .ok_or(Missed::FallBack(FellBack::NoVma))?;
        self.try_vma((id, mm), vma, addr, access)
    }

    /// Handles a fault in the VMA that was found, if the VMA still contains the address.
    #[inline]
    fn try_vma(
        &self,
        (id, mm): (MmId, &Mm<E::Wait>),
        vma_id: VmaId,
        addr: u64,
        access: Access,
    ) -> Result<Faulted, Missed> {
        let vma = self.vmas.get(vma_id.0).ok_or(Missed::Again)?;
        let body = vma
            .body
            .start_read(&mm.mmap_lock)
            .map_err(|refused| match refused {
                Refused::Gone => Missed::Again,
                Refused::WriteLocked => Missed::FallBack(FellBack::WriteLocked),
                Refused::TooMany => Missed::FallBack(FellBack::TooManyReaders),
                Refused::NoLock => Missed::FallBack(FellBack::NoLock),
            })?;
        let same = self.vmas.get(vma_id.0).is_some() && self.mms.get(id.0).is_some();
        if !same || addr < vma.start() || vma.end() <= addr {
            return Err(Missed::Again);
        }
        let view = vma.view_without_chain(vma_id, &body);
        let context = FaultContext {
            path: FaultPath::Unlocked,
            ..FaultContext::of(self, &mm.pages, &Alone)
        };
        let forbidden = is_forbidden(view.body.flags, access);
        if !forbidden && context.tries_huge(&view, addr) {
            return Err(Missed::FallBack(FellBack::HugePage));
        }
        if !forbidden && view.anon_vma.is_none() && needs_anon_vma(&view, access) {
            return Err(Missed::FallBack(FellBack::NoAnonVma));
        }
        // The lookup is counted only now, because a fault that falls back is counted under
        // `mmap_lock`.
        let found = Entry {
            start: view.range.start,
            end: view.range.end,
            value: vma_id.to_bits(),
        };
        self.note_lookup(mm, Some(found), addr);
        let near = mm.pages.near(addr);
        if near.at(addr) != Some(vma_id) {
            near.remember(vma_id, view.range);
        }
        if forbidden {
            mm.pages.count_fault(FaultPath::Unlocked, addr);
            return Ok(Faulted::NoAccess);
        }
        Ok(context.page(&view, addr & PAGE_MASK, access))
    }
}

/// True if this access, which maps no huge page, may require the VMA to have an anon_vma.
fn needs_anon_vma(vma: &VmaView, access: Access) -> bool {
    let private = !vma
        .body
        .flags
        .intersects(VmFlags::SHARED | VmFlags::MAYSHARE);
    // A page that hugetlbfs supplies for a private mapping is anonymous from the start.
    private && (access == Access::Write || vma.body.flags.contains(VmFlags::HUGETLB))
}

/// Neighbours that are never needed: the faulting VMA already has an anon_vma or needs none.
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::mm::{Layout, Limits};
    use crate::policy::Policy;
    use crate::syscall::mmap::MmapRequest;
    use crate::types::call_flags::{MapFlags, Prot};
    use crate::types::{PAGE_SIZE, System};

    /// A fault on a VMA with the maximum number of readers falls back to `mmap_lock` and succeeds.
    #[test]
    fn a_reader_too_many_falls_back() {
        let space = Space::new(Policy::LINUX, System::default());
        let layout = Layout {
            mmap_base: 0x7f00_0000_0000,
            ..Layout::default()
        };
        let mm = space.mm_create(layout, Limits::default()).unwrap();
        let request = MmapRequest {
            len: 4 * PAGE_SIZE,
            prot: Prot::READ | Prot::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS,
            ..MmapRequest::default()
        };
        let at = space.mmap(mm, &request).unwrap();
        assert_eq!(space.fault(mm, at, Access::Write), Ok(Faulted::Done));
        let r = space.mmap_read_lock(mm).unwrap();
        let vma = space.vma(r.vma_lookup(at).unwrap().id);
        let mut readers = 0u32;
        while let Ok(guard) = vma.body.start_read(&r.mm.mmap_lock) {
            core::mem::forget(guard);
            readers += 1;
        }
        assert_eq!(readers, (1 << 23) - 2);
        drop(r);
        // A separate thread, because a thread that holds a VMA lock must not wait for `mmap_lock`.
        let faulted = std::thread::scope(|scope| {
            let one_more = scope.spawn(|| space.fault(mm, at + PAGE_SIZE, Access::Write));
            one_more.join().unwrap()
        });
        assert_eq!(faulted, Ok(Faulted::Done));
        let counts = space.fault_counts(mm);
        assert_eq!(counts.fell_back_for(FellBack::TooManyReaders), 1);
        assert_eq!(counts.fell_back_for(FellBack::NoAnonVma), 1);
        assert_eq!(counts.unlocked, 0);
    }
}
