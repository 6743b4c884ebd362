//! The options of a repair, and the report on its result.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use vmarea_merge::Refusal;
use vmarea_merge::types::VmFlags;
use vmarea_process::maps;

/// Reason why two neighbours were not joined or a piece was left unchanged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeptReason {
    /// The mappings differ in an attribute that prevents a merge.
    Differ(Refusal),
    /// A page is shared with a child after a fork.
    Shared,
    /// A page is pinned for a device or another process.
    Pinned,
    /// The mapping is mlocked.
    Locked,
    /// A page is a guard page.
    Guard,
    /// A userfaultfd of the program watches the mapping.
    Userfaultfd,
    /// The mapping is not writable, and the kernel moves pages of writable mappings only.
    NotWritable,
    /// The mapping is not plain anonymous memory.
    NotAnonymous,
    /// The mapping has flags that cannot be set on a fresh mapping.
    Special,
    /// The repair itself uses the mapping.
    InUse,
    /// The mapping changed during the repair.
    Changed,
    /// The limit on mappings leaves no space for the few temporary mappings of a repair.
    NoRoom,
}

impl KeptReason {
    /// All reasons except [`KeptReason::Differ`].
    pub(crate) const PLAIN: [KeptReason; 11] = [
        KeptReason::Shared,
        KeptReason::Pinned,
        KeptReason::Locked,
        KeptReason::Guard,
        KeptReason::Userfaultfd,
        KeptReason::NotWritable,
        KeptReason::NotAnonymous,
        KeptReason::Special,
        KeptReason::InUse,
        KeptReason::Changed,
        KeptReason::NoRoom,
    ];

    /// Returns the short name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            KeptReason::Differ(refusal) => refusal.name(),
            KeptReason::Shared => "shared",
            KeptReason::Pinned => "pinned",
            KeptReason::Locked => "locked",
            KeptReason::Guard => "guard",
            KeptReason::Userfaultfd => "userfaultfd",
            KeptReason::NotWritable => "not_writable",
            KeptReason::NotAnonymous => "not_anonymous",
            KeptReason::Special => "special",
            KeptReason::InUse => "in_use",
            KeptReason::Changed => "changed",
            KeptReason::NoRoom => "no_room",
        }
    }

    /// True if the reason is an obstacle to joining neighbours that could otherwise be one mapping.
    /// False for a difference that legitimately keeps mappings separate.
    pub fn is_obstacle(self) -> bool {
        !matches!(
            self,
            KeptReason::Differ(_)
                | KeptReason::NotAnonymous
                | KeptReason::NotWritable
                | KeptReason::InUse
        )
    }

    /// Returns a description for users.
    pub fn text(self) -> &'static str {
        match self {
            KeptReason::Differ(_) => "the mappings differ",
            KeptReason::Shared => "a page is shared after a fork; see --copy",
            KeptReason::Pinned => "a page is pinned for a device",
            KeptReason::Locked => "the memory is locked",
            KeptReason::Guard => {
                "guard markers are inside, such as --fix guards makes, and cannot be moved; these \
                 mappings stay separate, and nothing is wrong"
            }
            KeptReason::Userfaultfd => "a userfaultfd of the program watches it",
            KeptReason::NotWritable => "the memory is not writable",
            KeptReason::NotAnonymous => "it is not plain anonymous memory",
            KeptReason::Special => "it has flags that a fresh mapping cannot be given",
            KeptReason::InUse => "the repair itself works with it",
            KeptReason::Changed => "it changed meanwhile",
            KeptReason::NoRoom => {
                "the limit of mappings leaves no room to work: raise vm.max_map_count by 16"
            }
        }
    }
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Numbers of boundaries and pieces that were not joined, by reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Number of mappings examined.
    pub(crate) mappings: u64,
    /// Number of boundaries and pieces for each reason.
    pub by_reason: BTreeMap<KeptReason, u64>,
    /// Flags of mappings that were kept for the reason [`KeptReason::Special`].
    pub special_flags: VmFlags,
}

impl Kept {
    pub(crate) fn add(&mut self, reason: KeptReason) {
        *self.by_reason.entry(reason).or_default() += 1;
    }
}

/// What the caller knows about the flags that the process has set with `madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MadviseFlags {
    /// The caller knows nothing, so the flags are read: through BPF if permitted, otherwise from
    /// `smaps`.
    #[default]
    Read,
    /// The owner of the range knows that no flag has been set in it.
    Unset,
}

/// Method of transferring pages to the fresh mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The kernel moves pages (6.8 or later).
    Move,
    /// Pages are copied within a stopped process.
    Copy,
}

/// Options of a repair.
///
/// A process that repairs itself must own the range, as described at
/// [`merge_range`](crate::merge_range).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Maximum time for which a thread may be blocked; `None` for no limit.
    pub max_pause: Option<Duration>,
    /// Maximum number of shared pages that may be copied.
    pub copy_pages: u64,
    /// Whether the flags set by `madvise` must be read.
    pub madvise_flags: MadviseFlags,
    /// Method of transferring pages to the fresh mapping; `None` for the best method that the
    /// kernel supports. A process that repairs itself always moves pages.
    pub way: Option<Way>,
}

/// The result of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Number of mappings in the range before the repair.
    pub before: u64,
    /// Number of mappings in the range after the repair, counted again.
    pub after: u64,
    /// Number of runs of neighbours that could be one mapping.
    pub runs: u64,
    /// Number of mappings that were not tried because the caller ended the repair early.
    pub left: u64,
    /// Number of pieces that were joined.
    pub pieces: u64,
    /// Total size of the joined pieces, in bytes.
    pub bytes: u64,
    /// Number of pages copied: shared pages, or all pages if the kernel cannot move pages.
    pub copied: u64,
    /// Longest duration for which a single piece blocked threads.
    pub longest_pause: Duration,
    /// Number of pieces that blocked threads for longer than allowed.
    pub long_pauses: u64,
    /// Duration of the whole repair.
    pub total: Duration,
    /// Number of forks during the repair in which the child received the missing pages.
    pub forks: u64,
    /// The boundaries and pieces that were not joined.
    pub kept: Kept,
}

/// Counts the mappings of a process that overlap `range`, except `[vsyscall]`.
///
/// # Errors
/// Errors from reading the list of mappings.
pub(crate) fn count_mappings(pid: i32, range: &Range<u64>) -> io::Result<u64> {
    let touches =
        |mapping: &&maps::MapsEntry| mapping.start < range.end && range.start < mapping.end;
    let mappings = maps::read(pid)?;
    let counted = mappings.iter().filter(|mapping| !mapping.is_vsyscall());
    Ok(counted.filter(touches).count() as u64)
}
