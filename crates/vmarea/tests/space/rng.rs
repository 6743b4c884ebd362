//! Pseudorandom numbers, which are the same in every run.
//!
//! The generator is linear congruential; its high bits are random enough for choosing test steps.

/// A random number generator, represented by its state.
pub struct Rng(pub u64);

impl Rng {
    /// Returns a random number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    /// Returns a random element of `from`.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
