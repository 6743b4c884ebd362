//! Maps under one part of a divided address space, if the call needs no other.
//!
//! A part is enough if the address of the new mapping is certain without a look at the other parts:
//! it is given, or the hint is free, or the descending search finds room in the part in which it
//! begins, or the mapping is placed in an arena.

use super::{MmapRequest, Placement, room};
use crate::Space;
use crate::mm::Growth;
use crate::types::call_flags::{MapFlags, Prot};
use crate::types::platform::Environment;
use crate::types::writers::Writers;
use crate::types::{Errno, FileKind, MmId, PAGE_MASK, PAGE_SHIFT, VmFlags, VmRange};

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

    fn take_part_and_mmap(
        &self,
        mm: MmId,
        request: &MmapRequest,
    ) -> Option<Result<(VmRange, bool), Errno>> {
        let fixed = MapFlags::FIXED | MapFlags::FIXED_NOREPLACE;
        // Locked mappings are populated, an execute-only one may need a key, and these files have
        // limits and places of their own.
        let special = MapFlags::LOCKED | MapFlags::GROWSDOWN | MapFlags::HUGETLB;
        let file = request.file.map(|file| file.kind);
        if request.flags.intersects(special)
            || request.prot == Prot::EXEC
            || matches!(file, Some(FileKind::Hugetlb | FileKind::Secret))
        {
            return None;
        }
        let len = request.mapped_len().ok()?;
        let growth = Growth {
            vmas: 3,
            pages: len >> PAGE_SHIFT,
        };
        let fixed = request.flags.intersects(fixed);
        let hint = match fixed {
            true => request.addr,
            false => self.round_hint(request.addr),
        };
        let part = match request.placement {
            _ if fixed || hint != 0 => {
                if hint & !PAGE_MASK != 0 || hint >= self.system.task_size {
                    return None;
                }
                self.part_around(VmRange::of_len(hint, len)?)?
            }
            Placement::At(addr) => self.part_around(VmRange::of_len(addr, len)?)?,
            Placement::Arena(arena) => E::Writers::part_of(E::Writers::arena(arena).start),
            Placement::Search => E::Writers::part_of(self.system.task_size),
        };
        let mut w = self.write_part(mm, part, growth)?;
        if w.state().def_flags.contains(VmFlags::LOCKED) {
            return None;
        }
        let arena = match request.placement {
            _ if fixed => return Some(w.mmap(request)),
            Placement::At(_) => return Some(w.mmap(request)),
            Placement::Arena(arena) if hint == 0 => Some(arena),
            Placement::Arena(_) | Placement::Search => None,
        };
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::{Layout, Limits};
    use crate::policy::Policy;
    use crate::types::writers::Regions;
    use crate::types::{NoBytes, PAGE_SIZE, System, WithVmaLock};
    use crate::vma::lock::VmaLock;
    use alloc::boxed::Box;

    type Machine = Space<WithVmaLock<VmaLock, Regions>>;

    #[test]
    fn a_mapping_at_the_end_of_an_arena_takes_one_part() {
        let system = System::default();
        let layout = Layout {
            mmap_base: system.task_size - (1 << 32),
            ..Layout::default()
        };
        let space = Machine::in_environment(Policy::LINUX, system, Box::new(NoBytes));
        let mm = space.mm_create(layout, Limits::default());
        let mm = mm.expect("an address space");
        // The first mapping puts the part to use.
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
        for _ in 0..3 {
            let mapped = space.mmap_in_part(mm, &request).expect("one part");
            let (range, _) = mapped.expect("a mapping");
            let arena = Regions::arena(0);
            assert!(arena.start < range.start && range.end < arena.end);
        }
        space.validate_all().expect("valid");
    }
}
