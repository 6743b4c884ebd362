//! The error type for a run that fails as a whole.

use super::kernel::KernelError;
use vmarea_process::view::ViewError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel's data about address spaces cannot be read.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The files to be mapped cannot be created.
    #[error("cannot create the files to be mapped: {0}")]
    Files(#[source] std::io::Error),
    /// The steps and lists of VMAs cannot be written.
    #[error("cannot write the steps: {0}")]
    States(#[source] std::io::Error),
    /// The kernel side failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
