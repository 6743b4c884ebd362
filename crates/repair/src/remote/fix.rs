//! Performs those repairs of another process that move no pages (see [`fixes`](crate::fixes)).

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use vmarea_linux_sys::agent::OnFailure;
use vmarea_linux_sys::calls::Call;
use vmarea_merge::types::{VmFlags, VmRange};

use super::places::Places;
use super::program::Program;
use super::scratch::Scratch;
use super::session::Session;
use super::stop::{LONGEST_REST, Stopped, stop_patiently};
use crate::RepairError;
use crate::attributes::Attributes;
use crate::driver::Progress;
use crate::fixes::{self, Fix, Fixed, Step, Steps};
use crate::report::count_mappings;
use vmarea_process::kernel::rules;
use vmarea_process::pages::LivePages;
use vmarea_process::plan::Change;
use vmarea_process::view::KernelView;
use vmarea_process::{Mappings, Smaps};

/// Maximum number of attempts at the call that reverts a step.
const TRIES: u32 = 10_000;

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
    Ok(fixes::steps(fix, &rules().policy, &mappings, &pages))
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
    session.make_places()?;
    let mut places = Places::open(session.pid)?;
    let (pace, begun) = (&mut session.pace, Instant::now());
    let mut stopped = stop_patiently(&session.target)?;
    let stopping = begun.elapsed();
    let mut made = 0;
    places.begin()?;
    while made < steps.len() {
        let fits = pace.changes(stopping, begun.elapsed());
        if made > 0 && fits == 0 {
            break;
        }
        let some = &steps[made..steps.len().min(made + fits.max(1))];
        made += some.len();
        let work = Instant::now();
        let some: Vec<_> = some.iter().filter(|step| places.allow(step)).collect();
        done.places += make_steps(&mut stopped, &session.scratch, &some)?;
        pace.changed(some.len(), work.elapsed());
    }
    stopped.let_go();
    let pause = begun.elapsed();
    drop(stopped);
    done.stops += 1;
    done.longest_pause = done.longest_pause.max(pause);
    done.long_pauses += u64::from(pace.is_too_long(pause));
    std::thread::sleep(pause.min(LONGEST_REST));
    Ok(made)
}

/// Executes steps in one run of the agent. Returns the number of steps all of whose calls succeeded.
///
/// # Errors
/// Errors of the agent; [`RepairError::GuardOpen`] if a guard page can be neither marked nor made
/// inaccessible again.
fn make_steps(
    stopped: &mut Stopped<'_>,
    scratch: &Scratch,
    steps: &[&Step],
) -> Result<u64, RepairError> {
    let tid = stopped.any_thread()?;
    let target = stopped.target;
    let touched = |step: &&&Step| step.touch.is_none_or(|page| target.touch(tid, page));
    let steps: Vec<&Step> = steps.iter().filter(touched).copied().collect();
    if steps.is_empty() {
        return Ok(0);
    }
    let calls = steps.iter().flat_map(|step| calls_of(step)).collect();
    let mut program = Program::of_calls(calls);
    stopped.run(scratch, &mut program, None)?;
    program.read(target, scratch)?;
    let (mut rest, mut succeeded) = (program.calls(), 0);
    for step in steps {
        let (calls, others) = rest.split_at(step.calls.len());
        let is_done = calls.iter().all(|call| call.errno() == 0);
        succeeded += u64::from(is_done);
        let (reverted, others) = others.split_at(usize::from(step.take_back.is_some()));
        let failed = |call: &&Call| ![0, libc::EINPROGRESS].contains(&call.errno());
        if let (false, Some(call)) = (is_done, reverted.iter().find(failed)) {
            return Err(RepairError::GuardOpen {
                pid: target.pid,
                guard: call.args[0],
                cause: std::io::Error::from_raw_os_error(call.errno()),
            });
        }
        rest = others;
    }
    Ok(succeeded)
}

/// Returns the calls of a step, of which each needs the one before. The call that reverts the first
/// is made only if a later one fails.
fn calls_of(step: &Step) -> impl Iterator<Item = Call> {
    let all = step.calls.len() as u32;
    let revert = u32::from(step.take_back.is_some());
    let calls = step.calls.iter().zip(0..).map(move |(call, n)| {
        let on_success = if n + 1 == all { revert } else { 0 };
        let on_failure = match n {
            0 => all - 1 + revert,
            n => all - 1 - n,
        };
        call.then(on_success, OnFailure::Skip(on_failure), 1)
    });
    let reverts = step
        .take_back
        .map(|call| call.then(0, OnFailure::Continue, TRIES));
    calls.chain(reverts)
}
