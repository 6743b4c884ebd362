//! The process that traces for a repair: a child in a session of its own.
//!
//! If vmarea is killed, the child notices at the end of its piece, removes what it has mapped, and
//! ends. Ctrl-C and the end of a terminal do not reach it. If the child itself is killed, the agent
//! finishes the piece alone, and another child sweeps up.
//!
//! # Picture
//! ```text
//! vmarea   ──fork──▶  traces, runs the repair
//!   progress  ◀─────  after each piece
//!   go on?    ─────▶
//!   result    ◀─────
//! ```

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use vmarea_linux_sys::own_session;

use super::session::sweep;
use super::target::Target;
use super::wire::{self, Wire};
use crate::driver::Progress;
use crate::{Fix, RepairError};

/// Time between two looks whether the caller wants to go on, and for which a child that was asked to
/// end is waited for.
const LOOK: Duration = Duration::from_millis(200);
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// What is in progress, and how far it is.
pub(super) type Shown = (Option<Fix>, Progress);

/// Asks whether to go on.
pub(super) type Show<'a> = &'a mut dyn FnMut(Shown) -> ControlFlow<()>;

/// Runs `repair` of process `pid` in a child process. `show` is called in this process.
///
/// # Errors
/// The errors of `repair`; [`RepairError::Tracer`] if the child was killed, and
/// [`RepairError::GoesOn`] if it has not ended in time after `show` has asked it to.
pub(super) fn apart<T: Wire>(
    pid: i32,
    show: Show<'_>,
    repair: impl FnOnce(Show<'_>) -> Result<T, RepairError>,
) -> Result<T, RepairError> {
    let started = own_session::start(|mut vmarea| {
        let result = repair(&mut |shown| ask(&mut vmarea, shown));
        // This fails if vmarea has been killed.
        let _ = wire::send(&mut vmarea, &(Some(result), None::<Shown>));
    });
    let (child, mut from) = started.map_err(RepairError::system("start a process"))?;
    let timeout = from.set_read_timeout(Some(LOOK));
    timeout.map_err(RepairError::system("set up a socket"))?;
    let (mut last, mut ends_by) = (None, None);
    loop {
        match wire::receive::<(Option<Result<T, RepairError>>, Option<Shown>)>(&mut from) {
            Ok((Some(result), _)) => return result,
            Ok((None, Some(shown))) => {
                last = Some(shown);
                let goes_on = show(shown).is_continue();
                // This fails if the child has been killed, which the next message shows.
                let _ = wire::send(&mut from, &goes_on);
            }
            Ok((None, None)) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let shown = last.unwrap_or((None, Progress::default()));
                if show(shown).is_continue() {
                    continue;
                }
                // The child ends at the next piece, but the process may not let itself be stopped.
                if *ends_by.get_or_insert_with(|| Instant::now() + ENDS_WITHIN) < Instant::now() {
                    child.leave();
                    return Err(RepairError::GoesOn(pid));
                }
            }
            Err(_) => break,
        }
    }
    drop(child);
    sweep_after(pid)?;
    Err(RepairError::Tracer(pid))
}

fn ask(vmarea: &mut UnixStream, shown: Shown) -> ControlFlow<()> {
    let message = (None::<Result<(), RepairError>>, Some(shown));
    let answer = wire::send(vmarea, &message).and_then(|()| wire::receive(vmarea));
    match answer {
        Ok(true) => ControlFlow::Continue(()),
        // vmarea wants to end, or has been killed.
        Ok(false) | Err(_) => ControlFlow::Break(()),
    }
}

/// Sweeps up after a child that was killed.
fn sweep_after(pid: i32) -> Result<(), RepairError> {
    let sweeps = own_session::start(|mut vmarea| {
        let swept = Target::open(pid).and_then(|target| sweep(&target));
        let _ = wire::send(&mut vmarea, &swept);
    });
    let (_child, mut from) = sweeps.map_err(RepairError::system("start a process"))?;
    match wire::receive::<Result<bool, RepairError>>(&mut from) {
        Ok(swept) => swept.map(|_| ()),
        Err(_) => Ok(()),
    }
}
