//! `vmarea.replay`.

use crate::failure::{Failure, Kind};
use crate::interrupt::Interrupt;
use crate::table::Table;
use arrow_array::RecordBatch;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmarea_replay::{MostShown, Options, PolicyName};
use vmarea_tables::{Error, Replayed, Table as Kinds};
use vmarea_trace::Reader;

/// Report as JSON, the reason why it is incomplete, and the tables by name.
type Result = (String, Option<String>, BTreeMap<&'static str, Table>);

/// Replays a trace.
#[pyfunction]
pub(crate) fn replay(
    py: Python<'_>,
    path: PathBuf,
    policies: Vec<String>,
    tables: Vec<String>,
    differences: &str,
) -> PyResult<Result> {
    let policies = policies_of(&policies)?;
    let shown: MostShown = differences.parse().map_err(Failure::usage)?;
    let tables = tables_of(&tables)?;
    let options = Options {
        policies,
        shown,
        ..Options::default()
    };
    let (replayed, batches) = py.detach(|| into_memory(&path, &options, &tables))?;
    let report = serde_json::to_string(&replayed.report).map_err(Failure::error)?;
    let tables = batches.into_iter().map(|(table, batches)| {
        let name = table.name();
        (name, Table::new(name, table.schema(), batches))
    });
    let end = replayed.end.map(|end| end.to_string());
    Ok((report, end, tables.collect()))
}

/// Reads the names of policies.
pub(crate) fn policies_of(names: &[String]) -> std::result::Result<Vec<PolicyName>, Failure> {
    let named = names.iter().map(|name| name.parse());
    named
        .collect::<std::result::Result<_, String>>()
        .map_err(Failure::usage)
}

/// Reads the names of tables.
pub(crate) fn tables_of(names: &[String]) -> std::result::Result<Vec<Kinds>, Failure> {
    let named = names.iter().map(|name| name.parse());
    named
        .collect::<std::result::Result<_, String>>()
        .map_err(Failure::usage)
}

/// Opens a trace; failures begin with its path.
pub(crate) fn open(path: &Path) -> std::result::Result<Reader, Failure> {
    Reader::open(path).map_err(|error| match error {
        error @ vmarea_trace::Error::Open { .. } => Failure::error(error),
        error => Failure::error(format_args!("{}: {error}", path.display())),
    })
}

/// Returns the failure of a replay of the trace at `path`.
pub(crate) fn failure<E: Into<Failure>>(path: &Path, error: Error<E>) -> Failure {
    let kind = match error {
        Error::Receiver(error) => return error.into(),
        Error::Empty => Kind::NothingToDo,
        Error::Trace(_) | Error::Replay(_) => Kind::Error,
    };
    let error = match error {
        Error::Trace(error) => error.to_string(),
        Error::Replay(error) => error.to_string(),
        Error::Empty | Error::Receiver(_) => "the trace has no events".to_owned(),
    };
    Failure::new(kind, format_args!("{}: {error}", path.display()))
}

type Batches = BTreeMap<Kinds, Vec<RecordBatch>>;

fn into_memory(
    path: &Path,
    options: &Options,
    tables: &[Kinds],
) -> std::result::Result<(Replayed, Batches), Failure> {
    let mut reader = open(path)?;
    let mut batches: Batches = tables.iter().map(|table| (*table, Vec::new())).collect();
    let mut interrupt = Interrupt::new();
    let replayed = vmarea_tables::replay(
        &mut reader,
        options,
        tables,
        &mut |table, batch| {
            batches.entry(table).or_default().push(batch);
            Ok::<_, PyErr>(())
        },
        &mut |_| interrupt.check(),
    );
    let replayed = replayed.map_err(|error| failure(path, error))?;
    Ok((replayed, batches))
}
