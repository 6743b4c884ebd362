//! Pages, page offsets and ranges of addresses.

/// Bits of an address within a page.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// Keeps the page part of an address.
pub const PAGE_MASK: u64 = !(PAGE_SIZE - 1);
/// Bytes that one huge page (one middle-directory entry) maps.
pub const PMD_SIZE: u64 = 1 << 21;

/// Rounds up to a page; wraps to 0 as Linux's `PAGE_ALIGN` does.
#[inline]
pub const fn page_align(bytes: u64) -> u64 {
    bytes.wrapping_add(PAGE_SIZE - 1) & PAGE_MASK
}

/// Offset of a mapping in its file, or in an anonymous object's own line of pages; in pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[doc(alias = "vm_pgoff")]
pub struct Pgoff(pub u64);

impl Pgoff {
    /// The page offset of the page that holds `addr`: the canonical one of an anonymous mapping.
    #[inline]
    pub const fn of_addr(addr: u64) -> Pgoff {
        Pgoff(addr >> PAGE_SHIFT)
    }

    /// This offset moved by `bytes` (whole pages) upwards, wrapping.
    #[inline]
    pub const fn plus_bytes(self, bytes: u64) -> Pgoff {
        Pgoff(self.0.wrapping_add(bytes >> PAGE_SHIFT))
    }

    /// This offset moved by `bytes` (whole pages) downwards, wrapping.
    #[inline]
    pub const fn minus_bytes(self, bytes: u64) -> Pgoff {
        Pgoff(self.0.wrapping_sub(bytes >> PAGE_SHIFT))
    }
}

/// Addresses from `start` up to but without `end`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VmRange {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
}

impl VmRange {
    /// A range; `start` must not lie above `end`.
    #[inline]
    pub const fn new(start: u64, end: u64) -> Self {
        debug_assert!(start <= end);
        Self { start, end }
    }

    /// Length in bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        self.end - self.start
    }

    /// Length in pages.
    #[inline]
    pub const fn pages(self) -> u64 {
        self.len_bytes() >> PAGE_SHIFT
    }

    /// True where `addr` lies within.
    #[inline]
    pub const fn contains(self, addr: u64) -> bool {
        self.start <= addr && addr < self.end
    }

    /// True where the two share a byte.
    #[inline]
    pub const fn overlaps(self, other: VmRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The shared part; empty at `other`'s nearer edge where there is none.
    #[inline]
    pub fn clip(self, other: VmRange) -> VmRange {
        let start = self.start.clamp(other.start, other.end);
        VmRange {
            start,
            end: self.end.clamp(start, other.end),
        }
    }
}
