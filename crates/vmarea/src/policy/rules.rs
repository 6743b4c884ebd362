//! Rules: what one kernel version does, as data, one named field for each behaviour that changed.
//!
//! Each field says what it is about and since which version; where a call differs between kernels it
//! asks for the field and never for a version. The sets of 6.18, 6.12, 6.1 and 5.10 are compared with
//! their kernels by random calls (`docs/kernels.md`); a version in brackets is read in the source of
//! one that is near, not seen.

/// What one kernel version does, as far as it shapes an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Major and minor version that the rules were verified against.
    pub version: (u32, u32),

    /// Where only one of two neighbours has an anon_vma, which chain must be single: that of the
    /// neighbour alone (before 6.16), or that of the one that has it.
    pub one_sided: OneSided,
    /// What a `close` hook forbids.
    pub close_hook: CloseHook,

    /// Anonymous mappings of whole huge pages are placed aligned (6.7).
    pub huge_aligned_anon: bool,
    /// Private mappings of `/dev/zero` with room for a huge page are placed aligned (after 6.12).
    pub huge_aligned_zero: bool,
    /// `MAP_STACK` sets `VM_NOHUGEPAGE` (6.7).
    pub map_stack_nohuge: bool,
    /// `MAP_ABOVE4G` is known (6.6).
    pub map_above_4g: bool,
    /// `MAP_DROPPABLE` is known (6.11).
    pub map_droppable: bool,

    /// When a mapping is held against RLIMIT_AS and RLIMIT_DATA.
    pub mmap_limits: MmapLimits,
    /// `mmap` asks the neighbour after the new range first, and the one before must fit that (6.1, not
    /// in 5.10).
    pub mmap_asks_next_first: bool,
    /// A mapping of a process whose mappings are all for KSM (`PR_SET_MEMORY_MERGE`) has the flag when
    /// it is looked for neighbours (6.17); before, it gets the flag afterwards if it stays alone.
    pub ksm_flag_first: bool,
    /// `mprotect` to read-only gives back the charge of memory that was never touched, and the flag
    /// (between 6.1 and 6.12).
    pub mprotect_uncharges: bool,
    /// `mlock2` with ONFAULT refuses mappings that cannot be accessed, as `mlock` does (until 5.x).
    pub onfault_asks_access: bool,
    /// Modes of memory policies that are known: those below this number.
    pub mempolicy_modes: u32,
    /// `MPOL_F_NUMA_BALANCING` is known (5.12).
    pub numa_balancing: bool,

    /// `pkey_alloc` says ENOSPC where the processor has no keys, as where none is left (6.12.117); else
    /// it takes the one key that there is, which is EINVAL, and none is left from then on.
    pub no_keys_is_none_left: bool,

    /// `mseal` is there (6.10), and a sealed VMA refuses to be changed.
    pub mseal: bool,
    /// To a seal, which keeps read-only memory from being thrown away, private mappings of `/dev/zero`
    /// are anonymous (between 6.12 and 6.18).
    pub seal_guards_dev_zero: bool,
    /// `PR_SET_MEMORY_MERGE` is there (6.4).
    pub memory_merge: bool,
    /// `PR_THP_DISABLE_EXCEPT_ADVISED` is known (6.18).
    pub thp_disable_except_advised: bool,

    /// `PR_SET_MDWE` is there (6.3; without inheriting since 6.6).
    pub mdwe: bool,
    /// A mapping of `memfd_secret` is locked as if by `mlock` (until 6.12.117, not before 6.18.44).
    pub secret_locked: bool,
    /// `[vdso]` and its like can be cut (until 5.10).
    pub special_splits: bool,
    /// How room is found for a mapping of a hugetlb file.
    pub hugetlb_placement: HugetlbPlacement,

    /// Advice that is known.
    pub advice: AdviceRules,

    /// When `mremap` looks at what it is to move.
    pub mremap_checks: MremapChecks,
    /// `mremap` with FIXED and equal lengths moves several VMAs at once (6.17).
    pub mremap_many: bool,
    /// `mremap` that grows in place joins what it then touches (5.19).
    pub expand_joins_next: bool,
    /// What becomes of the VMA that `MREMAP_DONTUNMAP` leaves behind.
    pub dontunmap: DontunmapRules,

    /// A userfaultfd takes `MAP_DROPPABLE` memory, against what is meant (6.11 until some version
    /// before 6.18).
    pub uffd_takes_droppable: bool,
    /// To a userfaultfd, what begins below `mmap_min_addr` is no range (until 5.x).
    pub uffd_asks_min_addr: bool,

    /// Files of disk file systems are placed so that huge pages fit (5.18); before, only those on DAX.
    pub huge_aligned_files: bool,
    /// A userfaultfd write-protects shared memory and hugetlbfs as well (5.19).
    pub uffd_protects_files: bool,

    /// `brk` joins what follows the heap, and does not only grow what precedes it (until 5.x).
    pub brk_joins_next: bool,
    /// `brk` knows where the heap begins: it grows no VMA that ends there, and shrinks only where
    /// something is mapped (6.1).
    pub brk_finds_heap: bool,
}

/// How the chain is looked at where one neighbour has an anon_vma and the other has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OneSided {
    /// The chain of the neighbour that is merged with must be single, whoever has the anon_vma
    /// (until 6.15).
    NeighbourSingular,
    /// The chain of the one that has the anon_vma must be single (since 6.16).
    HolderSingular,
    /// Neither: how long a chain is says nothing about whether a merge is right.
    Either,
}

/// How room is found for a mapping of a hugetlb file; at a multiple of its page size in either case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugetlbPlacement {
    /// By a search of its own: a wish is rounded down, and `MAP_32BIT` and `MAP_ABOVE4G` say nothing (until
    /// 6.12).
    Own,
    /// As for any mapping: a wish is rounded up (6.13).
    Common,
}

/// What a `close` hook forbids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseHook {
    /// A VMA with the hook merges with nothing (until 6.6).
    NeverMerges,
    /// It may grow, but not disappear (since 6.8).
    MayNotDisappear,
}

/// Advice that `madvise` and `process_madvise` know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdviceRules {
    /// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` (5.14).
    pub populate: bool,
    /// These step over holes and report them at the end, as other advice does (until 6.x).
    pub populate_skips_holes: bool,
    /// `MADV_DONTNEED_LOCKED` (5.18).
    pub dontneed_locked: bool,
    /// `MADV_REMOVE` is refused on mappings that are not writable now; later only on those that can
    /// never be (5.10 until some update between 223 and 262).
    pub remove_asks_write: bool,
    /// `MADV_COLLAPSE` (6.1).
    pub collapse: bool,
    /// It is refused where none of the pages may be written now (until some version between 6.12 and
    /// 6.18).
    pub collapse_asks_write: bool,
    /// `MADV_DONTNEED` frees tables that it leaves empty, so that `MADV_COLLAPSE` finds nothing there
    /// (6.14).
    pub dontneed_frees_tables: bool,
    /// Guard regions: `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE` (6.13).
    pub guard_regions: bool,
    /// Guard regions mark their VMA with `VM_MAYBE_GUARD` (6.18 with its later updates).
    pub guard_flag: bool,
    /// `process_madvise` takes `MADV_WILLNEED` (between 5.10 and 6.1).
    pub process_willneed: bool,
    /// `process_madvise` on the caller itself takes any advice (6.13); before, what it takes for
    /// others.
    pub process_own: bool,
    /// `process_madvise` on the caller itself needs no CAP_SYS_NICE (between 6.1 and 6.12).
    pub process_own_free: bool,
}

/// When `mremap` looks at what it is to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MremapChecks {
    /// All that can be checked is checked before anything is changed (since 6.17).
    First,
    /// Whether there is a VMA comes first; the destination of a fixed move is unmapped, and the tail of
    /// its source, before the rest (6.1 and 6.12).
    AfterUnmapping,
    /// As before, and nothing is looked for at first: shrinking takes holes, and DONTUNMAP is for
    /// private anonymous memory alone (5.10).
    Late,
}

/// What becomes of the VMA that `MREMAP_DONTUNMAP` leaves behind, and of its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DontunmapRules {
    /// It loses its anon_vma where all of it has moved (between 5.10 and 6.1).
    pub loses_anon_vma: bool,
    /// Having lost it, it lies on the page offset of its address again (6.12.117 and 6.1.192; neither
    /// 6.12.107, 6.1.176 nor 6.18).
    pub resets_pgoff: bool,
    /// A locked VMA is cut at the edges of the range first, so that only the part loses the lock; else
    /// all of it does (6.12.117 and 6.1.192, as above).
    pub cuts_locked: bool,
    /// An unfaulted VMA is not joined with its own copy (6.12.117 and 6.1.192, as above).
    pub stays_apart: bool,
    /// The copy is counted as locked, though the lock of the old one is gone (since 6.17).
    pub counts_locked: bool,
    /// Where the range lies inside of a VMA, the VMA after that is taken for its rest and marked as
    /// charged (until 5.x).
    pub charges_next: bool,
}

/// When a mapping is held against RLIMIT_AS and RLIMIT_DATA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmapLimits {
    /// Before anything is changed; what is in the way has gone when the charge is refused (until 6.1).
    BeforeCutting,
    /// With the VMAs at the edges of a fixed range cut, and nothing gone when the charge is refused
    /// (6.12).
    AfterCutting,
}

impl Rules {
    /// The rules with the repairs that a stable update brought: those of the version's build number
    /// `patch`, as 117 in 6.12.117. Where nothing was seen to change they stay as they are.
    pub fn repaired(self, patch: u32) -> Rules {
        // After 6.12.107, and after 6.1.176.
        let dontunmap = match self.version {
            (6, 12) => patch >= 117,
            (6, 1) => patch >= 192,
            _ => false,
        };
        match self.version {
            _ if dontunmap => Rules {
                // Read in the source of 6.12.117.
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

    /// Linux 6.18.
    pub const V6_18: Rules = Rules {
        version: (6, 18),
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
        mprotect_uncharges: true,
        onfault_asks_access: false,
        mempolicy_modes: 7,
        numa_balancing: true,
        no_keys_is_none_left: false,
        mseal: true,
        seal_guards_dev_zero: true,
        memory_merge: true,
        thp_disable_except_advised: true,
        mdwe: true,
        secret_locked: true,
        special_splits: false,
        hugetlb_placement: HugetlbPlacement::Common,
        advice: AdviceRules {
            populate: true,
            populate_skips_holes: false,
            dontneed_locked: true,
            remove_asks_write: false,
            collapse: true,
            collapse_asks_write: false,
            dontneed_frees_tables: true,
            guard_regions: true,
            guard_flag: true,
            process_willneed: true,
            process_own: true,
            process_own_free: true,
        },
        mremap_checks: MremapChecks::First,
        mremap_many: true,
        expand_joins_next: true,
        dontunmap: DontunmapRules {
            loses_anon_vma: true,
            resets_pgoff: false,
            cuts_locked: false,
            stays_apart: false,
            counts_locked: true,
            charges_next: false,
        },
        uffd_takes_droppable: false,
        uffd_asks_min_addr: false,
        huge_aligned_files: true,
        uffd_protects_files: true,
        brk_joins_next: false,
        brk_finds_heap: true,
    };

    /// Linux 6.12.
    pub const V6_12: Rules = Rules {
        version: (6, 12),
        huge_aligned_zero: false,
        one_sided: OneSided::NeighbourSingular,
        ksm_flag_first: false,
        seal_guards_dev_zero: false,
        uffd_takes_droppable: true,
        thp_disable_except_advised: false,
        hugetlb_placement: HugetlbPlacement::Own,
        advice: AdviceRules {
            collapse_asks_write: true,
            dontneed_frees_tables: false,
            guard_regions: false,
            guard_flag: false,
            process_own: false,
            ..Rules::V6_18.advice
        },
        mremap_checks: MremapChecks::AfterUnmapping,
        mremap_many: false,
        dontunmap: DontunmapRules {
            counts_locked: false,
            ..Rules::V6_18.dontunmap
        },
        ..Rules::V6_18
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

    /// Linux 5.10.
    pub const V5_10: Rules = Rules {
        version: (5, 10),
        huge_aligned_files: false,
        uffd_protects_files: false,
        uffd_asks_min_addr: true,
        mmap_asks_next_first: false,
        onfault_asks_access: true,
        mempolicy_modes: 5,
        numa_balancing: false,
        special_splits: true,
        advice: AdviceRules {
            populate: false,
            dontneed_locked: false,
            remove_asks_write: true,
            collapse: false,
            process_willneed: false,
            ..Rules::V6_1.advice
        },
        mremap_checks: MremapChecks::Late,
        expand_joins_next: false,
        dontunmap: DontunmapRules {
            loses_anon_vma: false,
            charges_next: true,
            ..Rules::V6_1.dontunmap
        },
        brk_joins_next: true,
        brk_finds_heap: false,
        ..Rules::V6_1
    };
}
