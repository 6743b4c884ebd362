//! Maps under one part of a divided address space, if the call needs no other.
//!
//! A part is enough if the address of the new mapping is certain without a look at the other parts:
//! it is given, or the hint is free, or the descending search finds room in the part in which it
//! begins, or the mapping is placed in an arena.

use super::{MmapRequest, Placement, room};
use crate::Space;
use crate::mm::{Growth, PartWriteGuard};
use crate::types::call_flags::{MapFlags, Prot};
use crate::types::platform::Environment;
use crate::types::writers::Writers;
use crate::types::{Errno, FileKind, MmId, PAGE_SHIFT, VmFlags, VmRange, page_align};

impl<E: Environment> Space<E> {
    /// Maps under one part; returns what the call returns, or `None` if the call
    /// needs all parts.
    #[inline]
    pub(super) fn mmap_in_part(
        &self,
        mm: MmId,
        request: &MmapRequest,
    ) -> Option<Result<(VmRange, bool), Errno>> {
        match E::Writers::PARTS {
            0 => None,
            _ => self.take_part_and_mmap(mm, request),
        }
    }

    #[inline(always)]
    fn take_part_and_mmap(
        &self,
        mm: MmId,
        request: &MmapRequest,
    ) -> Option<Result<(VmRange, bool), Errno>> {
        if needs_all(request) {
            return None;
        }
        let len = page_align(request.len)?;
        let fixed = MapFlags::FIXED | MapFlags::FIXED_NOREPLACE;
        let addr = match request.placement {
            _ if request.flags.intersects(fixed) => request.addr,
            Placement::At(addr) => addr,
            Placement::Arena(_) | Placement::Search => {
                return self.find_in_part_and_mmap(mm, request, len);
            }
        };
        let part = self.part_around(VmRange::of_len(addr, len)?)?;
        let mut w = self.part_for_mmap(mm, part, len)?;
        Some(w.mmap(request))
    }

    /// Maps at an address that the call chooses; `None` if another part could influence the choice.
    #[inline(never)]
    fn find_in_part_and_mmap(
        &self,
        mm: MmId,
        request: &MmapRequest,
        len: u64,
    ) -> Option<Result<(VmRange, bool), Errno>> {
        let hint = self.round_hint(request.addr);
        let (part, arena) = match request.placement {
            _ if hint >= self.system.task_size => return None,
            _ if hint != 0 => (self.part_around(VmRange::of_len(hint, len)?)?, None),
            Placement::Arena(arena) => {
                let part = E::Writers::part_of(E::Writers::arena(arena).start);
                (part, Some(arena))
            }
            _ => (E::Writers::part_of(self.system.task_size), None),
        };
        let mut w = self.part_for_mmap(mm, part, len)?;
        let addr = w.area_in_part(&room(request, request.flags, (hint, len)), arena)?;
        let inside = self.part_around(VmRange::of_len(addr, len)?) == Some(part);
        if !inside || addr < self.system.mmap_min_addr {
            return None;
        }
        let placement = Placement::At(addr);
        Some(w.mmap(&MmapRequest {
            placement,
            ..*request
        }))
    }

    #[inline(always)]
    fn part_for_mmap(&self, mm: MmId, part: usize, len: u64) -> Option<PartWriteGuard<'_, E>> {
        let growth = Growth {
            vmas: 3,
            pages: len >> PAGE_SHIFT,
        };
        let w = self.write_part(mm, part, growth)?;
        // A locked mapping is populated.
        if w.state().def_flags.contains(VmFlags::LOCKED) {
            return None;
        }
        Some(w)
    }
}

/// True for a mapping that is populated because it is locked, one that is execute-only and may need
/// a key, and one of a file that has limits and places of its own.
#[inline]
fn needs_all(request: &MmapRequest) -> bool {
    let special = MapFlags::LOCKED | MapFlags::GROWSDOWN | MapFlags::HUGETLB;
    if request.flags.intersects(special) || request.prot == Prot::EXEC {
        return true;
    }
    let file = request.file.map(|file| file.kind);
    matches!(file, Some(FileKind::Hugetlb | FileKind::Secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Access;
    use crate::mm::{Layout, Limits};
    use crate::policy::Policy;
    use crate::syscall::madvise::Advice;
    use crate::syscall::mremap::MremapRequest;
    use crate::types::writers::Regions;
    use crate::types::{NoBytes, PAGE_SIZE, System, WithVmaLock};
    use crate::vma::lock::VmaLock;
    use alloc::boxed::Box;

    type Machine = Space<WithVmaLock<VmaLock, Regions>>;

    /// Returns a machine, an address space with a first mapping in arena 0, which puts the part to
    /// use, and a request for a mapping at the end of this arena.
    fn arena() -> (Machine, MmId, MmapRequest) {
        let system = System::default();
        let layout = Layout {
            mmap_base: system.task_size - (1 << 32),
            ..Layout::default()
        };
        let space = Machine::in_environment(Policy::LINUX, system, Box::new(NoBytes));
        let mm = space.mm_create(layout, Limits::default());
        let mm = mm.expect("an address space");
        let first = MmapRequest {
            addr: Regions::arena(0).start + (1 << 30),
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::anonymous(PAGE_SIZE)
        };
        space.mmap(mm, &first).expect("a first mapping");
        let request = MmapRequest {
            placement: Placement::Arena(0),
            ..MmapRequest::anonymous(4 * PAGE_SIZE)
        };
        (space, mm, request)
    }

    #[test]
    fn a_mapping_at_the_end_of_an_arena_takes_one_part() {
        let (space, mm, request) = arena();
        for _ in 0..3 {
            let mapped = space.mmap_in_part(mm, &request).expect("one part");
            let (range, _) = mapped.expect("a mapping");
            let arena = Regions::arena(0);
            assert!(arena.start < range.start && range.end < arena.end);
        }
        space.validate_all().expect("valid");
    }

    #[test]
    fn calls_on_a_mapping_at_the_end_of_an_arena_take_one_part() {
        let (space, mm, request) = arena();
        let all = space.mms.get(mm.0).expect("the mm").mmap_lock.whole();
        let before = all.speculate().expect("no writer");
        let addr = space.mmap(mm, &request).expect("a mapping");
        let len = request.len;
        space.fault(mm, addr, Access::Write).expect("a fault");
        (space.mprotect(mm, addr, len, Prot::READ, None)).expect("a protection");
        (space.madvise(mm, addr, len, Advice::DontNeed)).expect("an advice");
        let mut resize = MremapRequest {
            addr,
            old_len: len,
            new_len: len - PAGE_SIZE,
            ..MremapRequest::default()
        };
        space.mremap(mm, &resize).expect("a smaller size");
        (resize.old_len, resize.new_len) = (resize.new_len, resize.old_len);
        space.mremap(mm, &resize).expect("a larger size");
        space.munmap(mm, addr, len).expect("no mapping");
        assert!(all.unchanged(before), "a call took all parts");
        space.validate_all().expect("valid");
    }
}
