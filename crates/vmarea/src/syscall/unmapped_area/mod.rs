//! Searches for a free address range for a mapping.
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
//! `arch/x86/kernel/sys_x86_64.c`; `mm/huge_memory.c` `__thp_get_unmapped_area`; 6.18. The search
//! for `MAP_32BIT` starts at the lowest address of the area; in Linux it starts at a random one.

mod full;

use crate::Space;
use crate::mm::{Index, MmState, MmapGuard};
use crate::policy::rules::HugetlbPlacement;
use crate::refused::{Refused, Rule};
use crate::types::call_flags::MapFlags;
use crate::types::platform::Environment;
use crate::types::writers::{Token, Writers};
use crate::types::{
    Errno, FileKind, MmId, PAGE_MASK, PAGE_SHIFT, PAGE_SIZE, PMD_SIZE, VmFlags, VmRange, VmaId,
    align_up, page_align,
};
use crate::vma::VmaView;
use vmarea_range_tree::Entry;

/// End of the addresses that are used unless an address hint requests higher ones.
const MAP_WINDOW: u64 = 0x7fff_ffff_f000;

/// Bounds of the addresses that `MAP_32BIT` allows.
const LOW: (u64, u64) = (0x4000_0000, 0x8000_0000);

/// A request for a free address range.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Kind of the file to be mapped; `None` if no file is mapped.
    pub file: Option<FileKind>,
    /// True for a shared anonymous mapping, which is placed like a shmem mapping.
    pub shared_anon: bool,
    /// The caller's address hint; 0 for none.
    pub hint: u64,
    /// Length in bytes; a multiple of the page size.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Flags of the `mmap` call.
    pub flags: MapFlags,
    /// VMA flags that the mapping will have.
    pub vm_flags: VmFlags,
}

impl Room {
    /// Returns the required alignment of the range, in bytes.
    fn unit(&self) -> u64 {
        match self.file {
            Some(FileKind::Hugetlb) => PMD_SIZE,
            _ => PAGE_SIZE,
        }
    }

    /// Returns the alignment, and a gap size that is large enough wherever the gap begins.
    fn padded(&self) -> Option<(u64, u64)> {
        let unit = self.unit();
        Some((unit, self.len.checked_add(unit - PAGE_SIZE)?))
    }
}

/// The parts of an address space that the search for a free range reads.
struct Search<'a, E: Environment, K> {
    space: &'a Space<E>,
    tree: Index<'a, K>,
    layout: crate::mm::Layout,
    raw_io: bool,
    view: &'a dyn Fn(VmaId) -> VmaView,
}

impl<'a, E: Environment, K: Writers> Search<'a, E, K> {
    fn new(
        space: &'a Space<E>,
        tree: Index<'a, K>,
        state: &MmState,
        view: &'a dyn Fn(VmaId) -> VmaView,
    ) -> Self {
        Search {
            space,
            tree,
            layout: state.layout,
            raw_io: state.limits.raw_io,
            view,
        }
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Finds a free address range for `room`, and returns its start.
    ///
    /// # Errors
    /// ENOMEM if there is no free range or the range lies outside the address space; EINVAL if the
    /// address is misaligned; EPERM if it is below `mmap_min_addr`.
    ///
    /// [`Space::get_unmapped_area`] has an example.
    #[doc(alias = "__get_unmapped_area")]
    pub fn unmapped_area(&self, room: &Room) -> Result<u64, Errno> {
        let view = |id| self.view(id);
        Search::new(self.space, self.index(), self.state(), &view).place(room)
    }

    /// Finds a free address range for `room` in an arena; if the arena has none, or the request is
    /// not one that is placed in an arena, finds a range like [`unmapped_area`](Self::unmapped_area).
    pub(crate) fn arena_area(&self, room: &Room, arena: usize) -> Result<u64, Errno> {
        let view = |id| self.view(id);
        let search = Search::new(self.space, self.index(), self.state(), &view);
        let found = search.in_arena(room, E::Writers::arena(arena));
        found.map_or_else(|| search.place(room), Ok)
    }

    /// Finds the address at which `room` would be placed if all parts were held, for a guard of
    /// one part, which does not see the others; `None` if that cannot be known.
    pub(crate) fn area_in_part(&self, room: &Room, arena: Option<usize>) -> Option<u64> {
        let view = |id| self.view(id);
        let search = Search::new(self.space, self.index(), self.state(), &view);
        let part = self.only_bounds()?;
        match arena {
            Some(arena) => search.in_arena(room, E::Writers::arena(arena)),
            None => search.exact_within(room, part),
        }
    }
}

impl<E: Environment> Space<E> {
    /// Returns the address at which `room` would be placed now, without mapping anything.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist; otherwise those of
    /// [`unmapped_area`](MmapGuard::unmapped_area).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::syscall::unmapped_area::Room;
    ///
    /// let room = Room {
    ///     file: None,
    ///     shared_anon: false,
    ///     hint: 0,
    ///     len: 2 * PAGE_SIZE,
    ///     offset: 0,
    ///     flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS,
    ///     vm_flags: VmFlags::READ,
    /// };
    /// // The driver of a device places its mapping where an anonymous one would be.
    /// assert_eq!(space.get_unmapped_area(mm, &room)?, layout.mmap_base - 2 * PAGE_SIZE);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn get_unmapped_area(&self, mm: MmId, room: &Room) -> Result<u64, Errno> {
        self.mmap_read_lock(mm)
            .ok_or(Errno::ESRCH)?
            .unmapped_area(room)
    }
}

impl<E: Environment, K: Writers> Search<'_, E, K> {
    fn place(&self, room: &Room) -> Result<u64, Errno> {
        let task_size = self.space.system.task_size;
        if room.len > task_size {
            return Err(self.refuse_outside(room.hint, room));
        }
        if !room.len.is_multiple_of(room.unit()) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::WholeHugePages));
        }
        let addr = if self.wants_huge_alignment(room) {
            self.huge_aligned(room)
                .map_or_else(|| self.arch(room), Ok)?
        } else {
            self.arch(room)?
        };
        if addr > task_size - room.len {
            return Err(self.refuse_outside(addr, room));
        }
        let unit = match room.flags.contains(MapFlags::FIXED) {
            true => room.unit(),
            false => PAGE_SIZE,
        };
        if !addr.is_multiple_of(unit) {
            let rule = match unit {
                PAGE_SIZE => Rule::AlignedAddress,
                _ => Rule::AddressOfHugePage,
            };
            return Err(self.space.refuse(Errno::EINVAL, rule));
        }
        if addr < self.space.system.mmap_min_addr && !self.raw_io {
            let lowest = self.space.system.mmap_min_addr;
            return Err((self.space).refuse(Errno::EPERM, Refused::TooLow { addr, lowest }));
        }
        Ok(addr)
    }

    /// True if the search for `room` is one descending search of the area below `mmap_base`.
    fn is_plain(&self, room: &Room) -> bool {
        let special = MapFlags::FIXED | MapFlags::BIT32 | MapFlags::ABOVE4G;
        room.unit() == PAGE_SIZE
            && room.len <= self.space.system.task_size
            && !room.flags.intersects(special)
            && !self.layout.bottom_up
            && !self.wants_huge_alignment(room)
    }

    /// Returns the highest free range in an arena; `None` if there is none, or if the request has a
    /// hint or needs a special place.
    fn in_arena(&self, room: &Room, arena: VmRange) -> Option<u64> {
        if room.hint != 0 || !self.is_plain(room) {
            return None;
        }
        // The range and the gap above it are within the arena, so that one part is enough.
        let gap = self.space.system.stack_guard_gap + PAGE_SIZE;
        let high = arena.end.min(self.layout.mmap_base).saturating_sub(gap);
        let low = (arena.start + PAGE_SIZE).max(self.space.system.lowest_addr());
        self.highest(low, high, room)
    }

    /// Returns the range that the hint or the descending search yields, if `part` decides this.
    fn exact_within(&self, room: &Room, part: VmRange) -> Option<u64> {
        if !self.is_plain(room) {
            return None;
        }
        let inside = |addr: &u64| part.start < *addr;
        if room.hint != 0 {
            let hint = room.hint & PAGE_MASK;
            return Some(hint).filter(|_| self.takes_hint(hint, room.len));
        }
        let base = self.layout.mmap_base;
        let gap = self.space.system.stack_guard_gap + PAGE_SIZE;
        if base <= part.start || base.saturating_add(gap) >= part.end {
            return None;
        }
        let low = (part.start + PAGE_SIZE).max(self.space.system.lowest_addr());
        self.highest(low, base, room).filter(inside)
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

    /// Finds a free range whose address equals the file offset modulo the huge page size.
    #[doc(alias = "__thp_get_unmapped_area")]
    fn huge_aligned(&self, room: &Room) -> Option<u64> {
        let off = if room.file.is_some() { room.offset } else { 0 };
        let padded = Room {
            len: room.len.checked_add(PMD_SIZE)?,
            ..*room
        };
        off.checked_add(padded.len)?;
        let (off_end, off_align) = (off.checked_add(room.len)?, align_up(off, PMD_SIZE)?);
        // Linux compares the two offsets as signed numbers, so that those above 2^63 are the
        // smaller ones, and their difference as an unsigned number.
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

    /// Finds a free range for mapping a hugetlb file.
    #[doc(alias = "hugetlb_get_unmapped_area")]
    fn hugetlb(&self, room: &Room) -> Result<u64, Errno> {
        let mut room = *room;
        match self.space.policy.rules.hugetlb_placement {
            // A hint that wraps counts as no hint.
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
            return Err(self.refuse_outside(room.hint, room));
        }
        if room.flags.contains(MapFlags::FIXED) {
            return self.fixed(room.hint);
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

    /// True if the range at the caller's address hint is free and may be used.
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
            return self.fixed(room.hint);
        }
        let (begin, end) = if room.flags.contains(MapFlags::BIT32) {
            LOW
        } else {
            (self.layout.legacy_base, self.space.system.task_size)
        };
        if room.len > end {
            return Err(self.refuse_full(room));
        }
        if room.hint != 0 {
            let hint = page_align(room.hint).unwrap_or(0);
            if end - room.len >= hint && self.is_free(hint, room.len) {
                return Ok(hint);
            }
        }
        self.lowest(begin.max(self.space.system.lowest_addr()), end, room)
            .ok_or_else(|| self.refuse_full(room))
    }

    /// Returns a fixed address.
    ///
    /// Linux mistakes an address in the last page of the 64-bit address space for an error number,
    /// and returns that number as the error.
    fn fixed(&self, addr: u64) -> Result<u64, Errno> {
        const MAX_ERRNO: u64 = 4095;
        match addr.wrapping_neg() {
            number @ 1..=MAX_ERRNO => {
                let errno = Errno::from_number(number as i32).unwrap_or(Errno::EINVAL);
                Err(self.space.refuse(errno, Rule::NotLastPage))
            }
            _ => Ok(addr),
        }
    }

    fn next(&self, addr: u64) -> Option<VmaView> {
        self.tree
            .find(addr)
            .and_then(|e| VmaId::from_bits(e.value))
            .map(self.view)
    }

    /// True if the range is unmapped and leaves the guard gap of the next stack free.
    fn is_free(&self, addr: u64, len: u64) -> bool {
        let gap = self.space.system.stack_guard_gap;
        let is_far = |next: &Entry| next.start.saturating_sub(gap.max(PAGE_SIZE)) >= addr + len;
        // A VMA that is far away need not be read.
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

/// True if a fixed mapping of `range` would be accepted, disregarding existing mappings.
#[doc(alias = "vma_expandable")]
pub(crate) fn fits_fixed<'s, E: Environment, T: Token<'s, E::Wait>>(
    w: &MmapGuard<'s, E, T>,
    range: VmRange,
) -> bool {
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

/// Converts a number of bytes to whole pages, rounding down.
pub(crate) fn pages_of(bytes: u64) -> u64 {
    bytes >> PAGE_SHIFT
}
