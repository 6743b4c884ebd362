//! Policies: the rules of one kernel version, and switches that go beyond that kernel.
//!
//! [`Rules`] describe one kernel version as data. [`Merging`] contains independent switches for the
//! changes made by the thesis, by its successors and by this project. A [`Policy`] combines rules and
//! switches under a name; [`Policy::parse`] parses such names. [`kernel`] has the rules of one particular kernel. What
//! data cannot say is written in Rust: see [`MergePolicy`].
//!
//! | preset       | rules of   | page offset follows mremap | different anon_vmas merge |
//! |--------------|------------|----------------------------|---------------------------|
//! | `linux`      | 7.3        | only while unfaulted       | no                        |
//! | `linux-6.18` | 6.18       | only while unfaulted       | no                        |
//! | `linux-6.12` | 6.12       | only while unfaulted       | no                        |
//! | `linux-6.1`  | 6.1        | only while unfaulted       | no                        |
//! | `linux-5.18` | 5.18       | only while unfaulted       | no                        |
//! | `linux-5.10` | 5.10       | only while unfaulted       | no                        |
//! | `thesis`     | 5.18       | also if unshared           | if unshared               |
//! | `relocate`   | 7.3        | also if unshared           | no; moved pages take one  |
//! | `vmarea`     | 7.3        | whenever possible          | whenever possible         |

pub mod kernel;
pub mod name;
pub mod own;
pub mod release;
pub mod rules;
pub mod setting;

pub use own::{MergePolicy, Own};
pub use rules::{OneSided, Rules};

/// Independent switches that go beyond mainline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merging {
    /// How to check whether pages may get another anon_vma or page offset.
    pub sharing: SharingCheck,
    /// `mremap` gives faulted, unshared pages the page offset of their new address (thesis 2.7).
    pub update_pgoff: bool,
    /// Neighbours with different anon_vmas merge if no page that the merge would change is shared
    /// (thesis 2.8).
    pub different_anon_vmas: bool,
    /// `mremap` gives the faulted, unshared pages of a range that merges with no neighbour as it is
    /// the page offsets and the anon_vma of their new address, and the range may merge then
    /// ([`Relocation`](crate::Relocation)).
    pub relocate: bool,
    /// A merged VMA may get the anon_vma of either VMA, not only that of the VMA that grows.
    pub either_survives: bool,
    /// A range may merge with a neighbour even if their page offsets are not contiguous: the pages
    /// of one of the two then get new page offsets.
    pub renumber_in_place: bool,
    /// Maximum number of shared pages that a merge may copy in order to change them.
    pub copy_budget: u64,
    /// `mremap` can move several VMAs even without FIXED, and the old and the new range may
    /// overlap.
    pub remap_freely: bool,
    /// An unfaulted VMA gets an anon_vma before it is split; both parts then share that anon_vma.
    pub early_anon_vma: bool,
    /// VMAs merge even if only one of them is charged (`VM_ACCOUNT`); the merge then charges the
    /// other VMA. This switch has no effect under strict overcommit.
    pub spread_charge: bool,
    /// Merges that were refused because of their pages are recorded for the merge collector.
    pub collector: bool,
    /// If true, a move that changes the anon_vma or page offset of pages moves one page table entry
    /// at a time, and the check for sharing splits huge pages (thesis 2.7). If false, whole page
    /// tables and huge pages are moved.
    pub splits_huge: bool,
}

impl Merging {
    /// The rules of mainline, without any change.
    pub const MAINLINE: Merging = Merging {
        sharing: SharingCheck::Thesis,
        update_pgoff: false,
        different_anon_vmas: false,
        relocate: false,
        either_survives: false,
        renumber_in_place: false,
        copy_budget: 0,
        remap_freely: false,
        early_anon_vma: false,
        spread_charge: false,
        collector: false,
        splits_huge: false,
    };
    /// The changes that the thesis makes to mainline.
    pub const THESIS: Merging = Merging {
        update_pgoff: true,
        different_anon_vmas: true,
        splits_huge: true,
        ..Merging::MAINLINE
    };
    /// The relocation of anonymous mappings, as if every `mremap` asked for it.
    pub const RELOCATE: Merging = Merging {
        sharing: SharingCheck::Truth,
        relocate: true,
        ..Merging::MAINLINE
    };
    /// The changes of this project: every merge that is safe is allowed.
    pub const VMAREA: Merging = Merging {
        sharing: SharingCheck::Truth,
        update_pgoff: true,
        different_anon_vmas: true,
        relocate: false,
        either_survives: true,
        renumber_in_place: true,
        copy_budget: 0,
        remap_freely: true,
        early_anon_vma: true,
        spread_charge: true,
        collector: true,
        splits_huge: false,
    };
}

/// Method of checking whether pages may get another anon_vma or page offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharingCheck {
    /// The thesis's check: the anon_vma has no parent or child, and no page is mapped or swapped
    /// out more than once. A child counts as sharing even after its parent has exited.
    Thesis,
    /// A check of the pages only: none of them may be accessible to another process.
    Truth,
}

/// A named combination of rules and switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Name used on the command line.
    pub name: &'static str,
    /// Rules of the kernel version.
    pub rules: Rules,
    /// Switches that go beyond that kernel.
    pub merging: Merging,
    /// Condition under which a change of a VMA's range locks the reverse map.
    pub adjust_lock: AdjustLock,
    /// A rule written in Rust.
    pub own: Own,
}

/// Condition under which a change of a VMA's range locks the root of the VMA's anon_vma. The
/// condition has no effect on the resulting mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdjustLock {
    /// Always lock, as Linux has done since the reverse map became an interval tree
    /// (`vma_prepare`).
    Always,
    /// Lock only if the start moves, pages are taken from a neighbour or a VMA is inserted. If only
    /// the end moves, as in `brk`, no lock is taken (`vma_adjust` since 2.6.31).
    WhenNeeded,
}

impl Policy {
    /// Linux 7.3.
    pub const LINUX: Policy = Policy {
        name: "linux",
        rules: Rules::V7_3,
        merging: Merging::MAINLINE,
        adjust_lock: AdjustLock::Always,
        own: Own::NONE,
    };
    /// Linux 6.18.
    pub const LINUX_6_18: Policy = Policy {
        name: "linux-6.18",
        rules: Rules::V6_18,
        ..Policy::LINUX
    };
    /// Linux 6.12.
    pub const LINUX_6_12: Policy = Policy {
        name: "linux-6.12",
        rules: Rules::V6_12,
        ..Policy::LINUX
    };
    /// Linux 6.1.
    pub const LINUX_6_1: Policy = Policy {
        name: "linux-6.1",
        rules: Rules::V6_1,
        ..Policy::LINUX
    };
    /// Linux 5.18, the mainline of the thesis.
    pub const LINUX_5_18: Policy = Policy {
        name: "linux-5.18",
        rules: Rules::V5_18,
        ..Policy::LINUX
    };
    /// Linux 5.10.
    pub const LINUX_5_10: Policy = Policy {
        name: "linux-5.10",
        rules: Rules::V5_10,
        ..Policy::LINUX
    };
    /// The changes of the thesis "VMA merging in Linux", with the rules of its base version, 5.18.
    pub const THESIS: Policy = Policy {
        name: "thesis",
        rules: Rules {
            expand_joins_next: true,
            ..Rules::V5_18
        },
        merging: Merging::THESIS,
        adjust_lock: AdjustLock::Always,
        own: Own::NONE,
    };
    /// The series "mm/mremap: introduce more mergeable mremap via MREMAP_RELOCATE_ANON", with the
    /// newest rules.
    pub const RELOCATE: Policy = Policy {
        name: "relocate",
        merging: Merging::RELOCATE,
        ..Policy::LINUX
    };
    /// The changes of this project, with the newest rules except those that keep more VMAs apart.
    pub const VMAREA: Policy = Policy {
        name: "vmarea",
        rules: Rules {
            one_sided: OneSided::Either,
            brk_joins_next: true,
            // Pages of a file are found by one page offset as well as by another.
            anon_pgoff_of_files: false,
            // The copy is no longer watched, so it may become part of what is not watched either.
            uffd_moves_apart: false,
            ..Rules::V7_3
        },
        merging: Merging::VMAREA,
        adjust_lock: AdjustLock::WhenNeeded,
        own: Own::NONE,
    };

    /// All presets.
    pub const PRESETS: [Policy; 9] = [
        Policy::LINUX,
        Policy::LINUX_6_18,
        Policy::LINUX_6_12,
        Policy::LINUX_6_1,
        Policy::LINUX_5_18,
        Policy::LINUX_5_10,
        Policy::THESIS,
        Policy::RELOCATE,
        Policy::VMAREA,
    ];

    /// Returns the preset with this name.
    ///
    /// ```
    /// use vmarea_merge::policy::Policy;
    ///
    /// assert_eq!(Policy::by_name("thesis").map(|policy| policy.name), Some("thesis"));
    /// assert!(Policy::by_name("thesis+collector").is_none(), "see `parse`");
    /// ```
    pub fn by_name(name: &str) -> Option<Policy> {
        Policy::PRESETS.into_iter().find(|p| p.name == name)
    }

    /// Returns the policy for a Linux version, with the rules that [`Rules::of`] returns.
    ///
    /// ```
    /// use vmarea_merge::policy::Policy;
    ///
    /// assert_eq!(Policy::for_kernel((6, 7)).rules, Policy::LINUX_6_1.rules);
    /// ```
    pub fn for_kernel(version: (u32, u32)) -> Policy {
        Policy {
            rules: Rules::of(version),
            ..Policy::LINUX
        }
    }
}
