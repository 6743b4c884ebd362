//! Pages, page offsets and ranges of addresses.
//!
//! A program can pass any number, so rounding up and adding may overflow 64 bits. The functions
//! that round or that make a range from a length therefore return `None` on overflow, and the
//! caller does what Linux does when the result wraps. [`VmRange::new`] is for bounds that are known
//! to be in order.
//!
//! # Examples
//! ```
//! use vmarea_merge::types::{PAGE_SIZE, Pgoff, align_up, page_align};
//!
//! assert_eq!(page_align(1), Some(PAGE_SIZE));
//! assert_eq!(page_align(u64::MAX), None);
//! assert_eq!(align_up(0x1001, 0x2000), Some(0x2000));
//! let low = Pgoff::of_addr(5 * PAGE_SIZE);
//! assert_eq!(low.plus_bytes(2 * PAGE_SIZE), Pgoff(7));
//! assert_eq!(low.minus_bytes(PAGE_SIZE), Pgoff(4));
//! ```

use crate::types::arch::{Arch, Native};

/// Number of address bits within a page.
pub const PAGE_SHIFT: u32 = Native::PAGE_SHIFT;
/// Size of a page in bytes.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// Mask that clears the offset within the page from an address.
pub const PAGE_MASK: u64 = !(PAGE_SIZE - 1);
/// Size in bytes of a huge page, which one PMD entry maps. A page table is one page, with entries
/// of eight bytes.
pub const PMD_SIZE: u64 = PAGE_SIZE << (PAGE_SHIFT - 3);

/// Rounds up to whole pages; `None` on 64-bit overflow (Linux's `PAGE_ALIGN` wraps to 0).
#[inline]
#[doc(alias = "PAGE_ALIGN")]
pub const fn page_align(bytes: u64) -> Option<u64> {
    align_up(bytes, PAGE_SIZE)
}

/// Rounds up to a multiple of `unit`, a power of two; `None` if the result overflows 64 bits.
#[inline]
#[doc(alias = "ALIGN")]
pub const fn align_up(bytes: u64, unit: u64) -> Option<u64> {
    match bytes.checked_add(unit - 1) {
        Some(sum) => Some(sum & !(unit - 1)),
        None => None,
    }
}

/// Page offset of a mapping in its file, or in the page numbering of an anonymous object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[doc(alias = "vm_pgoff")]
pub struct Pgoff(pub u64);

impl Pgoff {
    /// Returns the page number of `addr`, the default page offset of an anonymous mapping at
    /// `addr`.
    #[inline]
    pub const fn of_addr(addr: u64) -> Pgoff {
        Pgoff(addr >> PAGE_SHIFT)
    }

    /// Adds `bytes` (whole pages) to this offset, wrapping.
    #[inline]
    pub const fn plus_bytes(self, bytes: u64) -> Pgoff {
        Pgoff(self.0.wrapping_add(bytes >> PAGE_SHIFT))
    }

    /// Subtracts `bytes` (whole pages) from this offset, wrapping.
    #[inline]
    pub const fn minus_bytes(self, bytes: u64) -> Pgoff {
        Pgoff(self.0.wrapping_sub(bytes >> PAGE_SHIFT))
    }
}

/// A range of addresses from `start` up to, but not including, `end`.
///
/// ```
/// use vmarea_merge::types::{PAGE_SIZE, VmRange};
///
/// let range = VmRange::new(PAGE_SIZE, 4 * PAGE_SIZE);
/// assert_eq!(VmRange::of_len(PAGE_SIZE, 3 * PAGE_SIZE), Some(range));
/// assert_eq!(VmRange::of_pages(PAGE_SIZE, 2 * PAGE_SIZE + 1), Some(range), "rounded up");
/// assert_eq!(VmRange::of_len(PAGE_SIZE, u64::MAX), None, "the end wraps");
/// assert!(range.contains(PAGE_SIZE) && !range.contains(range.end));
/// let last = VmRange::page(3 * PAGE_SIZE);
/// assert!(range.overlaps(last));
/// assert_eq!(VmRange::new(0, u64::MAX).clip(last), last);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VmRange {
    /// First address.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
}

impl VmRange {
    /// Makes a range; `start` must not be above `end`.
    #[inline]
    pub const fn new(start: u64, end: u64) -> Self {
        debug_assert!(start <= end);
        Self { start, end }
    }

    /// Returns the range of the page at `addr`, a page-aligned address below the last page.
    #[inline]
    pub const fn page(addr: u64) -> Self {
        Self::new(addr, addr + PAGE_SIZE)
    }

    /// Returns the range of `len` bytes from `start`; `None` if its end overflows 64 bits.
    #[inline]
    pub const fn of_len(start: u64, len: u64) -> Option<Self> {
        match start.checked_add(len) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// Returns the range of `len` bytes from `start`, with `len` rounded up to whole pages; `None`
    /// if the result overflows 64 bits.
    #[inline]
    pub const fn of_pages(start: u64, len: u64) -> Option<Self> {
        match page_align(len) {
            Some(len) => Self::of_len(start, len),
            None => None,
        }
    }

    /// True if the range contains no address.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        self.end - self.start
    }

    /// Returns the length in pages.
    #[inline]
    pub const fn pages(self) -> u64 {
        self.len_bytes() >> PAGE_SHIFT
    }

    /// True if the range contains `addr`.
    #[inline]
    pub const fn contains(self, addr: u64) -> bool {
        self.start <= addr && addr < self.end
    }

    /// True if the two ranges have a byte in common.
    #[inline]
    pub const fn overlaps(self, other: VmRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns the intersection with `other`. If the ranges do not intersect, returns an empty
    /// range at the nearer edge of `other`.
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
