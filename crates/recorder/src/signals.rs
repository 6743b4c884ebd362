//! Handles the signals that the recorder receives while a command runs.
//!
//! The command is in the recorder's process group, so Ctrl-C reaches both of them. The command
//! decides how to react, and the recorder only records the reaction. A signal that is sent to the
//! recorder alone (`kill -INT`) is meant for the command, and the recorder forwards it. The
//! recorder cannot see whether a signal was sent to it alone or to its whole group, so it waits a
//! moment: if the command receives the same signal itself, the recorder does not forward it. A
//! second interrupt within a second, or a second `SIGTERM`, kills the process tree. `SIGCHLD` wakes
//! the tracer's loop. After the recording, the signals have their default actions again.

use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::{SigId, flag, low_level};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_trace::event::Nanos;

/// Signals that ask a program to exit.
const REQUESTS: [i32; 4] = [SIGINT, SIGQUIT, SIGHUP, SIGTERM];

/// Maximum time between two interrupts that together end the recording.
const TWICE: Nanos = 1_000_000_000;

/// Time within which repeated signals count as one.
///
/// Signals repeat if, for example, a sender signals both a process and its group, or both the
/// recorder and the command.
const ONE: Nanos = 200_000_000;

/// Reaction of the tracer to the signals received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SignalAction {
    /// Do nothing.
    None,
    /// The terminal sent a signal: if the command has exited, ask its descendants to exit, too.
    Interrupt,
    /// Forward this signal to the command, because only the recorder received it.
    Pass(i32),
    /// End the recording now.
    End,
}

/// Signal handlers of one recording, installed while this value lives.
#[derive(Debug)]
pub(crate) struct Signals {
    child: UnixStream,
    caught: SignalDelivery<UnixStream, WithRawSiginfo>,
    ids: Vec<SigId>,
    requests: Requests,
}

impl Signals {
    /// Installs the handlers. Signals that were ignored stay ignored, including in the command.
    ///
    /// # Errors
    /// Fails if no descriptors are available.
    pub(crate) fn catch() -> io::Result<Signals> {
        let (child, write) = UnixStream::pair()?;
        child.set_nonblocking(true)?;
        let ids = vec![low_level::pipe::register(SIGCHLD, write)?];
        let (read, write) = UnixStream::pair()?;
        let heeded = REQUESTS.into_iter().filter(|s| !is_ignored(*s));
        let signals = Signals {
            child,
            caught: SignalDelivery::with_pipe(read, write, WithRawSiginfo, heeded)?,
            ids,
            requests: Requests::default(),
        };
        begin_recording()?;
        Ok(signals)
    }

    /// Returns descriptors that become readable when a signal arrives.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.child.as_fd(), self.caught.get_read().as_fd()]
    }

    /// Reads the signals received until `now`.
    ///
    /// Call this method before collecting stops, so that a signal that arrives afterwards still
    /// wakes the tracer.
    pub(crate) fn take(&mut self, now: Nanos) {
        drain(&mut self.child);
        for info in self.caught.pending() {
            // Codes above 0 come from the kernel: the terminal signals its whole foreground group.
            self.requests.came(info.si_signo, info.si_code > 0, now);
        }
    }

    /// True if a request to exit has arrived.
    pub(crate) fn has_request(&self) -> bool {
        self.requests.last.is_some()
    }

    /// Returns the action due at `now`; call this method after handling the collected stops.
    pub(crate) fn action(&mut self, now: Nanos) -> SignalAction {
        self.requests.next(now)
    }

    /// Records that the command received a signal itself.
    pub(crate) fn command_got(&mut self, signal: i32, now: Nanos) {
        self.requests.command_got(signal, now);
    }

    /// Postpones the decision on whether to forward this signal.
    pub(crate) fn postpone(&mut self, signal: i32, now: Nanos) {
        self.requests.waiting = Some((signal, now + ONE / 20));
    }

    /// Returns the time by which [`Signals::action`] must be called again, if there is one.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.requests.waiting.map(|(_, due)| due)
    }
}

/// Received signals that have not yet been forwarded or acted on.
#[derive(Debug, Default)]
struct Requests {
    /// Last signal received, and its time.
    last: Option<(i32, Nanos)>,
    /// Last signal that the command received itself, and its time.
    own: Option<(i32, Nanos)>,
    /// Signal to forward, and when to forward it unless the command has received it by then.
    waiting: Option<(i32, Nanos)>,
    /// True if a `SIGTERM` was received.
    terminated: bool,
    /// True if a signal from the terminal was received.
    interrupted: bool,
    /// True if the process tree must be killed.
    end: bool,
}

impl Requests {
    fn came(&mut self, signal: i32, from_terminal: bool, now: Nanos) {
        let since = self.last.replace((signal, now));
        let since = since.map(|(before, t)| (before, now.saturating_sub(t)));
        if since.is_some_and(|(before, age)| before == signal && age < ONE) {
            return;
        }
        self.end |= match signal {
            SIGTERM => std::mem::replace(&mut self.terminated, true),
            _ => since.is_some_and(|(before, age)| before != SIGTERM && age < TWICE),
        };
        if from_terminal {
            self.interrupted = true;
        } else {
            self.waiting = Some((signal, now + ONE));
        }
    }

    fn command_got(&mut self, signal: i32, now: Nanos) {
        // Record only requests to exit; other signals, such as `SIGCHLD`, may arrive in between.
        if REQUESTS.contains(&signal) {
            self.own = Some((signal, now));
        }
    }

    fn next(&mut self, now: Nanos) -> SignalAction {
        if self.end {
            return SignalAction::End;
        }
        if let Some((signal, due)) = self.waiting {
            // The command may have received the signal before the recorder did.
            let from = due.saturating_sub(2 * ONE);
            if self.own.is_some_and(|(own, t)| own == signal && t >= from) {
                self.waiting = None;
            } else if now >= due {
                self.waiting = None;
                return SignalAction::Pass(signal);
            }
        }
        match std::mem::take(&mut self.interrupted) {
            true => SignalAction::Interrupt,
            false => SignalAction::None,
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
        let mut recordings = RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recordings) = recordings.as_mut() {
            recordings.count -= 1;
            if recordings.count == 0 {
                // ORDERING: SeqCst, pairs with the load in signal-hook's handler.
                recordings.none.store(true, Ordering::SeqCst);
            }
        }
    }
}

/// Counter of the recordings that are running in this process.
///
/// `signal-hook` cannot remove a handler. Therefore the handler that performs the default action is
/// installed only once, and checks whether a recording is running.
#[derive(Debug)]
struct Recordings {
    count: usize,
    none: Arc<AtomicBool>,
}

static RECORDINGS: Mutex<Option<Recordings>> = Mutex::new(None);

fn begin_recording() -> io::Result<()> {
    let mut recordings = RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if recordings.is_none() {
        let none = Arc::new(AtomicBool::new(false));
        for signal in REQUESTS {
            if !is_ignored(signal) {
                flag::register_conditional_default(signal, Arc::clone(&none))?;
            }
        }
        *recordings = Some(Recordings { count: 0, none });
    }
    if let Some(recordings) = recordings.as_mut() {
        recordings.count += 1;
        // ORDERING: SeqCst, pairs with the load in signal-hook's handler.
        recordings.none.store(false, Ordering::SeqCst);
    }
    Ok(())
}

/// Empties a socket.
fn drain(from: &mut UnixStream) {
    let mut bytes = [0; 64];
    while let Ok(1..) = from.read(&mut bytes) {}
}

/// True if this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let mask = TaskStatus::own().mask("SigIgn");
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// True for a signal that stops a process.
pub(super) fn is_stop_signal(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
    )
}

/// True if a process is in a ptrace stop.
pub(super) fn is_traced_stop(pid: i32) -> bool {
    TaskStatus::read(pid).is_ok_and(|status| status.state() == Some('t'))
}

/// True if a signal is pending for a process.
pub(super) fn has_pending(pid: i32, signal: i32) -> bool {
    let status = TaskStatus::read(pid).unwrap_or_default();
    let masks = ["SigPnd", "ShdPnd"].map(|name| status.mask(name).unwrap_or(0));
    masks.iter().any(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Sends a signal to a process.
pub(super) fn send(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) {
        // The process may have exited, or may now run under another user.
        let _: io::Result<()> = rustix::process::kill_process(pid, signal).map_err(Into::into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Nanos = 10 * TWICE;

    #[test]
    fn what_the_recorder_got_alone_is_passed_on_after_a_moment() {
        for signal in REQUESTS {
            let mut requests = Requests::default();
            requests.came(signal, false, T);
            assert_eq!(requests.next(T), SignalAction::None);
            assert_eq!(requests.next(T + ONE), SignalAction::Pass(signal));
            assert_eq!(requests.next(T + 2 * ONE), SignalAction::None);
        }
    }

    #[test]
    fn what_the_command_gets_by_itself_is_not_passed_on() {
        for (theirs, ours) in [(T, T + ONE / 2), (T + ONE / 2, T)] {
            let mut requests = Requests::default();
            requests.command_got(SIGINT, theirs);
            requests.came(SIGINT, false, ours);
            assert_eq!(requests.next(ours + ONE), SignalAction::None);
        }
        let mut requests = Requests::default();
        requests.came(SIGHUP, false, T);
        requests.command_got(SIGHUP, T);
        requests.command_got(SIGCHLD, T);
        assert_eq!(requests.next(T + ONE), SignalAction::None);
        let mut requests = Requests::default();
        requests.came(SIGINT, true, T);
        assert_eq!(requests.next(T), SignalAction::Interrupt);
        assert_eq!(requests.next(T + ONE), SignalAction::None);
    }

    #[test]
    fn a_second_one_ends_the_tree_unless_it_is_the_first_one_again() {
        let twice = |signal, between| {
            let mut requests = Requests::default();
            requests.came(signal, false, T);
            requests.came(signal, false, T + between);
            requests.next(T + between)
        };
        for signal in REQUESTS {
            assert_eq!(twice(signal, ONE / 2), SignalAction::None);
            assert_eq!(twice(signal, TWICE / 2), SignalAction::End);
        }
        assert_eq!(twice(SIGTERM, 2 * TWICE), SignalAction::End);
        assert_ne!(twice(SIGINT, 2 * TWICE), SignalAction::End);
    }
}
