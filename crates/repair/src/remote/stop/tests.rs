//! Checks the state of a process after a stop.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::target::{STOP_TIMEOUT, Target};
use crate::journal::Journal;
use crate::proc_status;

/// A program that sleeps until the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn state(&self) -> char {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, fields) = text.rsplit_once(") ").unwrap();
        fields.chars().next().unwrap()
    }

    /// Waits until the process is in `state`; returns false if that takes too long.
    fn comes_to(&self, state: char) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        while self.state() != state && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.state() == state
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops the process, runs `meanwhile`, and releases the process.
fn stop(sleeper: &Sleeper, meanwhile: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let pid = sleeper.pid();
    let start = proc_status::start_time(pid).unwrap();
    let mut journal = Journal::create(folder.path(), pid, start).unwrap();
    let target = Target::open(pid).unwrap();
    let held = target.stop(&mut journal).unwrap();
    meanwhile();
    held.release(&mut journal).unwrap();
}

#[test]
fn who_ran_runs_and_who_was_stopped_meanwhile_stays_stopped() {
    let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
    assert!(sleeper.comes_to('S'));
    let pid = Pid::from_raw(sleeper.pid()).unwrap();
    stop(&sleeper, || ());
    assert!(sleeper.comes_to('S'));
    stop(&sleeper, || kill_process(pid, Signal::STOP).unwrap());
    assert!(sleeper.comes_to('T'));
    stop(&sleeper, || ());
    assert!(sleeper.comes_to('T'));
}

/// Occupies the processors, so that a thread does not stop at once.
fn busy() -> Vec<Sleeper> {
    let script = ["-c", "while :; do :; done"];
    let start = |_| Sleeper(Command::new("sh").args(script).spawn().unwrap());
    (0..4).map(start).collect()
}

#[test]
fn a_stop_that_comes_too_late_is_taken_back() {
    let mut command = Command::new("nice");
    let sleeper = Sleeper(command.args(["-n", "19", "sleep", "600"]).spawn().unwrap());
    assert!(sleeper.comes_to('S'));
    let target = Target::open(sleeper.pid()).unwrap();
    let _busy = busy();
    let mut late = 0;
    for _ in 0..20 {
        target.set_stop_timeout(STOP_TIMEOUT);
        let (threads, was_stopped) = target.stop_all().unwrap();
        assert!(!was_stopped);
        target.set_stop_timeout(Duration::ZERO);
        match target.group_stop(threads[0]) {
            Ok(()) => target.end_group_stop(threads[0], 0).unwrap(),
            Err(_) => late += 1,
        }
        target.let_go(&threads);
        target.rest(Duration::from_millis(20));
        assert!(target.late.borrow().is_empty());
        assert!(sleeper.comes_to('S'), "it is left in {}", sleeper.state());
    }
    eprintln!("{late} stops came too late");
}
