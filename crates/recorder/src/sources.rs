//! Opens the data sources other than `ptrace`, if permitted: samples and the kernel's view.

use super::call_queue::ObservedCalls;
use super::command::{SYS_ADMIN, has_capability};
use super::{Faults, InKernel, Options, RecordBy, RecordError, Stacks};
use crate::samples::{self, Samples, SamplesError, Start};
use std::time::{SystemTime, UNIX_EPOCH};
use vmarea_process::view::KernelView;
use vmarea_process::{processes, system};
use vmarea_trace::event::Header;

/// Builds the trace's header: all data known before the first event.
pub(super) fn header(command: Vec<String>, samples: Option<&Samples>, kernel_view: bool) -> Header {
    Header {
        command,
        faults: samples.map(Samples::source).unwrap_or_default(),
        kernel_view,
        writer: concat!("vmarea ", env!("CARGO_PKG_VERSION")).to_owned(),
        started_unix_ms: unix_ms(),
        ..system::header()
    }
}

/// Returns the time in milliseconds since 1970; `None` if the clock is set to before that.
fn unix_ms() -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Opens the kernel's own view of address spaces, or adds a note that explains why it is missing.
pub(super) fn open_view(choice: InKernel, notes: &mut Vec<String>) -> Option<KernelView> {
    if choice == InKernel::Skip {
        return None;
    }
    KernelView::open()
        .map_err(|error| notes.push(format!("recorded without the kernel's own view: {error}")))
        .ok()
}

/// Opens the rings of the calls that need not stop, unless the options need stops or the kernel
/// refuses; then a note gives the reason, except to an ordinary user.
///
/// # Errors
/// [`RecordError::NotObservable`] if the options require the rings and the kernel refuses.
pub(super) fn open_calls(
    options: &Options,
    ring_bytes: Option<usize>,
    notes: &mut Vec<String>,
) -> Result<Option<ObservedCalls>, RecordError> {
    let needs_stops = options.checkpoint.is_some()
        || options.stacks == Stacks::Copy
        || options.faults == Faults::Skip;
    let error = match options.by {
        RecordBy::Tracing => return Ok(None),
        RecordBy::Observing => {
            let observed = ObservedCalls::open(options.stacks, ring_bytes);
            return observed.map(Some).map_err(RecordError::NotObservable);
        }
        // Without the times at which threads take locks, the order of parallel calls is unknown.
        RecordBy::Auto if needs_stops || !samples::shows_locks() => return Ok(None),
        RecordBy::Auto => match ObservedCalls::open(options.stacks, ring_bytes) {
            Ok(observed) => return Ok(Some(observed)),
            Err(error) => error,
        },
    };
    let is_expected = matches!(error, SamplesError::CallsForbidden);
    if !is_expected || has_capability(SYS_ADMIN) {
        notes.push(format!(
            "recorded by ptrace, which stops the program at each memory call: {error}"
        ));
    }
    Ok(None)
}

/// Opens fault rings for a task and its later children, or adds a note that explains the error.
pub(super) fn open_samples(
    choice: Faults,
    tid: i32,
    start: Start,
    notes: &mut Vec<String>,
) -> Option<Samples> {
    if choice == Faults::Skip {
        return None;
    }
    match Samples::open_at(tid, start) {
        Ok(samples) => {
            notes.extend_from_slice(samples.notes());
            Some(samples)
        }
        Err(error) => {
            notes.push(format!("recorded without page faults: {error}"));
            None
        }
    }
}

/// Returns the command line of a process; empty if it cannot be read, or has been overwritten.
pub(super) fn command_line(pid: i32) -> Vec<String> {
    let read = |tid: i32| std::fs::read(format!("/proc/{tid}/cmdline")).unwrap_or_default();
    let mut bytes = read(pid);
    if bytes.is_empty()
        && let Some(other) = processes::other_thread(pid)
    {
        bytes = read(other);
    }
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    let words = bytes.split(|byte| *byte == 0);
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}
