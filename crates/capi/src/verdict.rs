//! Whether two neighbours can be merged, and if not, why.

use crate::boundary::status;
use crate::space::{SpaceHandle, address_space};
use core::ffi::{CStr, c_char, c_int};
use vmarea::types::Errno;
use vmarea::vma::merge::{Decision, Refusal};

/// Verdict: mergeable; a system call on one of the two mappings merges them.
pub const VMAREA_MERGES: c_int = 0;
/// Verdict: one of the mappings is special and never merges.
pub const VMAREA_APART_SPECIAL: c_int = 1;
/// Verdict: one of the mappings has hugetlb pages and never merges.
pub const VMAREA_APART_HUGETLB: c_int = 2;
/// Verdict: different memory policies.
pub const VMAREA_APART_POLICY: c_int = 3;
/// Verdict: different permissions.
pub const VMAREA_APART_PROTECTION: c_int = 4;
/// Verdict: flags other than permissions differ.
pub const VMAREA_APART_FLAGS: c_int = 5;
/// Verdict: only one of the mappings is sealed.
pub const VMAREA_APART_SEALED: c_int = 6;
/// Verdict: different open files, or a file and anonymous memory.
pub const VMAREA_APART_FILE: c_int = 7;
/// Verdict: different userfaultfd registrations.
pub const VMAREA_APART_USERFAULTFD: c_int = 8;
/// Verdict: different names.
pub const VMAREA_APART_NAME: c_int = 9;
/// Verdict: different anon_vmas, or an anon_vma inherited from a parent.
pub const VMAREA_APART_ANON_VMA: c_int = 10;
/// Verdict: page offsets of anonymous memory that are not contiguous.
pub const VMAREA_APART_PAGE_OFFSET: c_int = 11;
/// Verdict: the merge would change pages that are pinned.
pub const VMAREA_APART_PINNED: c_int = 12;
/// Verdict: offsets in the file that are not contiguous.
pub const VMAREA_APART_FILE_OFFSET: c_int = 13;
/// Verdict: a mapping must not be removed because of its close hook.
pub const VMAREA_APART_CLOSE_HOOK: c_int = 14;
/// Verdict: a cause that is not modelled.
pub const VMAREA_APART_OPAQUE: c_int = 15;

/// Returns the code and the name of a refusal.
fn code(refusal: Refusal) -> (c_int, &'static CStr) {
    match refusal {
        Refusal::Special => (VMAREA_APART_SPECIAL, c"special"),
        Refusal::Hugetlb => (VMAREA_APART_HUGETLB, c"hugetlb"),
        Refusal::Policy => (VMAREA_APART_POLICY, c"policy"),
        Refusal::Protection => (VMAREA_APART_PROTECTION, c"protection"),
        Refusal::Flags => (VMAREA_APART_FLAGS, c"flags"),
        Refusal::Sealed => (VMAREA_APART_SEALED, c"sealed"),
        Refusal::File => (VMAREA_APART_FILE, c"file"),
        Refusal::Userfaultfd => (VMAREA_APART_USERFAULTFD, c"userfaultfd"),
        Refusal::Name => (VMAREA_APART_NAME, c"name"),
        Refusal::AnonVma => (VMAREA_APART_ANON_VMA, c"anon_vma"),
        Refusal::PageOffset => (VMAREA_APART_PAGE_OFFSET, c"page_offset"),
        Refusal::Pinned => (VMAREA_APART_PINNED, c"pinned"),
        Refusal::FileOffset => (VMAREA_APART_FILE_OFFSET, c"file_offset"),
        Refusal::CloseHook => (VMAREA_APART_CLOSE_HOOK, c"close_hook"),
        Refusal::Opaque => (VMAREA_APART_OPAQUE, c"opaque"),
    }
}

/// Checks whether the two mappings that meet at `boundary` can be merged under the space's policy.
/// Changes nothing. Returns VMAREA_MERGES, or the reason why they stay apart.
///
/// Errors: -ESRCH; -ENOENT if no two mappings meet there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_merge_verdict(
    space: *const SpaceHandle,
    mm: u64,
    boundary: u64,
) -> c_int {
    // SAFETY: as the header demands.
    status(unsafe { address_space(space, mm) }.and_then(|(space, mm)| {
        // Only a writer may look at the pages that a merge would change.
        let guard = space.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        let below = boundary
            .checked_sub(1)
            .and_then(|last| guard.vma_lookup(last));
        let above = guard.vma_lookup(boundary);
        let (below, above) = below
            .zip(above)
            .filter(|(below, _)| below.range.end == boundary)
            .ok_or(Errno::ENOENT)?;
        let decision = Decision {
            policy: space.policy(),
            evidence: &guard,
        };
        let refusal = decision.refusal(&below, &above);
        Ok(refusal.map_or(VMAREA_MERGES, |refusal| code(refusal).0))
    }))
}

/// Returns the name of a verdict, such as "anon_vma"; NULL for VMAREA_MERGES and other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn vmarea_verdict_name(verdict: c_int) -> *const c_char {
    let mut codes = Refusal::ALL.into_iter().map(code);
    let found = codes.find(|(code, _)| *code == verdict);
    found.map_or(core::ptr::null(), |(_, name)| name.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_code_of_its_own_and_the_core_s_name() {
        for (number, refusal) in (1..).zip(Refusal::ALL) {
            let (code, name) = code(refusal);
            assert_eq!((code, name.to_str()), (number, Ok(refusal.name())));
            assert_eq!(vmarea_verdict_name(code), name.as_ptr());
        }
        assert!(vmarea_verdict_name(VMAREA_MERGES).is_null());
        assert!(vmarea_verdict_name(16).is_null());
    }
}
