//! The reasons in words, with their numbers, and what would make the call succeed.

use super::{Area, Growing, Refused};
use core::fmt;

impl Refused {
    /// Returns what would make the call succeed.
    ///
    /// The [module](crate::refused) has an example.
    pub fn remedy(&self) -> &'static str {
        match self {
            Refused::Mappings { .. } => "raise vm.max_map_count, or have fewer mappings",
            Refused::AddressSpace { .. } => "raise RLIMIT_AS (ulimit -v), or unmap memory",
            Refused::Data { .. } => "raise RLIMIT_DATA (ulimit -d), or unmap private memory",
            Refused::Memlock { .. } => {
                "raise RLIMIT_MEMLOCK (ulimit -l), or give the process CAP_IPC_LOCK"
            }
            Refused::Commit { .. } => {
                "raise vm.overcommit_ratio, add swap, or map with MAP_NORESERVE or PROT_NONE"
            }
            Refused::Overcommit { .. } => {
                "ask for less, pass MAP_NORESERVE, or set vm.overcommit_memory to 1"
            }
            Refused::NoGap {
                area: Area::All, ..
            } => "unmap reserved ranges, or reserve less at once",
            Refused::NoGap {
                area: Area::Low, ..
            } => "leave out MAP_32BIT, or unmap memory below 2 GiB",
            Refused::NoRoomAbove { .. } => "pass MREMAP_MAYMOVE, or unmap what is above",
            Refused::Occupied { .. } => "pass another address, or unmap the range first",
            Refused::Outside { .. } => "check how the program computes the address and the length",
            Refused::TooLow { .. } => "pass a higher address, or lower vm.mmap_min_addr",
            Refused::Unmapped { .. } => "pass only addresses that are mapped",
            Refused::Several { .. } => "call mremap for each mapping, or keep them one mapping",
            Refused::Sealed { .. } => "nothing can change a sealed mapping",
            Refused::Breaks(rule) => rule.remedy(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refused::Mappings {
                for_what,
                used,
                limit,
            } => {
                let (used, limit) = (Count(used), Count(limit));
                write!(f, "{for_what}; {used} of {limit} are used")
            }
            Refused::AddressSpace { asked, used, limit } => {
                limited(f, "RLIMIT_AS", [asked, used, limit])
            }
            Refused::Data { asked, used, limit } => limited(f, "RLIMIT_DATA", [asked, used, limit]),
            Refused::Memlock { asked, used, limit } => {
                limited(f, "RLIMIT_MEMLOCK", [asked, used, limit])
            }
            Refused::Commit { asked, used, limit } => {
                limited(f, "the commit limit", [asked, used, limit])
            }
            Refused::Overcommit { asked, limit } => {
                let (asked, limit) = (Bytes(asked), Bytes(limit));
                write!(f, "{asked} at once is more than the machine has ({limit})")
            }
            Refused::NoGap {
                asked,
                largest,
                area,
            } => {
                let (asked, largest) = (Bytes(asked), Bytes(largest));
                match area {
                    Area::All => write!(f, "no gap of {asked}: the largest is {largest}"),
                    Area::Low => write!(
                        f,
                        "MAP_32BIT's 1 GiB has no gap of {asked}: the largest is {largest}"
                    ),
                }
            }
            Refused::NoRoomAbove { asked, free } => {
                let (asked, free) = (Bytes(asked), Bytes(free));
                write!(
                    f,
                    "no room to grow in place by {asked}: {free} above are free"
                )
            }
            Refused::Occupied { start, end } => {
                write!(f, "the range is in use: {start:#x}-{end:#x} is mapped")
            }
            Refused::Outside { start, len, end } => {
                let len = Bytes(len);
                write!(f, "{len} at {start:#x} are outside of 0-{end:#x}")
            }
            Refused::TooLow { addr, lowest } => {
                write!(f, "{addr:#x} is below vm.mmap_min_addr ({lowest:#x})")
            }
            Refused::Unmapped { at } => write!(f, "nothing is mapped at {at:#x}"),
            Refused::Several {
                mappings: 1,
                end,
                asked,
            } => write!(
                f,
                "the range ends at {asked:#x}, and its mapping at {end:#x}"
            ),
            Refused::Several { mappings, end, .. } => {
                let mappings = Count(mappings);
                write!(
                    f,
                    "mremap across {mappings} mappings: the first ends at {end:#x}"
                )
            }
            Refused::Sealed { start, end } => write!(f, "{start:#x}-{end:#x} is sealed (mseal)"),
            Refused::Breaks(rule) => f.write_str(rule.broken()),
        }
    }
}

/// Writes how a limit in bytes would be exceeded.
fn limited(f: &mut fmt::Formatter<'_>, name: &str, bytes: [u64; 3]) -> fmt::Result {
    let [asked, used, limit] = bytes.map(Bytes);
    write!(f, "{name}: {asked} more; {used} of {limit} are used")
}

impl fmt::Display for Growing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Growing::New => "a new mapping is one mapping more",
            Growing::Hole => "unmapping the middle of a mapping needs one mapping more",
            Growing::Part => "a change to a part of a mapping needs one mapping more",
            Growing::Move(needed) => {
                return write!(f, "mremap may need {needed} mappings more");
            }
        })
    }
}

/// A count with a comma between groups of three digits.
struct Count(u32);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count(n) = *self;
        match n {
            0..1_000 => write!(f, "{n}"),
            1_000..1_000_000 => write!(f, "{},{:03}", n / 1_000, n % 1_000),
            _ => write!(f, "{},{:03}", Count(n / 1_000), n % 1_000),
        }
    }
}

/// A number of bytes in the largest unit of which there is one, with at most one decimal.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let Bytes(n) = *self;
        if n == u64::MAX {
            return f.write_str("no limit");
        }
        let unit = n.checked_ilog2().unwrap_or(0) as usize / 10;
        let shift = 10 * unit as u32;
        let (whole, rest) = (n >> shift, n & ((1 << shift) - 1));
        // Rounded down, so that what is left never looks like enough.
        let tenths = ((u128::from(rest) * 10) >> shift) as u64;
        match tenths {
            0 => write!(f, "{whole} {}", UNITS[unit]),
            _ => write!(f, "{whole}.{tenths} {}", UNITS[unit]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn counts_and_bytes_are_easy_to_read() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (65_530, "65,530"),
            (2_000_001, "2,000,001"),
            (u32::MAX, "4,294,967,295"),
        ] {
            assert_eq!(Count(n).to_string(), text);
        }
        for (n, text) in [
            (0, "0 B"),
            (4096, "4 KiB"),
            ((8 << 30) - 1, "7.9 GiB"),
            (8 << 30, "8 GiB"),
            (u64::MAX - 1, "15.9 EiB"),
            (u64::MAX, "no limit"),
        ] {
            assert_eq!(Bytes(n).to_string(), text);
        }
    }
}
