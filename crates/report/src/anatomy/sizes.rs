//! Histogram of mappings by size.
//!
//! The classes are powers of four, beginning with one page, so that few classes cover everything
//! from a guard page to a reservation of terabytes. Classes without mappings between two others are
//! included, and have a count of zero.

use serde::Serialize;

/// Size of the largest mappings in the first class: a page.
const FIRST: u64 = 4096;

/// The mappings whose size is at most `up_to`, and larger than that of the class before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeClass {
    /// Largest size in this class, in bytes.
    pub up_to: u64,
    /// Number of mappings.
    pub mappings: u64,
    /// Size of these mappings together, in bytes.
    pub bytes: u64,
}

/// Counts mappings by size, given the size of each in bytes.
pub fn histogram(sizes: impl Iterator<Item = u64>) -> Vec<SizeClass> {
    let mut classes: Vec<SizeClass> = Vec::new();
    for size in sizes {
        let at = class_of(size);
        while classes.len() <= at {
            classes.push(SizeClass {
                up_to: FIRST << (2 * classes.len()),
                mappings: 0,
                bytes: 0,
            });
        }
        classes[at].mappings += 1;
        classes[at].bytes += size;
    }
    let empty = classes
        .iter()
        .take_while(|class| class.mappings == 0)
        .count();
    classes.drain(..empty);
    classes
}

fn class_of(size: u64) -> usize {
    let pages = size.div_ceil(FIRST).max(1);
    // The number of factors of four that are needed to reach this size.
    pages.next_power_of_two().ilog2().div_ceil(2) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_in_the_smallest_class_that_holds_it() {
        let sizes = [4096, 4096, 4097, 16384, 16385, 1 << 40];
        let classes = histogram(sizes.into_iter());
        let counts: Vec<_> = classes.iter().map(|class| class.mappings).collect();
        assert_eq!(counts[..4], [2, 2, 1, 0]);
        assert_eq!(counts.iter().sum::<u64>(), sizes.len() as u64);
        assert_eq!(classes.last().map(|class| class.up_to), Some(1 << 40));
        assert_eq!(classes[1].bytes, 4097 + 16384);
    }

    #[test]
    fn classes_begin_with_the_smallest_mapping() {
        let classes = histogram([1 << 20, u64::MAX >> 8].into_iter());
        assert_eq!(classes[0].up_to, 1 << 20);
        assert!(histogram(std::iter::empty()).is_empty());
    }
}
