//! Rules: the behaviour of one kernel version as data, with one field per behaviour that changed.
//!
//! Each field documents a behaviour and the version in which it changed. Code for a call that
//! differs between kernels checks the field, never a version number. The rules of 7.3,
//! 6.18, 6.12, 6.1 and 5.10 are tested by comparing random calls with kernels of these versions
//! (`docs/kernels.md`). The other versions between have what is known of them from the kernel's
//! sources, or from single calls. Version numbers in parentheses are known only from sources.

use super::release;
use crate::types::{FileKind, PMD_SIZE, PageOffsets, VmFlags};
use crate::view::VmaBody;

/// The behaviour of one kernel version, as far as it affects address spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Major and minor version of the kernel that the rules describe.
    pub version: (u32, u32),

    /// A private mapping of a file has page offsets of its own for its anonymous pages, which must
    /// also be contiguous for a merge and for the reuse of a neighbour's anon_vma (since 7.3:
    /// `needs_adjacent_anon_pgoff`, `anon_vma_compatible`, `copy_vma` in `mm/vma.c`). They are those
    /// of the address until the mapping has its first page. A private mapping of `/dev/zero` is one
    /// of a file here. Earlier kernels use the page offset in the file.
    pub anon_pgoff_of_files: bool,
    /// Chain that must be singular if only one of the range and its neighbour has an anon_vma: the
    /// neighbour's chain (until 6.15), or the chain of the side with the anon_vma.
    pub one_sided: OneSided,
    /// Restriction on merging VMAs with a `close` hook.
    pub close_hook: CloseHook,

    /// Anonymous mappings whose length is a multiple of the huge page size are aligned to that size
    /// (since 6.7).
    pub huge_aligned_anon: bool,
    /// Private mappings of `/dev/zero` that are long enough for a huge page are aligned to the size
    /// of a huge page (since a version after 6.12).
    pub huge_aligned_zero: bool,
    /// `MAP_STACK` sets `VM_NOHUGEPAGE` (since 6.7).
    pub map_stack_nohuge: bool,
    /// `MAP_ABOVE4G` is supported (since 6.6).
    pub map_above_4g: bool,
    /// `MAP_DROPPABLE` is supported (since 6.11).
    pub map_droppable: bool,

    /// Point at which `mmap` checks RLIMIT_AS and RLIMIT_DATA.
    pub mmap_limits: MmapLimits,
    /// `mmap` prefers a merge with the next VMA, as
    /// [`MergeScope::NextFirst`](crate::MergeScope::NextFirst) describes (6.1, but not 5.10 or
    /// 6.12).
    pub mmap_asks_next_first: bool,
    /// A new mapping gets the KSM flag of `PR_SET_MEMORY_MERGE` before the search for neighbours
    /// (since 6.17). Earlier kernels set it afterwards, if the mapping did not merge.
    pub ksm_flag_first: bool,
    /// `/dev/zero`, mapped privately, gets that KSM flag as early as other mappings do (since 6.19:
    /// `mmap_zero_prepare` in `drivers/char/mem.c`). It needs `ksm_flag_first`.
    pub ksm_flag_first_on_zero: bool,
    /// `mprotect` to read-only uncharges memory that has never been touched, and clears
    /// `VM_ACCOUNT`. Added in a version between 6.1 and 6.12.
    pub mprotect_uncharges: bool,
    /// `mlock2` with ONFAULT rejects inaccessible mappings, as `mlock` does. Removed in a version
    /// between 5.10 and 5.18.
    pub onfault_asks_access: bool,
    /// Number of memory policy modes: modes below this number are supported.
    pub mempolicy_modes: u32,
    /// `MPOL_F_NUMA_BALANCING` is supported (since 5.12).
    pub numa_balancing: bool,

    /// `pkey_alloc` on a processor without protection keys fails with ENOSPC, as if all keys were
    /// allocated (since 7.2, and 6.12.117). In other versions, the first call in an address space allocates the
    /// only key and fails with EINVAL; later calls fail with ENOSPC.
    pub no_keys_is_none_left: bool,

    /// `mseal` is supported (since 6.10), and a sealed VMA cannot be changed.
    pub mseal: bool,
    /// `mseal` protects read-only private mappings of `/dev/zero` like anonymous memory: their
    /// pages cannot be discarded. Added in a version between 6.12 and 6.18.
    pub seal_guards_dev_zero: bool,
    /// `PR_SET_MEMORY_MERGE` is supported (since 6.4).
    pub memory_merge: bool,
    /// `PR_THP_DISABLE_EXCEPT_ADVISED` is supported (since 6.18).
    pub thp_disable_except_advised: bool,

    /// `PR_SET_MDWE` is supported (since 6.3; its flag `PR_MDWE_NO_INHERIT` since 6.6).
    pub mdwe: bool,
    /// A mapping of `memfd_secret` is locked as if by `mlock`. No longer in 7.2 (`secretmem_mmap_prepare`
    /// in `mm/secretmem.c`) and 6.12.117, but still in 6.18.44.
    pub secret_locked: bool,
    /// `[vdso]` and similar mappings can be split (until 5.10).
    pub special_splits: bool,
    /// Address selection for hugetlb mappings.
    pub hugetlb_placement: HugetlbPlacement,

    /// Supported advice values and their behaviour.
    pub advice: AdviceRules,

    /// Point at which `mremap` checks its source range.
    pub mremap_checks: MremapChecks,
    /// How much room below the limit on mappings `mremap` demands.
    pub mremap_room: MremapRoom,
    /// `mremap` with FIXED and equal lengths can move several VMAs at once (since 6.17).
    pub mremap_many: bool,
    /// An `mremap` that grows a VMA in place also merges the VMA with the one above if they become
    /// adjacent (since 5.19).
    pub expand_joins_next: bool,
    /// Treatment of the VMA that `MREMAP_DONTUNMAP` leaves behind.
    pub dontunmap: DontunmapRules,

    /// A userfaultfd accepts `MAP_DROPPABLE` memory, although it should reject such memory.
    /// Introduced in 6.11, fixed in some version before 6.18.
    pub uffd_takes_droppable: bool,
    /// A userfaultfd rejects a range that starts below `mmap_min_addr`. Removed in a version
    /// between 5.10 and 5.18.
    pub uffd_asks_min_addr: bool,

    /// A userfaultfd can watch all accesses to the pages that it protects from them, in mode RWP
    /// (since 7.3: `userfaultfd_register` in `mm/userfaultfd.c`).
    pub uffd_rwp: bool,
    /// Registering a range again, with the same userfaultfd but without the protection that it has,
    /// fails with EBUSY (since 7.3: `userfaultfd_register` in `mm/userfaultfd.c`).
    pub uffd_keeps_protection: bool,
    /// A range that a userfaultfd without `UFFD_FEATURE_EVENT_REMAP` watches merges with no neighbour
    /// of its new place when `mremap` moves it (since 7.3: `vma_merge_copied_range` in `mm/vma.c`).
    pub uffd_moves_apart: bool,

    /// Mappings of files on disk file systems are aligned for huge pages (since 5.18). Earlier
    /// kernels align only mappings of files on DAX.
    pub huge_aligned_files: bool,
    /// A userfaultfd can also write-protect shared memory and hugetlb memory (since 5.19).
    pub uffd_protects_files: bool,

    /// `brk` also merges the heap with the VMA after it. Since a version between 5.18 and 6.1,
    /// `brk` only extends the VMA before the new range.
    pub brk_joins_next: bool,
    /// `brk` does not grow a VMA that ends at the start of the heap, because that VMA is not part
    /// of the heap. `brk` shrinks the heap only if something is mapped in the range to unmap (since
    /// 6.1).
    pub brk_finds_heap: bool,
}

/// Chain check for a merge in which one neighbour has an anon_vma and the other has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OneSided {
    /// The chain of the neighbour must be singular, whichever side has the anon_vma (until 6.15).
    NeighbourSingular,
    /// The chain of the side that has the anon_vma must be singular (since 6.16).
    HolderSingular,
    /// No check: merges are correct regardless of the length of the chain.
    Either,
}

/// Address selection for hugetlb mappings. The address is always a multiple of the huge page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugetlbPlacement {
    /// A search specific to hugetlb: an address hint is rounded down, and `MAP_32BIT` and
    /// `MAP_ABOVE4G` have no effect (until 6.12).
    Own,
    /// The search that all mappings use: an address hint is rounded up (since 6.13).
    Common,
}

/// Restriction on merging VMAs with a `close` hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseHook {
    /// A VMA with the hook never merges (up to 6.6).
    NeverMerges,
    /// A VMA with the hook may grow, but must not be removed by a merge (since 6.8).
    MayNotDisappear,
}

/// Advice that `madvise` and `process_madvise` support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdviceRules {
    /// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` are supported (since 5.14).
    pub populate: bool,
    /// `MADV_POPULATE_READ` and `_WRITE` skip holes and, like other advice, report them only at the
    /// end. Changed in a version between 6.1 and 6.12.
    pub populate_skips_holes: bool,
    /// `MADV_DONTNEED_LOCKED` is supported (since 5.18).
    pub dontneed_locked: bool,
    /// `MADV_REMOVE` fails on mappings that are not currently writable (5.18, and 5.10 until an
    /// update between 5.10.223 and 5.10.262). Later kernels reject only mappings that can never
    /// become writable.
    pub remove_asks_write: bool,
    /// `MADV_DOFORK` fails on every special mapping, as on hugetlb memory and `[vdso]` (since 7.0:
    /// `madvise_vma_behavior`). Earlier kernels reject only mappings of device memory.
    pub dofork_refuses_special: bool,
    /// `MADV_COLLAPSE` is supported (since 6.1).
    pub collapse: bool,
    /// `MADV_COLLAPSE` fails if none of the pages is currently writable. Removed in some version
    /// between 6.12 and 6.18.
    pub collapse_asks_write: bool,
    /// `MADV_COLLAPSE` of a range that contains no whole huge page succeeds, even if the range is
    /// strictly inside of one (since 7.2: `madvise_collapse` in `mm/khugepaged.c`).
    pub collapse_of_none: bool,
    /// `MADV_DONTNEED` frees page tables that become empty (since 6.14). A later `MADV_COLLAPSE` of
    /// the same range then finds nothing to collapse.
    pub dontneed_frees_tables: bool,
    /// `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE` (guard regions) are supported (since 6.13).
    pub guard_regions: bool,
    /// Guard regions set `VM_MAYBE_GUARD` in their VMA (since a stable update of 6.18).
    pub guard_flag: bool,
    /// `process_madvise` accepts `MADV_WILLNEED` (since a version between 5.10 and 6.1).
    pub process_willneed: bool,
    /// `process_madvise` rejects invalid advice even if there is nothing to do, because no range
    /// contains a page (until 6.12, and since 7.2).
    pub process_checks_first: bool,
    /// `process_madvise` on the calling process accepts any advice (since 6.13). Earlier kernels
    /// accept only the advice that they accept for other processes.
    pub process_own: bool,
    /// `process_madvise` on the calling process works without CAP_SYS_NICE. Added in a version
    /// between 6.1 and 6.12.
    pub process_own_free: bool,
}

/// Point at which `mremap` checks its source range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MremapChecks {
    /// All checks that can be made in advance come before any change (since 6.17).
    First,
    /// Only the check that a VMA exists comes first (6.1 and 6.12). A fixed move then unmaps its
    /// destination and the tail of its source before the remaining checks.
    AfterUnmapping,
    /// Like `AfterUnmapping`, but without an initial check that a VMA exists (5.10). A range that
    /// shrinks may contain holes, and DONTUNMAP is limited to private anonymous memory.
    Late,
}

/// How much room below the limit on mappings (`vm.max_map_count`) `mremap` demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MremapRoom {
    /// A call with FIXED or DONTUNMAP fails unless the number of mappings is at least six below the
    /// limit, and a move unless it is at least four below (until 7.0).
    Moves,
    /// Every call, even one that shrinks or keeps the mapping, fails if four more mappings would
    /// exceed the limit, or five with DONTUNMAP; then a move fails if two more would, or three if it
    /// splits a locked mapping (since 7.1: `__check_map_count_against_split` in `mm/mremap.c`).
    Always,
}

/// Treatment of the VMA that `MREMAP_DONTUNMAP` leaves behind, and of its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DontunmapRules {
    /// The old VMA loses its anon_vma if the whole VMA has moved (since a version between 5.10 and
    /// 6.1).
    pub loses_anon_vma: bool,
    /// A VMA that has lost its anon_vma gets the page offset of its address again. Present in 7.2,
    /// 6.12.117 and 6.1.192, but not in 6.12.107, 6.1.176 or 6.18.
    pub resets_pgoff: bool,
    /// A locked VMA is first split at the edges of the moved range, so that only that range loses
    /// the lock (since 7.2, and 6.12.117 and 6.1.192). In other versions the whole VMA loses the
    /// lock.
    pub cuts_locked: bool,
    /// An unfaulted VMA does not merge with its own copy (since 7.2, and 6.12.117 and 6.1.192).
    pub stays_apart: bool,
    /// The copy of locked memory is counted in `locked_vm` (6.17 to 7.1). Since 7.2 the kernel counts
    /// it after it has unlocked the old VMA, which it looks at (`move_vma` in `mm/mremap.c`).
    pub counts_locked: bool,
    /// If the moved range is strictly inside a VMA, Linux marks the next VMA as charged, mistaking
    /// it for the remainder of the old VMA. Fixed in a version between 5.10 and 5.18.
    pub charges_next: bool,
}

/// Point at which `mmap` checks RLIMIT_AS and RLIMIT_DATA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmapLimits {
    /// The limits are checked before any change (before 6.12). If the commit charge is refused
    /// later, the mappings in the range have already been unmapped.
    BeforeCutting,
    /// The limits are checked after the VMAs at the edges of a fixed range have been split (since
    /// 6.12). If the commit charge is then refused, nothing has been unmapped.
    AfterCutting,
}

impl Rules {
    /// Checks whether a VMA may be split at `addr`.
    pub fn may_split(&self, vma: &VmaBody, addr: u64) -> bool {
        match vma.file.map(|file| file.kind) {
            Some(FileKind::Hugetlb) => addr.is_multiple_of(PMD_SIZE),
            Some(FileKind::Special) => self.special_splits,
            _ => true,
        }
    }

    /// Returns the page offsets of a mapping that has no anonymous page yet. `offsets` are those of
    /// its place in the file, or in the memory without a file.
    #[inline]
    pub fn anon_offsets(&self, body: &VmaBody, offsets: PageOffsets) -> PageOffsets {
        let of_file = body.file.is_some() && !body.flags.contains(VmFlags::MAYSHARE);
        if of_file && self.anon_pgoff_of_files {
            offsets.anon_of_address()
        } else {
            offsets
        }
    }

    /// The rules of all versions that have some, the newest first.
    pub const ALL: [Rules; 14] = [
        Rules::V7_3,
        Rules::V7_2,
        Rules::V7_1,
        Rules::V7_0,
        Rules::V6_19,
        Rules::V6_18,
        Rules::V6_17,
        Rules::V6_16,
        Rules::V6_14,
        Rules::V6_13,
        Rules::V6_12,
        Rules::V6_1,
        Rules::V5_18,
        Rules::V5_10,
    ];

    /// Returns the rules of a Linux version. A version without rules of its own has those of the
    /// next lower version that has some, because every known change begins a version with rules;
    /// versions below 5.10 have those of 5.10.
    ///
    /// ```
    /// use vmarea_merge::policy::Rules;
    ///
    /// assert_eq!(Rules::of((7, 9)), Rules::V7_3);
    /// assert_eq!(Rules::of((6, 15)), Rules::V6_14);
    /// assert_eq!(Rules::of((4, 4)), Rules::V5_10);
    /// ```
    pub fn of(version: (u32, u32)) -> Rules {
        let mut not_newer = Rules::ALL.into_iter().filter(|r| r.version <= version);
        not_newer.next().unwrap_or(Rules::V5_10)
    }

    /// True if the rules have been compared with a kernel of their version by random calls; others
    /// are known from sources or from single calls.
    pub fn are_verified(&self) -> bool {
        matches!(self.version, (7, 3) | (6, 18) | (6, 12) | (6, 1) | (5, 10))
    }

    /// Returns the rules as changed by the fixes in the stable update of the kernel with this release
    /// string. Rules without a known fix, and those of another version, stay unchanged.
    ///
    /// ```
    /// use vmarea_merge::policy::Policy;
    ///
    /// let rules = Policy::LINUX_6_12.rules;
    /// assert_eq!(rules.repaired("6.12.0"), rules);
    /// assert_ne!(rules.repaired("6.12.117+deb13-amd64"), rules);
    /// ```
    pub fn repaired(self, release: &str) -> Rules {
        if release::version(release) != Some(self.version) {
            return self;
        }
        let patch = release::patch(release);
        // After 6.12.107, and after 6.1.176.
        let dontunmap = match self.version {
            (6, 12) => patch >= 117,
            (6, 1) => patch >= 192,
            _ => false,
        };
        match self.version {
            _ if dontunmap => Rules {
                // Found in the source of 6.12.117.
                no_keys_is_none_left: self.version == (6, 12),
                secret_locked: self.secret_locked && self.version != (6, 12),
                dontunmap: DontunmapRules {
                    resets_pgoff: true,
                    cuts_locked: true,
                    stays_apart: true,
                    ..self.dontunmap
                },
                ..self
            },
            // After 5.10.223.
            (5, 10) if patch >= 262 => Rules {
                advice: AdviceRules {
                    remove_asks_write: false,
                    ..self.advice
                },
                ..self
            },
            _ => self,
        }
    }

    /// Linux 7.3.
    pub const V7_3: Rules = Rules {
        version: (7, 3),
        anon_pgoff_of_files: true,
        one_sided: OneSided::HolderSingular,
        close_hook: CloseHook::MayNotDisappear,
        huge_aligned_anon: true,
        huge_aligned_zero: true,
        map_stack_nohuge: true,
        map_above_4g: true,
        map_droppable: true,
        mmap_limits: MmapLimits::AfterCutting,
        mmap_asks_next_first: false,
        ksm_flag_first: true,
        ksm_flag_first_on_zero: true,
        mprotect_uncharges: true,
        onfault_asks_access: false,
        mempolicy_modes: 7,
        numa_balancing: true,
        no_keys_is_none_left: true,
        mseal: true,
        seal_guards_dev_zero: true,
        memory_merge: true,
        thp_disable_except_advised: true,
        mdwe: true,
        secret_locked: false,
        special_splits: false,
        hugetlb_placement: HugetlbPlacement::Common,
        advice: AdviceRules {
            populate: true,
            populate_skips_holes: false,
            dontneed_locked: true,
            remove_asks_write: false,
            dofork_refuses_special: true,
            collapse: true,
            collapse_asks_write: false,
            collapse_of_none: true,
            dontneed_frees_tables: true,
            guard_regions: true,
            guard_flag: true,
            process_willneed: true,
            process_checks_first: true,
            process_own: true,
            process_own_free: true,
        },
        mremap_checks: MremapChecks::First,
        mremap_room: MremapRoom::Always,
        mremap_many: true,
        expand_joins_next: true,
        dontunmap: DontunmapRules {
            loses_anon_vma: true,
            resets_pgoff: true,
            cuts_locked: true,
            stays_apart: true,
            counts_locked: false,
            charges_next: false,
        },
        uffd_takes_droppable: false,
        uffd_asks_min_addr: false,
        uffd_rwp: true,
        uffd_keeps_protection: true,
        uffd_moves_apart: true,
        huge_aligned_files: true,
        uffd_protects_files: true,
        brk_joins_next: false,
        brk_finds_heap: true,
    };

    /// Linux 7.2. Known from sources, and from single calls.
    pub const V7_2: Rules = Rules {
        version: (7, 2),
        anon_pgoff_of_files: false,
        uffd_rwp: false,
        uffd_keeps_protection: false,
        uffd_moves_apart: false,
        ..Rules::V7_3
    };

    /// Linux 7.1. Known from single calls.
    pub const V7_1: Rules = Rules {
        version: (7, 1),
        no_keys_is_none_left: false,
        secret_locked: true,
        advice: AdviceRules {
            collapse_of_none: false,
            process_checks_first: false,
            ..Rules::V7_2.advice
        },
        dontunmap: DontunmapRules {
            resets_pgoff: false,
            cuts_locked: false,
            stays_apart: false,
            counts_locked: true,
            ..Rules::V7_2.dontunmap
        },
        ..Rules::V7_2
    };

    /// Linux 7.0. Known from single calls.
    pub const V7_0: Rules = Rules {
        version: (7, 0),
        mremap_room: MremapRoom::Moves,
        ..Rules::V7_1
    };

    /// Linux 6.19. Known from single calls.
    pub const V6_19: Rules = Rules {
        version: (6, 19),
        advice: AdviceRules {
            dofork_refuses_special: false,
            ..Rules::V7_0.advice
        },
        ..Rules::V7_0
    };

    /// Linux 6.18.
    pub const V6_18: Rules = Rules {
        version: (6, 18),
        ksm_flag_first_on_zero: false,
        ..Rules::V6_19
    };

    /// Linux 6.17. Known from the versions of single rules.
    pub const V6_17: Rules = Rules {
        version: (6, 17),
        thp_disable_except_advised: false,
        ..Rules::V6_18
    };

    /// Linux 6.16. Known from the versions of single rules; a rule of which only the versions 6.12
    /// and 6.18 are known is that of 6.18.
    pub const V6_16: Rules = Rules {
        version: (6, 16),
        ksm_flag_first: false,
        mremap_checks: MremapChecks::AfterUnmapping,
        mremap_many: false,
        dontunmap: DontunmapRules {
            counts_locked: false,
            ..Rules::V6_17.dontunmap
        },
        ..Rules::V6_17
    };

    /// Linux 6.14 and 6.15. Known from the versions of single rules; a rule of which only the
    /// versions 6.12 and 6.18 are known is that of 6.12.
    pub const V6_14: Rules = Rules {
        version: (6, 14),
        advice: AdviceRules {
            dontneed_frees_tables: true,
            ..Rules::V6_13.advice
        },
        ..Rules::V6_13
    };

    /// Linux 6.13. Known from the versions of single rules, as 6.14.
    pub const V6_13: Rules = Rules {
        version: (6, 13),
        hugetlb_placement: HugetlbPlacement::Common,
        advice: AdviceRules {
            guard_regions: true,
            process_checks_first: false,
            process_own: true,
            ..Rules::V6_12.advice
        },
        ..Rules::V6_12
    };

    /// Linux 6.12.
    pub const V6_12: Rules = Rules {
        version: (6, 12),
        huge_aligned_zero: false,
        one_sided: OneSided::NeighbourSingular,
        seal_guards_dev_zero: false,
        uffd_takes_droppable: true,
        hugetlb_placement: HugetlbPlacement::Own,
        advice: AdviceRules {
            collapse_asks_write: true,
            dontneed_frees_tables: false,
            guard_regions: false,
            guard_flag: false,
            process_checks_first: true,
            process_own: false,
            ..Rules::V6_16.advice
        },
        ..Rules::V6_16
    };

    /// Linux 6.1.
    pub const V6_1: Rules = Rules {
        version: (6, 1),
        close_hook: CloseHook::NeverMerges,
        huge_aligned_anon: false,
        map_stack_nohuge: false,
        map_above_4g: false,
        map_droppable: false,
        mmap_limits: MmapLimits::BeforeCutting,
        mmap_asks_next_first: true,
        mprotect_uncharges: false,
        mempolicy_modes: 6,
        mseal: false,
        memory_merge: false,
        mdwe: false,
        advice: AdviceRules {
            populate_skips_holes: true,
            process_own_free: false,
            ..Rules::V6_12.advice
        },
        ..Rules::V6_12
    };

    /// Linux 5.18, the mainline of the thesis "VMA merging in Linux". Known from sources only: the
    /// fields below are those that changed between 5.18 and 6.1.
    pub const V5_18: Rules = Rules {
        version: (5, 18),
        uffd_protects_files: false,
        mmap_asks_next_first: false,
        advice: AdviceRules {
            remove_asks_write: true,
            collapse: false,
            ..Rules::V6_1.advice
        },
        expand_joins_next: false,
        brk_joins_next: true,
        brk_finds_heap: false,
        ..Rules::V6_1
    };

    /// Linux 5.10.
    pub const V5_10: Rules = Rules {
        version: (5, 10),
        huge_aligned_files: false,
        uffd_asks_min_addr: true,
        onfault_asks_access: true,
        mempolicy_modes: 5,
        numa_balancing: false,
        special_splits: true,
        advice: AdviceRules {
            populate: false,
            dontneed_locked: false,
            process_willneed: false,
            ..Rules::V5_18.advice
        },
        mremap_checks: MremapChecks::Late,
        dontunmap: DontunmapRules {
            loses_anon_vma: false,
            charges_next: true,
            ..Rules::V5_18.dontunmap
        },
        ..Rules::V5_18
    };
}
