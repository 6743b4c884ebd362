//! The page offsets of a mapping, independent of where the mapping starts and ends.
//!
//! A page of a file has an offset in the file (`vm_pgoff`), and an anonymous page has one by which
//! the reverse map finds it. They were one number until Linux 7.3. Since then a private mapping of a
//! file has two: a page that a write has copied is numbered like that of an anonymous mapping, by
//! the address at which the mapping was when its first page was copied.
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
//!
//! # Linux
//! `include/linux/mm.h` `vma_start_pgoff`, `vma_start_anon_pgoff`, 7.3. For a shared mapping, whose
//! pages are never anonymous, Linux keeps an anonymous page offset that nothing reads; here it is
//! the file's.

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
///
/// // The anonymous pages of a private mapping of a file, on Linux 7.3.
/// let private = offsets.with_anon(Pgoff(16), at);
/// assert_eq!(private.pgoff_at(at), Pgoff(100));
/// assert_eq!(private.anon_pgoff_at(at), Pgoff(16));
/// assert!(private.same_in_file(offsets) && private != offsets);
/// assert!(private.holds(VmRange::new(at, at + PAGE_SIZE)));
/// let (anon, apart) = private.to_parts();
/// assert_eq!(PageOffsets::from_parts(anon, apart), private);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageOffsets {
    /// Base of the anonymous pages.
    anon: u64,
    /// Base of the file's pages minus that of the anonymous pages; 0 without a file.
    apart: i64,
}

impl PageOffsets {
    /// Offsets that equal the page numbers, as those of a new anonymous mapping do.
    pub const ADDRESS: PageOffsets = PageOffsets { anon: 0, apart: 0 };

    /// Returns the offsets of a mapping whose page at `addr` has the offset `pgoff`, in the file and
    /// in the reverse map.
    #[inline]
    pub const fn starting_at(pgoff: Pgoff, addr: u64) -> Self {
        PageOffsets {
            anon: base_of(pgoff, addr),
            apart: 0,
        }
    }

    /// Returns the offsets with those of anonymous pages replaced, so that such a page at `addr`
    /// has the offset `pgoff`.
    #[inline]
    #[doc(alias = "vma_set_anon_pgoff")]
    pub const fn with_anon(self, pgoff: Pgoff, addr: u64) -> Self {
        PageOffsets::of_bases(base_of(pgoff, addr), self.file())
    }

    /// Returns the offsets with those of anonymous pages replaced by the page numbers.
    #[inline]
    pub const fn anon_of_address(self) -> Self {
        PageOffsets::of_bases(0, self.file())
    }

    /// Returns the page offset at `addr`.
    #[inline]
    pub const fn pgoff_at(self, addr: u64) -> Pgoff {
        Pgoff(self.file().wrapping_add(Pgoff::of_addr(addr).0))
    }

    /// Returns the page offset that an anonymous page at `addr` has in the reverse map.
    #[inline]
    #[doc(alias = "linear_anon_page_index")]
    pub const fn anon_pgoff_at(self, addr: u64) -> Pgoff {
        Pgoff(self.anon.wrapping_add(Pgoff::of_addr(addr).0))
    }

    /// Checks whether the pages are at the same place in the file, or have the same offsets if there
    /// is no file.
    #[inline]
    pub const fn same_in_file(self, other: PageOffsets) -> bool {
        self.file() == other.file()
    }

    /// Returns the offsets after the pages have moved from `from` to `to` with their offsets.
    #[inline]
    pub const fn carried(self, from: u64, to: u64) -> Self {
        let by = Pgoff::of_addr(from).0.wrapping_sub(Pgoff::of_addr(to).0);
        PageOffsets {
            anon: self.anon.wrapping_add(by),
            ..self
        }
    }

    /// Returns the offsets as two numbers, for a place that stores only numbers: the base of the
    /// anonymous pages, and what must be added for the file's.
    #[inline]
    pub const fn to_parts(self) -> (u64, i64) {
        (self.anon, self.apart)
    }

    /// Converts the numbers from [`to_parts`](Self::to_parts) back to the offsets.
    #[inline]
    pub const fn from_parts(anon: u64, apart: i64) -> Self {
        PageOffsets { anon, apart }
    }

    /// Checks that no page offset of `range` wraps.
    #[inline]
    pub const fn holds(self, range: VmRange) -> bool {
        let pages = range.pages();
        let anon = self.anon_pgoff_at(range.start).0.checked_add(pages);
        let file = self.pgoff_at(range.start).0.checked_add(pages);
        anon.is_some() && (self.apart == 0 || file.is_some())
    }

    const fn of_bases(anon: u64, file: u64) -> Self {
        PageOffsets {
            anon,
            apart: file.wrapping_sub(anon).cast_signed(),
        }
    }

    /// Returns the base of the file's pages.
    const fn file(self) -> u64 {
        self.anon.wrapping_add_signed(self.apart)
    }
}

/// Returns the base of offsets of which that at `addr` is `pgoff`.
const fn base_of(pgoff: Pgoff, addr: u64) -> u64 {
    pgoff.0.wrapping_sub(Pgoff::of_addr(addr).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PAGE_SIZE;

    #[test]
    fn both_offsets_move_and_are_stored_together() {
        let start = 0x7f00_0000_0000;
        let file = PageOffsets::starting_at(Pgoff(3), start).anon_of_address();
        assert_eq!(file.pgoff_at(start), Pgoff(3));
        assert_eq!(file.anon_pgoff_at(start), Pgoff::of_addr(start));
        let (anon, apart) = file.to_parts();
        assert_eq!(PageOffsets::from_parts(anon, apart), file);
        let moved = file.carried(start, PAGE_SIZE);
        assert_eq!(moved.pgoff_at(2 * PAGE_SIZE), Pgoff(4));
        assert_eq!(moved.anon_pgoff_at(PAGE_SIZE), Pgoff::of_addr(start));
        assert!(moved.same_in_file(moved.anon_of_address()));
        assert_eq!(moved.anon_of_address().anon_pgoff_at(PAGE_SIZE), Pgoff(1));
        assert_eq!(
            file.with_anon(Pgoff(9), start).anon_pgoff_at(start),
            Pgoff(9)
        );
    }

    #[test]
    fn a_range_is_held_only_if_neither_offset_wraps() {
        let range = VmRange::new(0, 4 * PAGE_SIZE);
        let last = Pgoff(u64::MAX - 3);
        assert!(!PageOffsets::starting_at(last, 0).holds(range));
        assert!(!PageOffsets::ADDRESS.with_anon(last, 0).holds(range));
        assert!(
            !PageOffsets::starting_at(last, 0)
                .anon_of_address()
                .holds(range)
        );
        assert!(PageOffsets::ADDRESS.holds(range));
    }
}
