//! Opens the data sources other than `ptrace`, if permitted: samples and the kernel's view.

use super::call_queue::ObservedCalls;
use super::{Faults, InKernel, Options, RecordBy, RecordError};
use crate::samples::{Samples, Start};
use vmarea_process::system;
use vmarea_process::view::KernelView;
use vmarea_trace::event::Header;

/// Builds the trace's header: all data known before the first event.
pub(super) fn header(command: Vec<String>, samples: Option<&Samples>, kernel_view: bool) -> Header {
    Header {
        command,
        faults: samples.map(Samples::source).unwrap_or_default(),
        kernel_view,
        writer: concat!("vmarea ", env!("CARGO_PKG_VERSION")).to_owned(),
        ..system::header()
    }
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

/// Opens the rings of the calls that need not stop, if the options ask for it.
///
/// # Errors
/// [`RecordError::NotObservable`] if the kernel refuses.
pub(super) fn open_calls(options: &Options) -> Result<Option<ObservedCalls>, RecordError> {
    match options.by {
        RecordBy::Auto | RecordBy::Tracing => Ok(None),
        RecordBy::Observing => ObservedCalls::open(options.stacks)
            .map(Some)
            .map_err(RecordError::NotObservable),
    }
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
