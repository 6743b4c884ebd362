//! Exit statuses, and failures that carry one.
//!
//! A failure has an exit status (1 for most failures) and a chain of causes, which is printed as
//! one line.

use crate::console::Console;
use crate::words::in_words;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// Outcome of a command that did its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The command succeeded.
    Ok,
    /// A comparison found a difference.
    Differs,
    /// Part of the work was not done.
    Incomplete,
    /// A signal ended the work early, after a complete step.
    Interrupted,
    /// Exit status of the recorded program.
    Program(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Ok => Self::SUCCESS,
            Exit::Differs => Self::from(3),
            Exit::Incomplete => Self::from(6),
            Exit::Interrupted => Self::from(7),
            Exit::Program(status) => Self::from(status),
        }
    }
}

/// Exit statuses of commands that could not do their work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// A general error.
    Error = 1,
    /// Wrong usage that the argument parser cannot detect.
    Usage = 2,
    /// The command found nothing to do.
    NothingToDo = 4,
    /// A permission is missing.
    Permission = 5,
}

/// Reason why a command could not do its work, with an exit status.
pub struct Failure {
    status: Status,
    cause: anyhow::Error,
}

/// Result of a command.
pub type Result<T = Exit> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates a failure with this status.
    pub fn new(status: Status, cause: impl Into<anyhow::Error>) -> Self {
        Self {
            status,
            cause: cause.into(),
        }
    }

    /// Puts `what` before the message.
    pub fn context(self, what: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self {
            status: self.status,
            cause: self.cause.context(what),
        }
    }

    /// Returns the message.
    pub fn message(&self) -> String {
        format!("{:#}", self.cause)
    }

    /// Prints the failure and returns its status.
    ///
    /// A closed output pipe (`vmarea ... | head`) is not a failure.
    pub fn report(&self, console: &Console) -> ExitCode {
        if self.cause.chain().any(is_broken_pipe) {
            return ExitCode::SUCCESS;
        }
        console.complain(&format!("{self}"));
        ExitCode::from(self.status as u8)
    }
}

impl fmt::Display for Failure {
    /// Formats the causes on one line, outermost first; omits each cause that repeats the one
    /// before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = String::new();
        for cause in self.cause.chain() {
            let text = cause.to_string().replace('\n', " ");
            let text = in_words(&text).into_owned();
            if before.contains(&text) {
                continue;
            }
            if !before.is_empty() {
                f.write_str(": ")?;
            }
            f.write_str(&text)?;
            before = text;
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} (status {:?})", self.status)
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(cause: E) -> Self {
        Self::new(Status::Error, cause)
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns the exit status for the wait status `status`, as shells compute it.
pub fn of_program(status: i32) -> Exit {
    let signal = status & 0x7f;
    let code = if signal == 0 {
        (status >> 8) & 0xff
    } else {
        128 + signal
    };
    Exit::Program(code as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_failure_is_one_line_without_echoes() {
        let inner = io::Error::from_raw_os_error(2);
        let text = format!("cannot open a.vmtrace: {inner}");
        let failure = Failure::from(anyhow!(inner).context(text));
        let said = "cannot open a.vmtrace: No such file or directory";
        assert_eq!(failure.to_string(), said);

        let failure = Failure::from(anyhow!("inner\nline").context("outer"));
        assert_eq!(failure.to_string(), "outer: inner line");
    }

    #[test]
    fn wait_statuses_are_counted_as_shells_do() {
        assert_eq!(of_program(0), Exit::Program(0));
        assert_eq!(of_program(3 << 8), Exit::Program(3));
        assert_eq!(of_program(9), Exit::Program(137));
        assert_eq!(of_program(11 | 0x80), Exit::Program(139), "core dumped");
    }
}
