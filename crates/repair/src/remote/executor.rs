//! The executor for another process, whose pages are moved or copied.
//!
//! The executor stops the process, writes a [`Program`] for the piece, lets an agent execute it, and
//! then lets the process run for as long as it was stopped. What the program has changed since the
//! plan was made needs no check here: the agent replaces the piece with copies of its own mappings,
//! and the kernel joins only those that are equal.

use std::time::{Duration, Instant};

use vmarea_linux_sys::inject;
use vmarea_merge::types::VmRange;
use vmarea_process::pages::{LivePages, Pages as _};

use super::agent::AtCall;
use super::pages::{self, Filled, Pages, reads_as_zeros};
use super::program::{self, Outcome, Program};
use super::session::{Session, find_free, spare_mappings, unmap};
use super::stop::{LONGEST_REST, Stopped, Thread, stop_patiently};
use super::target::Target;
use crate::driver::{Done, PieceExecutor};
use crate::plan::{Piece, Run};
use crate::proc_status;
use crate::{Kept, KeptReason, RepairError, Way};

/// Number of attempts if the process cannot have the threads for a piece, with a pause after each.
const THREAD_TRIES: u32 = 5;
const REST: Duration = Duration::from_millis(25);

/// Joins the mappings of a piece while the process is stopped.
pub(super) struct RemoteExecutor<'a>(pub(super) &'a mut Session);

impl PieceExecutor for RemoteExecutor<'_> {
    const REPLACES_SINGLE: bool = true;

    fn join(&mut self, piece: &Piece, copies: u64) -> Result<Done, RepairError> {
        // Most obstacles are visible before the process is stopped.
        if let Err(refused) = choose(&self.0.target, self.0.way, piece.range, copies)? {
            return Ok(refused);
        }
        let piece = &Piece {
            in_place: piece.in_place || self.0.in_place,
            ..piece.clone()
        };
        let mut tries = 1;
        let done = loop {
            self.0.make_places()?;
            match join_stopped(self.0, piece, copies, None) {
                // The kernel counts the threads of the piece before until it has removed them.
                Err(RepairError::NoThread { .. }) if tries < THREAD_TRIES => {
                    tries += 1;
                    self.0.target.rest(REST);
                }
                done => break done?,
            }
        };
        match &done.refused {
            None => self.0.spare += piece.parts.len() as u64 - 1,
            Some((KeptReason::NoRoom, _)) => self.0.spare = spare_mappings(self.0.pid)?,
            Some(_) => {}
        }
        std::thread::sleep(done.pause.min(LONGEST_REST));
        Ok(done)
    }

    fn most_parts(&self) -> usize {
        /// Mappings that a piece needs besides its parts, and that the kernel keeps in reserve.
        const OTHERS: u64 = 12;
        self.0.spare.saturating_sub(OTHERS).max(2) as usize
    }

    fn retries_before(&self, _: KeptReason) -> bool {
        true
    }

    fn pass_over(
        &self,
        run: &Run,
        at: u64,
        reason: KeptReason,
        copies: u64,
        kept: &mut Kept,
    ) -> u64 {
        match reason {
            // Every page of the process may be pinned.
            KeptReason::Pinned if self.0.way == Way::Copy => {
                pass_over(run, at, reason, kept, |_| true)
            }
            KeptReason::Shared if copies == 0 => pass_over_shared(self.0, run, at, kept),
            _ => at,
        }
    }
}

/// Stops the process, joins the piece, and lets the process go.
pub(super) fn join_stopped(
    session: &mut Session,
    piece: &Piece,
    copies: u64,
    at_call: Option<AtCall<'_>>,
) -> Result<Done, RepairError> {
    let Session {
        pid,
        target,
        scratch,
        way,
        query,
        ..
    } = session;
    let waits_in_kernel = proc_status::may_handle_kernel_faults(*pid);
    let begun = Instant::now();
    let mut stopped = stop_patiently(target)?;
    find_free(*pid, scratch, query.as_mut())?;
    let area = match waits_in_kernel {
        true => None,
        false => rseq_area_in(&stopped, piece.range),
    };
    let choice = match area {
        Some(area) => Err(Done::refused(KeptReason::InUse, area)),
        None => choose(target, *way, piece.range, copies)?,
    };
    let Choice {
        pages,
        copied,
        shared,
    } = match choice {
        Ok(choice) => choice,
        Err(refused) => {
            stopped.let_go();
            let pause = begun.elapsed();
            return Ok(Done { pause, ..refused });
        }
    };
    let mut program = Program::of_piece(piece, scratch, &pages);
    stopped.run(scratch, &mut program, at_call)?;
    stopped.let_go();
    let pause = begun.elapsed();
    drop(stopped);
    // Reading the memory of the process has to wait for the agent's end.
    program.read(target, scratch)?;
    if let Some(range) = program.not_unmapped() {
        unmap(&mut stop_patiently(target)?, range)?;
    }
    let done = Done {
        copied,
        shared,
        pause,
        work: program.time(),
        ..Done::default()
    };
    with_outcome(done, program.outcome(target)?, *pid)
}

/// Adds what became of a piece to its result.
fn with_outcome(done: Done, outcome: Outcome, pid: i32) -> Result<Done, RepairError> {
    match outcome {
        Outcome::Unchanged(reason, place) => Ok(Done {
            refused: Some((reason, place)),
            ..done
        }),
        Outcome::Joined(apart) => {
            let pages = Pages::of(pid)?;
            let mut kept = Kept::default();
            for (reason, page) in apart {
                kept.add(match reason {
                    KeptReason::Pinned if !pages.is_own(page)? => KeptReason::Shared,
                    reason => reason,
                });
            }
            Ok(Done { kept, ..done })
        }
    }
}

/// Returns the `rseq` area of a thread in `range`.
///
/// The kernel writes to the area when it returns to the thread's stub. If it cannot wait for the page,
/// because the process may not handle faults in the kernel, the process would be killed if its tracer
/// had been killed before.
fn rseq_area_in(stopped: &Stopped<'_>, range: VmRange) -> Option<u64> {
    let area = |thread: &Thread| inject::rseq_area(thread.tid).ok().flatten();
    let mut areas = stopped.threads.iter().filter_map(area);
    areas.find(|&area| range.contains(area))
}

/// How the pages of a piece get into the new mapping.
struct Choice {
    pages: program::Pages,
    /// Number of pages to copy.
    copied: u64,
    /// Number of shared pages among them.
    shared: u64,
}

/// Chooses what happens to the pages of a range, of which at most `copies` shared ones are copied. The
/// inner error is the result for a piece that is left unchanged.
fn choose(
    target: &Target,
    way: Way,
    range: VmRange,
    copies: u64,
) -> Result<Result<Choice, Done>, RepairError> {
    let pages = Pages::of(target.pid)?;
    if way == Way::Copy && proc_status::may_be_pinned(target.pid) {
        return Ok(Err(Done::refused(KeptReason::Pinned, range.start)));
    }
    let (mut shared, mut extents, mut count) = (Vec::new(), Vec::new(), 0);
    let mut too_many = None;
    pages.each(range, |page, filled| {
        if filled == Filled::Shared {
            // The kernel moves its zero page, and an address without a page reads as zeros too.
            if reads_as_zeros(&target.memory, page) {
                return true;
            }
            if shared.len() as u64 == copies {
                too_many = Some(page);
                return false;
            }
            shared.push(page);
        }
        count += 1;
        pages::extend(&mut extents, page);
        true
    })?;
    if let Some(page) = too_many {
        return Ok(Err(Done::refused(KeptReason::Shared, page)));
    }
    let copied = shared.len() as u64;
    Ok(Ok(match way {
        Way::Move => Choice {
            pages: program::Pages::Move {
                copied_before: shared,
            },
            copied,
            shared: copied,
        },
        Way::Copy => Choice {
            pages: program::Pages::Copy { extents },
            copied: count,
            shared: copied,
        },
    }))
}

/// Skips mappings with shared pages, because stopping the process for each of them would be
/// useless.
fn pass_over_shared(session: &Session, run: &Run, at: u64, kept: &mut Kept) -> u64 {
    let Ok(pages) = LivePages::open(session.pid) else {
        return at;
    };
    pass_over(run, at, KeptReason::Shared, kept, |part| {
        pages.shared(part, 1).is_some_and(|shared| shared > 0)
    })
}

/// Skips the mappings from `at` on, up to the first mapping for which `stays` is false.
fn pass_over(
    run: &Run,
    mut at: u64,
    reason: KeptReason,
    kept: &mut Kept,
    stays: impl Fn(VmRange) -> bool,
) -> u64 {
    let first = run.parts.partition_point(|part| part.end <= at);
    for part in run.parts[first..].iter().take_while(|part| stays(**part)) {
        kept.add(reason);
        at = part.end;
    }
    at
}
