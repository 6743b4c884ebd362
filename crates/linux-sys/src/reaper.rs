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

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::inject::{self, Wait};

/// Time that a seizure takes before it is taken for one that waits for the mutex.
const LONG: Duration = Duration::from_millis(20);

/// A thread that sees the ends of the threads that its creator has seized, while it seizes another.
#[derive(Debug)]
pub struct Reaper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
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
    /// Number of seizures that have begun.
    begun: u64,
    is_seizing: bool,
    is_over: bool,
}

impl Reaper {
    /// Begins with no seized thread. Without a new thread, seizures may wait for ever.
    pub fn begin() -> Reaper {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let thread = thread::Builder::new().spawn(move || watched.watch());
        Reaper {
            shared,
            thread: thread.ok(),
        }
    }

    /// Seizes a thread by `seize`, which may wait for the mutex.
    ///
    /// # Errors
    /// That of `seize`.
    pub fn seize<E>(&self, tid: i32, seize: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.shared.state();
        state.is_seizing = true;
        state.begun += 1;
        drop(state);
        let result = seize();
        let mut state = self.shared.state();
        state.is_seizing = false;
        if result.is_ok() {
            state.seized.push(tid);
        }
        result
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.over.notify_one();
        if let Some(thread) = self.thread.take() {
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
                let lives = |tid: &i32| inject::look(*tid) != Some(Wait::Ended);
                state.seized.retain(lives);
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

    #[test]
    fn a_process_executes_a_program_while_it_is_seized() {
        let (mut child, second) = start();
        let pid = child.id().cast_signed();
        let mut input = child.stdin.take().expect("a pipe");
        let (done, result) = mpsc::channel();
        // A thread that waits for ever is left behind.
        thread::spawn(move || {
            let reaper = Reaper::begin();
            let seized = reaper.seize(second, || inject::seize(second, Seccomp::None));
            if seized.is_ok() {
                input.write_all(b"\n").expect("it reads a line");
                until_killed(pid, second);
            }
            let first = reaper.seize(pid, || inject::seize(pid, Seccomp::None));
            let remains = reaper.shared.state().seized.contains(&second);
            let _ = done.send((seized.is_ok(), first.is_ok(), remains));
        });
        let result = result.recv_timeout(Duration::from_secs(30));
        child.kill().expect("it lives");
        child.wait().expect("it was killed");
        match result.expect("the second seizure waits for ever") {
            (false, ..) => eprintln!("skipped: needs permission to trace"),
            told => assert_eq!(told, (true, true, false), "its end was seen"),
        }
    }
}
