//! Policies: what one kernel checks, and the switches that go past it.
//!
//! [`Rules`] are data about a kernel version; [`Merging`] holds the orthogonal switches for what
//! the thesis and this project change. A [`Policy`] is one of each, with a name.
//!
//! | preset       | rules of   | page offset follows mremap | different anon_vmas merge |
//! |--------------|------------|----------------------------|---------------------------|
//! | `linux`      | 6.18       | only while unfaulted       | no                        |
//! | `linux-6.12` | 6.12       | only while unfaulted       | no                        |
//! | `linux-6.1`  | 6.1        | only while unfaulted       | no                        |
//! | `linux-5.10` | 5.10       | only while unfaulted       | no                        |
//! | `thesis`     | 5.10       | also where unshared        | where unshared            |
//! | `vmarea`     | 6.18       | always where it can        | where it can              |

pub mod rules;

pub use rules::{OneSided, Rules};

/// Switches that go past mainline; each stands for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merging {
    /// How it is told whether pages may be changed.
    pub sharing: SharingCheck,
    /// `mremap` gives faulted, unshared pages the page offset of their new place (thesis 2.7).
    pub update_pgoff: bool,
    /// Neighbours with different anon_vmas merge where the pages that change are unshared (thesis
    /// 2.8).
    pub different_anon_vmas: bool,
    /// Either anon_vma may survive a merge, not only that of the VMA that grows.
    pub either_survives: bool,
    /// A range whose page offset does not fit takes its neighbour's page offset base, pages and all.
    pub renumber_in_place: bool,
    /// Shared pages that a merge may copy so that they can be changed.
    pub copy_budget: u64,
    /// `mremap` moves several VMAs also without FIXED, and to places that overlap the old one.
    pub remap_freely: bool,
    /// A VMA that is split before its first fault gets its anon_vma then, so that its pieces share it.
    pub early_anon_vma: bool,
    /// VMAs of which only one is charged (`VM_ACCOUNT`) merge, where charges are not limited: the
    /// other is charged as well.
    pub spread_charge: bool,
    /// Merges that had to be refused for their pages are noted, for the collector.
    pub collector: bool,
}

impl Merging {
    /// Nothing beyond mainline.
    pub const MAINLINE: Merging = Merging {
        sharing: SharingCheck::Thesis,
        update_pgoff: false,
        different_anon_vmas: false,
        either_survives: false,
        renumber_in_place: false,
        copy_budget: 0,
        remap_freely: false,
        early_anon_vma: false,
        spread_charge: false,
        collector: false,
    };
    /// The thesis.
    pub const THESIS: Merging = Merging {
        update_pgoff: true,
        different_anon_vmas: true,
        ..Merging::MAINLINE
    };
    /// Everything that is safe to merge is merged.
    pub const VMAREA: Merging = Merging {
        sharing: SharingCheck::Truth,
        update_pgoff: true,
        different_anon_vmas: true,
        either_survives: true,
        renumber_in_place: true,
        copy_budget: 0,
        remap_freely: true,
        early_anon_vma: true,
        spread_charge: true,
        collector: true,
    };
}

/// How it is told whether pages may get another anon_vma or page offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharingCheck {
    /// To the letter of the thesis: no parent, no child, no page mapped or swapped twice. A child
    /// counts as sharing also after its parent has gone.
    Thesis,
    /// By the pages alone: no page that another process can still reach.
    Truth,
}

/// A named choice of rules and switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The name that the command line uses.
    pub name: &'static str,
    /// The kernel.
    pub rules: Rules,
    /// What goes past it.
    pub merging: Merging,
    /// When a change of a VMA's range locks the reverse map.
    pub adjust_lock: AdjustLock,
}

/// When a change of a VMA's range takes the lock of its anon_vma's family. What is mapped is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdjustLock {
    /// Always, as Linux does since the reverse map has an interval tree (`vma_prepare`).
    Always,
    /// Where the start moves, pages come from a neighbour or a VMA is put in: not where the end alone
    /// moves, as by `brk` (`vma_adjust` from 2.6.31 on).
    WhenNeeded,
}

impl Policy {
    /// Linux 6.18.
    pub const LINUX: Policy = Policy {
        name: "linux",
        rules: Rules::V6_18,
        merging: Merging::MAINLINE,
        adjust_lock: AdjustLock::Always,
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
    /// Linux 5.10, the nearest to the thesis's mainline (5.18) that can be had as an oracle.
    pub const LINUX_5_10: Policy = Policy {
        name: "linux-5.10",
        rules: Rules::V5_10,
        ..Policy::LINUX
    };
    /// The thesis "VMA merging in Linux" on the rules nearest to its mainline.
    pub const THESIS: Policy = Policy {
        name: "thesis",
        rules: Rules {
            expand_joins_next: true,
            // As in its mainline.
            huge_aligned_files: true,
            ..Rules::V5_10
        },
        merging: Merging::THESIS,
        adjust_lock: AdjustLock::Always,
    };
    /// What this project makes of it, on the newest rules.
    pub const VMAREA: Policy = Policy {
        name: "vmarea",
        rules: Rules {
            one_sided: OneSided::Either,
            brk_joins_next: true,
            ..Rules::V6_18
        },
        merging: Merging::VMAREA,
        adjust_lock: AdjustLock::WhenNeeded,
    };

    /// All presets.
    pub const PRESETS: [Policy; 6] = [
        Policy::LINUX,
        Policy::LINUX_6_12,
        Policy::LINUX_6_1,
        Policy::LINUX_5_10,
        Policy::THESIS,
        Policy::VMAREA,
    ];

    /// The preset of that name.
    pub fn by_name(name: &str) -> Option<Policy> {
        Policy::PRESETS.into_iter().find(|p| p.name == name)
    }

    /// Linux as of a version: the rules for it, or where none were verified those of the nearest
    /// lower version (the lowest known for older ones).
    pub fn for_kernel(version: (u32, u32)) -> Policy {
        let mut known = [
            Policy::LINUX_5_10,
            Policy::LINUX_6_1,
            Policy::LINUX_6_12,
            Policy::LINUX,
        ];
        known.sort_by_key(|p| p.rules.version);
        let found = known
            .iter()
            .rev()
            .find(|p| p.rules.version <= version)
            .unwrap_or(&known[0]);
        Policy {
            name: "linux",
            ..*found
        }
    }
}
