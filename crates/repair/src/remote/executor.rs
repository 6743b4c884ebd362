//! The executor for another process, whose pages are moved or copied.
//!
//! The executor records each piece in the journal, stops the process, checks that the mappings are
//! as planned, joins the piece, and then lets the process run for as long as it was stopped.
//! [`by_move`](super::by_move) and [`by_copy`](super::by_copy) make the system calls.

use std::time::Instant;

use vmarea_merge::types::{VmFlags, VmRange};

use super::agent::see_to_descriptor;
use super::by_copy::copy_piece;
use super::by_move::run_piece;
use super::injector::{Injector, StoppedProcess};
use super::move_back::{move_back, must_stand};
use super::session::Session;
use super::stop::{LONGEST_REST, stop_patiently};
use crate::driver::{Done, PieceExecutor};
use crate::journal::{self, Agent};
use crate::plan::{Piece, Run};
use crate::proc_status;
use crate::{Kept, KeptReason, RepairError, Way};
use vmarea_linux_sys::inject;
use vmarea_process::maps::{self, MapsEntry, Query};
use vmarea_process::pages::{LivePages, Pages};

/// Joins the mappings of a piece while the process is stopped.
pub(super) struct RemoteExecutor<'a>(pub(super) &'a mut Session);

impl PieceExecutor for RemoteExecutor<'_> {
    const REPLACES_SINGLE: bool = true;

    fn join(&mut self, piece: &Piece, copies: u64) -> Result<Done, RepairError> {
        join_stopped(self.0, piece, |held, agent| match agent.way {
            Way::Move => run_piece(held, agent, piece, copies),
            Way::Copy => copy_piece(held, agent, piece, copies),
        })
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
            KeptReason::Pinned if self.0.agent.way == Way::Copy => {
                pass_over(run, at, reason, kept, |_| true)
            }
            KeptReason::Shared if copies == 0 => pass_over_shared(self.0, run, at, kept),
            _ => at,
        }
    }
}

/// Stops the process, calls `join` if the mappings are as planned, and resumes the process.
fn join_stopped(
    session: &mut Session,
    piece: &Piece,
    join: impl FnOnce(&StoppedProcess<'_>, &Agent) -> Result<Done, RepairError>,
) -> Result<Done, RepairError> {
    let changed = session.attributes.changed(piece);
    if let Some(place) = changed.map_err(RepairError::maps(session.pid))? {
        return Ok(Done::refused(KeptReason::Changed, place));
    }
    let mut query = Query::open(session.pid).ok();
    let journal = &mut session.journal;
    journal.piece(piece.range).map_err(journal::failed)?;
    let begun = Instant::now();
    let held = stop_patiently(&session.target, journal)?;
    let (stopped, ran) = (
        Instant::now(),
        proc_status::cpu_time(session.pid, held.tid()),
    );
    let done = see_to_descriptor(&held, journal, &mut session.agent).and_then(|()| {
        if !is_as_planned(session.pid, query.as_mut(), piece) {
            return Ok(Done::refused(KeptReason::Changed, piece.range.start));
        }
        // The kernel may write to this area while the borrowed thread makes the calls. If the
        // area's page is moved out at that moment, the thread waits for the page forever.
        let area = inject::rseq_area(held.tid()).ok().flatten();
        if let Some(area) = area.filter(|&area| piece.range.contains(area)) {
            return Ok(Done::refused(KeptReason::InUse, area));
        }
        join(&held, &session.agent).or_else(|error| take_back(&held, &session.agent, piece, error))
    });
    if let Err(RepairError::LeftStopped { .. } | RepairError::Ended(_)) = done {
        return done;
    }
    // The time for which the borrowed thread waited for a processor says nothing about the piece.
    let ran = ran.and_then(|before| {
        let now = proc_status::cpu_time(session.pid, held.tid())?;
        now.checked_sub(before)
    });
    let work = ran.unwrap_or_else(|| stopped.elapsed());
    let whole = journal.whole().map_err(journal::failed);
    held.release(journal)?;
    whole?;
    let done = done?;
    let pause = begun.elapsed();
    std::thread::sleep(pause.min(LONGEST_REST));
    Ok(Done {
        pause,
        work,
        ..done
    })
}

/// Moves pages back after an error, whether the error occurred before or after the swap. Afterwards
/// all pages are at their addresses, unless the returned error says that the process must not run.
pub(super) fn take_back(
    by: &impl Injector,
    agent: &Agent,
    piece: &Piece,
    error: RepairError,
) -> Result<Done, RepairError> {
    match must_stand(by.pid(), error) {
        RepairError::LeftStopped { .. } => {
            let swapped = move_back(by, agent, piece.range)?;
            Ok(match swapped || is_joined(by.pid(), piece) {
                true => Done::default(),
                false => Done::refused(KeptReason::Changed, piece.range.start),
            })
        }
        error => Err(error),
    }
}

/// True if the mappings of a piece have become one.
///
/// An error can occur after the last call of a piece, when no page remains to be moved back. Such a
/// piece counts as joined.
fn is_joined(pid: i32, piece: &Piece) -> bool {
    let mappings = maps::read(pid).unwrap_or_default();
    let covers = |m: &MapsEntry| m.start <= piece.range.start && piece.range.end <= m.end;
    piece.parts.len() > 1 && mappings.iter().any(covers)
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

/// True if the mappings have the planned addresses and protection. Their flags were compared with
/// the plan before the stop.
fn is_as_planned(pid: i32, query: Option<&mut Query>, piece: &Piece) -> bool {
    let fits = |mapping: &MapsEntry, part: &VmRange| {
        let perms = mapping.perms;
        mapping.start <= part.start
            && part.end <= mapping.end
            && mapping.ino == 0
            && !perms.shared
            && perms.read == piece.flags.contains(VmFlags::READ)
            && perms.write == piece.flags.contains(VmFlags::WRITE)
            && perms.exec == piece.flags.contains(VmFlags::EXEC)
    };
    match query {
        Some(query) => piece.parts.iter().all(
            |part| matches!(query.covering_or_next(part.start), Ok(Some(m)) if fits(&m, part)),
        ),
        None => {
            let Ok(mappings) = maps::read(pid) else {
                return false;
            };
            piece.parts.iter().all(|part| {
                let at = mappings.partition_point(|m| m.end <= part.start);
                mappings.get(at).is_some_and(|m| fits(m, part))
            })
        }
    }
}
