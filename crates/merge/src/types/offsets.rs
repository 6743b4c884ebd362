//! The page offsets of a mapping, independent of where the mapping starts and ends.
//!
//! A page offset grows with the address, so its difference to the page number of the address, the
//! *base*, is the same for all pages of a mapping. A split, a shrink or a growth changes no base,
//! and two neighbours follow on from each other exactly if their bases are equal. Views, proposals
//! and plans therefore carry bases, and a page offset is computed where it is needed.
//!
//! # Picture
//! ```text
//! address     0 1 2 3 4 5        base = page offset - page number
//! P: pgoff    0 1 2              base 0
//! N: pgoff          7 8 9        base 4; with P's base its pages would have the offsets 3 4 5
//! ```

use crate::types::{Pgoff, VmRange};

/// The bases of a mapping's page offsets. The offset of a page is its page number plus the base,
/// wrapping.
///
/// ```
/// use vmarea_merge::types::{PAGE_SIZE, PageOffsets, Pgoff, VmRange};
///
/// let at = 16 * PAGE_SIZE;
/// let offsets = PageOffsets::starting_at(Pgoff(100), at);
/// assert_eq!(offsets.pgoff_at(at + 2 * PAGE_SIZE), Pgoff(102));
/// assert_eq!(PageOffsets::ADDRESS.pgoff_at(at), Pgoff(16));
/// // A move carries the offsets to the new address.
/// let moved = offsets.carried(at, 0);
/// assert_eq!(moved.pgoff_at(0), Pgoff(100));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageOffsets {
    base: u64,
}

impl PageOffsets {
    /// Offsets that equal the page numbers, as those of a new anonymous mapping do.
    pub const ADDRESS: PageOffsets = PageOffsets { base: 0 };

    /// Returns the offsets of a mapping whose page at `addr` has the offset `pgoff`.
    #[inline]
    pub const fn starting_at(pgoff: Pgoff, addr: u64) -> Self {
        PageOffsets {
            base: pgoff.0.wrapping_sub(Pgoff::of_addr(addr).0),
        }
    }

    /// Returns the page offset at `addr`.
    #[inline]
    pub const fn pgoff_at(self, addr: u64) -> Pgoff {
        Pgoff(self.base.wrapping_add(Pgoff::of_addr(addr).0))
    }

    /// Returns the page offset that an anonymous page at `addr` has in the reverse map.
    #[inline]
    #[doc(alias = "linear_anon_page_index")]
    pub const fn anon_pgoff_at(self, addr: u64) -> Pgoff {
        self.pgoff_at(addr)
    }

    /// Returns the offsets after the pages have moved from `from` to `to` with their offsets.
    #[inline]
    pub const fn carried(self, from: u64, to: u64) -> Self {
        PageOffsets::starting_at(self.pgoff_at(from), to)
    }

    /// Returns the offsets as one number, for a place that stores only numbers.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.base
    }

    /// Converts a number from [`to_bits`](Self::to_bits) back to the offsets.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        PageOffsets { base: bits }
    }

    /// Checks that no page offset of `range` wraps.
    #[inline]
    pub const fn holds(self, range: VmRange) -> bool {
        let first = self.pgoff_at(range.start).0;
        first.checked_add(range.pages()).is_some()
    }
}
