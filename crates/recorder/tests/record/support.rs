//! Helpers that record small programs and keep their output.
//!
//! The recorded command writes to a file, because all tests share the output of the test program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use vmarea_recorder::{Options, Outcome, RecordBy, RecordError, record};
use vmarea_trace::event::Event;

/// A recording and the output of the command.
pub struct Recorded {
    pub events: Vec<Event>,
    pub outcome: Outcome,
    pub output: String,
}

impl Recorded {
    /// Returns the exit status of the command.
    pub fn exit_code(&self) -> i32 {
        assert!(libc::WIFEXITED(self.outcome.status), "{:?}", self.outcome);
        libc::WEXITSTATUS(self.outcome.status)
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Returns a name in the tests' folder that no other test uses.
pub fn fresh(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // ORDERING: Relaxed; only uniqueness matters.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    folder().join(format!("{name}-{}-{number}", std::process::id()))
}

/// Compiles a program from the folder `programs/`.
pub fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let source = format!(
        "{}/tests/record/programs/{name}.c",
        env!("CARGO_MANIFEST_DIR")
    );
    let binary = fresh(name);
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&binary)
        .arg(&source)
        .args(flags)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{source}");
    binary
}

/// Records a command whose standard output goes to a file.
pub fn run(words: &[&str]) -> Recorded {
    run_with(Options::default(), words)
}

/// Like [`run`], with options.
pub fn run_with(options: Options, words: &[&str]) -> Recorded {
    try_run(options, words).expect("a recording")
}

/// Like [`run`], by one method; `None` if the method is not permitted.
pub fn run_by(by: RecordBy, words: &[&str]) -> Option<Recorded> {
    let options = Options {
        by,
        ..Options::default()
    };
    match try_run(options, words) {
        Err(RecordError::NotObservable(error)) => {
            println!("skipped: {error}");
            None
        }
        recorded => Some(recorded.expect("a recording")),
    }
}

fn try_run(options: Options, words: &[&str]) -> Result<Recorded, RecordError> {
    let output = fresh("output");
    let shell = ["sh", "-c", "exec \"$@\" > \"$0\""].map(OsString::from);
    let mut command = shell.to_vec();
    command.push(output.clone().into());
    command.extend(words.iter().map(OsString::from));
    let mut events = Vec::new();
    let outcome = record_into(Options { command, ..options }, &mut events)?;
    let output = std::fs::read_to_string(output).expect("what it wrote");
    Ok(Recorded {
        events,
        outcome,
        output,
    })
}

/// Records the command in `options` unchanged. Prints the notes, which help to explain a failed
/// test.
pub fn record_into(options: Options, events: &mut Vec<Event>) -> Result<Outcome, RecordError> {
    let outcome = record(&options, events, &mut |_| {})?;
    for event in &*events {
        if let Event::Note(text) = event {
            println!("noted: {text}");
        }
    }
    Ok(outcome)
}
