//! VMA flags, with Linux's bit values.
//!
//! # Linux
//! `include/linux/mm.h`, 6.18. The flags that calls take are in [`call_flags`](super::call_flags).
//! The values are the kernel's own, so that flags read with the BPF iterator `task_vma` can be
//! compared directly.

use super::arch::{Arch, Native};
use super::call_flags::Prot;
use super::pkeys::PKEYS;
use bitflags::bitflags;

bitflags! {
    /// Flags of a VMA.
    #[doc(alias = "vm_flags")]
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
    pub struct VmFlags: u64 {
        /// May be read.
        const READ = 1;
        /// May be written.
        const WRITE = 2;
        /// May be executed.
        const EXEC = 4;
        /// Mapped shared, from a file that is open for writing.
        const SHARED = 8;
        /// `mprotect` may set READ.
        const MAYREAD = 0x10;
        /// `mprotect` may set WRITE.
        const MAYWRITE = 0x20;
        /// `mprotect` may set EXEC.
        const MAYEXEC = 0x40;
        /// Mapped shared, whether or not the file is open for writing.
        const MAYSHARE = 0x80;
        /// A stack: grows downwards on a fault below it.
        const GROWSDOWN = 0x100;
        /// Missing pages are reported to a userfaultfd.
        const UFFD_MISSING = 0x200;
        /// Raw page frames without metadata (`struct page`).
        const PFNMAP = 0x400;
        /// Guard regions may have been installed. Linux has had this flag since a stable update of
        /// 6.18.
        const MAYBE_GUARD = 0x800;
        /// Write protection by a userfaultfd.
        const UFFD_WP = 0x1000;
        /// Locked by `mlock`.
        const LOCKED = 0x2000;
        /// Device memory.
        const IO = 0x4000;
        /// Set by `MADV_SEQUENTIAL`.
        const SEQ_READ = 0x8000;
        /// Set by `MADV_RANDOM`.
        const RAND_READ = 0x10000;
        /// Set by `MADV_DONTFORK`.
        const DONTCOPY = 0x20000;
        /// Must not grow by `mremap`.
        const DONTEXPAND = 0x40000;
        /// Pages are locked as they are faulted in (`MLOCK_ONFAULT`).
        const LOCKONFAULT = 0x80000;
        /// Charged to the commit limit.
        const ACCOUNT = 0x100000;
        /// Set by `MAP_NORESERVE`.
        const NORESERVE = 0x200000;
        /// A hugetlb mapping.
        const HUGETLB = 0x400000;
        /// Set by `MAP_SYNC`.
        const SYNC = 0x800000;
        /// Used for PAT on x86-64, and for BTI on AArch64.
        const ARCH_1 = 0x1000000;
        /// Set by `MADV_WIPEONFORK`.
        const WIPEONFORK = 0x2000000;
        /// Set by `MADV_DONTDUMP`.
        const DONTDUMP = 0x4000000;
        /// Written since the flag was last cleared; never affects a merge decision.
        const SOFTDIRTY = 0x8000000;
        /// May contain both page frames with metadata (`struct page`) and page frames without.
        const MIXEDMAP = 0x10000000;
        /// Set by `MADV_HUGEPAGE`.
        const HUGEPAGE = 0x20000000;
        /// Set by `MADV_NOHUGEPAGE` and `MAP_STACK`.
        const NOHUGEPAGE = 0x40000000;
        /// Set by `MADV_MERGEABLE`.
        const MERGEABLE = 1 << 31;
        /// Protection key, bit 0.
        const PKEY_BIT0 = 1 << 32;
        /// Protection key, bit 1.
        const PKEY_BIT1 = 1 << 33;
        /// Protection key, bit 2.
        const PKEY_BIT2 = 1 << 34;
        /// Protection key, bit 3; AArch64 has only three bits.
        const PKEY_BIT3 = 1 << 35;
        /// A shadow stack.
        const SHADOW_STACK = Native::SHADOW_STACK;
        /// Set by `MAP_DROPPABLE`.
        const DROPPABLE = 1 << 40;
        /// Minor faults are reported to a userfaultfd.
        const UFFD_MINOR = 1 << 41;
        /// Sealed by `mseal`.
        const SEALED = 1 << 42;
        /// Accesses to pages that are protected from them are reported to a userfaultfd.
        const UFFD_RWP = 1 << 43;
        const _ = !0;
    }
}

impl VmFlags {
    /// `VM_ACCESS_FLAGS`: the permissions that `mprotect` may change.
    pub const ACCESS: VmFlags = VmFlags::READ.union(VmFlags::WRITE).union(VmFlags::EXEC);
    /// `VM_LOCKED_MASK`: LOCKED and LOCKONFAULT.
    pub const LOCKED_MASK: VmFlags = VmFlags::LOCKED.union(VmFlags::LOCKONFAULT);
    /// `VM_SPECIAL`: VMAs with any of these flags are never merged and never locked by `mlock`.
    pub const SPECIAL: VmFlags = VmFlags::IO
        .union(VmFlags::DONTEXPAND)
        .union(VmFlags::PFNMAP)
        .union(VmFlags::MIXEDMAP);
    /// `VM_STICKY`: flags that never affect a merge decision. A merged VMA gets the sticky flags of
    /// all its parts.
    pub const STICKY: VmFlags = VmFlags::SOFTDIRTY.union(VmFlags::MAYBE_GUARD);
    /// The flags of a mapping through which its file can be written, at present or after `mprotect`.
    #[doc(alias = "is_shared_maywrite")]
    pub const SHARED_MAYWRITE: VmFlags = VmFlags::SHARED.union(VmFlags::MAYWRITE);
    /// All flags of userfaultfd registrations.
    pub const UFFD_ANY: VmFlags = VmFlags::UFFD_MISSING
        .union(VmFlags::UFFD_WP)
        .union(VmFlags::UFFD_MINOR)
        .union(VmFlags::UFFD_RWP);
    /// All bits of the protection key.
    pub const PKEY: VmFlags = VmFlags::from_bits_retain((PKEYS as u64 - 1) << 32);
    /// The three flags that say which permissions `mprotect` may set.
    pub const MAYRWX: VmFlags = VmFlags::MAYREAD
        .union(VmFlags::MAYWRITE)
        .union(VmFlags::MAYEXEC);

    /// Converts `PROT_` bits and a protection key to flags: READ, WRITE, EXEC and the key bits.
    ///
    /// ```
    /// use vmarea_merge::types::VmFlags;
    /// use vmarea_merge::types::call_flags::Prot;
    ///
    /// let flags = VmFlags::from_prot(Prot::READ, 3);
    /// assert_eq!((flags & VmFlags::ACCESS, flags.pkey()), (VmFlags::READ, 3));
    /// assert_eq!(flags, VmFlags::READ | VmFlags::from_pkey(3));
    /// ```
    #[doc(alias = "calc_vm_prot_bits")]
    pub fn from_prot(prot: Prot, pkey: u32) -> VmFlags {
        VmFlags::from_bits_retain(u64::from(prot.bits() & 7)) | VmFlags::from_pkey(pkey)
    }

    /// Returns the flags that encode a protection key.
    pub fn from_pkey(pkey: u32) -> VmFlags {
        VmFlags::from_bits_retain(u64::from(pkey & (PKEYS - 1)) << 32)
    }

    /// Returns the protection key.
    pub fn pkey(self) -> u32 {
        (self.bits() >> 32) as u32 & (PKEYS - 1)
    }

    /// True if any access is allowed (`vma_is_accessible`).
    pub fn is_accessible(self) -> bool {
        self.intersects(VmFlags::ACCESS)
    }

    /// True if the VMA counts in `data_vm`: private, writable, not a stack.
    pub fn is_data(self) -> bool {
        self & (VmFlags::WRITE | VmFlags::SHARED | VmFlags::GROWSDOWN) == VmFlags::WRITE
    }

    /// True if the VMA counts in `exec_vm`: executable, not writable, not a stack.
    pub fn is_exec(self) -> bool {
        self & (VmFlags::EXEC | VmFlags::WRITE | VmFlags::GROWSDOWN) == VmFlags::EXEC
    }

    /// True if the VMA counts in `stack_vm`: a stack or a shadow stack.
    pub fn is_stack(self) -> bool {
        self.intersects(VmFlags::GROWSDOWN | VmFlags::SHADOW_STACK)
    }

    /// True if the mapping must be charged to the commit limit: private and writable, without
    /// NORESERVE (`accountable_mapping`).
    pub fn is_accountable(self) -> bool {
        self & (VmFlags::NORESERVE | VmFlags::SHARED | VmFlags::WRITE) == VmFlags::WRITE
    }
}
