//! The VMA flags that advice sets and removes.

use super::Advice;
use crate::policy::rules::AdviceRules;
use crate::syscall::mmap::is_ksm_compatible;
use crate::types::VmFlags;
use crate::vma::VmaView;

/// Returns the flags of a VMA after this advice; `None` if a VMA of its kind does not take it.
#[doc(alias = "madvise_vma_behavior")]
pub(super) fn advised_flags(vma: &VmaView, advice: Advice, rules: &AdviceRules) -> Option<VmFlags> {
    let flags = vma.body.flags;
    let reading = VmFlags::RAND_READ | VmFlags::SEQ_READ;
    Some(match advice {
        Advice::Normal => flags - reading,
        Advice::Sequential => (flags - reading) | VmFlags::SEQ_READ,
        Advice::Random => (flags - reading) | VmFlags::RAND_READ,
        Advice::DontFork => flags | VmFlags::DONTCOPY,
        Advice::DoFork => {
            let refused = match rules.dofork_refuses_special {
                true => VmFlags::SPECIAL,
                false => VmFlags::IO,
            };
            if flags.intersects(refused) {
                return None;
            }
            flags - VmFlags::DONTCOPY
        }
        Advice::WipeOnFork => {
            if vma.body.file.is_some() || flags.contains(VmFlags::SHARED) {
                return None;
            }
            flags | VmFlags::WIPEONFORK
        }
        Advice::KeepOnFork => {
            if flags.contains(VmFlags::DROPPABLE) {
                return None;
            }
            flags - VmFlags::WIPEONFORK
        }
        Advice::DontDump => flags | VmFlags::DONTDUMP,
        Advice::DoDump => {
            let special = !flags.contains(VmFlags::HUGETLB) && flags.intersects(VmFlags::SPECIAL);
            if special || flags.contains(VmFlags::DROPPABLE) {
                return None;
            }
            flags - VmFlags::DONTDUMP
        }
        Advice::Mergeable if is_ksm_compatible(flags) => flags | VmFlags::MERGEABLE,
        Advice::Unmergeable => flags - VmFlags::MERGEABLE,
        Advice::HugePage => (flags - VmFlags::NOHUGEPAGE) | VmFlags::HUGEPAGE,
        Advice::NoHugePage => (flags - VmFlags::HUGEPAGE) | VmFlags::NOHUGEPAGE,
        _ => flags,
    })
}
