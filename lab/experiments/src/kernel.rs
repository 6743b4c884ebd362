//! Calls that a child process makes on the running kernel for a measurement.

use thiserror::Error;
use vmarea_oracle::{Oracle, OracleError, Series, Went};

const MMAP: i64 = 9;
const MUNMAP: i64 = 11;
/// `MAP_PRIVATE | MAP_ANONYMOUS`.
const PRIVATE: u64 = 0x22;
const NORESERVE: u64 = 0x4000;

/// Reason why the kernel's results are missing.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The oracle's child process failed.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The kernel refused a call.
    #[error(
        "{what} was refused after {times} times, with {how}; see vm.max_map_count and ulimit -v"
    )]
    Refused {
        /// Name of the call.
        what: &'static str,
        /// Number of calls that succeeded.
        times: u64,
        /// Negative error number of the refused call, or number of the signal that the call caused.
        how: i64,
    },
    /// `/proc/PID/maps` of the child process cannot be read.
    #[error("cannot read the mappings of the child: {0}")]
    Maps(#[from] std::io::Error),
}

/// Returns the start of `span` bytes of unused address space, which the kernel chooses.
pub(super) fn reserve(oracle: &mut Oracle, span: u64) -> Result<u64, KernelError> {
    let whole = [0, span, 0, PRIVATE | NORESERVE, u64::MAX, 0];
    let base = oracle.call(0, MMAP, whole)?;
    let base = base.map_err(|errno| KernelError::Refused {
        what: "reserving address space",
        times: 0,
        how: i64::from(-errno),
    })?;
    let _ = oracle.call(0, MUNMAP, [base, span, 0, 0, 0, 0])?;
    Ok(base)
}

/// Returns the result of a series if all of its calls or accesses succeeded.
pub(super) fn all(what: &'static str, series: &Series, went: Went) -> Result<Went, KernelError> {
    match went.stopped {
        Some(how) => Err(KernelError::Refused {
            what,
            times: went.times,
            how,
        }),
        None => {
            debug_assert_eq!(went.times, series.times);
            Ok(went)
        }
    }
}
