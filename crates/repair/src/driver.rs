//! The one loop of every repair: piece after piece of each run, until all has been tried.
//!
//! [`Pace`] says how large the next piece may be, and a [`PieceExecutor`] joins it or leaves it as it
//! was. The loop keeps the report and decides where to go on after a refusal. Deliberately absent:
//! how pages get to the fresh mapping (`in_process`, `remote`).
//!
//! # Picture
//! ```text
//! run        |a|bb|cc|X|dd|e|      the mapping X refuses
//! piece      |-----------|         refused at X: all of it is as it was
//! before     |-------|             once more without X, and not again
//! next                 |--...      behind X; nothing joins X
//! ```

use std::time::Duration;

use vmarea::types::VmRange;

use super::pace::Pace;
use super::plan::{Piece, Run};
use super::{Kept, Reason, RepairError, Report};

/// After so many pieces in turn that were shared, what is shared behind them is passed over.
const MOST_REFUSALS: u32 = 4;

/// What came of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Done {
    /// Why it is as it was, and where that is so; `None` where it was joined.
    pub(super) refused: Option<(Reason, u64)>,
    /// Pages that were copied.
    pub(super) copied: u64,
    /// Those of them that were shared.
    pub(super) shared: u64,
    /// How long threads were kept from their memory.
    pub(super) pause: Duration,
}

impl Done {
    /// A piece that is as it was, because of what is at `place`.
    pub(super) fn refused(reason: Reason, place: u64) -> Done {
        Done {
            refused: Some((reason, place)),
            ..Done::default()
        }
    }
}

/// One way to replace a piece by a fresh mapping.
pub(super) trait PieceExecutor {
    /// True where a single mapping is replaced although nothing was joined before it: the fresh one
    /// may join a neighbour that stays.
    const REPLACES_SINGLE: bool;

    /// Joins a piece, in which `copies` shared pages may be copied, or leaves it as it was.
    ///
    /// # Errors
    /// What ends the repair. All pages are at home, unless the error says otherwise.
    fn join(&mut self, piece: &Piece, copies: u64) -> Result<Done, RepairError>;

    /// True where the mappings before the one that refused for `reason` may be tried without it.
    fn retries_before(&self, reason: Reason) -> bool;

    /// Where to go on behind mappings at `at` that would be refused as well; what is passed over goes
    /// to `kept`. `copies` shared pages may still be copied.
    fn pass_over(&self, run: &Run, at: u64, reason: Reason, copies: u64, kept: &mut Kept) -> u64;
}

/// Joins what can be joined of `runs`, and counts it in `report`. At most `copy_pages` pages are copied
/// because they are shared.
///
/// # Errors
/// [`RepairError::PauseTooShort`], and those of [`PieceExecutor::join`].
pub(super) fn merge(
    executor: &mut impl PieceExecutor,
    runs: &[Run],
    pace: Pace,
    copy_pages: u64,
    report: &mut Report,
) -> Result<(), RepairError> {
    pace.check()?;
    let mut driver = Driver {
        executor,
        pace,
        copies: copy_pages,
        shared_in_turn: 0,
        report,
    };
    runs.iter().try_for_each(|run| driver.merge_run(run))
}

struct Driver<'a, E> {
    executor: &'a mut E,
    pace: Pace,
    /// Shared pages that may still be copied.
    copies: u64,
    /// Pieces in turn that were refused because they are shared.
    shared_in_turn: u32,
    report: &'a mut Report,
}

impl<E: PieceExecutor> Driver<'_, E> {
    fn merge_run(&mut self, run: &Run) -> Result<(), RepairError> {
        let (mut at, mut joined) = (run.begin(), run.range.start);
        while at < run.range.end {
            let piece = run.piece(at, joined, self.pace.limits());
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
                if E::REPLACES_SINGLE || !is_alone(&before) {
                    self.join(&before)?;
                }
            }
            at = self.pass_over(run, run.part_end(from), reason);
            joined = at;
        }
        Ok(())
    }

    /// Joins one piece and counts it; else says why not, and where.
    fn join(&mut self, piece: &Piece) -> Result<Option<(Reason, u64)>, RepairError> {
        let done = self.executor.join(piece, self.copies)?;
        self.copies = self.copies.saturating_sub(done.shared);
        let report = &mut *self.report;
        report.copied += done.copied;
        report.longest_pause = report.longest_pause.max(done.pause);
        match done.refused {
            Some((reason, _)) => report.kept.add(reason),
            None => {
                let bytes = piece.range.len_bytes();
                self.pace.took(piece.parts.len(), bytes, done.pause);
                self.shared_in_turn = 0;
                report.pieces += 1;
                report.bytes += bytes;
            }
        }
        Ok(done.refused)
    }

    /// Where to go on behind a mapping that refused. A child that will have gone soon is no reason to
    /// leave all of the run.
    fn pass_over(&mut self, run: &Run, at: u64, reason: Reason) -> u64 {
        self.shared_in_turn += u32::from(reason == Reason::Shared);
        if self.shared_in_turn < MOST_REFUSALS && reason != Reason::Pinned {
            return at;
        }
        self.shared_in_turn = 0;
        let kept = &mut self.report.kept;
        self.executor.pass_over(run, at, reason, self.copies, kept)
    }
}

/// The mappings of `piece` before `end`, at which one of them begins.
fn piece_before(piece: &Piece, end: u64) -> Piece {
    let parts = piece.parts.iter().filter(|part| part.end <= end);
    Piece {
        range: VmRange::new(piece.range.start, end),
        parts: parts.copied().collect(),
        flags: piece.flags,
        left: piece.left,
    }
}
