//! Why samples cannot be taken.

use std::io;
use vmarea_process::rights::{self, Capability};

/// Error from opening the rings.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// The process is not permitted to record page faults.
    #[error(
        "no permission to record page faults (kernel.perf_event_paranoid is {paranoid}): \
         needs CAP_PERFMON ({}), or a value of 2 or less",
        rights::remedy(&[Capability::Perfmon])
    )]
    Permission {
        /// Value of `kernel.perf_event_paranoid`, or `unknown`.
        paranoid: String,
    },
    /// The process is not permitted to observe calls.
    #[error(
        "no permission to observe calls: needs CAP_BPF and CAP_PERFMON ({})",
        rights::remedy(&[Capability::Bpf, Capability::Perfmon])
    )]
    CallsForbidden,
    /// The task has exited.
    #[error("there is no process {0}")]
    NoSuchTask(i32),
    /// The rings need more descriptors than the limit of open files allows.
    #[error("too many open files: {cpus} CPUs need {needed} (raise it with ulimit -n)")]
    TooManyFiles {
        /// Number of descriptors that the rings need.
        needed: usize,
        /// Number of CPUs.
        cpus: usize,
    },
    /// This kernel has no perf events.
    #[error("this kernel has no perf events")]
    Unsupported,
    /// Any other error.
    #[error("cannot record page faults: {0}")]
    Io(#[from] io::Error),
}

/// Returns what an error from opening an event of task `tid` means.
pub(crate) fn explain(error: io::Error, tid: i32, needed: usize, cpus: usize) -> SamplesError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let paranoid = paranoid.map_or("unknown".to_owned(), |text| text.trim().to_owned());
            SamplesError::Permission { paranoid }
        }
        Some(libc::ESRCH) => SamplesError::NoSuchTask(tid),
        Some(libc::EMFILE | libc::ENFILE) => SamplesError::TooManyFiles { needed, cpus },
        Some(libc::ENOSYS | libc::ENOENT) => SamplesError::Unsupported,
        _ => SamplesError::Io(error),
    }
}
