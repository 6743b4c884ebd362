//! Recording of a process that is already running.
//!
//! The recorder joins the process with all its threads, takes over its mappings, records the
//! process and its later children, and leaves them running. [`RecordBy`] lists the methods.
//! [`target`] checks the process beforehand, so that most errors arise before anything is done to
//! it.

mod relay;
mod stopping;
mod target;
mod tracing;

pub(crate) use stopping::{interrupt, sleeping};

use super::observe::{ObserveOptions, observe};
use super::tracer::Tracer;
use super::{Faults, InKernel, Outcome, Progress, RecordBy, RecordError, Sink, Stacks};
use std::num::NonZeroU64;
use std::time::Duration;

/// How often a process is joined that executes a program meanwhile.
const TRIES: u32 = 5;

/// Options of a recording of a running process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachOptions {
    /// Process id.
    pub pid: i32,
    /// Duration of the recording; `None` for as long as the process runs.
    pub duration: Option<Duration>,
    /// Number of calls between snapshots of an address space, in addition to those taken every
    /// second; `None` disables them.
    pub checkpoint: Option<NonZeroU64>,
    /// Whether to record page faults.
    pub faults: Faults,
    /// Whether to read the kernel's own view of address spaces.
    pub kernel_view: InKernel,
    /// Whether to copy stacks at calls.
    pub stacks: Stacks,
    /// Method of recording.
    pub by: RecordBy,
}

impl AttachOptions {
    /// Returns the default options for process `pid`.
    pub fn new(pid: i32) -> AttachOptions {
        AttachOptions {
            pid,
            duration: None,
            checkpoint: None,
            faults: Faults::default(),
            kernel_view: InKernel::default(),
            stacks: Stacks::default(),
            by: RecordBy::default(),
        }
    }
}

/// Records a running process and its later children, and leaves them running.
///
/// Returns when the duration has elapsed, when the process has exited, or when this process
/// receives `SIGINT`, `SIGTERM`, `SIGHUP` or `SIGQUIT`. Snapshots are taken at the beginning, every
/// second and at the end. If this process is killed, the recorded process continues.
///
/// # Errors
/// [`RecordError`]. Except with [`RecordError::Sink`], nothing was recorded. In any case the
/// process continues.
pub fn attach(
    options: &AttachOptions,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RecordError> {
    target::check(options.pid)?;
    let wanted = ObserveOptions {
        pid: options.pid,
        duration: options.duration,
        faults: options.faults,
        kernel_view: options.kernel_view,
        stacks: options.stacks,
    };
    let why = match options.by {
        RecordBy::Tracing => return trace(options, sink, progress),
        RecordBy::Observing => return observe(&wanted, sink, progress),
        RecordBy::Auto if options.checkpoint.is_some() => {
            "a list after every few calls needs stops".to_owned()
        }
        RecordBy::Auto => match observe(&wanted, sink, progress) {
            Err(RecordError::NotObservable(error)) => error.to_string(),
            done => return done,
        },
    };
    let mut outcome = trace(options, sink, progress)?;
    let note = format!("recorded by ptrace, which stops the process at each call: {why}");
    outcome.notes.insert(0, note);
    Ok(outcome)
}

fn trace(
    options: &AttachOptions,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RecordError> {
    let mut tries = 1..TRIES;
    loop {
        target::check_untraced(options.pid)?;
        let again = options.clone();
        let done = relay::in_thread(&mut *sink, &mut *progress, move |sink, progress| {
            Tracer::join(&again, sink, progress)?.follow_process()
        });
        let done = done.map_err(|error| match error {
            RecordError::Ended(pid) if target::runs_on(pid) => RecordError::Executed(pid),
            error => error,
        });
        match done {
            Err(RecordError::Executed(pid)) if tries.next().is_some() => target::until_let_go(pid),
            done => return done,
        }
    }
}
