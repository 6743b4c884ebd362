//! A short stop of a process whose threads are never all outside of a memory call.
//!
//! A thread of its own seizes the running threads with `ptrace` and lets them go when the mappings
//! have been read. Sleeping threads stay asleep, because a stop would interrupt their calls; if one
//! of them wakes up and makes a call, the stream shows this and the reading is tried again. The
//! kernel ends the tracing when the seizing thread exits, in whatever state the threads are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use vmarea_linux_sys::inject::{self, Seccomp, Wait};
use vmarea_linux_sys::ptrace;
use vmarea_linux_sys::syscall_restart::Waited;
use vmarea_linux_sys::task_status::TaskStatus;

/// Longest time that the threads may take to stop.
const STOPPING: Duration = Duration::from_millis(500);

/// Reads with `read` while no thread of the processes runs. Returns the result and the time for
/// which the threads were stopped.
///
/// # Errors
/// The errors of seizing a thread: `EPERM` if another process traces it; `TimedOut` if a thread
/// does not stop. `read` has not been called then.
pub(super) fn while_stopped<T>(
    pids: &BTreeSet<i32>,
    read: impl FnOnce() -> T,
) -> io::Result<(T, Duration)> {
    let (stopped, has_stopped) = sync_channel(1);
    let (finished, has_finished) = sync_channel(1);
    thread::scope(|scope| {
        let begun = Instant::now();
        let holder = scope.spawn(move || hold(pids, &stopped, &has_finished));
        let result = match has_stopped.recv() {
            Ok(Ok(())) => Ok(read()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the stopping thread has panicked")),
        };
        // The holder waits for this message, or has failed and exits.
        let _ = finished.send(());
        let _ = holder.join();
        result.map(|read| (read, begun.elapsed()))
    })
}

/// Stops the running threads, reports this, and lets them go when `has_finished` says so.
fn hold(pids: &BTreeSet<i32>, stopped: &SyncSender<io::Result<()>>, has_finished: &Receiver<()>) {
    let mut held = BTreeMap::new();
    let done = stop_running(pids, &mut held);
    if stopped.send(done).is_ok() {
        let _ = has_finished.recv();
    }
    for (tid, signal) in held {
        // A thread that was killed in the meantime needs neither.
        let _ = ptrace::restart_call(tid, Waited::Perhaps);
        let _ = ptrace::detach(tid, signal);
    }
}

/// Stops threads until none runs. `held` receives each stopped thread, with the signal that it was
/// about to get, or 0.
fn stop_running(pids: &BTreeSet<i32>, held: &mut BTreeMap<i32, i32>) -> io::Result<()> {
    let until = Instant::now() + STOPPING;
    loop {
        let running: Vec<i32> = pids
            .iter()
            .flat_map(|pid| super::proc::threads(*pid))
            .filter(|tid| !held.contains_key(tid) && runs(*tid))
            .collect();
        if running.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for tid in running {
            match inject::seize(tid, Seccomp::None).and_then(|()| inject::interrupt(tid)) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => return Err(error),
            }
            match inject::wait(tid, until.saturating_duration_since(Instant::now())) {
                Some(Wait::Signal(signal)) => drop(held.insert(tid, signal)),
                Some(Wait::Ended) => {}
                Some(_) => drop(held.insert(tid, 0)),
                None => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
}

/// True if a thread runs, or waits for a lock or for a disk inside the kernel.
fn runs(tid: i32) -> bool {
    let status = TaskStatus::read(tid).unwrap_or_default();
    matches!(status.state(), Some('R' | 'D'))
}
