//! Helpers shared by the tests of the command.
//!
//! The helpers run the command, read its output, and provide a process to examine and another user
//! to run as.

pub mod heap;
pub mod programs;
pub mod target;

use leash::Leashed;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
pub use vmarea_test_support::leash;

/// Path of the command under test.
pub const VMAREA: &str = env!("CARGO_BIN_EXE_vmarea");

/// Runs the command to its end, without input.
pub fn vmarea(arguments: &[&str]) -> Output {
    leash::output(Command::new(VMAREA).args(arguments).stdin(Stdio::null()))
        .expect("the binary was built")
}

/// Converts output to text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the command's one-line error message.
pub fn complaint(output: &Output, status: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.lines().count(), 1, "not one line: {said}");
    assert!(said.starts_with("vmarea: "), "who speaks? {said}");
    assert!(output.stdout.is_empty(), "a failure wrote data");
    said
}

/// A program that waits for input until it is dropped.
pub struct Idle(pub Leashed);

impl Idle {
    /// Starts a program that echoes its input, and waits until its `execve` is complete.
    pub fn start(command: &mut Command) -> Idle {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Leashed::start(command).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "x").unwrap();
        let echo = child.stdout.as_mut().unwrap();
        echo.read_exact(&mut [0]).unwrap();
        Idle(child)
    }

    pub fn cat() -> Idle {
        Idle::start(&mut Command::new("cat"))
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

/// Another user, and a copy of the command that this user can reach.
pub struct Nobody {
    _folder: tempfile::TempDir,
    binary: PathBuf,
}

impl Nobody {
    /// Creates the user; prints a message and returns `None` if this process cannot change users.
    pub fn new() -> Option<Nobody> {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let binary = folder.path().join("vmarea");
        std::fs::copy(VMAREA, &binary).unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let nobody = Nobody {
            _folder: folder,
            binary,
        };
        match leash::output(nobody.command(&nobody.binary).arg("--version")) {
            Ok(output) if output.status.success() => Some(nobody),
            other => {
                eprintln!("skipped: cannot become another user: {other:?}");
                None
            }
        }
    }

    /// Returns a command that runs a program as this user.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program.as_ref())
            .current_dir("/tmp");
        command
    }

    /// Path of the command under test for this user.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs the command as this user.
    pub fn vmarea(&self, arguments: &[&str]) -> Output {
        leash::output(self.command(&self.binary).args(arguments)).unwrap()
    }
}
