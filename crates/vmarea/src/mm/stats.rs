//! Merge and split statistics of an address space.

use crate::vma::merge::{CallKind, GivenUp, MergeKind, MergeOutcome, Refusal, Relocation};

/// Merge and split counts of an address space since its creation.
///
/// ```
/// # use vmarea::prelude::*;
/// # let space = Space::new(Policy::LINUX, System::default());
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// use vmarea::mm::stats::Stats;
/// use vmarea::vma::merge::MergeKind;
///
/// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
/// space.mprotect(mm, at, PAGE_SIZE, Prot::READ, None)?;
/// space.mprotect(mm, at, PAGE_SIZE, Prot::READ | Prot::WRITE, None)?;
/// let stats = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?.state().stats.clone();
/// assert_eq!(stats.splits, 1);
/// let merges: Vec<_> = stats.merges().filter(|(_, count)| *count > 0).collect();
/// assert_eq!(merges, [(MergeKind::NextTakesAll, 1)]);
/// // The sum over all address spaces:
/// let mut sum = Stats::default();
/// sum.add(&stats);
/// assert_eq!(sum.splits, 1);
/// # Ok::<(), Errno>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    merges: [u64; MergeKind::ALL.len()],
    refusals: [u64; Refusal::ALL.len()],
    attempts: [[u64; MergeOutcome::ALL.len()]; CallKind::ALL.len()],
    relocations: [u64; Relocation::ALL.len()],
    /// Number of moves that changed the page offset of faulted pages to that of their new address.
    pub pgoff_updates: u64,
    /// Number of merges by `mremap` in which pages got the page offset of their new address (thesis
    /// 2.10.2).
    pub pgoff_merges: u64,
    /// Number of times that a mapping grown in place by `mremap` has merged with the next VMA
    /// (thesis 2.10.3).
    pub expand_merges: u64,
    /// Number of splits of one VMA into two.
    pub splits: u64,
    /// Number of times that changing the range of a faulted VMA required the reverse-map lock.
    pub adjusts_locked: u64,
    /// Number of times that moving the end of a faulted VMA did not require the reverse-map lock.
    pub adjusts_unlocked: u64,
}

impl Stats {
    pub(crate) fn merged(&mut self, kind: MergeKind) {
        self.merges[kind as usize] += 1;
    }

    /// Counts a move that changed the page offset of faulted pages to that of their new address.
    pub(crate) fn pgoff_updated(&mut self, merged: bool) {
        self.pgoff_updates += 1;
        self.pgoff_merges += u64::from(merged);
    }

    pub(crate) fn refused(&mut self, reason: Refusal) {
        self.refusals[reason as usize] += 1;
    }

    pub(crate) fn relocated(&mut self, what: Relocation) {
        self.relocations[what as usize] += 1;
    }

    pub(crate) fn attempted(&mut self, call: CallKind, outcome: MergeOutcome) {
        self.attempts[call as usize][outcome as usize] += 1;
    }

    /// Corrects the counts for a merge that was decided on but not carried out. `borders` are the
    /// outcomes that were counted.
    pub(crate) fn given_up(
        &mut self,
        kind: MergeKind,
        (call, borders): (CallKind, [Option<MergeOutcome>; 2]),
        why: GivenUp,
    ) {
        self.merges[kind as usize] -= 1;
        for outcome in borders.into_iter().flatten() {
            self.attempts[call as usize][outcome as usize] -= 1;
            self.attempted(call, outcome.given_up(why));
        }
    }

    /// Returns the number of merge attempts by kind of call and outcome (table 2.2 of the thesis).
    pub fn attempts(&self) -> impl Iterator<Item = (CallKind, MergeOutcome, u64)> + '_ {
        CallKind::ALL
            .into_iter()
            .zip(self.attempts)
            .flat_map(|(call, counts)| {
                MergeOutcome::ALL
                    .into_iter()
                    .zip(counts)
                    .map(move |(outcome, n)| (call, outcome, n))
            })
    }

    /// Returns the number of merges by kind.
    pub fn merges(&self) -> impl Iterator<Item = (MergeKind, u64)> + '_ {
        MergeKind::ALL.into_iter().zip(self.merges)
    }

    /// Returns the number of merges with an adjacent VMA that were refused, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL.into_iter().zip(self.refusals)
    }

    /// Returns the number of moves whose pages were to be relocated, by what became of it.
    pub fn relocations(&self) -> impl Iterator<Item = (Relocation, u64)> + '_ {
        Relocation::ALL.into_iter().zip(self.relocations)
    }

    /// Adds the counts in `other` to these counts.
    pub fn add(&mut self, other: &Stats) {
        self.merges
            .iter_mut()
            .zip(other.merges)
            .for_each(|(a, b)| *a += b);
        self.refusals
            .iter_mut()
            .zip(other.refusals)
            .for_each(|(a, b)| *a += b);
        self.relocations
            .iter_mut()
            .zip(other.relocations)
            .for_each(|(a, b)| *a += b);
        let rows = self.attempts.iter_mut().zip(other.attempts);
        rows.for_each(|(a, b)| a.iter_mut().zip(b).for_each(|(a, b)| *a += b));
        self.pgoff_updates += other.pgoff_updates;
        self.pgoff_merges += other.pgoff_merges;
        self.expand_merges += other.expand_merges;
        self.splits += other.splits;
        self.adjusts_locked += other.adjusts_locked;
        self.adjusts_unlocked += other.adjusts_unlocked;
    }
}
