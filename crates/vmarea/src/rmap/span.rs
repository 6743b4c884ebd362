//! The length of a VMA's interval in the interval trees, which may be longer than the VMA.
//!
//! The interval ends at or after the VMA's end. If the policy allows the VMA's end to move without
//! the reverse-map lock, the interval extends to the next VMA, which is as far as the end can move.
//!
//! The interval's end is part of its key in an interval tree, and changing the key requires the
//! lock. If the interval extends to the next VMA, whose start is then the limit, the VMA's end can
//! move up to the limit without the lock. A reverse-map walk may therefore find the VMA for a page
//! beyond the VMA's end, so it checks the VMA's end. The interval is not shortened when another VMA
//! is mapped below the limit. Most changes to the VMA keep the limit; a new limit is determined
//! only when the VMA is linked or grows beyond the limit.
//!
//! # Invariants
//! R1  the interval of a VMA with a chain extends at least to the VMA's end
//!
//! # Linux
//! No counterpart: `vma_prepare` always takes the lock (6.18). `vma_adjust` of 2.6.31 did not take
//! it if only the end moved; the reverse map was then a list without keys.

/// A number of pages in 32 bits: exact up to 2²⁷ pages (512 GiB), rounded up beyond that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RmapSpan(u32);

/// Number of low bits, which contain the mantissa; the high bits contain its left shift.
const BITS: u32 = 27;

impl RmapSpan {
    /// Encodes `pages`, rounded up to the next representable number.
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

    /// Returns the number of pages.
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
