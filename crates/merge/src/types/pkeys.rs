//! Protection key rights: two bits per key, as in the register PKRU.
//!
//! # Linux
//! `arch/x86/include/asm/pkru.h`, and `init_pkru_value` in `arch/x86/mm/pkeys.c`.

use super::arch::{Arch, Native};

/// Number of protection keys, including key 0, which every mapping has by default.
pub const PKEYS: u32 = 1 << Native::PKEY_BITS;

/// Bit in the rights of a key that disables reads and writes.
pub const PKEY_DISABLE_ACCESS: u32 = 1;
/// Bit in the rights of a key that disables writes.
pub const PKEY_DISABLE_WRITE: u32 = 2;

/// A thread's access rights to mappings with each key. Instruction fetches are always allowed.
///
/// ```
/// use vmarea_merge::types::PkeyRights;
/// use vmarea_merge::types::pkeys::PKEY_DISABLE_WRITE;
///
/// let rights = PkeyRights::default();
/// assert!(rights.allows_read(0) && !rights.allows_read(1));
/// let rights = rights.with(1, PKEY_DISABLE_WRITE);
/// assert!(rights.allows_read(1) && !rights.allows_write(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PkeyRights(u32);

impl Default for PkeyRights {
    /// Returns the rights after `execve`: full access with key 0, no access with the other keys.
    fn default() -> Self {
        let denied = (1..PKEYS).fold(0, |bits, key| bits | PKEY_DISABLE_ACCESS << (2 * key));
        PkeyRights(denied)
    }
}

impl PkeyRights {
    /// Makes the rights from a value of the register PKRU.
    pub fn from_pkru(bits: u32) -> Self {
        PkeyRights(bits)
    }

    /// Returns the rights with `key`'s rights replaced by the `PKEY_DISABLE_*` bits in `denied`.
    #[must_use]
    pub fn with(self, key: u32, denied: u32) -> Self {
        let shift = 2 * (key % PKEYS);
        PkeyRights(self.0 & !(3 << shift) | (denied & 3) << shift)
    }

    /// Checks whether mappings with `key` may be read.
    #[doc(alias = "__pkru_allows_read")]
    pub fn allows_read(self, key: u32) -> bool {
        self.0 >> (2 * (key % PKEYS)) & PKEY_DISABLE_ACCESS == 0
    }

    /// Checks whether mappings with `key` may be written.
    #[doc(alias = "__pkru_allows_write")]
    pub fn allows_write(self, key: u32) -> bool {
        self.0 >> (2 * (key % PKEYS)) & (PKEY_DISABLE_ACCESS | PKEY_DISABLE_WRITE) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_of_the_register() {
        let all = 0x5555_5554 & (u32::MAX >> (32 - 2 * PKEYS));
        assert_eq!(PkeyRights::default(), PkeyRights::from_pkru(all));
        let rights = PkeyRights::default().with(3, 0).with(4, PKEY_DISABLE_WRITE);
        let of = |key| (rights.allows_read(key), rights.allows_write(key));
        assert_eq!(of(0), (true, true));
        assert_eq!(of(2), (false, false));
        assert_eq!(of(3), (true, true));
        assert_eq!(of(4), (true, false));
    }
}
