//! What a repair is asked for, and what it says of what it did.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use vmarea::vma::merge::Refusal;
use vmarea_process::maps;

/// Why two neighbours stay apart, or a piece was left as it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The mappings differ in something that matters.
    Differ(Refusal),
    /// A page is shared: with a child after a fork, or by KSM.
    Shared,
    /// A page is pinned for a device or another process.
    Pinned,
    /// The mapping is mlocked.
    Locked,
    /// A page is a guard page.
    Guard,
    /// A userfaultfd of the program watches it.
    Userfaultfd,
    /// It may not be written, and the kernel moves pages of writable mappings only.
    NotWritable,
    /// It is not plain anonymous memory.
    NotAnonymous,
    /// It has flags that a fresh mapping cannot be given.
    Special,
    /// We work with it ourselves.
    InUse,
    /// It changed while we looked.
    Changed,
    /// The other threads could not be stopped: one is traced already, or does not stop.
    CannotStop,
    /// There is no room for the few mappings that the work itself takes.
    NoRoom,
}

impl Reason {
    /// Short name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Differ(refusal) => refusal.name(),
            Reason::Shared => "shared",
            Reason::Pinned => "pinned",
            Reason::Locked => "locked",
            Reason::Guard => "guard",
            Reason::Userfaultfd => "userfaultfd",
            Reason::NotWritable => "not_writable",
            Reason::NotAnonymous => "not_anonymous",
            Reason::Special => "special",
            Reason::InUse => "in_use",
            Reason::Changed => "changed",
            Reason::CannotStop => "cannot_stop",
            Reason::NoRoom => "no_room",
        }
    }

    /// True for what came between us and a run of neighbours that could be one, rather than for what
    /// rightly keeps mappings apart.
    pub fn is_obstacle(self) -> bool {
        !matches!(
            self,
            Reason::Differ(_) | Reason::NotAnonymous | Reason::NotWritable | Reason::InUse
        )
    }

    /// What it means, for people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Differ(_) => "the mappings differ",
            Reason::Shared => "a page is shared after a fork, or by KSM; see --copy",
            Reason::Pinned => "a page is pinned for a device",
            Reason::Locked => "the memory is locked",
            Reason::Guard => "it has guard pages inside",
            Reason::Userfaultfd => "a userfaultfd of the program watches it",
            Reason::NotWritable => "the memory is not writable",
            Reason::NotAnonymous => "it is not plain anonymous memory",
            Reason::Special => "it has flags that a fresh mapping cannot be given",
            Reason::InUse => "the repair itself works with it",
            Reason::Changed => "it changed meanwhile",
            Reason::CannotStop => "the other threads could not be stopped",
            Reason::NoRoom => {
                "the limit of mappings leaves no room to work: raise vm.max_map_count by 16"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What stayed apart, by reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Mappings that were looked at.
    pub(crate) mappings: u64,
    /// Boundaries or pieces for each reason.
    pub by_reason: BTreeMap<Reason, u64>,
}

impl Kept {
    pub(crate) fn add(&mut self, reason: Reason) {
        *self.by_reason.entry(reason).or_default() += 1;
    }
}

/// What the caller knows of the flags that the process gave its mappings by `madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hidden {
    /// Nothing: they are read, by BPF where that is permitted, else from `smaps`.
    #[default]
    Read,
    /// There are none in the range, as its owner knows.
    Plain,
}

/// Whether the mappings may be changed by others while they are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Owner {
    /// The caller owns the range: until the repair has ended nobody unmaps, moves or protects any
    /// of it. Reading, writing and forking are free.
    #[default]
    Caller,
    /// Anybody may do anything at any time. The other threads are stopped for the one step that
    /// puts a fresh mapping in place, by a short-lived process that traces them.
    Anybody,
}

/// How pages come to another mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// They are moved, by the kernel (6.8 or later).
    Move,
    /// They are copied, within a process that stands.
    Copy,
}

/// How to repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// How long a thread may be kept from its memory; no bound where it is `None`.
    pub max_pause: Option<Duration>,
    /// How many pages may be copied because they are shared.
    pub copy_pages: u64,
    /// See [`Hidden`].
    pub hidden: Hidden,
    /// See [`Owner`].
    pub owner: Owner,
    /// How pages get there; where it is `None`, as the kernel can. From within they are moved in any case.
    pub way: Option<Way>,
}

/// What a repair did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Mappings in the range before.
    pub before: u64,
    /// Mappings in the range after, counted anew.
    pub after: u64,
    /// Runs of neighbours that could be one.
    pub runs: u64,
    /// Pieces that were joined.
    pub pieces: u64,
    /// Bytes of address space in them.
    pub bytes: u64,
    /// Pages that were copied: because they were shared, or all of them where none can be moved.
    pub copied: u64,
    /// How long the longest piece took.
    pub longest_pause: Duration,
    /// How long all of it took.
    pub total: Duration,
    /// Forks that came while pages were out and were completed.
    pub forks: u64,
    /// What stayed apart.
    pub kept: Kept,
}

/// Mappings of a process that touch `range`, without `[vsyscall]`.
///
/// # Errors
/// Those of reading the list of mappings.
pub(crate) fn count_mappings(pid: i32, range: &Range<u64>) -> io::Result<u64> {
    let touches =
        |mapping: &&maps::MapsEntry| mapping.start < range.end && range.start < mapping.end;
    let mappings = maps::read(pid)?;
    let counted = mappings.iter().filter(|mapping| !mapping.is_vsyscall());
    Ok(counted.filter(touches).count() as u64)
}
