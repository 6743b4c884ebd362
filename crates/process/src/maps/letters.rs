//! The two-letter codes that `smaps` prints for a mapping's flags.
//!
//! # Linux
//! `show_smap_vma_flags` in `fs/proc/task_mmu.c`, 6.18 on x86-64. `smaps` prints protection keys on
//! a separate line; here they are printed as `pk` and a number. `gu` is new in 6.19.

use vmarea_merge::types::VmFlags;

use super::VmFlag;

const LETTERS: [(VmFlags, &[u8; 2]); 37] = [
    (VmFlags::READ, b"rd"),
    (VmFlags::WRITE, b"wr"),
    (VmFlags::EXEC, b"ex"),
    (VmFlags::SHARED, b"sh"),
    (VmFlags::MAYREAD, b"mr"),
    (VmFlags::MAYWRITE, b"mw"),
    (VmFlags::MAYEXEC, b"me"),
    (VmFlags::MAYSHARE, b"ms"),
    (VmFlags::GROWSDOWN, b"gd"),
    (VmFlags::UFFD_MISSING, b"um"),
    (VmFlags::PFNMAP, b"pf"),
    (VmFlags::UFFD_WP, b"uw"),
    (VmFlags::LOCKED, b"lo"),
    (VmFlags::IO, b"io"),
    (VmFlags::SEQ_READ, b"sr"),
    (VmFlags::RAND_READ, b"rr"),
    (VmFlags::DONTCOPY, b"dc"),
    (VmFlags::DONTEXPAND, b"de"),
    (VmFlags::LOCKONFAULT, b"lf"),
    (VmFlags::ACCOUNT, b"ac"),
    (VmFlags::NORESERVE, b"nr"),
    (VmFlags::HUGETLB, b"ht"),
    (VmFlags::SYNC, b"sf"),
    (VmFlags::ARCH_1, b"ar"),
    (VmFlags::WIPEONFORK, b"wf"),
    (VmFlags::DONTDUMP, b"dd"),
    (VmFlags::SOFTDIRTY, b"sd"),
    (VmFlags::MIXEDMAP, b"mm"),
    (VmFlags::HUGEPAGE, b"hg"),
    (VmFlags::NOHUGEPAGE, b"nh"),
    (VmFlags::MERGEABLE, b"mg"),
    (VmFlags::SHADOW_STACK, b"ss"),
    (VmFlags::UFFD_MINOR, b"ui"),
    (VmFlags::SEALED, b"sl"),
    (VmFlags::UFFD_RWP, b"ur"),
    (VmFlags::DROPPABLE, b"dp"),
    (VmFlags::MAYBE_GUARD, b"gu"),
];

/// Placeholder for unknown letters, stored in a bit that no kernel uses for anything else than
/// [`flags_of_kernel`] says.
///
/// A mapping with this flag is treated as different from a mapping without it, and no call can
/// create another mapping with the same flags.
pub const UNKNOWN: VmFlags = VmFlags::from_bits_retain(1 << 63);

/// Returns the flags of a VMA as the kernel stores them. Linux 6.10 to 6.12 seal by the last bit.
pub fn flags_of_kernel(bits: u64) -> VmFlags {
    let flags = VmFlags::from_bits_retain(bits);
    match flags.contains(UNKNOWN) {
        true => (flags - UNKNOWN) | VmFlags::SEALED,
        false => flags,
    }
}

/// Returns the flags that these letters represent, plus [`UNKNOWN`] if some letters are unknown.
pub fn flags_of(letters: &[VmFlag]) -> VmFlags {
    let flag = |letters: &VmFlag| {
        let known = LETTERS.iter().find(|(_, two)| **two == letters.0);
        known.map_or(UNKNOWN, |(flag, _)| *flag)
    };
    letters.iter().map(flag).collect()
}

/// Returns the flag that has these two letters; `None` if there is no such flag.
pub fn flag_named(letters: &str) -> Option<VmFlags> {
    let mut known = LETTERS
        .iter()
        .filter(|(_, two)| two.as_slice() == letters.as_bytes());
    known.next().map(|(flag, _)| *flag)
}

/// Returns the letters of the flags, separated by spaces and in the order used by `smaps`.
///
/// A flag without letters is printed as its bit number.
pub fn letters_of(flags: VmFlags) -> String {
    let mut words = Vec::new();
    let mut left = flags - VmFlags::PKEY - UNKNOWN;
    for (flag, two) in LETTERS.iter().filter(|(flag, _)| flags.contains(*flag)) {
        words.push(String::from_utf8_lossy(&two[..]).into_owned());
        left -= *flag;
    }
    if flags.pkey() != 0 {
        words.push(format!("pk{}", flags.pkey()));
    }
    if flags.contains(UNKNOWN) {
        words.push("??".to_owned());
    }
    let bits = (0..u64::BITS).filter(|bit| left.bits() >> bit & 1 == 1);
    words.extend(bits.map(|bit| format!("bit{bit}")));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_come_back_as_flags() {
        let flags = VmFlags::READ | VmFlags::DONTCOPY | VmFlags::SEALED;
        assert_eq!(letters_of(flags), "rd dc sl");
        let letters = [*b"rd", *b"dc", *b"sl", *b"zz"].map(VmFlag);
        assert_eq!(flags_of(&letters[..3]), flags);
        assert_eq!(flags_of(&letters), flags | UNKNOWN);
        assert_eq!(letters_of(flags | UNKNOWN), "rd dc sl ??");
        assert_eq!(letters_of(VmFlags::from_pkey(3)), "pk3");
        assert_eq!(letters_of(VmFlags::from_bits_retain(1 << 36)), "bit36");
    }
}
