//! Lets a process execute a program while its threads are being seized.
//!
//! A thread that executes a program kills the others of its process and waits until all of them are
//! gone. Meanwhile it holds the mutex that `PTRACE_SEIZE` takes as well. A thread that is traced is
//! gone only once its tracer has seen its end, so a tracer that seizes the threads one by one can
//! wait for that mutex, and the process for the tracer, both for ever. Therefore another thread of
//! the tracer sees the ends as long as one is being seized.
//!
//! ```text
//! tracer   seize A ──▶ seize B ──▶ seize C, waits for the mutex ┄┄┄┄┄┄┄┄┄┄┄┄┄▶ goes on
//! C                    executes: kills A and B, holds the mutex ┄┄┄┄┄┄▶ lets go
//! reaper                                                    sees the ends of A, B
//! ```
//!
//! # Linux
//! `de_thread` in `fs/exec.c` under `cred_guard_mutex`, and `ptrace_attach` in `kernel/ptrace.c`.

use std::cell::OnceCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::inject::{self, Wait};

/// Time that a seizure takes before it is taken for one that waits for the mutex.
const LONG: Duration = Duration::from_millis(20);

/// Sees the ends of the threads that its creator has seized, while it seizes another.
#[derive(Debug, Default)]
pub struct Reaper {
    shared: Arc<Shared>,
    /// Begins with the second seizure. Without a new thread, seizures may wait for ever.
    thread: OnceCell<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads whose ends were not seen yet.
    seized: Vec<i32>,
    /// Threads whose ends were seen, until they are told.
    ended: Vec<i32>,
    /// Number of seizures that have begun.
    begun: u64,
    is_seizing: bool,
    is_over: bool,
}

impl Reaper {
    /// Begins with threads that are seized already.
    pub fn of(seized: &[i32]) -> Reaper {
        let reaper = Reaper::default();
        reaper.shared.state().seized.extend(seized);
        reaper
    }

    /// Seizes a thread by `seize`, which may wait for the mutex.
    ///
    /// # Errors
    /// That of `seize`.
    pub fn seize<T, E>(&self, tid: i32, seize: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut state = self.shared.state();
        state.is_seizing = true;
        state.begun += 1;
        let is_first = state.seized.is_empty();
        drop(state);
        if !is_first {
            self.thread.get_or_init(|| {
                let watched = Arc::clone(&self.shared);
                thread::Builder::new().spawn(move || watched.watch()).ok()
            });
        }
        let result = seize();
        let mut state = self.shared.state();
        state.is_seizing = false;
        if result.is_ok() {
            state.seized.push(tid);
        }
        result
    }

    /// Returns the threads whose ends have been seen since the last call: no `wait` reports them.
    pub fn take_ended(&self) -> Vec<i32> {
        std::mem::take(&mut self.shared.state().ended)
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.over.notify_one();
        if let Some(Some(thread)) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut state = self.state();
        let mut last = 0;
        while !state.is_over {
            let waited = self.over.wait_timeout(state, LONG);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_seizing && state.begun == last {
                let has_ended = |tid: &mut i32| inject::look(*tid) == Some(Wait::Ended);
                let ended: Vec<i32> = state.seized.extract_if(.., has_ended).collect();
                state.ended.extend(ended);
            }
            last = state.begun;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inject::Seccomp;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;

    /// Prints the ID of its second thread, and executes another program after a line of input.
    const PROGRAM: &str = "
import os, sys, threading, time
thread = threading.Thread(target=time.sleep, args=(1000,))
thread.start()
print(thread.native_id, flush=True)
sys.stdin.readline()
os.execvp('sleep', ['sleep', '1000'])
";

    fn start() -> (Child, i32) {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut line).expect("a line");
        (child, line.trim().parse().expect("the ID of a thread"))
    }

    /// Waits until a thread that is traced has ended.
    fn until_killed(pid: i32, tid: i32) {
        let path = format!("/proc/{pid}/task/{tid}/stat");
        loop {
            let text = std::fs::read_to_string(&path).expect("a thread whose end nobody has seen");
            if text.rsplit_once(") ").expect("a state").1.starts_with('Z') {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Seizes the second thread by `seize_second`, then the first one while the second executes a program.
    fn seize_both(seize_second: fn(i32) -> std::io::Result<Reaper>) {
        let (mut child, second) = start();
        let pid = child.id().cast_signed();
        let mut input = child.stdin.take().expect("a pipe");
        let (done, result) = mpsc::channel();
        // A thread that waits for ever is left behind.
        thread::spawn(move || {
            let told = seize_second(second).map(|reaper| {
                input.write_all(b"\n").expect("it reads a line");
                until_killed(pid, second);
                let first = reaper.seize(pid, || inject::seize(pid, Seccomp::None));
                (first.is_ok(), reaper.take_ended() == [second])
            });
            let _ = done.send(told);
        });
        let result = result.recv_timeout(Duration::from_secs(30));
        child.kill().expect("it lives");
        child.wait().expect("it was killed");
        match result.expect("the second seizure waits for ever") {
            Err(_) => eprintln!("skipped: needs permission to trace"),
            told => assert_eq!(told.ok(), Some((true, true)), "its end was seen"),
        }
    }

    #[test]
    fn a_process_executes_a_program_while_it_is_seized() {
        seize_both(|tid| {
            let reaper = Reaper::default();
            reaper.seize(tid, || inject::seize(tid, Seccomp::None))?;
            Ok(reaper)
        });
    }

    #[test]
    fn a_thread_that_was_seized_before_may_end_meanwhile() {
        seize_both(|tid| {
            inject::seize(tid, Seccomp::None)?;
            Ok(Reaper::of(&[tid]))
        });
    }
}
