//! Sizes of rings, and the CPUs that have one.

use super::MIN_RING_BYTES;
use std::io;

/// Maximum size of a CPU's ring of faults and locks in bytes.
pub(super) const RING_BYTES: usize = 8 << 20;
/// Divisor of the available memory; the quotient limits the total size of all rings.
const MEMORY_SHARE: u64 = 16;

/// True if the next record may not have fitted into a ring that held `len` bytes.
pub(crate) fn is_full(len: usize, ring_bytes: usize) -> bool {
    // The length of a record has 16 bits.
    len + (1 << 16).min(ring_bytes / 2) > ring_bytes
}

pub(crate) fn wakeup_bytes(ring_bytes: usize) -> u32 {
    u32::try_from(ring_bytes / 4).unwrap_or(u32::MAX)
}

/// Returns a ring size of at most `most` bytes at which all rings together do not put the machine
/// under memory pressure.
pub(crate) fn default_ring_bytes(most: usize) -> io::Result<usize> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    let available = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        << 10;
    let each = available / MEMORY_SHARE / online_cpus()?.len() as u64;
    let each = usize::try_from(each).unwrap_or(usize::MAX);
    let each = each.clamp(MIN_RING_BYTES, most);
    Ok(1 << each.ilog2())
}

/// Returns the numbers of the online CPUs.
pub(crate) fn online_cpus() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpu_list(text.trim())
        .filter(|cpus| !cpus.is_empty())
        .ok_or_else(|| io::Error::other("/sys/devices/system/cpu/online has an unknown format"))
}

/// Parses a list of CPUs such as `0-2,5`.
pub(super) fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    const MOST: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last > MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}
