//! `vmarea.explain`.

use crate::failure::{Failure, Kind};
use crate::table::Table;
use pyo3::prelude::*;
use std::io::Read;
use std::path::{Path, PathBuf};
use vmarea_explain::{List, explain};
use vmarea_process::{AskKernel, Process, ProcessError, Smaps};
use vmarea_tables::{mappings, mappings_schema};
use vmarea_trace::inputs;

/// Maximum size of a file with a list of mappings; no process has a list this large.
const TEXT_BYTES: u64 = 1 << 30;

/// Report as JSON, the mappings if they are wanted, and remarks.
type Results = (String, Option<Table>, Vec<String>);

/// Explains a running process.
#[pyfunction]
pub(crate) fn explain_process(
    py: Python<'_>,
    pid: i32,
    all: bool,
    rss: bool,
    bpf: bool,
) -> PyResult<Results> {
    if pid < 1 {
        return Err(Failure::usage(format_args!("{pid} is not the number of a process")).into());
    }
    let kernel = match bpf {
        true => AskKernel::Try,
        false => AskKernel::Never,
    };
    let smaps = match rss {
        true => Smaps::Always,
        false => Smaps::Never,
    };
    let process = move || Process::live(pid, kernel, smaps).map_err(|error| of_process("", &error));
    Ok(py.detach(|| explained(process()?, all))?)
}

/// Explains a list of mappings in a file.
#[pyfunction]
pub(crate) fn explain_file(py: Python<'_>, path: PathBuf, all: bool) -> PyResult<Results> {
    let name = path.display().to_string();
    Ok(py.detach(|| of_text(name, &read(&path)?, all))?)
}

/// Explains a list of mappings, which failures call `name`.
#[pyfunction]
pub(crate) fn explain_text(
    py: Python<'_>,
    name: String,
    text: &str,
    all: bool,
) -> PyResult<Results> {
    Ok(py.detach(|| of_text(name, text.as_bytes(), all))?)
}

fn of_text(name: String, text: &[u8], all: bool) -> Result<Results, Failure> {
    let process = Process::from_text(name.clone(), text);
    let process = process.map_err(|error| of_process(&format!("{name}: "), &error))?;
    explained(process, all)
}

fn explained(process: Process, all: bool) -> Result<Results, Failure> {
    let list = if all { List::All } else { List::Summary };
    let report = explain(&process, list);
    let rows = report.rows.as_ref();
    let table = rows.map(|rows| Table::new("mappings", mappings_schema(), vec![mappings(rows)]));
    let json = serde_json::to_string(&report).map_err(Failure::error)?;
    Ok((json, table, process.notes))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::error(format_args!("cannot read {}: {error}", path.display()))
    };
    let mut text = Vec::new();
    let read = inputs::file(path, TEXT_BYTES).and_then(|mut file| file.read_to_end(&mut text));
    read.map_err(|error| cannot(&error))?;
    Ok(text)
}

fn of_process(before: &str, error: &ProcessError) -> Failure {
    let kind = match error {
        ProcessError::Forbidden(_) => Kind::Permission,
        ProcessError::KernelThread(_) | ProcessError::Empty => Kind::NothingToDo,
        _ => Kind::Error,
    };
    Failure::new(kind, format_args!("{before}{error}"))
}
