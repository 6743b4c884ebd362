//! `vmarea.export`: all tables of a trace as Parquet files.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::trace::{of_replay, open, policies_of};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use vmarea_replay::Options;
use vmarea_tables::{Folder, Table};

/// Writes the tables, and returns the reason if the trace ended early.
#[pyfunction]
pub(crate) fn export(
    py: Python<'_>,
    path: PathBuf,
    folder: PathBuf,
    policies: Vec<String>,
) -> PyResult<Option<String>> {
    let options = Options {
        policies: policies_of(&policies)?,
        ..Options::default()
    };
    Ok(py.detach(|| into_folder(&path, &folder, &options))?)
}

fn into_folder(path: &Path, folder: &Path, options: &Options) -> Result<Option<String>, Failure> {
    let mut reader = open(path)?;
    let mut files = Folder::create(folder, &Table::ALL).map_err(Failure::error)?;
    let mut interrupt = Interrupt::new();
    let replayed = vmarea_tables::replay(
        &mut reader,
        options,
        &Table::ALL,
        &mut |table, batch| files.add(table, &batch).map_err(Failure::error),
        &mut |_| Ok(interrupt.check()?),
    );
    let replayed = replayed.map_err(|error| of_replay(path, error))?;
    files.publish().map_err(Failure::error)?;
    Ok(replayed.end.map(|end| end.to_string()))
}
