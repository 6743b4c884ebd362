//! Small deterministic random number generator (SplitMix64).
//!
//! The same seed must give the same calls on every machine and in every version. Therefore the
//! generator is implemented here and not taken from a library, which may change.

/// Random number generator.
#[derive(Clone, Debug)]
pub struct Rng(Source);

#[derive(Clone, Debug)]
enum Source {
    /// State of SplitMix64.
    Seed(u64),
    /// Input bytes, two for each choice; zeros after the end of the input.
    Bytes(std::vec::IntoIter<u8>),
}

impl Rng {
    /// Creates a generator with a distinct sequence for each seed.
    pub fn new(seed: u64) -> Rng {
        Rng(Source::Seed(seed))
    }

    /// Creates a generator whose numbers come from `bytes`, which thus determine every choice.
    pub fn of_bytes(bytes: &[u8]) -> Rng {
        Rng(Source::Bytes(Vec::from(bytes).into_iter()))
    }

    /// Returns true if all input bytes are used.
    pub fn is_at_end(&self) -> bool {
        match &self.0 {
            Source::Seed(_) => false,
            Source::Bytes(bytes) => bytes.as_slice().is_empty(),
        }
    }

    /// Returns a random 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
            // `below` depends mostly on the high half.
            Source::Bytes(bytes) => {
                let mut byte = || u64::from(bytes.next().unwrap_or(0));
                byte() << 56 | byte() << 48
            }
        }
    }

    /// Returns a number below `n`, which must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns true with probability `n / of`.
    pub fn chance(&mut self, n: u64, of: u64) -> bool {
        self.below(of) < n
    }

    /// Returns a random element.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a random index with a probability proportional to its weight.
    pub fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let mut at = self.below(weights.clone().map(u64::from).sum::<u64>().max(1));
        for (index, weight) in weights.enumerate() {
            match at.checked_sub(u64::from(weight)) {
                Some(rest) => at = rest,
                None => return index,
            }
        }
        0
    }
}
