//! Process groups that make the child processes of a test end with the test.
//!
//! The programs of these tests fork, and are stopped, traced and killed. A program that outlived
//! its test would keep the output of the whole run open, and the run would not end. Therefore each
//! program is in a process group with a shell that only waits. When the time limit expires or the
//! other end of the shell's input is closed, the shell kills the group with SIGKILL, which also
//! ends stopped, traced and waiting processes. The test closes that end when it drops the group or
//! ends for any reason. The shell is the leader of the group and ends last, so the group's id is
//! not reused while the group exists.
//!
//! A process that leaves the group (`setsid`) is not killed.

use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Time limit, which is longer than any test takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(150);

/// A program and its descendants. They end when the value is dropped or [`LIMIT`] expires.
pub struct Leashed {
    program: Child,
    shell: Child,
}

impl Leashed {
    /// Starts the program.
    pub fn start(command: &mut Command) -> io::Result<Leashed> {
        Leashed::start_for(LIMIT, command)
    }

    /// Starts the program, with a time limit.
    ///
    /// # Errors
    ///
    /// As `Command::spawn`.
    pub fn start_for(limit: Duration, command: &mut Command) -> io::Result<Leashed> {
        let mut shell = Command::new("bash")
            .args(["-c", r#"read -r -t "$1"; kill -KILL 0"#, "leash"])
            .arg(limit.as_secs().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("bash");
        let group = shell.id().cast_signed();
        match command.process_group(group).spawn() {
            Ok(program) => Ok(Leashed { program, shell }),
            Err(error) => {
                end(&mut shell);
                Err(error)
            }
        }
    }

    /// Returns the id of the program's process group.
    pub fn group(&self) -> u32 {
        self.shell.id()
    }

    /// Kills the group, as dropping the value does.
    pub fn end(&mut self) {
        end(&mut self.shell);
        let _ = self.program.wait();
    }

    /// True if the group was killed because its time limit had expired.
    pub fn is_over(&mut self) -> bool {
        self.shell.try_wait().is_ok_and(|status| status.is_some())
    }
}

/// Closes the shell's input, so that the shell kills its group.
fn end(shell: &mut Child) {
    drop(shell.stdin.take());
    let _ = shell.wait();
}

impl Drop for Leashed {
    fn drop(&mut self) {
        self.end();
    }
}

impl Deref for Leashed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.program
    }
}

impl DerefMut for Leashed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.program
    }
}

/// Runs a program to its end like `Command::output`, but inherits standard input if none is set.
///
/// # Errors
///
/// If the program cannot be started.
///
/// # Panics
///
/// If the program, or a process that it started, keeps its output open until [`LIMIT`] expires.
pub fn output(command: &mut Command) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(Leashed::start(command)?)
}

/// Waits for a program whose outputs are pipes, like `Child::wait_with_output`.
///
/// # Panics
///
/// As [`output`].
pub fn finish(mut program: Leashed) -> io::Result<Output> {
    drop(program.stdin.take());
    let mut out = program.stdout.take();
    let mut err = program.stderr.take();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let errors = scope.spawn(|| {
            err.as_mut()
                .map_or(Ok(0), |err| err.read_to_end(&mut stderr))
        });
        let read = out
            .as_mut()
            .map_or(Ok(0), |out| out.read_to_end(&mut stdout));
        errors.join().expect("it only reads").and(read)
    })?;
    let status = program.wait()?;
    let output = Output {
        status,
        stdout,
        stderr,
    };
    assert!(!program.is_over(), "not over after {LIMIT:?}: {output:?}");
    Ok(output)
}
