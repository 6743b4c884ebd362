//! How far a VMA stands in the interval trees: at least to its end, and where the end may move without
//! the reverse map's lock, as far as it can go before it meets the next VMA.
//!
//! The key of an interval tree contains the end, and the lock must be had to change it. So a VMA is
//! entered up to the VMA that follows it; then its end can move to and fro below that with no lock, and
//! a walk, which finds the VMA for pages that it does not hold, looks at the end itself.
//!
//! # Invariants
//! R1  a VMA with a chain reaches at least to its end
//!
//! # Linux
//! No counterpart: `vma_prepare` always locks (6.18), and `vma_adjust` of 2.6.31 did not where the end
//! alone moved, when the reverse map was a list without keys.

/// A number of pages in 32 bits: exact up to 2²⁷ (512 GiB), rounded up beyond.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RmapSpan(u32);

/// Bits of the number; those above say how far it is shifted.
const BITS: u32 = 27;

impl RmapSpan {
    /// At least this many pages.
    pub(crate) fn at_least(pages: u64) -> RmapSpan {
        let shift = (u64::BITS - pages.leading_zeros()).saturating_sub(BITS);
        let number = pages.div_ceil(1 << shift);
        // Rounding up may have needed one more bit.
        let (number, shift) = match number >> BITS {
            0 => (number, shift),
            _ => (number >> 1, shift + 1),
        };
        RmapSpan(shift << BITS | number as u32)
    }

    /// So many pages.
    pub(crate) fn pages(self) -> u64 {
        let number = u64::from(self.0 & ((1 << BITS) - 1));
        number << (self.0 >> BITS)
    }

    pub(crate) fn to_bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> RmapSpan {
        RmapSpan(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::RmapSpan;

    #[test]
    fn a_reach_is_never_too_short_and_hardly_too_long() {
        for bits in 0..52 {
            for near in [-1i64, 0, 1, 12345] {
                let pages = (1u64 << bits).saturating_add_signed(near).max(1);
                let got = RmapSpan::at_least(pages).pages();
                assert!(got >= pages && got - pages <= pages >> 25, "{pages}: {got}");
                assert!(pages >> 27 > 0 || got == pages);
                assert_eq!(RmapSpan::at_least(got).pages(), got);
            }
        }
    }
}
