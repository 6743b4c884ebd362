//! The main loop of every repair: tries to replace each run of mappings, piece by piece.
//!
//! [`Pace`] limits the size of the next piece, and a [`PieceExecutor`] either joins the mappings of
//! the piece or leaves them unchanged. The loop fills in the report and decides where to continue
//! after a refusal. This module does not know how pages reach the fresh mapping (see `in_process`
//! and `remote`).
//!
//! # Picture
//! ```text
//! run        |a|bb|cc|X|dd|e|      the mapping X refuses
//! piece      |-----------|         refused at X: the whole piece is unchanged
//! before     |-------|             retried once without X
//! next                 |--...      continues after X; nothing joins X
//! ```

use std::ops::ControlFlow;
use std::time::Duration;

use vmarea_merge::types::VmRange;

use super::pace::Pace;
use super::plan::{Piece, Run};
use super::{Kept, KeptReason, RepairError, Report};

/// Number of pieces refused because of shared pages after which all following mappings that would
/// also be refused are skipped at once. The count restarts after a joined piece and after such a
/// skip.
const MOST_REFUSALS: u32 = 4;

/// The result of one piece.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Done {
    /// Reason why the piece was left unchanged, and the address of the obstacle; `None` if the
    /// piece was joined.
    pub(super) refused: Option<(KeptReason, u64)>,
    /// What remains separate in a piece that was joined.
    pub(super) kept: Kept,
    /// Number of pages copied.
    pub(super) copied: u64,
    /// Number of copied pages that were shared.
    pub(super) shared: u64,
    /// Duration for which threads were blocked.
    pub(super) pause: Duration,
    /// Part of the pause in which the piece was joined, without stopping and resuming threads.
    pub(super) work: Duration,
}

impl Done {
    /// The result for a piece that was left unchanged because of the page or mapping at `place`.
    pub(super) fn refused(reason: KeptReason, place: u64) -> Done {
        Done {
            refused: Some((reason, place)),
            ..Done::default()
        }
    }
}

/// A way to replace a piece with a fresh mapping.
pub(super) trait PieceExecutor {
    /// True if it is worthwhile to replace a mapping alone, without joining it to another. The
    /// fresh mapping may still merge with a neighbour that is not replaced.
    const REPLACES_SINGLE: bool;

    /// Maximum number of parts of the next piece, by the limit on mappings of the process.
    fn most_parts(&self) -> usize {
        usize::MAX
    }

    /// Joins the mappings of a piece, or leaves them unchanged. At most `copies` shared pages are
    /// copied.
    ///
    /// # Errors
    /// Any error ends the repair. All pages are at their addresses, unless the error says
    /// otherwise.
    fn join(&mut self, piece: &Piece, copies: u64) -> Result<Done, RepairError>;

    /// True if, after a refusal for `reason`, the mappings before the refused one should be
    /// retried.
    fn retries_before(&self, reason: KeptReason) -> bool;

    /// Skips mappings, starting at `at`, as long as they would also be refused. Returns the end of
    /// the skipped mappings, and counts these mappings in `kept`. At most `copies` shared pages may
    /// still be copied.
    fn pass_over(
        &self,
        run: &Run,
        at: u64,
        reason: KeptReason,
        copies: u64,
        kept: &mut Kept,
    ) -> u64;
}

/// Joins as much of `runs` as possible and records the result in `report`. Copies at most
/// `copy_pages` shared pages. Calls `progress` before the first piece and after each, and ends when
/// it breaks.
///
/// # Errors
/// [`RepairError::PauseTooShort`], and the errors of [`PieceExecutor::join`].
pub(super) fn merge(
    executor: &mut impl PieceExecutor,
    runs: &[Run],
    pace: Pace,
    copy_pages: u64,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), RepairError> {
    pace.check()?;
    let mut driver = Driver {
        executor,
        pace,
        copies: copy_pages,
        shared_in_turn: 0,
        report,
        all: runs.iter().map(|run| run.parts.len() as u64).sum(),
        seen: 0,
        goes_on: ControlFlow::Continue(()),
        progress,
    };
    driver.show();
    for run in runs {
        driver.merge_run(run)?;
    }
    Ok(())
}

struct Driver<'a, E> {
    executor: &'a mut E,
    pace: Pace,
    /// Number of shared pages that may still be copied.
    copies: u64,
    /// Number of pieces refused because of shared pages since the last joined piece.
    shared_in_turn: u32,
    report: &'a mut Report,
    /// Number of mappings in all runs.
    all: u64,
    /// Number of mappings in the pieces so far.
    seen: u64,
    /// Whether the caller wants to continue.
    goes_on: ControlFlow<()>,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

/// Progress of a merge after a piece, or of another repair after a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Number of mappings that have been tried.
    pub mappings: u64,
    /// Number of mappings to try.
    pub of: u64,
    /// Number of pauses so far that were longer than allowed.
    pub long_pauses: u64,
}

impl<E: PieceExecutor> Driver<'_, E> {
    fn merge_run(&mut self, run: &Run) -> Result<(), RepairError> {
        let (mut at, mut joined) = (run.begin(), run.range.start);
        while at < run.range.end && self.goes_on.is_continue() {
            let mut limits = self.pace.limits();
            limits.parts = limits.parts.min(self.executor.most_parts());
            let piece = run.piece(at, joined, limits);
            let is_alone = |piece: &Piece| piece.parts.len() < 2 && joined == at;
            if is_alone(&piece) && !E::REPLACES_SINGLE && piece.range.end == run.range.end {
                break;
            }
            let Some((reason, place)) = self.join(&piece)? else {
                at = piece.range.end;
                continue;
            };
            let from = match self.executor.retries_before(reason) {
                true => run.part_start(place).max(at),
                false => at,
            };
            if from > at {
                let before = piece_before(&piece, from);
                let is_worthwhile = E::REPLACES_SINGLE || !is_alone(&before);
                if is_worthwhile && self.goes_on.is_continue() {
                    self.join(&before)?;
                }
            }
            at = self.pass_over(run, run.part_end(from), reason);
            joined = at;
        }
        Ok(())
    }

    /// Joins one piece and counts it; if it was refused, returns the reason and the obstacle's
    /// address.
    fn join(&mut self, piece: &Piece) -> Result<Option<(KeptReason, u64)>, RepairError> {
        let done = self.executor.join(piece, self.copies)?;
        self.copies = self.copies.saturating_sub(done.shared);
        let report = &mut *self.report;
        report.copied += done.copied;
        report.longest_pause = report.longest_pause.max(done.pause);
        report.long_pauses += u64::from(self.pace.is_too_long(done.pause));
        self.seen += piece.parts.len() as u64;
        self.show();
        let report = &mut *self.report;
        for (reason, n) in done.kept.by_reason {
            *report.kept.by_reason.entry(reason).or_default() += n;
        }
        let bytes = piece.range.len_bytes();
        match done.refused {
            Some((reason, _)) => {
                report.kept.add(reason);
                let pace = &mut self.pace;
                pace.refused(piece.parts.len(), bytes, done.work, done.pause);
            }
            None => {
                let pace = &mut self.pace;
                pace.took(piece.parts.len(), bytes, done.work, done.pause);
                self.shared_in_turn = 0;
                report.pieces += 1;
                report.bytes += bytes;
            }
        }
        Ok(done.refused)
    }

    /// Tells the caller the progress, and notes whether the caller wants to continue.
    fn show(&mut self) {
        let seen = self.seen.min(self.all);
        self.goes_on = (self.progress)(Progress {
            mappings: seen,
            of: self.all,
            long_pauses: self.report.long_pauses,
        });
        self.report.left = match self.goes_on {
            ControlFlow::Break(()) => self.all - seen,
            ControlFlow::Continue(()) => 0,
        };
    }

    /// Returns the address at which to continue after a refusal.
    ///
    /// The first few refusals because of shared pages each skip only the refused mapping, because
    /// the child that shares the pages may exit soon.
    fn pass_over(&mut self, run: &Run, at: u64, reason: KeptReason) -> u64 {
        self.shared_in_turn += u32::from(reason == KeptReason::Shared);
        if self.shared_in_turn < MOST_REFUSALS && reason != KeptReason::Pinned {
            return at;
        }
        self.shared_in_turn = 0;
        let kept = &mut self.report.kept;
        self.executor.pass_over(run, at, reason, self.copies, kept)
    }
}

/// Returns the part of `piece` before `end`, which must be the start of a mapping of the piece.
fn piece_before(piece: &Piece, end: u64) -> Piece {
    let parts = piece.parts.iter().filter(|part| part.end <= end);
    Piece {
        range: VmRange::new(piece.range.start, end),
        parts: parts.copied().collect(),
        flags: piece.flags,
        left: piece.left,
        in_place: piece.in_place,
    }
}
