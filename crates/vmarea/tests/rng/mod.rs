//! Random numbers that are the same in every run: a linear congruence, whose upper bits are good enough for
//! choosing steps.
#![allow(dead_code, reason = "each test program uses a part of it")]

/// A stream of numbers, begun by a seed.
pub struct Rng(pub u64);

impl Rng {
    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
