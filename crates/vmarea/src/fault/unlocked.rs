//! Faults without `mmap_lock`: a VMA is found without any lock, locked alone, and checked again.
//!
//! So faults go on while another thread maps and unmaps elsewhere. What this cannot decide is done
//! again under `mmap_lock`, and counted with its reason ([`FellBack`]). There is no read section and
//! nothing is registered: nodes of the tree and slots of VMAs and address spaces keep their type, so
//! that whatever is reached can be read, and the checks find out what it was.
//!
//! # Picture
//! ```text
//! tree ─▶ slot of the VMA ─▶ its lock, for reading ─▶ same VMA, same mm, holds the address? ─▶ page
//!  │    ┌──▶│                  │                        │ no
//!  │   hint │ gone             │ gone                   │
//!  │ busy   │                  │                        ▼
//!  └────────┴──────────────────┴──▶ look again, a few times
//!  no VMA there · locked by a writer · as many readers as can be · no anon_vma yet · a huge page may come ──▶ mmap_lock
//! ```
//!
//! # Locking
//! The lock of the one VMA, for reading, until the page is there. `mmap_lock` is never waited for
//! meanwhile. The VMA cannot leave its mm while it is read, and an mm ends after its VMAs have left: so
//! an mm that is there once the VMA is locked stays until the fault is done.
//!
//! # Linux
//! `mm/mmap_lock.c` `lock_vma_under_rcu`, `arch/x86/mm/fault.c` `do_user_addr_fault`, 6.18. There a fault
//! that needs an anon_vma tries `mmap_lock` while it holds the VMA's lock; here it falls back at once.

use super::{Access, FaultContext, Faulted, Neighbours, is_forbidden};
use crate::mm::{FellBack, Mm, ThpDisabled};
use crate::page::FaultPath;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{MmId, PAGE_MASK, VmFlags, VmaId};
use crate::vma::VmaView;
use vmarea_range_tree::Entry;
use vmarea_sync::Refused;

/// How often a fault looks again before it takes `mmap_lock`.
const TRIES: u32 = 4;

/// Why there is no answer.
enum Missed {
    /// Something changed under the search.
    Again,
    /// Only `mmap_lock` helps.
    FallBack(FellBack),
}

impl<E: Environment> Space<E> {
    /// As [`fault`](Self::fault), without `mmap_lock`.
    ///
    /// # Errors
    /// Where it cannot be done so; nothing has changed then.
    #[inline]
    pub(super) fn fault_unlocked(
        &self,
        (id, mm): (MmId, &Mm<E::Wait>),
        addr: u64,
        access: Access,
    ) -> Result<Faulted, FellBack> {
        // A hint that has become useless is no change under the search: the search comes then.
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

    /// In this VMA, if it still holds the address.
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
        // A fault that falls back is a lookup there, and not twice.
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

/// May this access, which brings no huge page, need the VMA to have an anon_vma?
fn needs_anon_vma(vma: &VmaView, access: Access) -> bool {
    let private = !vma
        .body
        .flags
        .intersects(VmFlags::SHARED | VmFlags::MAYSHARE);
    // What hugetlbfs gives to a private mapping is anonymous from the first.
    private && (access == Access::Write || vma.body.flags.contains(VmFlags::HUGETLB))
}

/// No neighbour can be seen. Whoever has this has a VMA with an anon_vma, or needs none.
struct Alone;

impl Neighbours for Alone {
    fn prev_of(&self, _: &VmaView) -> Option<VmaView> {
        debug_assert!(false, "an anon_vma is made under mmap_lock");
        None
    }
    fn thp_disabled(&self) -> ThpDisabled {
        // Whoever may take a huge page falls back.
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
    use crate::space::System;
    use crate::syscall::mmap::MmapRequest;
    use crate::types::PAGE_SIZE;
    use crate::types::call_flags::{MapFlags, Prot};

    /// As many read a VMA as can be counted: one more takes `mmap_lock`, and gets its page.
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
        // Another thread's: who reads a VMA may not wait for `mmap_lock`.
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
