//! Opens the data sources other than `ptrace`, if permitted: samples and the kernel's view.

use super::{Faults, InKernel, Options};
use crate::samples::{Samples, Start};
use vmarea_process::system;
use vmarea_process::view::KernelView;
use vmarea_trace::event::Header;

/// Builds the trace's header: all data known before the first event.
pub(super) fn header(options: &Options, samples: Option<&Samples>, kernel_view: bool) -> Header {
    let words = options.command.iter();
    Header {
        command: words.map(|w| w.to_string_lossy().into_owned()).collect(),
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

/// Opens fault rings for a child before its `execve`, or adds a note that explains the error.
pub(super) fn open_samples(choice: Faults, pid: i32, notes: &mut Vec<String>) -> Option<Samples> {
    if choice == Faults::Skip {
        return None;
    }
    match Samples::open_at(pid, Start::Exec) {
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
