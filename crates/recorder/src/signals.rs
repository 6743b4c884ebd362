//! The recorder's own signals while a command runs.
//!
//! The command is in the recorder's process group, so a Ctrl-C reaches both: it is the command's
//! to answer, and the recorder only writes down what it does. What somebody sends to the recorder
//! alone (`kill -INT`) is meant for the command and passed on. Nothing says whether a signal was
//! sent to the recorder alone or to its whole group, so the recorder waits a moment: if the command
//! gets the same signal by itself, that is enough. A second interrupt within a second, or a second
//! `SIGTERM`, ends the tree. `SIGCHLD` wakes the loop. When the recording is over the signals do
//! what they do by default.

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::{SigId, flag, low_level};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vmarea_trace::event::Nanos;

/// Signals that ask a program to end.
const REQUESTS: [i32; 4] = [SIGINT, SIGQUIT, SIGHUP, SIGTERM];

/// Two interrupts within this time end the recording.
const TWICE: Nanos = 1_000_000_000;

/// What comes within this time is one signal: sent to a process and to its group, for example, or
/// to the recorder and the command.
const ONE: Nanos = 200_000_000;

/// What the user wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// Nothing new.
    None,
    /// One signal from the terminal, which the command got as well.
    Interrupt,
    /// The command is to get this signal, which the recorder got alone.
    Pass(i32),
    /// The recording is to end now.
    End,
}

/// Signals that are caught, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Signals {
    child: UnixStream,
    caught: SignalDelivery<UnixStream, WithRawSiginfo>,
    ids: Vec<SigId>,
    requests: Requests,
}

impl Signals {
    /// Begins to catch them. Those that are ignored stay ignored, also by the command.
    ///
    /// # Errors
    /// When there are no descriptors left.
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

    /// Descriptors that become readable when one came.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.child.as_fd(), self.caught.get_read().as_fd()]
    }

    /// Takes what came until `now`. To be called before stops are collected: a signal that comes
    /// after this ends the sleep.
    pub(crate) fn take(&mut self, now: Nanos) {
        drain(&mut self.child);
        for info in self.caught.pending() {
            // Codes above 0 are the kernel's: the terminal sends to its whole foreground group.
            self.requests.came(info.si_signo, info.si_code > 0, now);
        }
    }

    /// What is to be done at `now`, after the stops that were there.
    pub(crate) fn wish(&mut self, now: Nanos) -> Wish {
        self.requests.next(now)
    }

    /// The command got a signal by itself.
    pub(crate) fn command_got(&mut self, signal: i32, now: Nanos) {
        self.requests.command_got(signal, now);
    }

    /// Asks again a little later whether this signal is to be passed on.
    pub(crate) fn postpone(&mut self, signal: i32, now: Nanos) {
        self.requests.waiting = Some((signal, now + ONE / 20));
    }

    /// When [`Signals::wish`] is to be asked again at the latest.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.requests.waiting.map(|(_, due)| due)
    }
}

/// What was asked for, and what of it is still to be done.
#[derive(Debug, Default)]
struct Requests {
    /// The last signal that came, and when.
    last: Option<(i32, Nanos)>,
    /// The last one that the command got by itself, and when.
    own: Option<(i32, Nanos)>,
    /// To be passed on at this time, unless the command gets it by itself.
    waiting: Option<(i32, Nanos)>,
    /// A `SIGTERM` came.
    terminated: bool,
    /// One from the terminal came.
    interrupted: bool,
    /// The tree is to end.
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
        // Others come in between: the end of a child, for example.
        if REQUESTS.contains(&signal) {
            self.own = Some((signal, now));
        }
    }

    fn next(&mut self, now: Nanos) -> Wish {
        if self.end {
            return Wish::End;
        }
        if let Some((signal, due)) = self.waiting {
            // Its own may have come before ours.
            let from = due.saturating_sub(2 * ONE);
            if self.own.is_some_and(|(own, t)| own == signal && t >= from) {
                self.waiting = None;
            } else if now >= due {
                self.waiting = None;
                return Wish::Pass(signal);
            }
        }
        match std::mem::take(&mut self.interrupted) {
            true => Wish::Interrupt,
            false => Wish::None,
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
                // ORDERING: SeqCst, pairs with the load in the handler of signal-hook.
                recordings.none.store(true, Ordering::SeqCst);
            }
        }
    }
}

/// Recordings that run in this process. A handler cannot be taken away again, so the one that
/// stands for the default is installed once and asks whether there are any.
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
        // ORDERING: SeqCst, pairs with the load in the handler of signal-hook.
        recordings.none.store(false, Ordering::SeqCst);
    }
    Ok(())
}

/// Empties a socket.
fn drain(from: &mut UnixStream) {
    let mut bytes = [0; 64];
    while let Ok(1..) = from.read(&mut bytes) {}
}

/// True where this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
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
            assert_eq!(requests.next(T), Wish::None);
            assert_eq!(requests.next(T + ONE), Wish::Pass(signal));
            assert_eq!(requests.next(T + 2 * ONE), Wish::None);
        }
    }

    #[test]
    fn what_the_command_gets_by_itself_is_not_passed_on() {
        for (theirs, ours) in [(T, T + ONE / 2), (T + ONE / 2, T)] {
            let mut requests = Requests::default();
            requests.command_got(SIGINT, theirs);
            requests.came(SIGINT, false, ours);
            assert_eq!(requests.next(ours + ONE), Wish::None);
        }
        let mut requests = Requests::default();
        requests.came(SIGHUP, false, T);
        requests.command_got(SIGHUP, T);
        requests.command_got(SIGCHLD, T);
        assert_eq!(requests.next(T + ONE), Wish::None);
        let mut requests = Requests::default();
        requests.came(SIGINT, true, T);
        assert_eq!(requests.next(T), Wish::Interrupt);
        assert_eq!(requests.next(T + ONE), Wish::None);
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
            assert_eq!(twice(signal, ONE / 2), Wish::None);
            assert_eq!(twice(signal, TWICE / 2), Wish::End);
        }
        assert_eq!(twice(SIGTERM, 2 * TWICE), Wish::End);
        assert_ne!(twice(SIGINT, 2 * TWICE), Wish::End);
    }
}
