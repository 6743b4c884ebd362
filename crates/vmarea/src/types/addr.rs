//! Pages, page offsets and ranges of addresses.
//!
//! Numbers from a program are anything, so rounding up and adding may leave 64 bits. Both are done here,
//! and here alone, by functions that give `None` then: a caller cannot go on without saying what Linux
//! does with a number that wraps. [`VmRange::new`] is for two ends that are known to be in order.

/// Bits of an address within a page.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// Keeps the page part of an address.
pub const PAGE_MASK: u64 = !(PAGE_SIZE - 1);
/// Bytes that one huge page (one middle-directory entry) maps.
pub const PMD_SIZE: u64 = 1 << 21;

/// Rounds up to whole pages; `None` in the last page of the 64 bits, where `PAGE_ALIGN` wraps to 0.
#[inline]
#[doc(alias = "PAGE_ALIGN")]
pub const fn page_align(bytes: u64) -> Option<u64> {
    align_up(bytes, PAGE_SIZE)
}

/// Rounds up to a multiple of `unit`, a power of two; `None` where that leaves the 64 bits.
#[inline]
#[doc(alias = "ALIGN")]
pub const fn align_up(bytes: u64, unit: u64) -> Option<u64> {
    match bytes.checked_add(unit - 1) {
        Some(sum) => Some(sum & !(unit - 1)),
        None => None,
    }
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

    /// The `len` bytes from `start` on; `None` where they do not end within the 64 bits.
    #[inline]
    pub const fn of_len(start: u64, len: u64) -> Option<Self> {
        match start.checked_add(len) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// The whole pages that `len` bytes from `start` on take; `None` where they leave the 64 bits.
    #[inline]
    pub const fn of_pages(start: u64, len: u64) -> Option<Self> {
        match page_align(len) {
            Some(len) => Self::of_len(start, len),
            None => None,
        }
    }

    /// True where it holds no address.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_says_where_it_leaves_the_64_bits() {
        assert_eq!(page_align(0), Some(0));
        assert_eq!(page_align(1), Some(PAGE_SIZE));
        assert_eq!(page_align(PAGE_MASK), Some(PAGE_MASK));
        assert_eq!(page_align(PAGE_MASK + 1), None);
        assert_eq!(page_align(u64::MAX), None);
        assert_eq!(align_up(PMD_SIZE + 1, PMD_SIZE), Some(2 * PMD_SIZE));
        assert_eq!(align_up(u64::MAX - PMD_SIZE + 2, PMD_SIZE), None);
    }

    #[test]
    fn ranges_end_within_the_64_bits() {
        let range = VmRange::of_pages(PAGE_SIZE, 1);
        assert_eq!(range, Some(VmRange::new(PAGE_SIZE, 2 * PAGE_SIZE)));
        assert!(VmRange::of_pages(PAGE_SIZE, 0).unwrap().is_empty());
        assert_eq!(VmRange::of_pages(0, u64::MAX), None);
        assert_eq!(VmRange::of_pages(PAGE_SIZE, PAGE_MASK), None);
        assert!(VmRange::of_len(0, PAGE_MASK).is_some());
    }
}
