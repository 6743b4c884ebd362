//! Performs those repairs of another process that move no pages (see [`fixes`](crate::fixes)).

use std::ops::Range;
use std::time::Instant;

use vmarea_merge::types::{VmFlags, VmRange};

use super::executor::LONGEST_REST;
use super::injector::{Injector, StoppedProcess};
use super::move_back::is_writable;
use super::pages::Pages;
use super::places::Places;
use super::session::Session;
use super::stop::stop_patiently;
use crate::RepairError;
use crate::attributes::Attributes;
use crate::driver::Progress;
use crate::fixes::{self, Fix, Fixed, Step, Steps};
use crate::journal::{self, Agent, Journal};
use crate::report::count_mappings;
use vmarea_process::maps;
use vmarea_process::pages::LivePages;
use vmarea_process::plan::Change;
use vmarea_process::processes::kernel_policy;
use vmarea_process::view::KernelView;
use vmarea_process::{Mappings, Smaps};

/// Maximum number of attempts at the call that reverts a step.
const TRIES: u32 = 60;

/// Returns the steps of `fix` in `range` of a process; `kernel` reads the kernel's own data, if
/// permitted.
///
/// # Errors
/// [`RepairError::Maps`].
pub(super) fn steps(
    pid: i32,
    kernel: Option<&KernelView>,
    range: &Range<u64>,
    fix: Fix,
) -> Result<Steps, RepairError> {
    let failed = RepairError::maps(pid);
    let mut mappings = Mappings::read(pid, kernel, Smaps::WithoutView)
        .map_err(&failed)?
        .list;
    mappings.retain(|m| m.entry.start >= range.start && m.entry.end <= range.end);
    let pages = LivePages::open(pid).map_err(&failed)?;
    Ok(fixes::steps(fix, &kernel_policy(), &mappings, &pages))
}

/// Performs one repair, and measures the decrease in the number of mappings.
///
/// The steps are planned while the process runs. Each stop makes as many steps as fit into the
/// allowed pause, and skips those whose place is no longer as planned.
pub(super) fn make(
    session: &mut Session,
    kernel: Option<&KernelView>,
    range: &Range<u64>,
    fix: Fix,
    progress: &mut dyn FnMut(Progress),
) -> Result<Fixed, RepairError> {
    let failed = RepairError::maps(session.pid);
    let planned = steps(session.pid, kernel, range, fix)?;
    let mut done = Fixed {
        apart: planned.apart,
        fewer: Some(0),
        ..Fixed::nothing(fix)
    };
    if planned.steps.is_empty() {
        return Ok(done);
    }
    let before = count_mappings(session.pid, range).map_err(&failed)?;
    let mut attributes = Attributes::open(&session.pid.to_string()).map_err(&failed)?;
    let mut rest = &planned.steps[..];
    while let Some(step) = rest.first() {
        let made = match reservation(step) {
            // The kernel does not show the flags of a stopped process quickly, so they are read
            // directly before the stop.
            Some(place) if !attributes.are(place, VmFlags::empty()).map_err(&failed)? => 1,
            Some(_) => make_in_one_stop(session, &rest[..1], &mut done)?,
            None => {
                let end = rest.iter().position(|step| reservation(step).is_some());
                make_in_one_stop(session, &rest[..end.unwrap_or(rest.len())], &mut done)?
            }
        };
        rest = &rest[made..];
        progress(Progress {
            mappings: (planned.steps.len() - rest.len()) as u64,
            of: planned.steps.len() as u64,
            long_pauses: done.long_pauses,
        });
    }
    let after = count_mappings(session.pid, range).map_err(failed)?;
    done.fewer = Some(before.cast_signed() - after.cast_signed());
    Ok(done)
}

/// Returns the range that a step replaces with one reservation.
fn reservation(step: &Step) -> Option<VmRange> {
    match step.change {
        Some(Change::Reserve { range, .. }) => Some(range),
        _ => None,
    }
}

/// Stops the process and executes the first of `steps`, as many as fit into the allowed pause and
/// at least one ([`may_continue`](crate::pace::Pace::may_continue)). Returns their number.
fn make_in_one_stop(
    session: &mut Session,
    steps: &[Step],
    done: &mut Fixed,
) -> Result<usize, RepairError> {
    let mut places = Places::open(session.pid)?;
    let (pace, begun) = (session.pace, Instant::now());
    let held = stop_patiently(&session.target, &mut session.journal)?;
    let stopping = begun.elapsed();
    let mut made = 0;
    let changed = places.begin().and_then(|()| {
        for step in steps {
            if made > 0 && !pace.may_continue(stopping, begun.elapsed()) {
                break;
            }
            made += 1;
            if places.allow(step) {
                let changed = make_step(&held, &session.agent, &mut session.journal, step)?;
                done.places += u64::from(changed);
            }
        }
        Ok(())
    });
    if let Err(RepairError::LeftStopped { .. }) = changed {
        return changed.map(|()| made);
    }
    held.release(&mut session.journal)?;
    let pause = begun.elapsed();
    done.stops += 1;
    done.longest_pause = done.longest_pause.max(pause);
    done.long_pauses += u64::from(pace.is_too_long(pause));
    changed?;
    std::thread::sleep(pause.min(LONGEST_REST));
    Ok(made)
}

/// Executes one step of a repair; returns whether all its calls succeeded.
fn make_step(
    held: &StoppedProcess<'_>,
    agent: &Agent,
    journal: &mut Journal,
    step: &Step,
) -> Result<bool, RepairError> {
    if step.touch.is_some_and(|page| !held.target.touch(page)) {
        return Ok(false);
    }
    if let Some(guard) = step.guard() {
        journal.guard(guard).map_err(journal::failed)?;
    }
    let mut calls = step.calls.clone();
    let done = held.run(agent, &mut calls, 0)?;
    if let (Some(call), true) = (step.take_back, (1..calls.len()).contains(&done)) {
        let refused = (0..TRIES).all(|_| held.run(agent, &mut [call], 0).is_ok_and(|n| n == 0));
        if refused {
            let guard = step.guard().unwrap_or_default();
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
    if step.guard().is_some() {
        journal.guarded().map_err(journal::failed)?;
    }
    Ok(done == calls.len())
}

/// Marks a guard page that an interrupted run has made accessible; otherwise does nothing.
pub(super) fn finish_guard(
    held: &StoppedProcess<'_>,
    agent: &Agent,
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
        let mut calls = [fixes::mark(guard)];
        held.run(agent, &mut calls, 0)?;
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
