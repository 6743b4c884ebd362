//! `vmarea.compare`.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::trace::{empty, of_trace, open, policies_of};
use pyo3::prelude::*;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use vmarea_replay::PolicyName;
use vmarea_replay::compare::{Compared, Comparison};
use vmarea_trace::Error;

/// Number of events between two checks for signals.
const EVENTS_A_CHECK: u64 = 4096;

/// Compares two policies on a trace; returns JSON, and the reason if only a part could be read.
#[pyfunction]
pub(crate) fn compare(
    py: Python<'_>,
    path: PathBuf,
    policies: Vec<String>,
) -> PyResult<(String, Option<String>)> {
    let named = policies_of(&policies)?;
    let [first, second] = &named[..] else {
        return Err(Failure::usage("two policies are compared: give two names").into());
    };
    if first.policy().name == second.policy().name {
        let what = "both policies have the same name: give two different ones";
        return Err(Failure::usage(what).into());
    }
    let (compared, end) = py.detach(|| of_file(&path, [first, second]))?;
    let json = serde_json::to_string(&compared).map_err(Failure::error)?;
    Ok((json, end))
}

fn of_file(path: &Path, policies: [&PolicyName; 2]) -> Result<(Compared, Option<String>), Failure> {
    let mut reader = open(path)?;
    let mut comparison =
        Comparison::new(reader.header(), policies).map_err(|error| of_trace(path, error))?;
    let mut interrupt = Interrupt::new();
    let (mut events, mut end) = (0u64, None);
    for event in &mut reader {
        let event = match event {
            Ok(event) => event,
            Err(cut @ (Error::CutOff { .. } | Error::Damaged { .. })) if events > 0 => {
                end = Some(format!("{cut}; compared up to there"));
                break;
            }
            Err(error) => return Err(of_trace(path, error)),
        };
        if let Err(error) = comparison.event(&event) {
            end = Some(error.to_string());
            break;
        }
        events += 1;
        if events.is_multiple_of(EVENTS_A_CHECK) {
            interrupt.check()?;
        }
    }
    if events == 0 {
        return Err(empty(path));
    }
    Ok((comparison.finish(), end))
}

/// True if a file begins like a trace.
#[pyfunction]
pub(crate) fn is_trace(path: PathBuf) -> bool {
    let mut start = [0; vmarea_trace::MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == vmarea_trace::MAGIC
}
