//! `vmarea export --perfetto`: a trace in the Chrome trace format.

use crate::console::Console;
use crate::exit::Result;
use crate::files::Draft;
use crate::outputs::{Output, Target};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Replays a trace and writes what happened.
///
/// # Errors
/// Fails if the trace cannot be replayed, or if the destination cannot be written.
pub(super) fn write(console: &Console, trace: &Path, target: &Target) -> Result<()> {
    match Output::open(target)? {
        Output::Stdout => replay(console, trace, &mut BufWriter::new(console.data())),
        Output::Draft(mut draft) => {
            let written = replay(console, trace, &mut BufWriter::new(draft.file()));
            Draft::keep(draft, console, written)
        }
    }
}

fn replay(console: &Console, trace: &Path, out: &mut dyn Write) -> Result<()> {
    let source = crate::command::show::Source::open(console, Some(trace), &[])?;
    source.events(console, |_| Ok(true))?;
    out.flush()?;
    Ok(())
}
