//! A leash for what a test starts: a process group that ends as a whole, whatever becomes of the
//! test.
//!
//! The programs of these tests fork, are stopped, traced and killed midway. One that outlives its
//! test would hold the output of the whole run open, and nobody would see its end. So each is in a
//! group with a shell that does nothing but wait: once its time is over, or nobody holds the other
//! end of its input any more, it ends the group by SIGKILL, which reaches stopped, traced and
//! waiting processes as well. The test drops that end, and so does its end by any other cause.
//! The shell leads the group and is the last of it, so its number is nobody else's meanwhile.
//!
//! A process that leaves the group (`setsid`) is not on the leash.

use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// More than anything here takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(150);

/// A program and all that it forks, until it is dropped or [`LIMIT`] is over.
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

    /// The number of its process group.
    pub fn group(&self) -> u32 {
        self.shell.id()
    }

    /// Ends all of the group, as dropping it does.
    pub fn end(&mut self) {
        end(&mut self.shell);
        let _ = self.program.wait();
    }

    /// True once the group was ended because its time was over.
    pub fn is_over(&mut self) -> bool {
        self.shell.try_wait().is_ok_and(|status| status.is_some())
    }
}

/// The shell reads the end of its input, and takes its group with it.
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

/// Runs a program to its end, as `Command::output` but that it inherits what it is given no input
/// for.
///
/// # Errors
///
/// Where it cannot be started.
///
/// # Panics
///
/// Where it, or what it left behind, held its output open until [`LIMIT`] was over.
pub fn output(command: &mut Command) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(Leashed::start(command)?)
}

/// The end of a program whose outputs are pipes, as `Child::wait_with_output`.
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
