//! The repairs that move no pages: `guards`, `flags`, `empties`, `priming`. The user must request
//! each by name.
//!
//! Guard pages that were made with `mprotect` become guard markers within the surrounding mapping.
//! A flag that is set on only some of several neighbouring mappings is cleared. Adjacent reserved
//! ranges without pages become one range. The calls are made in the process while it is stopped.
//! Each repair changes only what the program cannot observe, or what the user has requested by
//! name.
//!
//! # Picture
//! ```text
//! guards   |rw|--|rw|--|rw|  ▶  |rw..rw..rw|      ..: guard markers, which fault like --
//! flags    |rw|rw D|rw|rw D| ▶  |rw        |      D: DONTFORK or DONTDUMP
//! empties  |--|--|--|--|     ▶  |--        |      --: reserved, without pages
//! priming  |--         |     ▶  |--       a|      a: one anon_vma for all later commits
//! ```
//!
//! # Linux
//! `MADV_GUARD_INSTALL` exists since 6.13. If the program later makes the range writable with
//! `mprotect`, the marker still acts as a guard. For this reason the user must request `guards`.

use std::time::Duration;

use vmarea_merge::policy::Policy;
use vmarea_merge::types::{VmFlags, VmRange};

use super::plan::PAGE;
use vmarea_linux_sys::calls::Call;
use vmarea_process::maps::MapName;
use vmarea_process::pages::Pages;
use vmarea_process::plan::{self, Change};
use vmarea_process::{Mapping, Remedy};

/// A repair that moves no pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fix {
    /// Converts guard pages made with `mprotect` to guard markers.
    Guards,
    /// Clears `MADV_DONTFORK` or `MADV_DONTDUMP` on a mapping whose neighbour does not have the
    /// flag.
    Flags,
    /// Joins adjacent reserved ranges without pages.
    Empties,
    /// Creates an anon_vma for each reservation. Memory committed later in the reservation shares
    /// this anon_vma, regardless of the order of the commits.
    Priming,
}

impl Fix {
    /// All repairs that move no pages.
    pub const ALL: [Fix; 4] = [Fix::Guards, Fix::Flags, Fix::Empties, Fix::Priming];

    /// Returns the name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fix::Guards => "guards",
            Fix::Flags => "flags",
            Fix::Empties => "empties",
            Fix::Priming => "priming",
        }
    }

    /// Returns the remedy with the same effect; priming removes no boundary by itself.
    pub fn remedy(self) -> Option<Remedy> {
        match self {
            Fix::Guards => Some(Remedy::Guards),
            Fix::Flags => Some(Remedy::Flags),
            Fix::Empties => Some(Remedy::Empties),
            Fix::Priming => None,
        }
    }
}

/// The result of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// The repair.
    pub fix: Fix,
    /// Number of places that the repair changed, or would change in a dry run.
    pub places: u64,
    /// Number of guards left unchanged because they would remain separate mappings even if they
    /// were accessible. Such guards were used as memory earlier, and so have an anon_vma.
    pub apart: u64,
    /// Measured decrease in the number of mappings; `None` in a dry run. Negative values are
    /// possible: priming prepares for later commits and may add mappings.
    pub fewer: Option<i64>,
    /// Number of times that the process was stopped.
    pub stops: u64,
    /// Longest duration for which the process was stopped.
    pub longest_pause: Duration,
    /// Number of stops that were longer than allowed.
    pub long_pauses: u64,
    /// Number of places that were not tried because the caller ended the repair early.
    pub left: u64,
}

impl Fixed {
    /// The result of a repair that has changed nothing.
    pub(super) fn nothing(fix: Fix) -> Fixed {
        Fixed {
            fix,
            places: 0,
            apart: 0,
            fewer: None,
            stops: 0,
            longest_pause: Duration::ZERO,
            long_pauses: 0,
            left: 0,
        }
    }
}

const MADV_GUARD_INSTALL: u64 = 102;

/// Minimum size of a reservation that is primed.
const LEAST_RESERVED: u64 = 1 << 20;

/// Flags of mappings that are not primed, because touching a page would fail or be noticeable.
const NOT_PRIMED: VmFlags = VmFlags::LOCKED_MASK
    .union(VmFlags::UFFD_ANY)
    .union(VmFlags::SEALED)
    .union(VmFlags::SPECIAL)
    .union(VmFlags::DONTCOPY)
    .union(VmFlags::WIPEONFORK);

/// The repair of one place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Step {
    /// The planned change, which must still be possible when the process is stopped; `None` if the
    /// step primes a reservation.
    pub(super) change: Option<Change>,
    /// Address of an empty page to which a zero is written from outside the process before the
    /// calls.
    pub(super) touch: Option<u64>,
    /// The calls, all of which are made during one stop of the process.
    pub(super) calls: Vec<Call>,
    /// The call that reverts the first call if a later one is refused.
    pub(super) take_back: Option<Call>,
}

/// The steps of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Steps {
    pub(super) steps: Vec<Step>,
    /// Number of guards left unchanged: see [`Fixed::apart`].
    pub(super) apart: u64,
}

/// Returns the steps of `fix` for a process with these mappings.
///
/// [`vmarea_process::plan`] decides which places a repair changes.
pub(super) fn steps(fix: Fix, policy: &Policy, mappings: &[Mapping], pages: &dyn Pages) -> Steps {
    let Some(remedy) = fix.remedy() else {
        return Steps {
            steps: priming(mappings, pages),
            apart: 0,
        };
    };
    let changes = plan::changes(remedy, policy, mappings, pages);
    // The flags of a mapping that changed while the list was being read are unknown.
    let all_read = |change: &&Change| {
        let range = change.range();
        let first = mappings.partition_point(|mapping| mapping.entry.end <= range.start);
        let inside = mappings[first..].iter();
        let mut inside = inside.take_while(|mapping| mapping.entry.start < range.end);
        inside.all(|mapping| mapping.flags.is_some())
    };
    Steps {
        steps: changes.list.iter().filter(all_read).map(step).collect(),
        apart: changes.apart,
    }
}

/// Returns the calls that make a change.
fn step(change: &Change) -> Step {
    let range = change.range();
    let of = |calls| Step {
        change: Some(*change),
        calls,
        ..Step::default()
    };
    match *change {
        Change::Mark { perms, .. } => {
            let prot =
                u64::from(perms.read) | u64::from(perms.write) << 1 | u64::from(perms.exec) << 2;
            let protect = |prot| {
                let arguments = [range.start, range.len_bytes(), prot];
                Call::plain(0, libc::SYS_mprotect, &arguments)
            };
            Step {
                // Installing the marker in a separate mapping would create a separate anon_vma for
                // it, and the mapping could then never merge with its neighbours. Therefore,
                // `mprotect` merges it first. No thread runs in between.
                take_back: Some(protect(libc::PROT_NONE as u64)),
                ..of(vec![protect(prot), mark(range)])
            }
        }
        Change::Clear { flags, .. } => {
            let clears = [
                (VmFlags::DONTCOPY, libc::MADV_DOFORK),
                (VmFlags::DONTDUMP, libc::MADV_DODUMP),
            ];
            let cleared = clears.iter().filter(|(flag, _)| flags.contains(*flag));
            let advise = |(_, advice): &(VmFlags, i32)| {
                let arguments = [range.start, range.len_bytes(), *advice as u64];
                Call::plain(0, libc::SYS_madvise, &arguments)
            };
            of(cleared.map(advise).collect())
        }
        Change::Reserve { noreserve, .. } => {
            let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            if noreserve {
                flags |= libc::MAP_NORESERVE;
            }
            let (start, len) = (range.start, range.len_bytes());
            let none = libc::PROT_NONE as u64;
            let arguments = [start, len, none, flags as u64, u64::MAX, 0];
            of(vec![Call::plain(0, libc::SYS_mmap, &arguments)])
        }
    }
}

/// Returns the call that marks empty pages as guards.
fn mark(range: VmRange) -> Call {
    let arguments = [range.start, range.len_bytes(), MADV_GUARD_INSTALL];
    Call::plain(0, libc::SYS_madvise, &arguments)
}

/// Returns the steps that touch and then discard one page of each reservation. The anon_vma that
/// the touch creates remains.
fn priming(mappings: &[Mapping], pages: &dyn Pages) -> Vec<Step> {
    let fits = |mapping: &&Mapping| {
        let range = mapping.range();
        is_plain(mapping)
            && mapping
                .flags
                .is_some_and(|flags| !flags.is_accessible() && !flags.intersects(NOT_PRIMED))
            && range.len_bytes() >= LEAST_RESERVED
            && mapping.kernel.is_none_or(|vma| vma.anon_vma == 0)
            && pages.is_empty(VmRange::page(range.start)) == Some(true)
    };
    let step = |mapping: &Mapping| {
        let page = mapping.entry.start;
        let drop = [page, PAGE, libc::MADV_DONTNEED as u64];
        Step {
            touch: Some(page),
            calls: vec![Call::plain(0, libc::SYS_madvise, &drop)],
            ..Step::default()
        }
    };
    mappings.iter().filter(fits).map(step).collect()
}

fn is_plain(mapping: &Mapping) -> bool {
    let entry = &mapping.entry;
    entry.ino == 0 && entry.dev == 0 && !entry.perms.shared && entry.name == MapName::None
}
