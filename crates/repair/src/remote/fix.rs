//! Performs those repairs of another process that move no pages (see [`fixes`](crate::fixes)).

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use vmarea_merge::types::{VmFlags, VmRange};

use super::injector::{Injector, StoppedProcess};
use super::move_back::is_writable;
use super::pages::Pages;
use super::places::Places;
use super::session::Session;
use super::stop::LONGEST_REST;
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
/// allowed pause, and skips those whose place is no longer as planned. `progress` is called before
/// the first stop and after each, and ends the repair if it breaks.
pub(super) fn make(
    session: &mut Session,
    kernel: Option<&KernelView>,
    range: &Range<u64>,
    fix: Fix,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
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
    loop {
        let goes_on = progress(Progress {
            mappings: (planned.steps.len() - rest.len()) as u64,
            of: planned.steps.len() as u64,
            long_pauses: done.long_pauses,
        });
        let Some(step) = rest.first() else { break };
        if goes_on.is_break() {
            done.left = rest.len() as u64;
            break;
        }
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
/// at least one ([`changes`](crate::pace::Pace::changes)). Returns their number.
fn make_in_one_stop(
    session: &mut Session,
    steps: &[Step],
    done: &mut Fixed,
) -> Result<usize, RepairError> {
    let mut places = Places::open(session.pid)?;
    let (pace, begun) = (&mut session.pace, Instant::now());
    let held = stop_patiently(&session.target, &mut session.journal)?;
    let stopping = begun.elapsed();
    let mut made = 0;
    let changed = places.begin().and_then(|()| {
        while made < steps.len() {
            let fits = pace.changes(stopping, begun.elapsed());
            if made > 0 && fits == 0 {
                break;
            }
            let some = &steps[made..steps.len().min(made + fits.max(1))];
            made += some.len();
            let work = Instant::now();
            let some: Vec<_> = some.iter().filter(|step| places.allow(step)).collect();
            done.places += make_steps(&held, &session.agent, &mut session.journal, &some)?;
            pace.changed(some.len(), work.elapsed());
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

/// Executes steps, with as few runs of the agent as possible, because each run sends a signal, which
/// takes long in a process with thousands of threads. Returns the number of steps all of whose calls
/// succeeded.
fn make_steps(
    held: &StoppedProcess<'_>,
    agent: &Agent,
    journal: &mut Journal,
    steps: &[&Step],
) -> Result<u64, RepairError> {
    let touched = |step: &&&Step| step.touch.is_none_or(|page| held.target.touch(page));
    let steps: Vec<&Step> = steps.iter().filter(touched).copied().collect();
    let guards = || steps.iter().filter_map(|step| step.guard());
    if guards().next().is_some() {
        journal.guards(guards()).map_err(journal::failed)?;
    }
    let (mut rest, mut succeeded) = (&steps[..], 0);
    while !rest.is_empty() {
        let mut calls: Vec<_> = rest.iter().flat_map(|step| &step.calls).copied().collect();
        let done = held.run(agent, &mut calls, 0)?;
        // Calls of the complete steps, and the number of these steps.
        let (mut first, mut complete) = (0, 0);
        for step in rest {
            if first + step.calls.len() > done {
                break;
            }
            (first, complete) = (first + step.calls.len(), complete + 1);
        }
        succeeded += complete as u64;
        let Some(refused) = rest.get(complete) else {
            break;
        };
        if done > first {
            take_back(held, agent, refused, calls[done].errno())?;
        }
        rest = &rest[complete + 1..];
    }
    if guards().next().is_some() {
        journal.guarded().map_err(journal::failed)?;
    }
    Ok(succeeded)
}

/// Reverts the first call of a step, a later call of which failed with `errno`.
fn take_back(
    held: &StoppedProcess<'_>,
    agent: &Agent,
    step: &Step,
    errno: i32,
) -> Result<(), RepairError> {
    let Some(call) = step.take_back else {
        return Ok(());
    };
    for _ in 0..TRIES {
        if held.run(agent, &mut [call], 0)? > 0 {
            return Ok(());
        }
    }
    let guard = step.guard().unwrap_or_default();
    Err(RepairError::LeftStopped {
        pid: held.pid(),
        what: format!(
            "the guard at {:#x} can be neither marked nor made again",
            guard.start
        ),
        cause: std::io::Error::from_raw_os_error(errno),
    })
}

/// Marks those guard pages that an interrupted run has made accessible.
pub(super) fn finish_guards(
    held: &StoppedProcess<'_>,
    agent: &Agent,
    guards: &[VmRange],
) -> Result<(), RepairError> {
    let pid = held.pid();
    let mappings = maps::read(pid).map_err(RepairError::maps(pid))?;
    for &guard in guards {
        let mut empty = true;
        Pages::of(pid)?.each(guard, |_, _| {
            empty = false;
            false
        })?;
        if !empty || !is_writable(&mappings, guard) {
            continue;
        }
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
