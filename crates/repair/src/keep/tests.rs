//! The program under the keeper, and its descendants.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::family::{self, Family};
use super::{KEEP_VARIABLE, count};

/// Time limit for what another process does at once.
const LONG: Duration = Duration::from_secs(60);

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shell(script: &str, variable: Option<&std::ffi::OsStr>) -> Ends {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped());
    if let Some(value) = variable {
        command.env(KEEP_VARIABLE, value);
    }
    Ends(command.spawn().expect("sh"))
}

/// Waits until the family has `n` members, and returns them.
fn members(family: &mut Family, n: usize) -> Vec<i32> {
    let until = Instant::now() + LONG;
    loop {
        let members: Vec<i32> = family.members().iter().map(|&(pid, _)| pid).collect();
        if members.len() == n || Instant::now() > until {
            return members;
        }
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_family_is_those_who_inherit_the_variable_even_from_a_parent_that_has_ended() {
    let value = family::value();
    // The first process of this family has another variable, as before its `execve`.
    let mut program = shell("read line", None);
    let mut family = Family::new(program.0.id().cast_signed(), &value);
    assert_eq!(members(&mut family, 1), [program.0.id().cast_signed()]);
    assert!(!family.has_lost_program());
    let mut parent = shell("(exec sleep 100) & echo $! >&2; exit", Some(&value));
    let _stranger = shell("read line", Some(std::ffi::OsStr::new("1-1")));
    let _ = parent.0.wait();
    let found = members(&mut family, 2);
    assert_eq!(found.len(), 2, "{found:?}");
    let orphan = found
        .into_iter()
        .find(|&pid| pid != program.0.id().cast_signed());
    let orphan = rustix::process::Pid::from_raw(orphan.expect("two processes")).expect("a process");
    program.0.kill().expect("it runs");
    program.0.wait().expect("it was killed");
    assert_eq!(members(&mut family, 1), [orphan.as_raw_nonzero().get()]);
    assert!(family.has_lost_program());
    rustix::process::kill_process(orphan, rustix::process::Signal::KILL).expect("it runs");
    assert!(members(&mut family, 0).is_empty());
}

#[test]
fn mappings_are_counted_and_nobody_has_none() {
    let own = std::process::id().cast_signed();
    assert!(count(own).expect("this process runs") > 10);
    assert!(count(i32::MAX).is_err());
}
