//! The spacing test on the running kernel, in a child process.

use super::{AnonVmas, PAGE, Setup};
use crate::kernel::{KernelError, all, reserve};
use std::time::Duration;
use vmarea_oracle::{Oracle, OracleError, Series};
use vmarea_process::maps;

const MMAP: i64 = 9;
const MUNMAP: i64 = 11;
const MREMAP: i64 = 25;
const PRCTL: i64 = 157;
const PR_SET_THP_DISABLE: u64 = 41;
const READ_WRITE: u64 = 3;
/// `MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED`.
const PRIVATE_FIXED: u64 = 0x32;
/// `MREMAP_MAYMOVE | MREMAP_FIXED`.
const MOVE_THERE: u64 = 3;

/// Result of a run on the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OnKernel {
    /// Total time of all moves.
    pub(super) time: Duration,
    /// Number of the test's VMAs after the moves.
    pub(super) vmas: u64,
}

/// Creates the mappings, moves them next to each other, and counts their VMAs in `/proc/PID/maps`.
///
/// # Errors
/// If the kernel refuses a call or the child cannot be started.
pub(super) fn run(setup: &Setup) -> Result<OnKernel, KernelError> {
    let mut oracle = Oracle::start()?;
    let disable = [PR_SET_THP_DISABLE, 1, 0, 0, 0, 0];
    // If the `prctl` call fails, there are no huge pages to disable.
    let _ = oracle.call(0, PRCTL, disable)?;
    let span = setup.span();
    let base = reserve(&mut oracle, span)?;
    make(&mut oracle, setup, base)?;
    let (len, stride) = (setup.len(), setup.stride());
    let moves = Series {
        first: [base + stride, len, len, MOVE_THERE, base + len, 0],
        step: [stride, 0, 0, 0, len, 0],
        times: setup.mappings - 1,
    };
    let went = all("mremap", &moves, oracle.calls(0, MREMAP, &moves)?)?;
    let pid = oracle.pid(0).ok_or(OracleError::NoProcess(0))?;
    let range = base..base + span;
    let mappings = maps::read(pid)?;
    let vmas = mappings.iter().filter(|m| range.contains(&m.start)).count();
    Ok(OnKernel {
        time: went.time,
        vmas: vmas as u64,
    })
}

/// Creates the mappings, faults in their pages, and leaves a gap after each mapping.
fn make(oracle: &mut Oracle, setup: &Setup, base: u64) -> Result<(), KernelError> {
    let (len, stride) = (setup.len(), setup.stride());
    let (first, times) = match setup.anon_vmas {
        AnonVmas::Same => (setup.span(), 1),
        AnonVmas::Different => (len, setup.mappings),
    };
    let mmap = Series {
        first: [base, first, READ_WRITE, PRIVATE_FIXED, u64::MAX, 0],
        step: [stride, 0, 0, 0, 0, 0],
        times,
    };
    all("mmap", &mmap, oracle.calls(0, MMAP, &mmap)?)?;
    // Each series writes one page of every mapping, at the same offset.
    for page in 0..setup.pages {
        let write = Series {
            first: [base + page * PAGE, 1, 0, 0, 0, 0],
            step: [stride, 0, 0, 0, 0, 0],
            times: setup.mappings,
        };
        all("a write", &write, oracle.writes(0, &write)?)?;
    }
    if setup.anon_vmas == AnonVmas::Same {
        let munmap = Series {
            first: [base + len, len, 0, 0, 0, 0],
            step: [stride, 0, 0, 0, 0, 0],
            times: setup.mappings,
        };
        all("munmap", &munmap, oracle.calls(0, MUNMAP, &munmap)?)?;
    }
    Ok(())
}
