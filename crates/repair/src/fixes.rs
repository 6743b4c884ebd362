//! The repairs that move no pages: `guards`, `flags`, `empties`, `priming`. The user must request
//! each by name.
//!
//! Guard pages that were made with `mprotect` become guard markers within the surrounding mapping;
//! a flag that is set on some of the mappings is cleared; adjacent reserved ranges without pages
//! become one. The calls are made in the process while it is stopped. Each repair changes only what
//! the program cannot see, or what the user requested by name.
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

use std::fs::File;
use std::os::unix::fs::FileExt;

use vmarea_merge::types::VmRange;

use super::plan::PAGE;
use vmarea_linux_sys::calls::Call;
use vmarea_process::guard::MOST_GUARD_PAGES;
use vmarea_process::maps::{MapName, MapsEntry, SmapsEntry};
use vmarea_process::pagemap::FILLED;
use vmarea_process::view::{View, ViewVma};

/// A repair that moves no pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fix {
    /// Replaces guard pages made with `mprotect` by guard markers.
    Guards,
    /// Clears `MADV_DONTFORK` and `MADV_DONTDUMP` if a neighbour does not have them.
    Flags,
    /// Joins adjacent reserved ranges without pages.
    Empties,
    /// Creates an anon_vma for each reservation. All memory committed there later shares it,
    /// regardless of the order.
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
}

/// The result of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// The repair.
    pub fix: Fix,
    /// Number of places that the repair changed, or would change in a dry run.
    pub places: u64,
    /// Number of guards left unchanged, because they had been used as memory before and would
    /// remain separate mappings.
    pub apart: u64,
    /// Measured decrease in the number of mappings; `None` in a dry run. Negative values are
    /// possible: priming prepares for later commits and may add mappings.
    pub fewer: Option<i64>,
}

const MADV_GUARD_INSTALL: u64 = 102;

/// Minimum size of a reservation that is primed.
const LEAST_RESERVED: u64 = 1 << 20;

/// The repair of one place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Step {
    /// An empty page to fill first, by writing a zero from outside the process.
    pub(super) touch: Option<u64>,
    /// The calls, all made while the process is stopped once.
    pub(super) calls: Vec<Call>,
    /// The call that reverts the first call if a later one is refused.
    pub(super) take_back: Option<Call>,
    /// A guard page that is made accessible between two of the calls.
    pub(super) guard: Option<VmRange>,
}

/// The steps of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Steps {
    pub(super) steps: Vec<Step>,
    /// Number of guards left unchanged: see [`Fixed::apart`].
    pub(super) apart: u64,
}

impl Step {
    fn of(calls: Vec<Call>) -> Step {
        Step {
            calls,
            ..Step::default()
        }
    }
}

/// Returns the steps of `fix` for a process with these mappings. `pagemap`, a file of the process,
/// shows whether a range is empty; `view` is the kernel's own data, if it can be read.
pub(super) fn steps(
    fix: Fix,
    mappings: &[SmapsEntry],
    pagemap: &File,
    view: Option<&View>,
) -> Steps {
    let steps = match fix {
        Fix::Guards => return guards(mappings, pagemap, view),
        Fix::Flags => flags(mappings),
        Fix::Empties => empties(mappings, pagemap),
        Fix::Priming => priming(mappings, pagemap, view),
    };
    Steps { steps, apart: 0 }
}

fn is_plain(mapping: &MapsEntry) -> bool {
    mapping.ino == 0 && mapping.dev == 0 && !mapping.perms.shared && mapping.name == MapName::None
}

fn is_reserved(mapping: &MapsEntry) -> bool {
    let perms = mapping.perms;
    is_plain(mapping) && !perms.read && !perms.write && !perms.exec
}

fn touch(a: &MapsEntry, b: &MapsEntry) -> bool {
    a.end == b.start
}

/// True if no page of the range is in memory or in swap.
fn is_empty(pagemap: &File, range: VmRange) -> bool {
    let mut bytes = vec![0; 64 << 10];
    let mut at = range.start;
    while at < range.end {
        let want = (((range.end - at) / PAGE * 8) as usize).min(bytes.len());
        match pagemap.read_at(&mut bytes[..want], at / PAGE * 8) {
            Ok(got) if got >= 8 => {
                let (words, _) = bytes[..got].as_chunks::<8>();
                let any = words.iter().any(|w| u64::from_ne_bytes(*w) & FILLED != 0);
                if any {
                    return false;
                }
                at += words.len() as u64 * PAGE;
            }
            // A range that cannot be read is not considered empty.
            _ => return false,
        }
    }
    true
}

fn guards(mappings: &[SmapsEntry], pagemap: &File, view: Option<&View>) -> Steps {
    let mut steps = Steps::default();
    for triple in mappings.windows(3) {
        let [before, guard, after] = [&triple[0], &triple[1], &triple[2]].map(|e| &e.mapping);
        let range = VmRange::new(guard.start, guard.end);
        let same = before.perms == after.perms && is_plain(before) && is_plain(after);
        let fits = same
            && before.perms.write
            && is_reserved(guard)
            && touch(before, guard)
            && touch(guard, after)
            && range.pages() <= MOST_GUARD_PAGES
            && !triple[1].has(b"lo");
        if !fits || !is_empty(pagemap, range) {
            continue;
        }
        if view.is_some_and(|view| !would_join(view, before, guard, after)) {
            steps.apart += 1;
            continue;
        }
        let prot = u64::from(before.perms.read)
            | u64::from(before.perms.write) << 1
            | u64::from(before.perms.exec) << 2;
        let protect = |prot| {
            let arguments = [range.start, range.len_bytes(), prot];
            Call::plain(0, libc::SYS_mprotect, &arguments)
        };
        steps.steps.push(Step {
            // Installing the marker in a separate mapping would create a separate anon_vma for it,
            // and the mapping could then never merge with its neighbours. Therefore, `mprotect`
            // merges it first. No thread runs in between, and the journal records the guard.
            calls: vec![protect(prot), mark(range)],
            take_back: Some(protect(libc::PROT_NONE as u64)),
            guard: Some(range),
            ..Step::default()
        });
    }
    steps
}

/// Marks empty pages as guards.
pub(super) fn mark(range: VmRange) -> Call {
    let arguments = [range.start, range.len_bytes(), MADV_GUARD_INSTALL];
    Call::plain(0, libc::SYS_madvise, &arguments)
}

/// True if a guard that is made writable merges with a neighbour: it has no anon_vma, or the
/// neighbour's.
fn would_join(view: &View, before: &MapsEntry, guard: &MapsEntry, after: &MapsEntry) -> bool {
    let find = |mapping: &MapsEntry| {
        let at = view.vmas.partition_point(|vma| vma.start < mapping.start);
        view.vmas.get(at).filter(|vma| vma.start == mapping.start)
    };
    let joins = |low: &ViewVma, high: &ViewVma| {
        let pages = (low.end - low.start) / PAGE;
        let [a, b] = [low.anon_vma, high.anon_vma];
        low.pgoff.wrapping_add(pages) == high.pgoff && (a == b || a == 0 || b == 0)
    };
    let Some(middle) = find(guard) else {
        return false;
    };
    find(before).is_some_and(|low| joins(low, middle))
        || find(after).is_some_and(|high| joins(middle, high))
}

fn flags(mappings: &[SmapsEntry]) -> Vec<Step> {
    let takes_away: [(&[u8; 2], i32); 2] = [(b"dc", libc::MADV_DOFORK), (b"dd", libc::MADV_DODUMP)];
    let mut steps = Vec::new();
    for (n, entry) in mappings.iter().enumerate() {
        if !is_plain(&entry.mapping) {
            continue;
        }
        let neighbours = [n.checked_sub(1), Some(n + 1)];
        let mut step = Vec::new();
        for (letters, advice) in takes_away {
            let alternates = neighbours.iter().flatten().any(|&other| {
                mappings.get(other).is_some_and(|other| {
                    let (a, b) = (&entry.mapping, &other.mapping);
                    (touch(a, b) || touch(b, a))
                        && is_plain(b)
                        && a.perms == b.perms
                        && !other.has(letters)
                })
            });
            if entry.has(letters) && alternates {
                let (start, end) = (entry.mapping.start, entry.mapping.end);
                step.push(Call::plain(
                    0,
                    libc::SYS_madvise,
                    &[start, end - start, advice as u64],
                ));
            }
        }
        if !step.is_empty() {
            steps.push(Step::of(step));
        }
    }
    steps
}

fn empties(mappings: &[SmapsEntry], pagemap: &File) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut run: Vec<&SmapsEntry> = Vec::new();
    for entry in mappings {
        let range = VmRange::new(entry.mapping.start, entry.mapping.end);
        let fits = is_reserved(&entry.mapping) && !is_special(entry) && is_empty(pagemap, range);
        let joins = run.last().is_some_and(|last| {
            touch(&last.mapping, &entry.mapping) && last.has(b"nr") == entry.has(b"nr")
        });
        if !(fits && joins) {
            steps.extend(one_reservation(&run));
            run.clear();
        }
        if fits {
            run.push(entry);
        }
    }
    steps.extend(one_reservation(&run));
    steps
}

/// True if the mapping has flags that a new reservation would not have.
fn is_special(entry: &SmapsEntry) -> bool {
    let special = [b"lo", b"dc", b"wf", b"um", b"uw", b"sl", b"io", b"de"];
    special.iter().any(|letters| entry.has(letters))
}

/// Replaces several mappings with one.
fn one_reservation(run: &[&SmapsEntry]) -> Option<Step> {
    let [first, .., last] = run else { return None };
    let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    if first.has(b"nr") {
        flags |= libc::MAP_NORESERVE;
    }
    let (start, len) = (first.mapping.start, last.mapping.end - first.mapping.start);
    let none = libc::PROT_NONE as u64;
    let arguments = [start, len, none, flags as u64, u64::MAX, 0];
    Some(Step::of(vec![Call::plain(0, libc::SYS_mmap, &arguments)]))
}

/// Touches one page of each reservation and discards the page: the anon_vma remains.
fn priming(mappings: &[SmapsEntry], pagemap: &File, view: Option<&View>) -> Vec<Step> {
    let has_one = |mapping: &MapsEntry| {
        view.is_some_and(|view| {
            let at = view.vmas.partition_point(|vma| vma.start < mapping.start);
            view.vmas
                .get(at)
                .is_none_or(|vma| vma.start != mapping.start || vma.anon_vma != 0)
        })
    };
    let fits = |entry: &&SmapsEntry| {
        let mapping = &entry.mapping;
        is_reserved(mapping)
            && mapping.end - mapping.start >= LEAST_RESERVED
            && !is_special(entry)
            && !has_one(mapping)
            && is_empty(pagemap, VmRange::new(mapping.start, mapping.start + PAGE))
    };
    let step = |entry: &SmapsEntry| {
        let page = entry.mapping.start;
        let drop = [page, PAGE, libc::MADV_DONTNEED as u64];
        Step {
            touch: Some(page),
            calls: vec![Call::plain(0, libc::SYS_madvise, &drop)],
            ..Step::default()
        }
    };
    mappings.iter().filter(fits).map(step).collect()
}
