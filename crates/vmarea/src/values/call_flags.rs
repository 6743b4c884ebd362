//! Flags that callers pass, with Linux's names and values.
//!
//! # Linux
//! `include/uapi/asm-generic/mman-common.h`, `include/uapi/linux/mman.h`, 6.18; see `mmap(2)`,
//! `mprotect(2)`, `mremap(2)`, `mlockall(2)` for what each means.
#![allow(missing_docs, reason = "the names are those of the manual pages")]

use bitflags::bitflags;

/// A word of flags from a register, of which all 64 bits are looked at: one above the 32 that mean
/// something stands as bit 31, which no call knows either.
pub const fn from_register(word: u64) -> u32 {
    let unknown = (word >> 32 != 0) as u32;
    word as u32 | unknown << 31
}

/// `PROT_` bits.
pub mod prot {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const EXEC: u32 = 4;
    pub const SEM: u32 = 8;
    pub const GROWSDOWN: u32 = 0x0100_0000;
    pub const GROWSUP: u32 = 0x0200_0000;
}

bitflags! {
    /// Flags of `mmap`, without its type.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MapFlags: u32 {
        const FIXED = 0x10;
        const ANONYMOUS = 0x20;
        const BIT32 = 0x40;
        const ABOVE4G = 0x80;
        const GROWSDOWN = 0x100;
        const DENYWRITE = 0x800;
        const EXECUTABLE = 0x1000;
        const LOCKED = 0x2000;
        const NORESERVE = 0x4000;
        const POPULATE = 0x8000;
        const NONBLOCK = 0x10000;
        const STACK = 0x20000;
        const HUGETLB = 0x40000;
        const SYNC = 0x80000;
        const FIXED_NOREPLACE = 0x100000;
        const UNINITIALIZED = 0x4000000;
        const _ = !0xf;
    }

    /// Flags of `mremap`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MremapFlags: u32 {
        const MAYMOVE = 1;
        const FIXED = 2;
        const DONTUNMAP = 4;
        const _ = !0;
    }

    /// Flags of `mlockall`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MclFlags: u32 {
        const CURRENT = 1;
        const FUTURE = 2;
        const ONFAULT = 4;
        const _ = !0;
    }
}

/// `MAP_TYPE`: the low bits of `mmap`'s flags.
pub mod map_type {
    pub const MASK: u32 = 0xf;
    pub const SHARED: u32 = 1;
    pub const PRIVATE: u32 = 2;
    pub const SHARED_VALIDATE: u32 = 3;
    pub const DROPPABLE: u32 = 8;
}
