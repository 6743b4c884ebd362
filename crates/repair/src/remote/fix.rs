//! Performs those repairs of another process that move no pages (see [`fixes`](crate::fixes)).

use std::ops::Range;

use vmarea_merge::types::VmRange;

use super::injector::{Injector, StoppedProcess};
use super::move_back::is_writable;
use super::pages::Pages;
use super::session::Session;
use super::stop::stop_patiently;
use crate::RepairError;
use crate::fixes::{self, Fix, Fixed, Step, Steps};
use crate::journal::{self, Agent, Journal};
use crate::report::count_mappings;
use vmarea_process::maps;
use vmarea_process::pages::LivePages;
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
/// The process is stopped while the steps are planned and executed, so that ranges found empty
/// remain empty. If a plan made in advance has no steps, the process is not stopped.
pub(super) fn make(
    session: &mut Session,
    kernel: Option<&KernelView>,
    range: &Range<u64>,
    fix: Fix,
) -> Result<Fixed, RepairError> {
    let mut done = Fixed {
        fix,
        places: 0,
        apart: 0,
        fewer: Some(0),
    };
    let planned = steps(session.pid, kernel, range, fix)?;
    done.apart = planned.apart;
    if planned.steps.is_empty() {
        return Ok(done);
    }
    let count = || count_mappings(session.pid, range).map_err(RepairError::maps(session.pid));
    let held = stop_patiently(&session.target, &mut session.journal)?;
    let changed = steps(session.pid, kernel, range, fix).and_then(|planned| {
        let before = count()?;
        done.apart = planned.apart;
        done.places = make_steps(&held, &session.agent, &mut session.journal, &planned.steps)?;
        done.fewer = Some(before.cast_signed() - count()?.cast_signed());
        Ok(())
    });
    if let Err(RepairError::LeftStopped { .. }) = changed {
        return changed.map(|()| done);
    }
    held.release(&mut session.journal)?;
    changed.map(|()| done)
}

/// Executes the steps of a repair; returns the number of places changed.
fn make_steps(
    held: &StoppedProcess<'_>,
    agent: &Agent,
    journal: &mut Journal,
    steps: &[Step],
) -> Result<u64, RepairError> {
    let mut changed = 0;
    for step in steps {
        if step.touch.is_some_and(|page| !held.target.touch(page)) {
            continue;
        }
        if let Some(guard) = step.guard {
            journal.guard(guard).map_err(journal::failed)?;
        }
        let mut calls = step.calls.clone();
        let done = held.run(agent, &mut calls, 0)?;
        changed += u64::from(done == calls.len());
        if let (Some(call), true) = (step.take_back, (1..calls.len()).contains(&done)) {
            let refused = (0..TRIES).all(|_| held.run(agent, &mut [call], 0).is_ok_and(|n| n == 0));
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
            journal.guarded().map_err(journal::failed)?;
        }
    }
    Ok(changed)
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
