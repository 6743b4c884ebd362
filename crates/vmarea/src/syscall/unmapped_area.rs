//! Finding room for a mapping that does not say where it must be.
//!
//! # Picture
//! ```text
//! mmap_min_addr                                mmap_base        stack
//! ├────────────────── searched top-down ◀──────┤                ├──┤
//!                               ▲ highest gap that is large enough, its upper end
//! ```
//!
//! # Linux
//! `mm/mmap.c` `__get_unmapped_area`, `mm/vma.c` `unmapped_area`, `unmapped_area_topdown`;
//! `arch/x86/kernel/sys_x86_64.c`; `mm/huge_memory.c` `__thp_get_unmapped_area`; 6.18. `MAP_32BIT` is
//! searched from its lowest address; Linux begins at a random one.

use crate::mm::{MmapReadGuard, MmapWriteGuard};
use crate::mutant::{self, Mutant};
use crate::policy::rules::HugetlbPlacement;
use crate::space::Space;
use crate::types::call_flags::MapFlags;
use crate::types::platform::Environment;
use crate::types::{
    Errno, FileKind, MmId, PAGE_MASK, PAGE_SHIFT, PAGE_SIZE, PMD_SIZE, VmFlags, VmRange, VmaId,
    align_up, page_align,
};
use crate::vma::VmaView;
use vmarea_range_tree::{Entry, RangeTree};

/// Upper end of the addresses that are used without being asked for by a high hint.
const MAP_WINDOW: u64 = 0x7fff_ffff_f000;

/// A request for room.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The kind of file to be mapped.
    pub file: Option<FileKind>,
    /// Shared mapping without a file: placed as shmem is.
    pub shared_anon: bool,
    /// The caller's wish, 0 for none.
    pub hint: u64,
    /// Length in bytes, whole pages.
    pub len: u64,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// `mmap`'s flags.
    pub flags: MapFlags,
    /// Flags that the VMA will have.
    pub vm_flags: VmFlags,
}

impl Room {
    /// It lies at a multiple of these bytes.
    fn unit(&self) -> u64 {
        match self.file {
            Some(FileKind::Hugetlb) if !mutant::is_on(Mutant::HugetlbPlacedAnywhere) => PMD_SIZE,
            _ => PAGE_SIZE,
        }
    }

    /// That unit, and the bytes of a gap that is large enough wherever it begins.
    fn padded(&self) -> Option<(u64, u64)> {
        let unit = self.unit();
        Some((unit, self.len.checked_add(unit - PAGE_SIZE)?))
    }
}

/// What the search needs to see of an address space.
struct Search<'a, E: Environment> {
    space: &'a Space<E>,
    tree: &'a RangeTree,
    layout: crate::mm::Layout,
    raw_io: bool,
    view: &'a dyn Fn(VmaId) -> VmaView,
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// An address where `room` fits. ENOMEM if there is none or it lies outside; EINVAL if it is not
    /// page aligned; EPERM below `mmap_min_addr`.
    #[doc(alias = "__get_unmapped_area")]
    pub(crate) fn unmapped_area(&self, room: &Room) -> Result<u64, Errno> {
        let state = self.state();
        Search {
            space: self.space,
            tree: &self.mm.tree,
            layout: state.layout,
            raw_io: state.limits.raw_io,
            view: &|id| self.view(id),
        }
        .place(room)
    }
}

impl<E: Environment> MmapReadGuard<'_, E> {
    /// Where `room` would be placed now.
    pub fn unmapped_area(&self, room: &Room) -> Result<u64, Errno> {
        let state = self.state();
        Search {
            space: self.space,
            tree: &self.mm.tree,
            layout: state.layout,
            raw_io: state.limits.raw_io,
            view: &|id| self.view(id),
        }
        .place(room)
    }
}

impl<E: Environment> Space<E> {
    /// Where a request would be placed now, without doing anything.
    pub fn get_unmapped_area(&self, mm: MmId, room: &Room) -> Result<u64, Errno> {
        self.mmap_read_lock(mm)
            .ok_or(Errno::ESRCH)?
            .unmapped_area(room)
    }
}

impl<E: Environment> Search<'_, E> {
    fn place(&self, room: &Room) -> Result<u64, Errno> {
        let task_size = self.space.system.task_size;
        if room.len > task_size {
            return Err(Errno::ENOMEM);
        }
        if !room.len.is_multiple_of(room.unit()) {
            return Err(Errno::EINVAL);
        }
        let addr = if self.wants_huge_alignment(room) {
            self.huge_aligned(room)
                .map_or_else(|| self.arch(room), Ok)?
        } else {
            self.arch(room)?
        };
        if addr > task_size - room.len {
            return Err(Errno::ENOMEM);
        }
        let unit = match room.flags.contains(MapFlags::FIXED) {
            true => room.unit(),
            false => PAGE_SIZE,
        };
        if !addr.is_multiple_of(unit) {
            return Err(Errno::EINVAL);
        }
        if addr < self.space.system.mmap_min_addr && !self.raw_io {
            return Err(Errno::EPERM);
        }
        Ok(addr)
    }

    fn wants_huge_alignment(&self, room: &Room) -> bool {
        match room.file {
            Some(kind) => match kind {
                FileKind::RegularHugeAligned => self.space.policy.rules.huge_aligned_files,
                FileKind::DevZero => self.space.policy.rules.huge_aligned_zero,
                FileKind::Shmem | FileKind::SharedAnon => self.space.system.shmem_huge,
                _ => false,
            },
            None if room.shared_anon => self.space.system.shmem_huge,
            None => {
                self.space.policy.rules.huge_aligned_anon
                    && room.hint == 0
                    && room.len.is_multiple_of(PMD_SIZE)
            }
        }
    }

    /// Room whose address and file offset agree modulo a huge page.
    #[doc(alias = "__thp_get_unmapped_area")]
    fn huge_aligned(&self, room: &Room) -> Option<u64> {
        let off = if room.file.is_some() { room.offset } else { 0 };
        let padded = Room {
            len: room.len.checked_add(PMD_SIZE)?,
            ..*room
        };
        off.checked_add(padded.len)?;
        let (off_end, off_align) = (off.checked_add(room.len)?, align_up(off, PMD_SIZE)?);
        // Linux compares the two as signed numbers, of which those above 2^63 come first, and what is
        // between them as an unsigned one.
        if off_end as i64 <= off_align as i64 || off_end.wrapping_sub(off_align) < PMD_SIZE {
            return None;
        }
        let found = self.arch(&padded).ok()?;
        if found == room.hint {
            return Some(found);
        }
        let sub = off.wrapping_sub(found) & (PMD_SIZE - 1);
        if sub == 0 && !self.layout.bottom_up {
            Some(found + PMD_SIZE)
        } else {
            Some(found + sub)
        }
    }

    fn arch(&self, room: &Room) -> Result<u64, Errno> {
        if room.unit() != PAGE_SIZE && !room.flags.contains(MapFlags::FIXED) {
            return self.hugetlb(room);
        }
        self.any(room)
    }

    /// Room for a mapping of a hugetlb file.
    #[doc(alias = "hugetlb_get_unmapped_area")]
    fn hugetlb(&self, room: &Room) -> Result<u64, Errno> {
        let mut room = *room;
        match self.space.policy.rules.hugetlb_placement {
            // One that wraps is no wish.
            HugetlbPlacement::Common => room.hint = align_up(room.hint, PMD_SIZE).unwrap_or(0),
            HugetlbPlacement::Own => {
                room.flags -= MapFlags::BIT32 | MapFlags::ABOVE4G;
                let hint = room.hint & !(PMD_SIZE - 1);
                if room.hint != 0 && self.takes_hint(hint, room.len) {
                    return Ok(hint);
                }
                room.hint = 0;
            }
        }
        self.any(&room)
    }

    fn any(&self, room: &Room) -> Result<u64, Errno> {
        if self.layout.bottom_up {
            self.bottom_up(room)
        } else {
            self.top_down(room)
        }
    }

    #[doc(alias = "arch_get_unmapped_area_topdown")]
    fn top_down(&self, room: &Room) -> Result<u64, Errno> {
        let task_size = self.space.system.task_size;
        if room.len > task_size {
            return Err(Errno::ENOMEM);
        }
        if room.flags.contains(MapFlags::FIXED) {
            return fixed(room.hint);
        }
        if room.flags.contains(MapFlags::BIT32) {
            return self.bottom_up(room);
        }
        let hint = room.hint & PAGE_MASK;
        if room.hint != 0 && self.takes_hint(hint, room.len) {
            return Ok(hint);
        }
        let low = if room.flags.contains(MapFlags::ABOVE4G) {
            1 << 32
        } else {
            PAGE_SIZE
        };
        self.highest(
            low.max(self.space.system.lowest_addr()),
            self.layout.mmap_base,
            room,
        )
        .map_or_else(|| self.bottom_up(room), Ok)
    }

    /// Is there room where the caller wishes?
    #[doc(alias = "mmap_address_hint_valid")]
    fn takes_hint(&self, hint: u64, len: u64) -> bool {
        let task_size = self.space.system.task_size;
        let window = |end: u64| end > MAP_WINDOW;
        len <= task_size
            && hint <= task_size - len
            && window(hint) == window(hint + len)
            && self.is_free(hint, len)
    }

    #[doc(alias = "arch_get_unmapped_area")]
    fn bottom_up(&self, room: &Room) -> Result<u64, Errno> {
        if room.flags.contains(MapFlags::FIXED) {
            return fixed(room.hint);
        }
        let (begin, end) = if room.flags.contains(MapFlags::BIT32) {
            (0x4000_0000, 0x8000_0000)
        } else {
            (self.layout.legacy_base, self.space.system.task_size)
        };
        if room.len > end {
            return Err(Errno::ENOMEM);
        }
        if room.hint != 0 {
            let hint = page_align(room.hint).unwrap_or(0);
            if end - room.len >= hint && self.is_free(hint, room.len) {
                return Ok(hint);
            }
        }
        self.lowest(begin.max(self.space.system.lowest_addr()), end, room)
            .ok_or(Errno::ENOMEM)
    }

    fn next(&self, addr: u64) -> Option<VmaView> {
        self.tree
            .find(addr)
            .and_then(|e| VmaId::from_bits(e.value))
            .map(self.view)
    }

    /// Nothing lies there, and no stack would lose its gap.
    fn is_free(&self, addr: u64, len: u64) -> bool {
        let gap = self.space.system.stack_guard_gap;
        let is_far = |next: &Entry| next.start.saturating_sub(gap.max(PAGE_SIZE)) >= addr + len;
        // What is far away need not be looked at.
        self.tree.find(addr).is_none_or(|next| is_far(&next))
            || self
                .next(addr)
                .is_none_or(|v| addr + len <= v.start_gap(gap))
    }

    #[doc(alias = "unmapped_area_topdown")]
    fn highest(&self, low: u64, mut high: u64, room: &Room) -> Option<u64> {
        let (unit, len) = room.padded()?;
        loop {
            let (_, gap_end) = self.tree.gap_highest(low, high, len)?;
            match self
                .next(gap_end)
                .map(|v| v.start_gap(self.space.system.stack_guard_gap))
            {
                Some(limit) if limit < gap_end => high = limit,
                _ => return Some((gap_end - room.len) & !(unit - 1)),
            }
        }
    }

    #[doc(alias = "unmapped_area")]
    fn lowest(&self, mut low: u64, high: u64, room: &Room) -> Option<u64> {
        let (unit, len) = room.padded()?;
        loop {
            let (gap, _) = self.tree.gap_lowest(low, high, len)?;
            let gap = align_up(gap, unit)?;
            match self.next(gap) {
                Some(v) if v.start_gap(self.space.system.stack_guard_gap) < gap + len - 1 => {
                    low = v.range.end
                }
                _ => return Some(gap),
            }
        }
    }
}

/// A fixed place. Linux takes one in the last page of the 64 bits for an error number, and gives that.
fn fixed(addr: u64) -> Result<u64, Errno> {
    const MAX_ERRNO: u64 = 4095;
    match addr.wrapping_neg() {
        number @ 1..=MAX_ERRNO => Err(Errno::from_number(number as i32).unwrap_or(Errno::EINVAL)),
        _ => Ok(addr),
    }
}

/// Where a fixed growth at `addr` would end up outside of the address space.
#[doc(alias = "vma_expandable")]
pub(crate) fn fits_fixed<E: Environment>(w: &MmapWriteGuard<'_, E>, range: VmRange) -> bool {
    let room = Room {
        file: None,
        shared_anon: false,
        hint: range.start,
        len: range.len_bytes(),
        offset: 0,
        flags: MapFlags::FIXED,
        vm_flags: VmFlags::empty(),
    };
    w.unmapped_area(&room).is_ok()
}

/// Pages that an offset in bytes stands for.
pub(crate) fn pages_of(bytes: u64) -> u64 {
    bytes >> PAGE_SHIFT
}
