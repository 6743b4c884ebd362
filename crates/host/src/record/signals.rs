//! The recorder's own signals while a command runs.
//!
//! The command is in the recorder's process group, so a Ctrl-C reaches both: it is the command's
//! to answer, and the recorder only writes down what it does. Who presses again within a second,
//! or sends the recorder a second `SIGTERM`, wants the end. `SIGCHLD` wakes the loop. When the
//! recording is over the signals do what they do by default.

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vmarea_trace::event::Nanos;

/// Two interrupts within this time end the recording.
const TWICE: Nanos = 1_000_000_000;

/// What the user wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// Nothing new.
    None,
    /// One interrupt, which the command got as well.
    Interrupt,
    /// The command is to end (`SIGTERM`): pass it on.
    Terminate,
    /// The recording is to end now.
    End,
}

/// Signals that are caught, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Signals {
    child: UnixStream,
    interrupt: UnixStream,
    terminate: UnixStream,
    ids: Vec<SigId>,
    interrupted: Nanos,
    terminated: bool,
}

impl Signals {
    /// Begins to catch them. Those that are ignored stay ignored, also by the command.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn catch() -> io::Result<Signals> {
        let mut ids = Vec::new();
        let wake_by = |signals: &[i32], ids: &mut Vec<SigId>| -> io::Result<UnixStream> {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            for &signal in signals.iter().filter(|s| !is_ignored(**s)) {
                ids.push(low_level::pipe::register(signal, write.try_clone()?)?);
            }
            Ok(read)
        };
        let signals = Signals {
            child: wake_by(&[SIGCHLD], &mut ids)?,
            interrupt: wake_by(&[SIGINT, SIGQUIT, SIGHUP], &mut ids)?,
            terminate: wake_by(&[SIGTERM], &mut ids)?,
            ids,
            interrupted: 0,
            terminated: false,
        };
        begin_recording()?;
        Ok(signals)
    }

    /// Descriptors that become readable when one came.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [
            self.child.as_fd(),
            self.interrupt.as_fd(),
            self.terminate.as_fd(),
        ]
    }

    /// Takes what came until `now`.
    pub(crate) fn take(&mut self, now: Nanos) -> Wish {
        drain(&mut self.child);
        let interrupted = drain(&mut self.interrupt) != 0;
        if interrupted {
            let before = std::mem::replace(&mut self.interrupted, now);
            if before != 0 && now - before < TWICE {
                return Wish::End;
            }
        }
        match drain(&mut self.terminate) {
            0 if interrupted => Wish::Interrupt,
            0 => Wish::None,
            1 if !std::mem::replace(&mut self.terminated, true) => Wish::Terminate,
            _ => Wish::End,
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
        for signal in [SIGINT, SIGQUIT, SIGHUP, SIGTERM] {
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

/// Empties a socket and counts what was in it.
fn drain(from: &mut UnixStream) -> usize {
    let mut bytes = [0; 64];
    let mut count = 0;
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        count += n;
    }
    count
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
