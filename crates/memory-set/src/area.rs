//! Areas, and the backends that update a page table when areas change.

use core::fmt;
use memory_addr::{AddrRange, MemoryAddr};

/// Operations on a page table when an area is mapped, unmapped or protected.
///
/// Each method returns false if the page table does not permit the operation.
pub trait MappingBackend: Clone {
    /// Type of an address.
    type Addr: MemoryAddr;
    /// Type of an area's flags.
    type Flags: Copy + PartialEq;
    /// Type of the page table.
    type PageTable;

    /// Maps `size` bytes at `start` with `flags`.
    fn map(
        &self,
        start: Self::Addr,
        size: usize,
        flags: Self::Flags,
        page_table: &mut Self::PageTable,
    ) -> bool;

    /// Unmaps `size` bytes at `start`.
    fn unmap(&self, start: Self::Addr, size: usize, page_table: &mut Self::PageTable) -> bool;

    /// Changes the flags of `size` bytes at `start`.
    fn protect(
        &self,
        start: Self::Addr,
        size: usize,
        new_flags: Self::Flags,
        page_table: &mut Self::PageTable,
    ) -> bool;
}

/// An address range with one backend and one set of flags.
pub struct MemoryArea<B: MappingBackend> {
    range: AddrRange<B::Addr>,
    flags: B::Flags,
    backend: B,
}

impl<B: MappingBackend> MemoryArea<B> {
    /// Creates an area of `size` bytes at `start`.
    ///
    /// # Panics
    /// If the range wraps around.
    pub fn new(start: B::Addr, size: usize, flags: B::Flags, backend: B) -> Self {
        Self {
            range: AddrRange::from_start_size(start, size),
            flags,
            backend,
        }
    }

    /// Returns the address range of the area.
    pub const fn va_range(&self) -> AddrRange<B::Addr> {
        self.range
    }

    /// Returns the flags.
    pub const fn flags(&self) -> B::Flags {
        self.flags
    }

    /// Returns the first address in the area.
    pub const fn start(&self) -> B::Addr {
        self.range.start
    }

    /// Returns the first address after the area.
    pub const fn end(&self) -> B::Addr {
        self.range.end
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.range.size()
    }

    /// Returns the backend.
    pub const fn backend(&self) -> &B {
        &self.backend
    }
}

impl<B: MappingBackend> fmt::Debug for MemoryArea<B>
where
    B::Addr: fmt::Debug,
    B::Flags: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryArea")
            .field("va_range", &self.range)
            .field("flags", &self.flags)
            .finish()
    }
}
