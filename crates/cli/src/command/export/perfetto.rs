//! `vmarea export --perfetto`: a trace in the Chrome trace format.

use crate::command::show::Source;
use anyhow::Context;
use std::io::{BufWriter, Write};
use std::path::Path;
use vmarea_replay::{Options, Replayer};
use vmarea_report::export::ChromeTrace;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;
use vmarea_terminal::files::Draft;
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{Output, Target};

/// Replays a trace and writes what happened.
///
/// # Errors
/// Fails if the trace cannot be replayed, or if the destination cannot be written.
pub(super) fn write(console: &Console, trace: &Path, target: &Target) -> Result<()> {
    match Output::open(target, Kind::JSON)? {
        Output::Stdout => {
            let out = &mut BufWriter::new(console.data());
            replay(console, trace, out, "standard output")
        }
        Output::Draft(mut draft) => {
            let name = draft.path().display().to_string();
            let written = replay(console, trace, &mut BufWriter::new(draft.file()), &name);
            Draft::keep(draft, console, written)
        }
    }
}

/// Replays a trace and writes it to `out`, which errors call `name`.
fn replay(console: &Console, trace: &Path, out: &mut dyn Write, name: &str) -> Result<()> {
    let cannot = || format!("cannot write {name}");
    let source = Source::open(console, Some(trace), &[])?;
    let policies = ["thesis", "vmarea"].iter().map(|name| name.parse());
    let options = Options {
        policies: policies
            .collect::<std::result::Result<_, String>>()
            .map_err(anyhow::Error::msg)?,
        ..Options::default()
    };
    let mut replayer = Replayer::new(&source.header()?, &options)?;
    let mut document = ChromeTrace::new(out).with_context(cannot)?;
    source.events(console, |event| {
        replayer.event(event)?;
        let written = document.event(event, &mut replayer);
        written.with_context(cannot)?;
        Ok(true)
    })?;
    document.finish().with_context(cannot)?;
    Ok(())
}
