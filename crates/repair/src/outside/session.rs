//! A repair of another process from its first stop to its last.
//!
//! What pieces need is put into the process once; each piece then stops it, joins, and lets it run
//! on for as long as it stood. Deliberately absent: what happens within a piece
//! ([`stopped`](super::stopped)).

use std::ops::Range;
use std::time::{Duration, Instant};

use vmarea::types::VmRange;

use super::copied::copy_piece;
use super::home::{bring_home, is_writable, must_stand};
use super::obstacles;
use super::pages::Pages;
use super::stopped::{Done, is_as_planned, run_piece};
use super::tools::{MOST_CALLS, clear_up, make_tools};
use super::{Outside, journal_failed};
use crate::hold::Target;
use crate::journal::{Journal, Tools};
use crate::lent::{Held, Injector};
use crate::look;
use crate::other::{self, Fix, Fixed, Step};
use crate::pace::Pace;
use crate::piece::Room;
use crate::plan::{Limits, Piece, Run};
use crate::{Options, Reason, RepairError, Report, Way, within};
use vmarea_process::maps::{self, Query};

/// Repairs between the first stop and the last.
pub(super) struct Session<'a> {
    pid: i32,
    options: &'a Options,
    target: Target,
    journal: Journal,
    tools: Tools,
    pace: Pace,
    /// Shared pages that were copied.
    shared: u64,
}

impl<'a> Session<'a> {
    /// Puts into the process what pieces need.
    pub(super) fn begin(outside: &'a Outside) -> Result<Session<'a>, RepairError> {
        let pid = outside.pid;
        let target = Target::open(pid)?;
        let start = look::start_time(pid)?;
        if outside.journal(start)?.is_some() {
            return Err(RepairError::Unfinished(pid));
        }
        let mut journal = match Journal::create(&outside.folder, pid, start) {
            // Another has begun in this moment.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(RepairError::AtWork { pid, by: None });
            }
            journal => journal.map_err(journal_failed)?,
        };
        if target.has_tools() {
            journal.remove().map_err(journal_failed)?;
            return Err(RepairError::ToolsThere(pid));
        }
        if let Some(pause) = outside.options.max_pause {
            target.be_patient((4 * pause).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE));
        }
        let made = hold_patiently(&target, &mut journal).and_then(|held| {
            let made = make_tools(&target, &held, &mut journal, outside.options.way);
            let released = held.release(&mut journal);
            made.map(|tools| (tools, released))
        });
        let tools = match made {
            Ok((tools, Ok(()))) => tools,
            Ok((tools, Err(error))) => {
                end_journal(clear_up(&target, &mut journal, tools), journal)?;
                return Err(error);
            }
            Err(error) => {
                // Where something is left, so is the journal of it.
                if !matches!(error, RepairError::LeftBehind { .. }) {
                    let _ = journal.remove();
                }
                return Err(error);
            }
        };
        let most = Limits {
            parts: MOST_CALLS - 40,
            bytes: Room { range: tools.room }.piece_bytes(),
            part_bytes: 0,
        };
        let mut session = Session {
            pid,
            options: &outside.options,
            target,
            journal,
            tools,
            pace: Pace::new(outside.options.max_pause, most, tools.way),
            shared: 0,
        };
        match stop_time(&session.target, &mut session.journal) {
            Ok(time) => {
                session.pace.set_base(time);
                Ok(session)
            }
            Err(error) => session.end(Err(error)),
        }
    }

    pub(super) fn merge(&mut self, runs: &[Run], report: &mut Report) -> Result<(), RepairError> {
        let (needed, possible) = self.pace.smallest();
        if let (Some(asked), false) = (self.options.max_pause, possible) {
            return Err(RepairError::PauseTooShort { asked, needed });
        }
        let mut in_turn = 0;
        for run in runs {
            let (mut at, mut joined) = (run.begin(), run.range.start);
            while at < run.range.end {
                let piece = run.piece(at, joined, self.pace.limits());
                let outcome = self.merge_piece(&piece, report)?;
                let Some((reason, place)) = outcome else {
                    (at, in_turn) = (piece.range.end, 0);
                    continue;
                };
                report.kept.add(reason);
                // What lies before the mapping that refused is joined without it.
                let from = run.part_start(place).max(at);
                if from > at {
                    let before = run.piece(
                        at,
                        joined,
                        Limits {
                            parts: piece.parts.iter().filter(|part| part.end <= from).count(),
                            bytes: from - at,
                            part_bytes: 0,
                        },
                    );
                    match self.merge_piece(&before, report)? {
                        Some((reason, _)) => report.kept.add(reason),
                        None => in_turn = 0,
                    }
                }
                at = run.part_end(from);
                in_turn += u32::from(reason == Reason::Shared);
                // A child that will have gone soon is no reason to leave all of the run.
                if in_turn >= MOST_REFUSALS || reason == Reason::Pinned {
                    at = self.pass_over(run, at, reason, report);
                    in_turn = 0;
                }
                joined = at;
            }
        }
        Ok(())
    }

    /// Where to go on after a piece that was refused. To stop the process for each of many mappings that
    /// others have as well, or for any where all that it has may be pinned, would be for nothing.
    fn pass_over(&self, run: &Run, mut at: u64, reason: Reason, report: &mut Report) -> u64 {
        let all = self.tools.way == Way::Copy && reason == Reason::Pinned;
        let no_copies = reason == Reason::Shared && self.shared >= self.options.copy_pages;
        let Ok(pages) = Pages::of(self.pid) else {
            return at;
        };
        let first = run.parts.partition_point(|part| part.end <= at);
        for &part in &run.parts[first..] {
            let stays =
                all || no_copies && obstacles::shared(&pages, &self.target.memory, part, 1) > 0;
            if !stays {
                break;
            }
            report.kept.add(reason);
            at = part.end;
        }
        at
    }

    /// Joins one piece; else says why not, and where.
    fn merge_piece(
        &mut self,
        piece: &Piece,
        report: &mut Report,
    ) -> Result<Option<(Reason, u64)>, RepairError> {
        let mut query = Query::open(self.pid).ok();

        self.journal.piece(piece.range).map_err(journal_failed)?;
        let begun = Instant::now();
        let held = hold_patiently(&self.target, &mut self.journal)?;
        let done = self.join(&held, query.as_mut(), piece);
        if let Err(RepairError::LeftStopped { .. } | RepairError::Ended(_)) = done {
            return done.map(|done| done.refused);
        }
        let whole = self.journal.whole().map_err(journal_failed);
        held.release(&mut self.journal)?;
        whole?;
        let done = done?;
        self.shared += done.shared;
        report.copied += done.copied;
        let outcome = done.refused;
        let time = begun.elapsed();
        report.longest_pause = report.longest_pause.max(time);
        if outcome.is_none() {
            let bytes = piece.range.len_bytes();
            self.pace.took(piece.parts.len(), bytes, time);
            report.pieces += 1;
            report.bytes += bytes;
        }
        // The process gets as much time as it lost.
        std::thread::sleep(time.min(Duration::from_millis(20)));
        Ok(outcome)
    }

    /// Joins a piece of the process that stands. Whatever the error, all pages are at home, unless it says
    /// that the process must not run.
    fn join(
        &self,
        held: &Held<'_>,
        query: Option<&mut Query>,
        piece: &Piece,
    ) -> Result<Done, RepairError> {
        if !is_as_planned(self.pid, query, piece) {
            return Ok(Done {
                refused: Some((Reason::Changed, piece.range.start)),
                ..Done::default()
            });
        }
        let copies = self.options.copy_pages.saturating_sub(self.shared);
        let done = match self.tools.way {
            Way::Move => run_piece(held, &self.tools, piece, copies),
            Way::Copy => copy_piece(held, &self.tools, piece, copies),
        };
        done.or_else(|error| match must_stand(self.pid, error) {
            RepairError::LeftStopped { .. } => {
                bring_home(held, &self.tools, piece.range).map(|_| Done {
                    refused: Some((Reason::Changed, piece.range.start)),
                    ..Done::default()
                })
            }
            error => Err(error),
        })
    }

    /// One of the other repairs. The process stands while it is decided what to do and while it is
    /// done, so that what looked empty is empty; it is looked at beforehand to know whether there is
    /// anything. How many mappings fewer there are is counted.
    pub(super) fn fix(
        &mut self,
        outside: &Outside,
        range: &Range<u64>,
        fix: Fix,
    ) -> Result<Fixed, RepairError> {
        let mut done = Fixed {
            fix,
            places: 0,
            apart: 0,
            fewer: Some(0),
        };
        let steps = outside.fix_steps(range, fix)?;
        done.apart = steps.apart;
        if steps.steps.is_empty() {
            return Ok(done);
        }
        let count = || within::count(self.pid, range).map_err(RepairError::maps(self.pid));
        let held = hold_patiently(&self.target, &mut self.journal)?;
        let changed = outside.fix_steps(range, fix).and_then(|steps| {
            let before = count()?;
            done.apart = steps.apart;
            done.places = make_steps(&held, &self.tools, &mut self.journal, &steps.steps)?;
            done.fewer = Some(before.cast_signed() - count()?.cast_signed());
            Ok(())
        });
        if let Err(RepairError::LeftStopped { .. }) = changed {
            return changed.map(|()| done);
        }
        held.release(&mut self.journal)?;
        changed.map(|()| done)
    }

    /// Takes out of the process what was put into it; `done` is what came of the work.
    pub(super) fn end<T>(mut self, done: Result<T, RepairError>) -> Result<T, RepairError> {
        let ended = match done {
            // It waits for another run, which needs the journal and the tools.
            Err(RepairError::LeftStopped { .. }) => Ok(()),
            // Nobody is left to be cleared up.
            Err(RepairError::Ended(_) | RepairError::Replaced(_)) => {
                self.journal.remove().map_err(journal_failed)
            }
            _ => {
                let cleared = clear_up(&self.target, &mut self.journal, self.tools);
                end_journal(cleared, self.journal)
            }
        };
        match done {
            // All that was left behind has gone with the tools.
            Err(RepairError::LeftBehind { .. }) if ended.is_ok() => {
                Err(RepairError::NoRoom(self.pid))
            }
            done => done.and_then(|done| ended.map(|()| done)),
        }
    }
}

/// Makes the changes of a repair; says at how many places.
fn make_steps(
    held: &Held<'_>,
    tools: &Tools,
    journal: &mut Journal,
    steps: &[Step],
) -> Result<u64, RepairError> {
    let mut changed = 0;
    for step in steps {
        if step.touch.is_some_and(|page| !held.target.touch(page)) {
            continue;
        }
        if let Some(guard) = step.guard {
            journal.guard(guard).map_err(journal_failed)?;
        }
        let mut calls = step.calls.clone();
        let done = held.run(tools, &mut calls, 0)?;
        changed += u64::from(done == calls.len());
        if let (Some(call), true) = (step.take_back, (1..calls.len()).contains(&done)) {
            let refused = (0..TRIES).all(|_| held.run(tools, &mut [call], 0).is_ok_and(|n| n == 0));
            if refused {
                let guard = step.guard.unwrap_or_default();
                return Err(RepairError::LeftStopped {
                    pid: held.pid(),
                    what: format!(
                        "the guard at {:#x} can be neither marked nor made again",
                        guard.start
                    ),
                    cause: std::io::Error::from_raw_os_error(calls[done].errno()),
                });
            }
        }
        if step.guard.is_some() {
            journal.guarded().map_err(journal_failed)?;
        }
    }
    Ok(changed)
}

/// Marks a guard page that another run has opened, unless it did not come to that.
pub(super) fn finish_guard(
    held: &Held<'_>,
    tools: &Tools,
    guard: VmRange,
) -> Result<(), RepairError> {
    let pid = held.pid();
    let mappings = maps::read(pid).map_err(RepairError::maps(pid))?;
    let mut empty = true;
    Pages::of(pid)?.each(guard, |_, _| {
        empty = false;
        false
    })?;
    if is_writable(&mappings, guard) && empty {
        let mut calls = [other::mark(guard)];
        held.run(tools, &mut calls, 0)?;
        if calls[0].errno() != 0 {
            return Err(RepairError::LeftStopped {
                pid,
                what: format!("the guard at {:#x} cannot be marked", guard.start),
                cause: std::io::Error::from_raw_os_error(calls[0].errno()),
            });
        }
    }
    Ok(())
}

/// Removes the journal where nothing is left to be finished.
fn end_journal(cleared: Result<(), RepairError>, journal: Journal) -> Result<(), RepairError> {
    match cleared {
        Ok(()) | Err(RepairError::Ended(_) | RepairError::Replaced(_)) => {
            journal.remove().map_err(journal_failed).and(cleared)
        }
        error => error,
    }
}

/// After so many pieces in turn that were shared, what is shared behind them is passed over.
const MOST_REFUSALS: u32 = 4;
/// How long the threads that stand wait for one that does not.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(20);
const LONGEST_PATIENCE: Duration = Duration::from_millis(500);
/// How often a process is tried to be stopped, with a rest in between.
const TRIES: u32 = 60;
const REST: Duration = Duration::from_millis(25);

/// Holds a process, again and again where a thread does not stop: it waits in `vfork` for its child,
/// most likely, and that will have become a program soon.
///
/// # Errors
/// As [`Target::hold`].
pub(super) fn hold_patiently<'t>(
    target: &'t Target,
    journal: &mut Journal,
) -> Result<Held<'t>, RepairError> {
    let mut tries = 1;
    loop {
        match target.hold(journal) {
            Err(RepairError::CannotStop { .. } | RepairError::SharedMemory { .. })
                if tries < TRIES =>
            {
                tries += 1;
                target.rest(REST);
            }
            held => return held,
        }
    }
}

/// How long it takes to stop the process for nothing, or but for reading the list of its mappings where
/// one alone cannot be asked for; the best of a few, as a machine is busy at times.
fn stop_time(target: &Target, journal: &mut Journal) -> Result<Duration, RepairError> {
    const TRIES: usize = 10;
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let begun = Instant::now();
        let held = hold_patiently(target, journal)?;
        if Query::open(target.pid).is_err() {
            maps::read(target.pid).map_err(RepairError::maps(target.pid))?;
        }
        held.release(journal)?;
        best = best.min(begun.elapsed());
    }
    Ok(best)
}
