//! Recording of a program or of a running process, shared by several commands.

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;
use vmarea_explain::spaces::Spaces;
use vmarea_explain::text::{count, plural};
use vmarea_recorder::{
    AttachOptions, CallStack, Counts, Options, Outcome, Progress, RecordBy, RecordError, Sink,
    Stacks,
};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Failure, Result, Status};
use vmarea_terminal::progress::Meter;
use vmarea_trace::event::{Event, Header};

/// What to record, and in how much detail.
#[derive(Debug, Args)]
pub struct RecordingArgs {
    /// Also read the kernel's list of mappings after every N calls in an address space (it is
    /// always read after each exec and at the end)
    #[arg(long, value_name = "N")]
    checkpoint: Option<NonZeroU64>,

    /// Method of recording
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    by: Method,

    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RecordingArgs {
    /// Returns the program and its arguments; never empty.
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// Creates arguments that record `command` and read its mappings only after exec and at the
    /// end.
    pub fn of(command: Vec<OsString>) -> Self {
        Self {
            checkpoint: None,
            by: Method::Auto,
            command,
        }
    }

    /// Runs the program to its end and passes every event to `sink`.
    ///
    /// # Errors
    /// Fails if the program cannot be started or traced, a permission is missing, or the sink
    /// fails.
    pub fn record(&self, console: &Console, sink: &mut dyn Sink) -> Result<Outcome> {
        record(console, self.started(Stacks::Skip), sink)
    }

    /// Runs the program like [`RecordingArgs::record`], and also passes the stacks of its calls.
    ///
    /// # Errors
    /// Returns the errors of [`RecordingArgs::record`].
    pub fn record_stacks(&self, console: &Console, sink: &mut dyn Sink) -> Result<Outcome> {
        record(console, self.started(Stacks::Copy), sink)
    }

    fn started(&self, stacks: Stacks) -> Started<'_> {
        Started {
            command: &self.command,
            checkpoint: self.checkpoint,
            stacks,
            by: self.by,
        }
    }
}

/// A recording of a program from its start.
#[derive(Clone, Copy, Debug)]
pub struct Started<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Number of calls between additional snapshots.
    pub checkpoint: Option<NonZeroU64>,
    /// Whether to copy stacks at calls.
    pub stacks: Stacks,
    /// Method of recording.
    pub by: Method,
}

/// Runs a program to its end and passes every event to `sink`.
///
/// # Errors
/// Returns the errors of [`RecordingArgs::record`].
pub fn record(console: &Console, started: Started<'_>, sink: &mut dyn Sink) -> Result<Outcome> {
    started.by.check(started.checkpoint)?;
    let options = Options {
        command: started.command.to_vec(),
        checkpoint: started.checkpoint,
        stacks: started.stacks,
        by: started.by.into(),
        ..Options::default()
    };
    let meter = Meter::beside_program(console, "recording");
    let outcome = with_progress(console, meter, |progress| {
        vmarea_recorder::record(&options, sink, progress)
    })?;
    console.note(&format!("recorded {}", in_words(&outcome.counts)));
    Ok(outcome)
}

/// Method of recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Method {
    /// Observing if it is permitted and nothing else needs stops, otherwise tracing
    #[default]
    Auto,
    /// Tracepoints, needs root: a running process does not stop; a command stops only at rare calls
    Observing,
    /// ptrace: a running process stops at each system call, a command at each memory call
    Tracing,
}

impl Method {
    /// Checks that the method can count calls if `checkpoint` requires it.
    fn check(self, checkpoint: Option<NonZeroU64>) -> Result<()> {
        match (self, checkpoint) {
            (Method::Observing, Some(_)) => Err(Failure::new(
                Status::Usage,
                anyhow!("--checkpoint counts calls by stops: record with --by tracing"),
            )),
            _ => Ok(()),
        }
    }
}

impl From<Method> for RecordBy {
    fn from(method: Method) -> RecordBy {
        match method {
            Method::Auto => RecordBy::Auto,
            Method::Observing => RecordBy::Observing,
            Method::Tracing => RecordBy::Tracing,
        }
    }
}

/// A recording of a running process.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    /// The process.
    pub pid: i32,
    /// How long to record; `None` until the process ends or the user interrupts.
    pub duration: Option<Duration>,
    /// Number of calls between additional snapshots.
    pub checkpoint: Option<NonZeroU64>,
    /// Whether to copy stacks at calls.
    pub stacks: Stacks,
    /// Method of recording.
    pub by: Method,
}

/// Records a running process and passes every event to `sink`.
///
/// # Errors
/// Fails if there is no such process, a permission is missing, or the sink fails.
pub fn attach(console: &Console, attached: Attached, sink: &mut dyn Sink) -> Result<Outcome> {
    attached.by.check(attached.checkpoint)?;
    let options = AttachOptions {
        duration: attached.duration,
        checkpoint: attached.checkpoint,
        stacks: attached.stacks,
        by: attached.by.into(),
        ..AttachOptions::new(attached.pid)
    };
    let mut sink = Following {
        sink,
        spaces: Spaces::default(),
    };
    let meter = Meter::alone(console, "recording");
    let outcome = with_progress(console, meter, |progress| {
        vmarea_recorder::attach(&options, &mut sink, progress)
    })?;
    let counts = Counts {
        address_spaces: sink.spaces.count(),
        ..outcome.counts
    };
    let mut said = format!("recorded {}", in_words(&counts));
    if sink.spaces.restarts() > 0 {
        let times = times(sink.spaces.restarts());
        said += &format!("; the recording of an address space restarted {times}");
    }
    console.note(&said);
    Ok(outcome)
}

/// Passes events on, and counts the address spaces.
struct Following<'a> {
    sink: &'a mut dyn Sink,
    spaces: Spaces,
}

impl Sink for Following<'_> {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        self.sink.header(header)
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.spaces.follow(event);
        self.sink.event(event)
    }

    fn tick(&mut self) -> io::Result<()> {
        self.sink.tick()
    }

    fn stack(&mut self, stack: &CallStack) {
        self.sink.stack(stack);
    }
}

/// Returns `once`, or the number of times.
fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{} times", count(n)),
    }
}

/// Records with `record`, and shows the progress.
fn with_progress(
    console: &Console,
    mut meter: Meter<'_>,
    record: impl FnOnce(&mut dyn FnMut(Progress)) -> std::result::Result<Outcome, RecordError>,
) -> Result<Outcome> {
    let outcome = record(&mut |progress| match progress {
        Progress::Counts(counts) => meter.at(counts.events, || in_words(&counts)),
        Progress::CommandEnded { left, .. } => console.note(&waiting(&left)),
        Progress::ProcessEnded => console.note("the process has ended"),
        // The outcome also contains the notes. Printing them later does not interrupt the program.
        Progress::Note(_) => {}
    });
    drop(meter);
    outcome.map_err(failure)
}

/// Returns a message that names the processes still running and says how to end them.
fn waiting(left: &[i32]) -> String {
    const NAMED: usize = 8;
    let named: Vec<_> = left.iter().take(NAMED).map(i32::to_string).collect();
    let others = match left.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let processes = if left.len() == 1 {
        "process"
    } else {
        "processes"
    };
    format!(
        "the command has ended; waiting for {processes} {}{others} that it started (to end them: kill {}; \
         vmarea passes SIGTERM on)",
        named.join(", "),
        std::process::id()
    )
}

fn failure(error: RecordError) -> Failure {
    let status = match &error {
        error if error.is_permission() => Status::Permission,
        RecordError::KernelThread(_) => Status::NothingToDo,
        _ => Status::Error,
    };
    Failure::new(status, error)
}

fn in_words(counts: &Counts) -> String {
    let mut text = format!(
        "{} events: {} calls, {} faults in {}",
        count(counts.events),
        count(counts.calls),
        count(counts.faults),
        plural(counts.address_spaces, "address space")
    );
    if counts.lost > 0 {
        text += &format!("; {} samples were lost", count(counts.lost));
    }
    text
}
