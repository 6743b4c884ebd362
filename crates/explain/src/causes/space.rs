//! How full an address space is, or its low part.

use crate::room::{END_32, LOW, end_of, gaps};
use serde::Deserialize;
use vmarea_process::Mapping;

/// A part of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All addresses that the program has.
    All,
    /// The area of `MAP_32BIT`.
    Low,
}

impl Part {
    /// Names the part.
    pub fn words(self) -> &'static str {
        match self {
            Part::All => "the whole",
            Part::Low => "the area of `MAP_32BIT`",
        }
    }
}

/// How full a part of the address space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Size of the part in bytes.
    pub bytes: u64,
    /// Number of bytes that are mapped, accessible or not.
    pub mapped: u64,
    /// Size of the largest gap in bytes.
    pub largest_gap: u64,
    /// Size of the largest mapping in bytes, as far as it is in the part.
    pub largest_mapping: u64,
}

impl Space {
    /// Measures a part; `None` if the program has no such part.
    pub fn of(mappings: &[Mapping], part: Part) -> Option<Space> {
        let whole = end_of(mappings);
        let (start, end) = match part {
            Part::Low if whole <= END_32 => return None,
            Part::Low => LOW,
            Part::All => (0, whole),
        };
        let sizes = mappings.iter().map(|mapping| {
            let within = |address: u64| address.clamp(start, end);
            within(mapping.entry.end) - within(mapping.entry.start)
        });
        let (free, largest_gap) = gaps(mappings, (start, end));
        Some(Space {
            bytes: end - start,
            mapped: end - start - free,
            largest_gap,
            largest_mapping: sizes.max().unwrap_or(0),
        })
    }

    /// True if at least nine tenths are mapped, and no gap has more than a twentieth of the size.
    ///
    /// A program that has reserved a quarter at once, such as a browser or a sanitizer, means to use
    /// it for what it maps later.
    pub fn is_full(self) -> bool {
        self.mapped >= self.bytes / 10 * 9
            && self.largest_gap <= self.bytes / 20
            && self.largest_mapping <= self.bytes / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_process::Process;

    fn space(ranges: &[(u64, u64)], part: Part) -> Option<Space> {
        let lines = ranges
            .iter()
            .map(|(start, end)| format!("{start:x}-{end:x} ---p 00000000 00:00 0\n"));
        let text: String = lines.collect();
        let process = Process::from_text("x".to_owned(), text.as_bytes()).unwrap();
        Space::of(&process.mappings, part)
    }

    /// Divides a range into eight mappings.
    fn pieces((start, end): (u64, u64)) -> Vec<(u64, u64)> {
        let size = (end - start) / 8;
        let at = (0..8).map(|n| start + n * size);
        at.map(|at| (at, at + size)).collect()
    }

    #[test]
    fn the_highest_mapping_tells_which_program_it_is() {
        let of = |end| space(&pieces((0x8000, end)), Part::All).unwrap();
        assert_eq!(of(0xc000_0000).bytes, 3 << 30);
        assert_eq!(of(0xffff_8000).bytes, 1 << 32);
        assert!(of(0xbfff_8000).is_full() && of(0xffff_8000).is_full());
        let large = of(0x7fff_ffff_0000);
        assert_eq!((large.bytes, large.is_full()), ((1 << 47) - 0x1000, true));
        assert!(!of(0x4000_0000_0000).is_full());
    }

    #[test]
    fn the_low_part_is_measured_on_its_own() {
        let stack = (0x7fff_0000_0000, 0x7fff_0001_0000);
        let low = |range| {
            let all: Vec<_> = pieces(range).into_iter().chain([stack]).collect();
            space(&all, Part::Low).unwrap()
        };
        assert!(low((0x4000_0000, 0x8000_0000)).is_full());
        assert!(low((0x1000_0000, 0x9000_0000)).is_full());
        let half = low((0x4000_0000, 0x6000_0000));
        assert_eq!((half.mapped, half.largest_gap), (1 << 29, 1 << 29));
        assert!(!half.is_full());
        assert_eq!(space(&[(0x1000, 0xf000_0000)], Part::Low), None);
        // One reservation is not many mappings.
        let whole = space(&[(0x4000_0000, 0x8000_0000), stack], Part::Low).unwrap();
        assert!(!whole.is_full());
    }
}
