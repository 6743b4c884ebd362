//! `vmarea.replay`.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::table::Table;
use crate::trace::{of_replay, open, policies_of};
use arrow_array::RecordBatch;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmarea_replay::{MostShown, Options};
use vmarea_tables::{Replayed, Table as Name};

/// Report as JSON, the reason why it is incomplete, and the tables by name.
type Results = (String, Option<String>, BTreeMap<&'static str, Table>);

/// Replays a trace.
#[pyfunction]
pub(crate) fn replay(
    py: Python<'_>,
    path: PathBuf,
    policies: Vec<String>,
    tables: Vec<String>,
    differences: &str,
) -> PyResult<Results> {
    let shown: MostShown = differences.parse().map_err(Failure::usage)?;
    let options = Options {
        policies: policies_of(&policies)?,
        shown,
        ..Options::default()
    };
    let tables = tables_of(&tables)?;
    let (replayed, batches) = py.detach(|| into_memory(&path, &options, &tables))?;
    let report = serde_json::to_string(&replayed.report).map_err(Failure::error)?;
    let tables = batches.into_iter().map(|(table, batches)| {
        let name = table.name();
        (name, Table::new(name, table.schema(), batches))
    });
    let end = replayed.end.map(|end| end.to_string());
    Ok((report, end, tables.collect()))
}

/// Reads the names of tables.
fn tables_of(names: &[String]) -> Result<Vec<Name>, Failure> {
    let named = names.iter().map(|name| name.parse());
    named.collect::<Result<_, String>>().map_err(Failure::usage)
}

type Batches = BTreeMap<Name, Vec<RecordBatch>>;

fn into_memory(
    path: &Path,
    options: &Options,
    tables: &[Name],
) -> Result<(Replayed, Batches), Failure> {
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
    let replayed = replayed.map_err(|error| of_replay(path, error))?;
    Ok((replayed, batches))
}
