//! Plans: which neighbours could be one, and in which pieces they are joined.
//!
//! The list of mappings is turned into views for the one merge decision of the core. Neighbours that
//! only their anon_vmas or page offsets keep apart form a run; a run is cut into pieces that can be
//! moved within the allowed pause. Deliberately absent: anything that changes a process.
//!
//! # Picture
//! ```text
//! run     |aaaa|bb|cccccccccccccccc|dd|e|     parts: the VMAs of today
//! pieces  |---------|=========|-----------|   cut between parts, or at a huge page within one
//! ```

use std::io;
use std::ops::Range;

use vmarea::policy::Policy;
use vmarea::types::{AnonVmaId, Pgoff, VmFlags, VmRange, VmaId};
use vmarea::vma::merge::{Refusal, why_apart};
use vmarea::vma::{VmaBody, VmaView};

use super::{Kept, Reason};
use vmarea_process::maps::{self, MapName, Mapping, SmapsEntry};
use vmarea_process::view::{KernelView, View, ViewVma};

/// Bytes of a huge page.
pub(super) const HUGE: u64 = vmarea::types::PMD_SIZE;
/// Bytes of a page: moving is only done where Linux has small ones.
pub(super) const PAGE: u64 = vmarea::types::PAGE_SIZE;

/// Flags that a fresh mapping can be given by `mmap` and `madvise`.
pub const CAN_BE_GIVEN: VmFlags = VmFlags::READ
    .union(VmFlags::WRITE)
    .union(VmFlags::EXEC)
    .union(VmFlags::MAYRWX)
    .union(VmFlags::ACCOUNT)
    .union(VmFlags::NORESERVE)
    .union(VmFlags::HUGEPAGE)
    .union(VmFlags::NOHUGEPAGE)
    .union(VmFlags::DONTCOPY)
    .union(VmFlags::DONTDUMP)
    .union(VmFlags::WIPEONFORK)
    .union(VmFlags::SEQ_READ)
    .union(VmFlags::RAND_READ)
    .union(VmFlags::SOFTDIRTY);

/// What is known of the mappings of a process besides `/proc/PID/maps`.
#[derive(Debug)]
pub(super) enum Knowledge {
    /// Read by BPF.
    Kernel(View),
    /// The flags of `smaps`.
    Flags(Vec<SmapsEntry>),
    /// The caller says that no flag was ever set by `madvise`.
    Plain,
}

/// A mapping as it is planned with.
#[derive(Clone, Copy, Debug)]
struct Part {
    view: VmaView,
    /// Why it cannot be moved.
    unfit: Option<Reason>,
    /// Its pages are where they will be: what follows can join it as it is.
    anchor: bool,
}

/// Neighbours that could be one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// All of it.
    pub(super) range: VmRange,
    /// Its mappings of today, without gaps.
    pub(super) parts: Vec<VmRange>,
    /// How the fresh mapping is to be.
    pub(super) flags: VmFlags,
    /// The first part stays where it is, and what follows joins it.
    pub(super) anchored: bool,
}

/// Part of a run that is joined at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// What is replaced.
    pub(super) range: VmRange,
    /// Its mappings of today.
    pub(super) parts: Vec<VmRange>,
    /// How the fresh mapping is to be.
    pub(super) flags: VmFlags,
    /// How many bytes before it belong to the same mapping once it is done, as far as that matters.
    pub(super) left: u64,
}

/// What a piece may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub(super) parts: usize,
    pub(super) bytes: u64,
    /// A part takes as long as so many bytes, besides its own.
    pub(super) part_bytes: u64,
}

/// The runs of a process within `within`, but none that touches `exclude`; and what is left apart.
///
/// # Errors
/// Those of reading the list of mappings.
pub(super) fn runs(
    pid: i32,
    knowledge: &Knowledge,
    within: &Range<u64>,
    exclude: &[u64],
) -> io::Result<(Vec<Run>, Kept)> {
    let mappings = maps::read(pid)?;
    let mut kept = Kept::default();
    let mut runs = Vec::new();
    let mut current: Vec<Part> = Vec::new();
    let mut lookup = Lookup { knowledge, at: 0 };
    for (n, mapping) in mappings.iter().enumerate() {
        if mapping.end <= within.start || mapping.start >= within.end {
            continue;
        }
        kept.mappings += 1;
        let excluded = exclude
            .iter()
            .any(|addr| (mapping.start..mapping.end).contains(addr));
        let part = lookup.part(n as u64 + 1, mapping, excluded);
        if let Some(last) = current.last() {
            if let Some(reason) = apart(last, &part) {
                kept.add(reason);
                finish(&mut current, within, &mut runs);
            } else if last.view.range.end != part.view.range.start {
                finish(&mut current, within, &mut runs);
            }
        }
        current.push(part);
    }
    finish(&mut current, within, &mut runs);
    Ok((runs, kept))
}

/// Why two that touch cannot become one; `None` where they can, or do not touch.
fn apart(a: &Part, b: &Part) -> Option<Reason> {
    if a.view.range.end != b.view.range.start {
        return None;
    }
    match why_apart(&Policy::LINUX, &a.view, &b.view) {
        None | Some(Refusal::AnonVma | Refusal::PageOffset) => a.unfit.or(b.unfit),
        Some(refusal) => Some(Reason::Differ(refusal)),
    }
}

fn finish(current: &mut Vec<Part>, within: &Range<u64>, runs: &mut Vec<Run>) {
    let clip = VmRange::new(within.start & !(PAGE - 1), within.end & !(PAGE - 1));
    let parts: Vec<VmRange> = current
        .iter()
        .map(|part| part.view.range.clip(clip))
        .filter(|range| range.start < range.end)
        .collect();
    if let (Some(first), Some(last)) = (parts.first(), parts.last())
        && parts.len() > 1
    {
        let whole = current[0].view.range == parts[0];
        runs.push(Run {
            range: VmRange::new(first.start, last.end),
            flags: current[0].view.body.flags,
            anchored: current[0].anchor && whole,
            parts,
        });
    }
    current.clear();
}

/// Walks what is known beside the list of mappings; both are sorted.
struct Lookup<'a> {
    knowledge: &'a Knowledge,
    at: usize,
}

impl Lookup<'_> {
    fn part(&mut self, number: u64, mapping: &Mapping, excluded: bool) -> Part {
        let range = VmRange::new(mapping.start, mapping.end);
        let mut view = VmaView {
            id: id(number),
            range,
            // Numbers that are certain to differ: what is not known is taken as the reason.
            pgoff: Pgoff(number << 40),
            anon_vma: AnonVmaId::from_bits(number),
            chain_singular: true,
            body: VmaBody {
                flags: flags_of_perms(mapping),
                ..VmaBody::default()
            },
        };
        let mut known = true;
        let mut anonymous = mapping.ino == 0 && mapping.dev == 0;
        let mut anchor = false;
        match self.knowledge {
            Knowledge::Kernel(kernel) => match self.kernel(kernel, range) {
                Some(vma) => {
                    anonymous &= vma.file == 0 && vma.ops == 0;
                    view.pgoff = Pgoff(vma.pgoff);
                    view.anon_vma = AnonVmaId::from_bits(vma.anon_vma);
                    view.chain_singular = vma.chain_singular;
                    view.body.flags = VmFlags::from_bits_retain(vma.flags);
                    view.body.policy = u32::from(vma.policy.is_some_and(|policy| policy != 0));
                    view.body.uffd = u32::from(vma.uffd.is_some_and(|context| context != 0));
                    anchor = vma.anon_vma != 0
                        && vma.chain_singular
                        && view.pgoff == Pgoff::of_addr(range.start);
                }
                None => known = false,
            },
            Knowledge::Flags(entries) => match self.entry(entries, range) {
                Some(entry) => view.body.flags = flags_of_letters(entry),
                None => known = false,
            },
            Knowledge::Plain => {}
        }
        let unfit = match &mapping.name {
            _ if excluded => Some(Reason::InUse),
            _ if !known => Some(Reason::Changed),
            _ if !anonymous => Some(Reason::NotAnonymous),
            MapName::None | MapName::Heap => unfit(&view),
            MapName::Named(_) => Some(Reason::Differ(Refusal::Name)),
            _ => Some(Reason::NotAnonymous),
        };
        Part {
            view,
            unfit,
            anchor,
        }
    }

    fn kernel<'v>(&mut self, view: &'v View, range: VmRange) -> Option<&'v ViewVma> {
        while view.vmas.get(self.at)?.start < range.start {
            self.at += 1;
        }
        let vma = &view.vmas[self.at];
        (vma.start == range.start && vma.end == range.end).then_some(vma)
    }

    fn entry<'v>(&mut self, entries: &'v [SmapsEntry], range: VmRange) -> Option<&'v SmapsEntry> {
        while entries.get(self.at)?.mapping.start < range.start {
            self.at += 1;
        }
        let entry = &entries[self.at];
        (entry.mapping.start == range.start && entry.mapping.end == range.end).then_some(entry)
    }
}

fn id(number: u64) -> VmaId {
    // Numbers from 1: never the id of nothing.
    VmaId::from_bits(number).unwrap_or_else(|| unreachable!("numbers begin with 1"))
}

/// Why a mapping of this kind cannot be moved, whatever its neighbours are.
fn unfit(view: &VmaView) -> Option<Reason> {
    let flags = view.body.flags;
    if flags.intersects(VmFlags::UFFD_ANY) || view.body.uffd != 0 {
        return Some(Reason::Userfaultfd);
    }
    if flags.intersects(VmFlags::LOCKED_MASK) {
        return Some(Reason::Locked);
    }
    if !flags.contains(VmFlags::WRITE) {
        return Some(Reason::NotWritable);
    }
    if view.body.policy != 0 {
        return Some(Reason::Differ(Refusal::Policy));
    }
    (!(flags - CAN_BE_GIVEN).is_empty()).then_some(Reason::Special)
}

fn flags_of_perms(mapping: &Mapping) -> VmFlags {
    let perms = mapping.perms;
    // What nearly every private anonymous mapping has besides.
    let mut flags = VmFlags::MAYRWX | VmFlags::ACCOUNT;
    flags.set(VmFlags::READ, perms.read);
    flags.set(VmFlags::WRITE, perms.write);
    flags.set(VmFlags::EXEC, perms.exec);
    flags.set(VmFlags::MAYSHARE | VmFlags::SHARED, perms.shared);
    flags
}

/// The flags behind the letters of `smaps`. Letters that are not known stand for something special.
fn flags_of_letters(entry: &SmapsEntry) -> VmFlags {
    let mut flags = VmFlags::empty();
    for letters in &entry.flags {
        flags |= match &letters.0 {
            b"rd" => VmFlags::READ,
            b"wr" => VmFlags::WRITE,
            b"ex" => VmFlags::EXEC,
            b"sh" => VmFlags::SHARED,
            b"mr" => VmFlags::MAYREAD,
            b"mw" => VmFlags::MAYWRITE,
            b"me" => VmFlags::MAYEXEC,
            b"ms" => VmFlags::MAYSHARE,
            b"gd" => VmFlags::GROWSDOWN,
            b"lo" => VmFlags::LOCKED,
            b"lf" => VmFlags::LOCKONFAULT,
            b"sr" => VmFlags::SEQ_READ,
            b"rr" => VmFlags::RAND_READ,
            b"dc" => VmFlags::DONTCOPY,
            b"ac" => VmFlags::ACCOUNT,
            b"nr" => VmFlags::NORESERVE,
            b"wf" => VmFlags::WIPEONFORK,
            b"dd" => VmFlags::DONTDUMP,
            b"sd" => VmFlags::SOFTDIRTY,
            b"hg" => VmFlags::HUGEPAGE,
            b"nh" => VmFlags::NOHUGEPAGE,
            b"um" => VmFlags::UFFD_MISSING,
            b"uw" => VmFlags::UFFD_WP,
            b"ui" => VmFlags::UFFD_MINOR,
            b"mg" => VmFlags::MERGEABLE,
            _ => VmFlags::SPECIAL,
        };
    }
    flags
}

impl Knowledge {
    /// The most that can be had: the kernel's own view, or else the flags of `smaps`.
    ///
    /// # Errors
    /// Those of reading `/proc/PID/smaps`.
    pub(super) fn read(kernel: Option<&KernelView>, pid: i32) -> io::Result<Knowledge> {
        if let Some(kernel) = kernel {
            let mut view = View::default();
            if kernel.read(pid, &mut view).is_ok() {
                return Ok(Knowledge::Kernel(view));
            }
        }
        let text = std::fs::read(format!("/proc/{pid}/smaps"))?;
        Ok(Knowledge::Flags(maps::parse_smaps(&text)?))
    }
}

impl Run {
    /// Where the first piece begins.
    pub(super) fn begin(&self) -> u64 {
        if self.anchored {
            self.parts[0].end
        } else {
            self.range.start
        }
    }

    /// Its parts between two addresses.
    pub(super) fn parts_within(&self, start: u64, end: u64) -> Vec<VmRange> {
        let clip = VmRange::new(start, end);
        let parts = self.parts.iter().map(|part| part.clip(clip));
        parts.filter(|part| part.start < part.end).collect()
    }

    /// Where the part begins that `addr` lies in.
    pub(super) fn part_start(&self, addr: u64) -> u64 {
        let at = self.parts.partition_point(|part| part.end <= addr);
        self.parts.get(at).map_or(self.range.end, |part| part.start)
    }

    /// Where the part ends that `addr` lies in.
    pub(super) fn part_end(&self, addr: u64) -> u64 {
        let at = self.parts.partition_point(|part| part.end <= addr);
        self.parts.get(at).map_or(self.range.end, |part| part.end)
    }

    /// The piece at `from` under `limits`; `joined` is where the mapping that it will join begins.
    pub(super) fn piece(&self, from: u64, joined: u64, limits: Limits) -> Piece {
        let first = self.parts.partition_point(|part| part.end <= from);
        let mut parts = Vec::new();
        let mut end = from;
        for part in &self.parts[first..] {
            // The first one is free: something is always taken.
            let spent = end - from + parts.len() as u64 * limits.part_bytes;
            let room = limits.bytes.saturating_sub(spent) & !(PAGE - 1);
            if parts.len() >= limits.parts.max(1) || room == 0 {
                break;
            }
            let start = part.start.max(from);
            let cut = cut(start, part.end, room, end == from);
            if cut == start {
                break;
            }
            parts.push(VmRange::new(start, cut));
            end = cut;
            if cut < part.end {
                break;
            }
        }
        let before = from - joined;
        let left = if from.is_multiple_of(HUGE) && before >= HUGE {
            HUGE
        } else {
            before.min(PAGE)
        };
        Piece {
            range: VmRange::new(from, end),
            parts,
            flags: self.flags,
            left,
        }
    }
}

/// Where to end within a part: at its end if there is room, else between huge pages if there is
/// one, else between pages. Something is always taken where it `must` be.
fn cut(start: u64, end: u64, room: u64, must: bool) -> u64 {
    if end - start <= room {
        return end;
    }
    let huge = (start + room) & !(HUGE - 1);
    let whole = end - start >= HUGE;
    if huge > start {
        huge
    } else if !whole {
        start + (room & !(PAGE - 1))
    } else if must {
        // A huge page may lie across the bound: take it whole.
        ((start + HUGE) & !(HUGE - 1)).min(end)
    } else {
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(parts: &[(u64, u64)]) -> Run {
        let parts: Vec<_> = parts.iter().map(|&(s, e)| VmRange::new(s, e)).collect();
        Run {
            range: VmRange::new(parts[0].start, parts.last().unwrap().end),
            parts,
            flags: VmFlags::READ | VmFlags::WRITE,
            anchored: false,
        }
    }

    #[test]
    fn pieces_cover_a_run_without_gaps() {
        let run = run(&[
            (PAGE, 2 * PAGE),
            (2 * PAGE, 3 * HUGE + PAGE),
            (3 * HUGE + PAGE, 3 * HUGE + 5 * PAGE),
        ]);
        for limits in [
            Limits {
                parts: 1,
                bytes: PAGE,
                part_bytes: 0,
            },
            Limits {
                parts: 2,
                bytes: HUGE,
                part_bytes: HUGE,
            },
            Limits {
                parts: 100,
                bytes: 64 * HUGE,
                part_bytes: 25 * PAGE + 7,
            },
        ] {
            let mut at = run.begin();
            while at < run.range.end {
                let piece = run.piece(at, run.range.start, limits);
                assert_eq!(piece.range.start, at);
                assert!(piece.range.end > at, "{limits:?}");
                assert_eq!(piece.parts[0].start, at);
                assert_eq!(piece.parts.last().unwrap().end, piece.range.end);
                assert!(piece.parts.len() <= limits.parts);
                at = piece.range.end;
            }
            assert_eq!(at, run.range.end);
        }
    }

    #[test]
    fn a_huge_page_is_never_cut() {
        let run = run(&[(0, 8 * HUGE), (8 * HUGE, 9 * HUGE)]);
        let limits = Limits {
            parts: 10,
            bytes: HUGE + 7 * PAGE,
            part_bytes: 3 * PAGE,
        };
        let mut at = 0;
        while at < run.range.end {
            let piece = run.piece(at, 0, limits);
            assert!(piece.range.end.is_multiple_of(HUGE), "{piece:?}");
            assert!(piece.left == 0 || piece.left == HUGE);
            at = piece.range.end;
        }
    }
}
