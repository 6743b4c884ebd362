//! Plan of a repair: the mappings that remain after several remedies, one after the other.
//!
//! [`predict`] applies the remedies to a copy of the list of mappings, so that a remedy sees what
//! those before it have left: flags that were cleared allow a merge, and a guard marker prevents
//! one. `explain` advises on this basis, the dry run of `vmarea merge` prints it, and its result is
//! compared with it. What cannot be known without stopping the process is counted as uncertain.
//!
//! # Picture
//! ```text
//! |rw|rw D|rw|--|rw|    flags    D: MADV_DONTFORK
//! |rw|rw  |rw|--|rw|    merge    the three have different anon_vmas
//! |rw        |--|rw|    guards
//! |rw        ..|rw |             ..: marker; the anon_vmas on both sides of the guard differ
//! ```

mod changes;

pub use changes::{Change, Changes, changes};

use crate::boundary::boundaries;
use crate::mapping::{Mapping, Resident};
use crate::pages::Pages;
use crate::pair::Pair;
use crate::reason::Certainty;
use crate::remedy::Remedy;
use vmarea_merge::partial_view::{Explanation, explain};
use vmarea_merge::policy::Policy;
use vmarea_merge::types::{PAGE_SIZE, Pgoff, VmFlags};

/// Distance between the invented anon_vmas of merged mappings. They are at the end of the address
/// space, where the kernel has none.
const INVENTED: u64 = 64;

/// What the remedies would leave.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prediction {
    /// Mappings that remain.
    pub mappings: Vec<Mapping>,
    /// Number of boundaries that the prediction removes and that may remain nevertheless, because
    /// their reason is only likely or because the state of their pages is unknown.
    pub may_remain: u64,
    /// Number of places that remedies other than merging change.
    pub changed: u64,
    /// Number of runs of neighbours that are merged.
    pub runs: u64,
    /// Number of mappings in these runs.
    pub members: u64,
    /// Upper bound on the number of bytes to move.
    pub bytes: u64,
    /// Number of shared pages to copy.
    pub copies: u64,
    /// Number of boundaries that stay because a page next to them is pinned.
    pub pinned: u64,
    /// Number of boundaries that stay because pages next to them are shared, and more than may be
    /// copied.
    pub shared: u64,
    invented: u64,
}

/// Reason why pages stay where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Obstacle {
    Pinned,
    Shared,
}

/// Predicts the result of `remedies` in this order; [`Remedy::Merge`] copies at most `copies`
/// shared pages.
pub fn predict(
    policy: &Policy,
    mappings: &[Mapping],
    remedies: &[Remedy],
    copies: u64,
    pages: &dyn Pages,
) -> Prediction {
    let mut now = Prediction {
        mappings: mappings.to_vec(),
        ..Prediction::default()
    };
    for &remedy in remedies {
        if remedy.takes_pages() {
            now.merge(policy, copies, pages);
        } else {
            let changes = changes(remedy, policy, &now.mappings, pages);
            now.may_remain += changes.uncertain;
            now.changed += changes.list.len() as u64;
            if !changes.list.is_empty() {
                now.change(policy, &changes.list);
            }
        }
    }
    now
}

impl Prediction {
    /// Returns the number of mappings that remain.
    pub fn after(&self) -> u64 {
        self.mappings.len() as u64
    }

    /// Applies the changes, and merges the changed mappings with their neighbours as the kernel
    /// does.
    fn change(&mut self, policy: &Policy, changes: &[Change]) {
        let before = std::mem::take(&mut self.mappings);
        let mut changes = changes.iter().peekable();
        let (mut last_changed, mut last_marked) = (false, false);
        for mut mapping in before {
            let start = mapping.entry.start;
            while changes.next_if(|c| c.range().end <= start).is_some() {}
            let change = changes.peek().filter(|c| c.range().contains(start));
            if let Some(change) = change {
                apply(change, &mut mapping);
            }
            let is_marked = matches!(change, Some(Change::Mark { .. }));
            let is_changed = change.is_some();
            // Without the anon_vmas, a guard is expected to join one of its neighbours only.
            let unless = match last_marked && !is_changed {
                true => Unless::Unknown,
                false => Unless::Refused,
            };
            match self.mappings.last_mut() {
                Some(last)
                    if (is_changed || last_changed) && joins(policy, last, &mapping, unless) =>
                {
                    append(last, &mapping);
                    last_changed = true;
                }
                _ => {
                    self.mappings.push(mapping);
                    last_changed = is_changed;
                }
            }
            if last_marked {
                // A mapping with a marker needs an anon_vma.
                let anon_vma = self.invent();
                let marked = self.mappings.iter_mut().rev();
                let marked = marked.take(2).find(|m| m.range().contains(start - 1));
                if let Some(vma) = marked.and_then(|m| m.kernel.as_mut())
                    && vma.anon_vma == 0
                {
                    (vma.anon_vma, vma.root) = (anon_vma, anon_vma);
                }
            }
            last_marked = is_marked;
        }
    }

    /// Merges each run of neighbours that only their pages keep separate.
    fn merge(&mut self, policy: &Policy, copies: u64, pages: &dyn Pages) {
        let boundaries = boundaries(policy, &self.mappings);
        let takes_pages = |n: usize| {
            let remedy = boundaries.get(n).and_then(|boundary| boundary.remedy);
            remedy.is_some_and(Remedy::takes_pages)
        };
        // Most processes have nothing to merge, and some of them a hundred thousand mappings.
        if !(0..boundaries.len()).any(takes_pages) {
            return;
        }
        let before = std::mem::take(&mut self.mappings);
        let mut copies = copies;
        let mut run: Vec<&Mapping> = Vec::new();
        // Reason why the pages of the last mapping cannot be moved.
        let mut last = None;
        for (n, mapping) in before.iter().enumerate() {
            let below = n.checked_sub(1).filter(|&n| takes_pages(n));
            if below.is_none() {
                self.join(&mut run);
            }
            let is_member = below.is_some() || takes_pages(n);
            let stays = below.is_none() && mapping.is_anchor();
            let obstacle = (is_member && !stays)
                .then(|| self.obstacle(mapping, &mut copies, pages))
                .flatten();
            match (obstacle.or(last), below) {
                (Some(obstacle), Some(_)) => {
                    match obstacle {
                        Obstacle::Pinned => self.pinned += 1,
                        Obstacle::Shared => self.shared += 1,
                    }
                    self.join(&mut run);
                }
                (None, Some(n)) => {
                    let unsure = boundaries[n].certainty == Certainty::Likely
                        || (mapping.is_forked() && pages.shared(mapping.range(), 1).is_none());
                    self.may_remain += u64::from(unsure);
                }
                (_, None) => {}
            }
            last = obstacle;
            run.push(mapping);
        }
        self.join(&mut run);
    }

    /// Returns why the pages of the mapping cannot be moved; otherwise deducts the copies.
    fn obstacle(
        &mut self,
        mapping: &Mapping,
        copies: &mut u64,
        pages: &dyn Pages,
    ) -> Option<Obstacle> {
        let range = mapping.range();
        if pages.is_pinned(range) {
            return Some(Obstacle::Pinned);
        }
        let shared = pages.shared(range, copies.saturating_add(1));
        let shared = shared.unwrap_or(match mapping.is_forked() {
            // Any page may be shared.
            true => resident(mapping) / PAGE_SIZE,
            false => 0,
        });
        let Some(left) = copies.checked_sub(shared) else {
            return Some(Obstacle::Shared);
        };
        *copies = left;
        self.copies += shared;
        None
    }

    fn join(&mut self, run: &mut Vec<&Mapping>) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return;
        };
        let mut joined = (*first).clone();
        if run.len() > 1 {
            self.runs += 1;
            self.members += run.len() as u64;
            let skipped = usize::from(first.is_anchor());
            self.bytes += run.iter().skip(skipped).map(|m| resident(m)).sum::<u64>();
            let all = run.iter().map(|m| m.resident);
            joined.resident = all.fold(None, added);
            joined.entry.end = last.entry.end;
            if let (Some(vma), false) = (joined.kernel.as_mut(), first.is_anchor()) {
                let invented = self.invent();
                (vma.anon_vma, vma.root) = (invented, invented);
                vma.num_children = vma.num_children.map(|_| 1);
                vma.chain_singular = true;
                vma.pgoff = Pgoff::of_addr(joined.entry.start).0;
            }
        }
        if let Some(vma) = joined.kernel.as_mut() {
            vma.end = joined.entry.end;
        }
        self.mappings.push(joined);
        run.clear();
    }

    fn invent(&mut self) -> u64 {
        self.invented += 1;
        u64::MAX - self.invented * INVENTED
    }
}

fn added(a: Option<Resident>, b: Option<Resident>) -> Option<Resident> {
    match (a, b) {
        (Some(a), Some(b)) => Some(Resident {
            rss: a.rss + b.rss,
            anonymous: a.anonymous + b.anonymous,
        }),
        (a, b) => a.or(b),
    }
}

/// Returns the private bytes of a mapping; the mapping's size if they are unknown.
pub fn resident(mapping: &Mapping) -> u64 {
    let size = mapping.range().len_bytes();
    mapping
        .resident
        .map_or(size, |resident| resident.anonymous.min(size))
}

fn apply(change: &Change, mapping: &mut Mapping) {
    let mut flags = mapping.flags();
    match *change {
        Change::Mark { perms, .. } => {
            mapping.entry.perms = perms;
            flags.set(VmFlags::READ, perms.read);
            flags.set(VmFlags::WRITE, perms.write);
            flags.set(VmFlags::EXEC, perms.exec);
            // `mprotect` charges private memory that becomes writable.
            let charged = perms.write && !flags.contains(VmFlags::NORESERVE);
            flags.set(
                VmFlags::ACCOUNT,
                charged || flags.contains(VmFlags::ACCOUNT),
            );
            flags |= VmFlags::MAYBE_GUARD;
        }
        Change::Clear { flags: cleared, .. } => flags -= cleared,
        Change::Reserve { noreserve, .. } => {
            flags = VmFlags::MAYRWX;
            flags.set(VmFlags::NORESERVE, noreserve);
            if let Some(vma) = mapping.kernel.as_mut() {
                (vma.anon_vma, vma.root, vma.num_children) = (0, 0, None);
                vma.chain_singular = true;
                vma.pgoff = Pgoff::of_addr(mapping.entry.start).0;
            }
        }
    }
    mapping.flags = Some(flags);
    if let Some(vma) = mapping.kernel.as_mut() {
        vma.flags = flags.bits();
    }
}

/// Knowledge that prevents the expectation that two mappings merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unless {
    /// The kernel certainly refuses to merge them.
    Refused,
    /// The kernel refuses to merge them, or an unknown attribute decides.
    Unknown,
}

/// Returns true if the kernel merges the two mappings when a call affects their boundary.
fn joins(policy: &Policy, a: &Mapping, b: &Mapping, unless: Unless) -> bool {
    if a.entry.end != b.entry.start {
        return false;
    }
    let pair = Pair::of(a, b);
    match explain(policy, &pair.a, &pair.b, pair.hidden) {
        Explanation::Together => true,
        Explanation::OneOf(_) => unless == Unless::Refused,
        Explanation::Apart(_) => false,
    }
}

/// Extends `lower` by the mapping directly above it.
fn append(lower: &mut Mapping, upper: &Mapping) {
    if let (Some(a), Some(b)) = (lower.kernel.as_mut(), upper.kernel)
        && a.anon_vma == 0
        && b.anon_vma != 0
    {
        let (start, pgoff) = (a.start, a.pgoff);
        *a = b;
        (a.start, a.pgoff) = (start, pgoff);
    }
    let sticky = upper.flags() & VmFlags::STICKY;
    if lower.flags.is_some() || !sticky.is_empty() {
        lower.flags = Some(lower.flags() | sticky);
    }
    lower.resident = added(lower.resident, upper.resident);
    lower.entry.end = upper.entry.end;
    if let Some(vma) = lower.kernel.as_mut() {
        vma.end = upper.entry.end;
    }
}
