//! Compares the core's list of VMAs with the kernel's.
//!
//! # Picture
//! ```text
//! kernel  AAAA BBBBBBBB CC        VMAs with equal ranges are compared whole; a stretch in which
//! ours    AAAA BBB BBBB CC        the boundaries differ is compared piece by piece
//! ```
//! A boundary that only one side has is a difference, or *undecided* if it depends on an event that
//! is not in the recording.

use super::Known;
use super::action::{Action, Files};
use super::decode::EINTR;
use super::doubt::Doubt;
use super::report::Difference;
use super::world::World;
use std::collections::HashMap;
use vmarea::syscall::Syscall;
use vmarea::syscall::madvise::Advice;
use vmarea::types::{FileKind, PageOffsets, Pgoff, VmFlags};
use vmarea::vma::VmaView;
use vmarea::vma::merge::why_apart;
use vmarea_trace::dump::call_text;
use vmarea_trace::event::{Call, InodeId, KernelVma, Perms, SnapVma, Snapshot};

/// Doubts about a snapshot and the recorded events before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubts {
    /// Why the attributes that only the kernel's own view shows are in doubt: for example, the
    /// recording does not contain every fault.
    pub(crate) hidden: Option<Doubt>,
    /// Why the ranges and permissions are in doubt: for example, threads ran while the snapshot was
    /// read.
    pub(crate) ranges: Option<Doubt>,
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) compared: u64,
    /// The reason of each undecided result.
    pub(crate) undecided: Vec<Doubt>,
    pub(crate) differences: Vec<Difference>,
}

/// True if the result of this call can be compared with the core's result.
///
/// A result that depends on state outside the address space cannot be compared.
pub(crate) fn comparable(action: &Action, call: &Call, known: &Known) -> bool {
    const EAGAIN: i64 = -11;
    if !known.seen || call.ret == EINTR {
        return false;
    }
    match action {
        // This result depends on the number of present or available pages, not on the address
        // space.
        Action::Call(Syscall::Madvise { advice, .. } | Syscall::ProcessMadvise { advice, .. }) => {
            use Advice::*;
            let poisons = matches!(advice, Unknown(100 | 101));
            !poisons && !matches!(advice, WillNeed | Remove | Cold | PageOut | Collapse)
        }
        Action::Call(Syscall::Mlock { .. }) => call.ret != EAGAIN,
        Action::Nothing | Action::Userfault { .. } | Action::Opaque(_) => false,
        _ => true,
    }
}

/// Returns the report entry for a call whose result differs.
pub(crate) fn of_result(call: &Call, ours: i64, known: &Known) -> Difference {
    let text = call_text(call);
    let kernel = text.rsplit_once(" = ").map_or(&*text, |(_, result)| result);
    let name = text.split('(').next().unwrap_or(&text);
    let cause = match (errno(call.ret), errno(ours)) {
        (None, None) => format!("{name}: different results"),
        (Some(theirs), None) => format!("{name}: {theirs} in the kernel, success in vmarea"),
        (None, Some(mine)) => format!("{name}: success in the kernel, {mine} in vmarea"),
        (Some(theirs), Some(mine)) => format!("{name}: {theirs} in the kernel, {mine} in vmarea"),
    };
    // If the call was deferred, the last call may be another thread's.
    let before = match &known.last_call {
        Some(last) if last == call => &known.call_before,
        last => last,
    };
    Difference {
        mm: call.mm.0,
        cause,
        kernel: kernel.to_owned(),
        call_before: before.as_ref().map(call_text),
        ours: errno(ours).unwrap_or_else(|| format!("{ours:#x}")),
        call: Some(text),
        ..Difference::default()
    }
}

/// Returns the name of the error that a result represents, if any.
pub(crate) fn errno(result: i64) -> Option<String> {
    let number = (-4095..0).contains(&result).then_some(-result)?;
    let known = vmarea::types::Errno::from_number(number as i32);
    Some(known.map_or_else(|| format!("error {number}"), |e| e.name().to_owned()))
}

/// Compares the core's list of an address space's VMAs with the kernel's list.
pub(crate) fn compare(
    world: &mut World,
    files: &mut Files,
    snapshot: &Snapshot,
    known: &Known,
    doubts: Doubts,
) -> Outcome {
    let mut outcome = Outcome {
        compared: snapshot.vmas.len() as u64,
        ..Outcome::default()
    };
    let Some(mm) = world.mm(snapshot.mm) else {
        return outcome;
    };
    let policy = *world.space.policy();
    let Some(r) = world.space.mmap_read_lock(mm) else {
        return outcome;
    };
    let ours: Vec<VmaView> = r.vmas().collect();
    let call = known.last_call.as_ref();
    let call = call.map_or_else(|| "its beginning".to_owned(), call_text);
    let mut comparison = Comparison {
        files,
        doubts,
        call,
        mm: snapshot.mm.0,
        outcome: &mut outcome,
        anon: Bijection::default(),
        uncertain: None,
    };
    let (mut a, mut b) = (0, 0);
    while a < ours.len() || b < snapshot.vmas.len() {
        let (upto_a, upto_b) = stretch(&ours[a..], &snapshot.vmas[b..]);
        let (mine, theirs) = (&ours[a..a + upto_a], &snapshot.vmas[b..b + upto_b]);
        comparison.uncertain = known.uncertain.touches(span(mine, theirs));
        match (mine, theirs) {
            ([one], [other]) if one.range.start == other.start && one.range.end == other.end => {
                comparison.same_range(one, other);
            }
            _ => comparison.stretch(mine, theirs, &policy),
        }
        a += upto_a;
        b += upto_b;
    }
    outcome
}

/// Returns how many VMAs of each list belong to the first stretch. A stretch ends at the first
/// address that no VMA of either list extends across.
fn stretch(ours: &[VmaView], theirs: &[SnapVma]) -> (usize, usize) {
    let (mut a, mut b) = (0, 0);
    let mut end = 0;
    loop {
        let next_a = ours.get(a).filter(|v| end == 0 || v.range.start < end);
        let next_b = theirs.get(b).filter(|v| end == 0 || v.start < end);
        match (next_a, next_b) {
            (None, None) => return (a, b),
            (Some(v), Some(t)) if v.range.start <= t.start => {
                a += 1;
                end = end.max(v.range.end);
            }
            (_, Some(t)) => {
                b += 1;
                end = end.max(t.end);
            }
            (Some(v), None) => {
                a += 1;
                end = end.max(v.range.end);
            }
        }
    }
}

/// Returns the range that a stretch of both lists covers.
fn span(ours: &[VmaView], theirs: &[SnapVma]) -> (u64, u64) {
    let starts = ours.first().map(|v| v.range.start);
    let starts = starts.into_iter().chain(theirs.first().map(|v| v.start));
    let ends = ours.last().map(|v| v.range.end);
    let ends = ends.into_iter().chain(theirs.last().map(|v| v.end));
    (starts.min().unwrap_or(0), ends.max().unwrap_or(0))
}

/// One-to-one correspondence between the core's and the kernel's numbers for the same objects.
#[derive(Default)]
struct Bijection {
    there: HashMap<u64, u64>,
    back: HashMap<u64, u64>,
}

impl Bijection {
    /// True if `ours` in the core and `theirs` in the kernel can denote the same object, or both are
    /// 0, which denotes none. False if one of these numbers already corresponds to a different number.
    fn agree(&mut self, ours: u64, theirs: u64) -> bool {
        (ours == 0) == (theirs == 0)
            && *self.there.entry(ours).or_insert(theirs) == theirs
            && *self.back.entry(theirs).or_insert(ours) == ours
    }
}

struct Comparison<'a> {
    files: &'a mut Files,
    doubts: Doubts,
    /// The last call before the kernel's list was read.
    call: String,
    mm: u32,
    outcome: &'a mut Outcome,
    anon: Bijection,
    /// Why the VMAs that are being compared are uncertain, if an unrecorded event affected them.
    uncertain: Option<Doubt>,
}

impl Comparison<'_> {
    fn same_range(&mut self, ours: &VmaView, theirs: &SnapVma) {
        let what = if perms(ours) != theirs.perms {
            "permissions differ"
        } else if !self.same_file(ours, theirs) {
            "file or offset differs"
        } else {
            return self.same_hidden(ours, theirs);
        };
        self.differ(self.doubts.ranges, Some(ours), Some(theirs), what, None);
    }

    /// Compares the attributes that only the kernel's own view of a VMA shows.
    fn same_hidden(&mut self, ours: &VmaView, theirs: &SnapVma) {
        let Some(kernel) = &theirs.kernel else { return };
        let device = ours.body.file.is_some_and(|f| f.kind == FileKind::Device);
        let root = ours.anon_vma.map_or(0, |id| id.to_bits());
        let pgoff = ours.pgoff().0;
        let mut doubt = self.doubts.hidden;
        let (what, values) = if pgoff != kernel.pgoff {
            let values = format!("kernel {:#x}, vmarea {:#x}", kernel.pgoff, pgoff);
            ("page offset differs".to_owned(), values)
        } else if self.uncertain.is_some() && (root == 0) == (kernel.anon_vma == 0) {
            // An unrecorded event may have chosen this anon_vma: do not pair it with the one of the
            // core for later VMAs.
            return;
        } else if kernel.knows_anon_vma()
            && (self.uncertain.is_some() || !self.anon.agree(root, kernel.anon_vma))
        {
            doubt = doubt.or(unrecorded_access(ours, kernel));
            let values = format!("kernel {}, vmarea {:x?}", kernel.anon_vma, ours.anon_vma);
            ("anon_vma differs".to_owned(), values)
        } else {
            let differ = VmFlags::from_bits_retain(kernel.flags) ^ ours.body.flags;
            let differ = differ - VmFlags::SOFTDIRTY;
            if differ.is_empty() || device {
                return;
            }
            let names: Vec<_> = differ.iter_names().map(|(name, _)| name).collect();
            let values = format!(
                "kernel {:#x}, vmarea {:#x}",
                kernel.flags,
                ours.body.flags.bits()
            );
            (format!("flags differ: {}", names.join(" ")), values)
        };
        self.differ(doubt, Some(ours), Some(theirs), &what, Some(values));
    }

    /// Compares a stretch whose VMA boundaries differ between the core and the kernel.
    fn stretch(&mut self, ours: &[VmaView], theirs: &[SnapVma], policy: &vmarea::policy::Policy) {
        let mut cuts: Vec<u64> = ours
            .iter()
            .flat_map(|v| [v.range.start, v.range.end])
            .collect();
        cuts.extend(theirs.iter().flat_map(|v| [v.start, v.end]));
        cuts.sort_unstable();
        cuts.dedup();
        let mut private = true;
        for piece in cuts.windows(2) {
            let mine = ours.iter().find(|v| v.range.contains(piece[0]));
            let other = theirs
                .iter()
                .find(|v| v.start <= piece[0] && piece[0] < v.end);
            let same = match (mine, other) {
                (Some(m), Some(t)) => perms(m) == t.perms && self.same_file(m, t),
                (None, None) => true,
                _ => false,
            };
            private &= mine.is_some_and(|m| !m.body.flags.contains(VmFlags::MAYSHARE));
            if !same {
                let what = match (mine, other) {
                    (None, _) => "a mapping that only the kernel has",
                    (_, None) => "a mapping that only vmarea has",
                    (Some(m), Some(t)) if perms(m) != t.perms => "permissions differ",
                    _ => "file or offset differs",
                };
                return self.differ(self.doubts.ranges, mine, other, what, None);
            }
        }
        let is_ours = |cut: u64| ours.iter().any(|v| v.range.start == cut);
        let is_theirs = |cut: u64| theirs.iter().any(|v| v.start == cut);
        cuts.retain(|&cut| is_ours(cut) != is_theirs(cut));
        let doubt = self.doubts.hidden.filter(|_| private);
        for cut in cuts {
            let mine = ours.iter().find(|v| v.range.contains(cut));
            let other = theirs.iter().find(|v| v.start <= cut && cut < v.end);
            let what = if is_theirs(cut) {
                "a boundary that only the kernel has".to_owned()
            } else {
                boundary_of_ours(ours, cut, policy)
            };
            let at = format!("the boundary is at {cut:x}");
            self.differ(doubt, mine, other, &what, Some(at));
        }
    }

    fn same_file(&mut self, ours: &VmaView, theirs: &SnapVma) -> bool {
        match (ours.body.file, theirs.inode) {
            (None, None) => true,
            (Some(file), None) => file.kind == FileKind::Special,
            (Some(file), Some(inode)) => {
                // The offset in a list belongs to a VMA's first page, and a piece may begin at a
                // later page.
                let offsets = PageOffsets::starting_at(Pgoff(theirs.offset >> 12), theirs.start);
                ours.offsets.same_in_file(offsets) && self.same_inode(file.inode, inode)
            }
            _ => false,
        }
    }

    fn same_inode(&mut self, ours: u64, theirs: InodeId) -> bool {
        if !Files::is_nameless(ours) {
            return ours == u64::from(theirs.0);
        }
        *self.files.nameless.entry(ours).or_insert(theirs) == theirs
    }

    /// Adds a difference, or an undecided result if there is a doubt or the VMAs are uncertain.
    fn differ(
        &mut self,
        doubt: Option<Doubt>,
        ours: Option<&VmaView>,
        theirs: Option<&SnapVma>,
        cause: &str,
        reason: Option<String>,
    ) {
        if let Some(doubt) = doubt.or(self.uncertain) {
            self.outcome.undecided.push(doubt);
            return;
        }
        let ours_text = |v: &VmaView| {
            let faulted = if v.anon_vma.is_some() {
                "faulted"
            } else {
                "unfaulted"
            };
            format!(
                "{:x}-{:x} {} pgoff {:#x} {faulted}",
                v.range.start,
                v.range.end,
                perms(v),
                v.pgoff().0
            )
        };
        let kernel_text = |v: &SnapVma| {
            let faulted = match v.kernel {
                None => "",
                Some(k) if k.anon_vma == 0 => " unfaulted",
                Some(_) => " faulted",
            };
            format!(
                "{:x}-{:x} {} offset {:#x}{faulted}",
                v.start, v.end, v.perms, v.offset
            )
        };
        self.outcome.differences.push(Difference {
            mm: self.mm,
            cause: cause.to_owned(),
            list_read_after: Some(self.call.clone()),
            kernel: theirs.map_or_else(|| "nothing there".to_owned(), kernel_text),
            ours: ours.map_or_else(|| "nothing there".to_owned(), ours_text),
            reason,
            ..Difference::default()
        });
    }
}

/// Returns why only one side may have an anon_vma, if no recording shows the access that decides it.
///
/// A write through `/proc/PID/mem` gives memory that is not writable an anon_vma. A thread that has no
/// rights to a protection key fails to access memory with that key.
fn unrecorded_access(ours: &VmaView, kernel: &KernelVma) -> Option<Doubt> {
    let flags = ours.body.flags;
    match (ours.anon_vma.is_some(), kernel.anon_vma != 0) {
        (false, true) if !flags.contains(VmFlags::WRITE) => Some(Doubt::Forced),
        (true, false) if flags.pkey() != 0 => Some(Doubt::Key),
        _ => None,
    }
}

/// Returns the permissions of a VMA as the kernel lists them.
pub(super) fn perms(vma: &VmaView) -> Perms {
    let flags = vma.body.flags;
    Perms {
        read: flags.contains(VmFlags::READ),
        write: flags.contains(VmFlags::WRITE),
        exec: flags.contains(VmFlags::EXEC),
        shared: flags.contains(VmFlags::MAYSHARE),
    }
}

/// Describes a boundary that only the core has, with the reason why the core did not merge there.
fn boundary_of_ours(ours: &[VmaView], cut: u64, policy: &vmarea::policy::Policy) -> String {
    let apart = ours
        .windows(2)
        .find(|pair| pair[1].range.start == cut)
        .and_then(|pair| why_apart(policy, &pair[0], &pair[1]));
    let why = apart.map_or("merging was not tried", |refusal| refusal.name());
    format!("a boundary that only vmarea has: {why}")
}
