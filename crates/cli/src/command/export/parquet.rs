//! `vmarea export --parquet`: the tables of a trace and its replay, as Parquet files.
//!
//! Arrow and Parquet are large, so only programs that were built with the feature `parquet` contain
//! them; the others say what to install. `vmarea-tables` makes the tables, for Python as well.

use std::path::Path;
use vmarea_replay::PolicyName;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;

#[cfg(not(feature = "parquet"))]
pub(super) fn write(_: &Console, _: &Path, _: &Path, _: &[PolicyName]) -> Result<()> {
    let what = "this vmarea was built without Parquet: build it by `cargo install --path crates/cli \
                --features parquet`, or use Python: `pip install ./python`, then vmarea.export";
    Err(anyhow::anyhow!(what).into())
}

/// Replays a trace and writes all tables to `folder`.
///
/// # Errors
/// Fails if the trace cannot be replayed, or if the files cannot be written; then none appears.
#[cfg(feature = "parquet")]
pub(super) fn write(
    console: &Console,
    trace: &Path,
    folder: &Path,
    policies: &[PolicyName],
) -> Result<()> {
    use anyhow::Context;
    use std::fs::File;
    use vmarea_replay::Options;
    use vmarea_tables::{Folder, Table};
    use vmarea_terminal::exit::Failure;
    use vmarea_terminal::progress::Meter;

    let named = |failure: Failure| failure.context(trace.display().to_string());
    let file = File::open(trace).with_context(|| format!("cannot open {}", trace.display()))?;
    let mut reader = vmarea_trace::Reader::new(file).map_err(|error| named(error.into()))?;
    let mut files = Folder::create(folder, &Table::ALL)?;
    let options = Options {
        policies: policies.to_vec(),
        ..Options::default()
    };
    let mut meter = Meter::of_bytes(console, "exporting", 0);
    let replayed = vmarea_tables::replay(
        &mut reader,
        &options,
        &Table::ALL,
        &mut |table, batch| files.add(table, &batch),
        &mut |events| {
            meter.at(events, || format!("{events} events"));
            Ok(())
        },
    );
    drop(meter);
    let replayed = replayed.map_err(|error| match error {
        vmarea_tables::Error::Receiver(error) => error.into(),
        vmarea_tables::Error::Empty => named(Failure::new(
            vmarea_terminal::exit::Status::NothingToDo,
            anyhow::anyhow!("{error}"),
        )),
        error => named(error.into()),
    })?;
    for note in replayed
        .end
        .iter()
        .map(ToString::to_string)
        .chain(replayed.report.notes)
    {
        console.note(&note);
    }
    let bytes = files.publish()?;
    console.note(&format!(
        "wrote {} tables, {}, to {}; docs/tables.md describes them",
        Table::ALL.len(),
        console.size(bytes),
        folder.display()
    ));
    Ok(())
}
