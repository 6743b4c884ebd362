//! Cache-line transfers between processors, counted in a deterministic simulation.
//!
//! Every processor has a cache of unlimited size. A transfer is a read of a line that is only in
//! other processors' caches, or a write to a line that is in another processor's cache. The first
//! access to a line is not counted. The simulation does not model time, distances between sockets,
//! evictions or prefetching.

use std::collections::HashMap;

/// Size of a cache line in bytes.
pub const LINE: u64 = 64;

/// Maximum number of processors in the simulation.
pub const MOST_CPUS: u32 = 64;

#[derive(Clone, Copy, Default)]
struct Copies {
    /// Processors whose caches contain the line, one bit each.
    holders: u64,
}

/// Caches of all processors.
#[derive(Default)]
pub struct Caches {
    lines: HashMap<u64, Copies>,
    transfers: u64,
}

impl Caches {
    /// Returns the number of transfers so far.
    pub fn transfers(&self) -> u64 {
        self.transfers
    }

    /// Reads from the cache line that contains an address.
    pub fn read(&mut self, cpu: u32, addr: u64) {
        let copies = self.lines.entry(addr / LINE).or_default();
        let own = 1 << cpu;
        if copies.holders & own == 0 {
            self.transfers += u64::from(copies.holders != 0);
            copies.holders |= own;
        }
    }

    /// Writes to the cache line that contains an address.
    pub fn write(&mut self, cpu: u32, addr: u64) {
        let copies = self.lines.entry(addr / LINE).or_default();
        let own = 1 << cpu;
        self.transfers += u64::from(copies.holders & !own != 0);
        copies.holders = own;
    }
}

/// One access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A read at an address.
    Read(u64),
    /// A write at an address.
    Write(u64),
}

/// Executes each processor's list of accesses repeatedly, in a pseudo-random but fixed
/// interleaving.
///
/// Returns the transfers per execution of one list, after a warm-up that is as long as the measured
/// part.
pub fn transfers_per_round(lists: &[Vec<Access>], rounds: u64) -> f64 {
    let mut caches = Caches::default();
    let mut at = vec![0usize; lists.len()];
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let steps: u64 = lists.iter().map(|list| list.len() as u64 * rounds).sum();
    let mut warm = 0;
    for step in 0..2 * steps {
        if step == steps {
            warm = caches.transfers();
        }
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let cpu = (dice % lists.len() as u64) as usize;
        let list = &lists[cpu];
        match list[at[cpu] % list.len()] {
            Access::Read(addr) => caches.read(cpu as u32, addr),
            Access::Write(addr) => caches.write(cpu as u32, addr),
        }
        at[cpu] += 1;
    }
    (caches.transfers() - warm) as f64 / (rounds * lists.len() as u64) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_another_cache_are_transferred() {
        let mut caches = Caches::default();
        caches.read(0, 0);
        caches.write(0, 8);
        assert_eq!(caches.transfers(), 0, "nobody else had the line");
        caches.read(1, 0);
        assert_eq!(caches.transfers(), 1);
        caches.read(0, 63);
        assert_eq!(caches.transfers(), 1, "both share it now");
        caches.write(0, 0);
        caches.read(1, 0);
        assert_eq!(caches.transfers(), 3, "taken away, and fetched again");
        caches.write(1, 64);
        assert_eq!(caches.transfers(), 3, "another line");
    }

    #[test]
    fn private_lines_are_never_transferred_and_a_counter_always_is() {
        let private: Vec<_> = (0..56).map(|cpu| vec![Access::Write(cpu * 64)]).collect();
        assert_eq!(transfers_per_round(&private, 50), 0.0);
        let counter = vec![vec![Access::Write(0)]; 56];
        let each = transfers_per_round(&counter, 50);
        assert!((0.95..=1.0).contains(&each), "{each}");
        let again = transfers_per_round(&counter, 50);
        assert_eq!(each, again, "the simulation is deterministic");
    }
}
