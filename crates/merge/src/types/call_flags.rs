//! Flags that callers pass to system calls, with Linux's names and values.
//!
//! Each type keeps unknown bits, because Linux's result depends on them: `mmap` ignores them,
//! except with `MAP_SHARED_VALIDATE`; `mprotect`, `mremap` and others reject them with EINVAL.
//!
//! # Linux
//! `include/uapi/asm-generic/mman-common.h`, `include/uapi/linux/mman.h`, 6.18. See `mmap(2)`,
//! `mprotect(2)`, `mremap(2)` and `mlockall(2)` for the meaning of each flag.
#![allow(missing_docs, reason = "the names are those of the manual pages")]

use bitflags::bitflags;

/// Converts flags in a 64-bit register to 32 bits, for a call that checks all 64 bits. If any of
/// the upper 32 bits is set, the result has bit 31 set. No such call supports bit 31, so each
/// rejects it.
///
/// ```
/// use vmarea_merge::types::call_flags::from_register;
///
/// assert_eq!(from_register(5), 5);
/// assert_eq!(from_register(1 << 40 | 5), 1 << 31 | 5);
/// ```
pub const fn from_register(word: u64) -> u32 {
    let unknown = (word >> 32 != 0) as u32;
    word as u32 | unknown << 31
}

bitflags! {
    /// Protection of a mapping (`PROT_`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Prot: u32 {
        const READ = 1;
        const WRITE = 2;
        const EXEC = 4;
        const SEM = 8;
        const GROWSDOWN = 0x0100_0000;
        const GROWSUP = 0x0200_0000;
        const _ = !0;
    }

    /// Flags of `mmap`, with the mapping type in the low four bits.
    ///
    /// The type is a number, not a set of bits: read it with [`map_type`](MapFlags::map_type),
    /// never test it with `contains`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MapFlags: u32 {
        const SHARED = 1;
        const PRIVATE = 2;
        const SHARED_VALIDATE = 3;
        const DROPPABLE = 8;
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
        const _ = !0;
    }

    /// Flags of `mremap`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MremapFlags: u32 {
        const MAYMOVE = 1;
        const FIXED = 2;
        const DONTUNMAP = 4;
        const _ = !0;
    }

    /// Flags of `mlock2`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MlockFlags: u32 {
        const ONFAULT = 1;
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

    /// Flags of `mbind` (`MPOL_MF_`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MbindFlags: u32 {
        const STRICT = 1;
        const MOVE = 2;
        const MOVE_ALL = 4;
        const _ = !0;
    }
}

/// Sharing type of a mapping (`MAP_TYPE`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapType {
    Shared,
    Private,
    SharedValidate,
    Droppable,
}

impl MapFlags {
    /// Returns the mapping type, or `None` if the low four bits are not a valid type.
    pub fn map_type(self) -> Option<MapType> {
        const TYPE: MapFlags = MapFlags::from_bits_retain(0xf);
        match self & TYPE {
            MapFlags::SHARED => Some(MapType::Shared),
            MapFlags::PRIVATE => Some(MapType::Private),
            MapFlags::SHARED_VALIDATE => Some(MapType::SharedValidate),
            MapFlags::DROPPABLE => Some(MapType::Droppable),
            _ => None,
        }
    }
}

/// A protection key number as passed by a program; the address space tracks which keys are
/// allocated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pkey(pub i32);

impl Pkey {
    /// Returns the key argument of `pkey_mprotect`, or `None` for -1 (no particular key).
    ///
    /// ```
    /// use vmarea_merge::types::call_flags::Pkey;
    ///
    /// assert_eq!(Pkey::from_argument(3), Some(Pkey(3)));
    /// assert_eq!(Pkey::from_argument(-1), None);
    /// ```
    pub fn from_argument(number: i32) -> Option<Pkey> {
        (number != -1).then_some(Pkey(number))
    }
}
