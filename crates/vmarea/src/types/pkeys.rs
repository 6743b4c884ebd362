//! Rights to protection keys: two bits a key, as the register PKRU holds them.
//!
//! # Linux
//! `arch/x86/include/asm/pkru.h`, `init_pkru_value` of `arch/x86/mm/pkeys.c`.

/// Keys that there are, with key 0, which every mapping has at first.
pub const PKEYS: u32 = 16;

/// Neither reads nor writes.
pub const PKEY_DISABLE_ACCESS: u32 = 1;
/// No writes.
pub const PKEY_DISABLE_WRITE: u32 = 2;

/// What a thread may do to mappings of each key. Fetching instructions is always allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PkeyRights(u32);

impl Default for PkeyRights {
    /// As after `execve`: everything by key 0, nothing by the others.
    fn default() -> Self {
        let denied = (1..PKEYS).fold(0, |bits, key| bits | PKEY_DISABLE_ACCESS << (2 * key));
        PkeyRights(denied)
    }
}

impl PkeyRights {
    /// From the register.
    pub fn from_pkru(bits: u32) -> Self {
        PkeyRights(bits)
    }

    /// These rights but for `key`, which has `PKEY_DISABLE_*` of `denied`.
    #[must_use]
    pub fn with(self, key: u32, denied: u32) -> Self {
        let shift = 2 * (key % PKEYS);
        PkeyRights(self.0 & !(3 << shift) | (denied & 3) << shift)
    }

    /// May mappings of `key` be read?
    #[doc(alias = "__pkru_allows_read")]
    pub fn allows_read(self, key: u32) -> bool {
        self.0 >> (2 * (key % PKEYS)) & PKEY_DISABLE_ACCESS == 0
    }

    /// May they be written?
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
        assert_eq!(PkeyRights::default(), PkeyRights::from_pkru(0x5555_5554));
        let rights = PkeyRights::default().with(3, 0).with(4, PKEY_DISABLE_WRITE);
        let of = |key| (rights.allows_read(key), rights.allows_write(key));
        assert_eq!(of(0), (true, true));
        assert_eq!(of(2), (false, false));
        assert_eq!(of(3), (true, true));
        assert_eq!(of(4), (true, false));
    }
}
