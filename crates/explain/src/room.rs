//! How much room a process has left: mappings, the address space, and the area of `MAP_32BIT`.
//!
//! A call can be refused although the limit on mappings is far away: reserved ranges fill the address
//! space, or a library that insists on addresses below 2 GiB fills the 1 GiB that `MAP_32BIT` allows.
//! Both follow from the list of mappings alone. The end of the address space is that of the smallest
//! kind that holds all mappings, because a list does not name it.

use super::text::count;
use serde::Serialize;
use std::io::{self, Write};
use vmarea_process::Process;
use vmarea_process::mapping::Mapping;

/// Share in percent from which on something counts as scarce.
const SCARCE: u64 = 80;
/// Lowest address that a process without privileges can map.
const LOWEST: u64 = 65_536;
/// Where the kernel places a mapping with `MAP_32BIT`.
pub(crate) const LOW: (u64, u64) = (0x4000_0000, 0x8000_0000);
const PAGE: u64 = 4096;
/// End of an address space of 32 bits.
pub(crate) const END_32: u64 = 1 << 32;
/// Ends of address spaces: of 32 bits on a kernel of 32 bits and of 64 bits, of x86-64, of arm64 with
/// 48 bits, and with five levels.
const ENDS: [u64; 5] = [3 << 30, END_32, (1 << 47) - PAGE, 1 << 48, 1 << 56];

/// What a process has left before the next call is refused. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Room {
    /// Number of mappings.
    pub mappings: u64,
    /// Number of mappings that the process may have, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Number of mappings that are left, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// How much is mapped, including reserved ranges without access.
    pub mapped_bytes: u64,
    /// Size of the address space.
    pub address_space_bytes: u64,
    /// Length of the largest gap.
    pub largest_gap: u64,
    /// How much is free in the 1 GiB that `MAP_32BIT` allows, from 1 GiB to 2 GiB.
    pub low_2g_free: u64,
    /// Length of the largest gap there.
    pub low_2g_largest_gap: u64,
}

impl Room {
    /// Returns what a process has left; `None` if only a part of its list is known.
    pub fn of(process: &Process) -> Option<Room> {
        let whole = process.mappings.len() as u64 == process.total && !process.incomplete;
        whole.then(|| room(&process.mappings, process.limit))
    }

    /// True if few mappings are left.
    pub fn mappings_are_scarce(&self) -> bool {
        self.limit
            .is_some_and(|limit| is_scarce(self.mappings, limit))
    }

    /// True if little of the address space is left.
    pub fn addresses_are_scarce(&self) -> bool {
        is_scarce(self.mapped_bytes, self.address_space_bytes)
    }

    /// True if little of the area of `MAP_32BIT` is left.
    pub fn low_addresses_are_scarce(&self) -> bool {
        let all = LOW.1 - LOW.0;
        // In a process of 32 bits, nothing asks for MAP_32BIT.
        self.address_space_bytes > END_32 && is_scarce(all - self.low_2g_free, all)
    }

    /// Writes what is scarce, a line each; `size` formats a number of bytes.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_text(&self, out: &mut dyn Write, size: &dyn Fn(u64) -> String) -> io::Result<()> {
        if let Some(left) = self.left.filter(|_| self.mappings_are_scarce()) {
            let plural = if left == 1 { "" } else { "s" };
            writeln!(out, "{} more mapping{plural} before the limit", count(left))?;
        }
        if self.addresses_are_scarce() {
            writeln!(
                out,
                "{} of {} of addresses are mapped; the largest gap is {}",
                size(self.mapped_bytes),
                size(self.address_space_bytes),
                size(self.largest_gap)
            )?;
        }
        if self.low_addresses_are_scarce() {
            writeln!(
                out,
                "MAP_32BIT's 1 GiB: {} are free; the largest gap is {}",
                size(self.low_2g_free),
                size(self.low_2g_largest_gap)
            )?;
        }
        Ok(())
    }
}

fn is_scarce(used: u64, all: u64) -> bool {
    u128::from(used) * 100 > u128::from(all) * u128::from(SCARCE)
}

/// Returns what is left beside these mappings, which are in the order of their addresses.
pub fn room(mappings: &[Mapping], limit: Option<u64>) -> Room {
    let end = end_of(mappings);
    let used = mappings.len() as u64;
    let (free, largest_gap) = gaps(mappings, (LOWEST, end));
    let (low_2g_free, low_2g_largest_gap) = gaps(mappings, LOW);
    Room {
        mappings: used,
        limit,
        left: limit.map(|limit| limit.saturating_sub(used)),
        mapped_bytes: (end - LOWEST).saturating_sub(free),
        address_space_bytes: end,
        largest_gap,
        low_2g_free,
        low_2g_largest_gap,
    }
}

/// Returns the end of the address space that the mappings are in.
pub(crate) fn end_of(mappings: &[Mapping]) -> u64 {
    let last = mappings.last().map_or(0, |mapping| mapping.entry.end);
    let end = ENDS.into_iter().find(|end| last <= *end);
    end.unwrap_or(u64::MAX)
}

/// Returns how much between two addresses is not mapped, and the length of the largest gap.
pub(crate) fn gaps(mappings: &[Mapping], (low, high): (u64, u64)) -> (u64, u64) {
    let (mut free, mut largest) = (0, 0);
    let mut at = low;
    let ends = mappings.iter().map(|m| (m.entry.start, m.entry.end));
    for (start, end) in ends.chain([(high, high)]) {
        let gap = start.min(high).saturating_sub(at);
        free += gap;
        largest = largest.max(gap);
        at = at.max(end);
    }
    (free, largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

    /// Returns a process whose list has these ranges.
    fn of(ranges: &[(u64, u64)]) -> Room {
        let line = |(start, end): &(u64, u64)| format!("{start:x}-{end:x} rw-p 00000000 00:00 0\n");
        let text: String = ranges.iter().map(line).collect();
        let mut process = Process::from_text("a list".to_owned(), text.as_bytes()).unwrap();
        process.limit = Some(10);
        process.incomplete = false;
        Room::of(&process).unwrap()
    }

    fn text(room: &Room) -> String {
        let mut out = Vec::new();
        let size = |bytes: u64| match bytes {
            GIB.. => format!("{} GiB", bytes / GIB),
            _ => format!("{} KiB", bytes >> 10),
        };
        room.write_text(&mut out, &size).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_process_with_room_is_told_nothing() {
        let room = of(&[(4 << 20, 5 << 20), (127 * TIB, 127 * TIB + GIB)]);
        assert_eq!((room.mappings, room.left), (2, Some(8)));
        assert_eq!(room.mapped_bytes, GIB + (1 << 20));
        assert_eq!(room.largest_gap, 127 * TIB - (5 << 20));
        assert_eq!((room.low_2g_free, room.low_2g_largest_gap), (GIB, GIB));
        assert_eq!(text(&room), "");
    }

    #[test]
    fn reserved_ranges_fill_the_address_space() {
        let room = of(&[(TIB, 64 * TIB), (65 * TIB, 127 * TIB)]);
        assert_eq!(room.mapped_bytes, 125 * TIB);
        assert_eq!(room.largest_gap, TIB);
        let expected =
            "128000 GiB of 131071 GiB of addresses are mapped; the largest gap is 1024 GiB\n";
        assert_eq!(text(&room), expected);
    }

    #[test]
    fn mappings_below_2_gib_fill_the_area_of_map_32bit() {
        let low = [
            (GIB / 2, GIB + (8 << 10)),
            (GIB + (24 << 10), 2 * GIB - (4 << 10)),
            (3 * GIB, 5 * GIB),
        ];
        let room = of(&low);
        assert_eq!(
            (room.low_2g_free, room.low_2g_largest_gap),
            (20 << 10, 16 << 10)
        );
        let expected = "MAP_32BIT's 1 GiB: 20 KiB are free; the largest gap is 16 KiB\n";
        assert_eq!(text(&room), expected);
    }

    #[test]
    fn a_process_of_32_bits_has_a_smaller_address_space_and_no_area_of_its_own_below_2_gib() {
        let room = of(&[(1 << 20, 2 * GIB), (2 * GIB + (1 << 20), 4 * GIB - 4096)]);
        assert_eq!(room.address_space_bytes, 4 * GIB);
        assert!(room.addresses_are_scarce() && !room.low_addresses_are_scarce());
        assert_eq!(room.largest_gap, 1 << 20);
    }

    #[test]
    fn mappings_are_scarce_above_four_fifths_of_the_limit() {
        let told = |pages: u64| {
            let page = |n: u64| (GIB + n * 8192, GIB + n * 8192 + PAGE);
            text(&of(&(0..pages).map(page).collect::<Vec<_>>()))
        };
        assert_eq!(told(8), "");
        assert_eq!(told(9), "1 more mapping before the limit\n");
        assert_eq!(told(10), "0 more mappings before the limit\n");
    }
}
