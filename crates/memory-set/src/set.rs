//! `MemorySet`: the areas of one address space.

use crate::area::{MappingBackend, MemoryArea};
use crate::records::{Record, Records};
use crate::{MappingError, MappingResult};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use memory_addr::{AddrRange, MemoryAddr};
use vmarea::mm::{Layout, Limits, MmapReadGuard};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::MapFlags;
use vmarea::types::{File, FileId, FileKind, MmId, PAGE_MASK, PAGE_SIZE, VmRange};
use vmarea::vma::VmaView;
use vmarea::{Overcommit, Space, System};

/// The areas of an address space.
pub struct MemorySet<B: MappingBackend> {
    /// `None` until an area is mapped.
    core: Option<Core>,
    records: Records<B>,
}

/// An address space of the core.
struct Core {
    space: Box<Space>,
    mm: MmId,
}

impl Core {
    fn new() -> MappingResult<Core> {
        let system = System {
            task_size: PAGE_MASK,
            max_map_count: u32::MAX,
            mmap_min_addr: 0,
            built_in_min_addr: 0,
            overcommit: Overcommit::Always,
            ..System::default()
        };
        let space = Box::new(Space::new(Policy::LINUX, system));
        let mm = space.mm_create(Layout::default(), Limits::default())?;
        Ok(Core { space, mm })
    }

    fn guard(&self) -> MmapReadGuard<'_> {
        let guard = self.space.mmap_read_lock(self.mm);
        guard.expect("the address space exists as long as the set")
    }
}

/// Part of an area, with the number of the part's record.
#[derive(Clone, Copy)]
struct Part {
    range: VmRange,
    number: u64,
}

impl<B: MappingBackend> MemorySet<B> {
    /// Creates a set without areas. Allocates nothing.
    pub const fn new() -> Self {
        Self {
            core: None,
            records: Records::new(),
        }
    }

    fn guard(&self) -> Option<MmapReadGuard<'_>> {
        self.core.as_ref().map(Core::guard)
    }

    fn area(&self, vma: &VmaView) -> MemoryArea<B> {
        let record = self.records.get(number_of(vma));
        let size = vma.range.len_bytes() as usize;
        let start = B::Addr::from(vma.range.start as usize);
        MemoryArea::new(start, size, record.flags, record.backend.clone())
    }

    /// Returns the number of areas.
    pub fn len(&self) -> usize {
        let guard = self.guard();
        guard.map_or(0, |guard| guard.state().map_count as usize)
    }

    /// Returns true if there are no areas.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the areas in address order.
    pub fn iter(&self) -> impl Iterator<Item = MemoryArea<B>> + '_ {
        let core = self.core.iter();
        let vmas = core.flat_map(|core| core.space.maps(core.mm));
        vmas.map(|vma| self.area(&vma))
    }

    /// Returns true if an area contains an address in `range`.
    pub fn overlaps(&self, range: AddrRange<B::Addr>) -> bool {
        let range = VmRange::new(number(range.start), number(range.end));
        let guard = self.guard();
        guard.is_some_and(|guard| guard.vmas_in(range).next().is_some())
    }

    /// Returns the area that contains `addr`.
    pub fn find(&self, addr: B::Addr) -> Option<MemoryArea<B>> {
        let vma = self.guard()?.vma_lookup(number(addr))?;
        Some(self.area(&vma))
    }

    /// Returns the start of the lowest free range of `size` bytes at or above `hint`, within
    /// `limit`. The start is a multiple of `align`. `align` must be a power of two, and `size` a
    /// multiple of it.
    pub fn find_free_area(
        &self,
        hint: B::Addr,
        size: usize,
        limit: AddrRange<B::Addr>,
        align: usize,
    ) -> Option<B::Addr> {
        if !align.is_power_of_two() || !size.is_multiple_of(align) {
            return None;
        }
        let aligned = |addr: u64| (addr as usize).checked_next_multiple_of(align);
        let mut start = aligned(number(hint.max(limit.start)))?;
        let guard = self.guard();
        let above = VmRange::new(start as u64, u64::MAX);
        for vma in guard.iter().flat_map(|guard| guard.vmas_in(above)) {
            let end = start.checked_add(size)?;
            if end as u64 <= vma.range.start {
                break;
            }
            start = aligned(vma.range.end)?;
        }
        let end = start.checked_add(size)?;
        (end <= limit.end.into()).then(|| start.into())
    }

    /// Maps a new area. If the new area overlaps existing areas, `unmap_overlap` determines whether
    /// the overlapping parts are unmapped first or the call fails.
    ///
    /// # Errors
    /// `InvalidParam` if the area is empty or does not consist of whole pages; `AlreadyExists` if
    /// the area overlaps another one and `unmap_overlap` is false; `BadState` if the backend
    /// refuses; `NoMemory` if memory is lacking.
    pub fn map(
        &mut self,
        area: MemoryArea<B>,
        page_table: &mut B::PageTable,
        unmap_overlap: bool,
    ) -> MappingResult {
        let range = pages(area.start(), area.size())?;
        if range.is_empty() {
            return Err(MappingError::InvalidParam);
        }
        if self.overlaps(area.va_range()) {
            if !unmap_overlap {
                return Err(MappingError::AlreadyExists);
            }
            self.unmap(area.start(), area.size(), page_table)?;
        }
        if self.core.is_none() {
            self.core = Some(Core::new()?);
        }
        let number = self.records.next_area();
        let number = self.records.add(Record {
            backend: area.backend().clone(),
            flags: area.flags(),
            base: range.start,
            area: number,
            mapped: 0,
        })?;
        let part = Part { range, number };
        self.enter(part)?;
        let (start, size) = (area.start(), area.size());
        if area.backend().map(start, size, area.flags(), page_table) {
            return Ok(());
        }
        self.remove(part)?;
        Err(MappingError::BadState)
    }

    /// Unmaps the part of every area that lies within a range.
    ///
    /// # Errors
    /// `InvalidParam` if the range does not consist of whole pages or wraps around; `BadState` if a
    /// backend refuses; `NoMemory` if memory is lacking, for instance to split an area. After a
    /// failure, the parts below the one that failed are unmapped.
    pub fn unmap(
        &mut self,
        start: B::Addr,
        size: usize,
        page_table: &mut B::PageTable,
    ) -> MappingResult {
        for part in self.parts(pages(start, size)?)? {
            let backend = &self.records.get(part.number).backend;
            let (start, size) = bounds::<B>(part.range);
            if !backend.unmap(start, size, page_table) {
                return Err(MappingError::BadState);
            }
            self.remove(part)?;
        }
        Ok(())
    }

    /// Unmaps all areas.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap).
    pub fn clear(&mut self, page_table: &mut B::PageTable) -> MappingResult {
        let all = PAGE_MASK as usize;
        self.unmap(B::Addr::from(0), all, page_table)?;
        // Gives the memory back.
        self.core = None;
        Ok(())
    }

    /// Changes the flags of the part of every area that lies within a range. `update_flags` returns
    /// the new flags for a part's old ones, or `None` to leave a part unchanged. Neighbouring parts
    /// of one area merge if their flags become equal.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap).
    pub fn protect(
        &mut self,
        start: B::Addr,
        size: usize,
        update_flags: impl Fn(B::Flags) -> Option<B::Flags>,
        page_table: &mut B::PageTable,
    ) -> MappingResult {
        for part in self.parts(pages(start, size)?)? {
            let Some(flags) = update_flags(self.records.get(part.number).flags) else {
                continue;
            };
            let number = self.record_with(part, flags)?;
            let backend = &self.records.get(part.number).backend;
            let (start, size) = bounds::<B>(part.range);
            if !backend.protect(start, size, flags, page_table) {
                self.records.unmapped(number, 0);
                return Err(MappingError::BadState);
            }
            self.enter(Part { number, ..part })?;
            self.records.unmapped(part.number, part.range.len_bytes());
        }
        Ok(())
    }

    /// Returns the number of a record with `flags` for a part: the part's own record, the record of
    /// a neighbour from the same area, or a new record.
    fn record_with(&mut self, part: Part, flags: B::Flags) -> MappingResult<u64> {
        let own = self.records.get(part.number);
        let below = part.range.start.checked_sub(1);
        let guard = self.guard();
        let around = [Some(part.range.start), below, Some(part.range.end)];
        let mut numbers = around
            .into_iter()
            .filter_map(|addr| Some(number_of(&guard.as_ref()?.vma_lookup(addr?)?)));
        let found = numbers.find(|number| {
            let other = self.records.get(*number);
            other.area == own.area && other.flags == flags
        });
        if let Some(number) = found {
            return Ok(number);
        }
        let record = Record {
            backend: own.backend.clone(),
            mapped: 0,
            flags,
            ..*own
        };
        drop(numbers);
        drop(guard);
        Ok(self.records.add(record)?)
    }

    /// Returns the parts of areas that lie within a range.
    fn parts(&self, range: VmRange) -> MappingResult<Vec<Part>> {
        let mut parts = Vec::new();
        if range.is_empty() {
            return Ok(parts);
        }
        let guard = self.guard();
        for vma in guard.iter().flat_map(|guard| guard.vmas_in(range)) {
            parts.try_reserve(1).map_err(|_| MappingError::NoMemory)?;
            parts.push(Part {
                range: vma.range.clip(range),
                number: number_of(&vma),
            });
        }
        Ok(parts)
    }

    /// Maps a part in the core, in place of any existing mapping.
    fn enter(&mut self, part: Part) -> MappingResult {
        let file = File {
            writable: false,
            ..File::read_write(FileId(part.number + 1), part.number, FileKind::Regular)
        };
        let request = MmapRequest {
            addr: part.range.start,
            len: part.range.len_bytes(),
            flags: MapFlags::PRIVATE | MapFlags::FIXED,
            file: Some(file),
            offset: part.range.start - self.records.get(part.number).base,
            ..MmapRequest::default()
        };
        let bytes = part.range.len_bytes();
        let Core { space, mm } = self.core.as_ref().expect("an area is being mapped");
        self.records.mapped(part.number, bytes);
        if let Err(errno) = space.mmap(*mm, &request) {
            self.records.unmapped(part.number, bytes);
            return Err(errno.into());
        }
        Ok(())
    }

    /// Unmaps a part in the core.
    fn remove(&mut self, part: Part) -> MappingResult {
        let VmRange { start, .. } = part.range;
        let Core { space, mm } = self.core.as_ref().expect("the part is mapped");
        space.munmap(*mm, start, part.range.len_bytes())?;
        self.records.unmapped(part.number, part.range.len_bytes());
        Ok(())
    }
}

/// Returns the record number of a VMA.
fn number_of(vma: &VmaView) -> u64 {
    vma.body.file.expect("every area maps a file").inode
}

/// Converts an address to the core's type.
fn number<A: MemoryAddr>(addr: A) -> u64 {
    addr.into() as u64
}

/// Converts a range to a start and a size, as a backend expects them.
fn bounds<B: MappingBackend>(range: VmRange) -> (B::Addr, usize) {
    (
        B::Addr::from(range.start as usize),
        range.len_bytes() as usize,
    )
}

/// Returns the range of `size` bytes at `start`; both must be multiples of the page size.
fn pages<A: MemoryAddr>(start: A, size: usize) -> MappingResult<VmRange> {
    let (start, size) = (number(start), size as u64);
    let is_aligned = start.is_multiple_of(PAGE_SIZE) && size.is_multiple_of(PAGE_SIZE);
    let range = VmRange::of_len(start, size).filter(|_| is_aligned);
    range.ok_or(MappingError::InvalidParam)
}

impl<B: MappingBackend> Default for MemorySet<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: MappingBackend> fmt::Debug for MemorySet<B>
where
    B::Addr: fmt::Debug,
    B::Flags: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
