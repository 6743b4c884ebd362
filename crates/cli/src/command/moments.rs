//! Moments of a process that are compared: earlier JSON of `explain`, or copies of maps.

use super::explain;
use crate::console::Console;
use crate::exit::Result;
use anyhow::{Context, anyhow};
use std::path::Path;
use vmarea_explain::since::Moment;
use vmarea_explain::{List, unix_ms};
use vmarea_process::Process;

/// Reads a moment from a file.
///
/// # Errors
/// Fails if the file is neither JSON of `explain` nor a list of mappings.
pub fn read(console: &Console, path: &Path) -> Result<Moment> {
    let name = path.display().to_string();
    let text = explain::read(path).with_context(|| format!("cannot read {name}"))?;
    if text.trim_ascii_start().starts_with(b"{") {
        let moment: serde_json::Result<Moment> = serde_json::from_slice(&text);
        let what = |error| anyhow!("{name} is not JSON of `vmarea explain`: {error}");
        return Ok(moment.map_err(what)?);
    }
    let process = Process::from_text(name.clone(), &text);
    let process = process.map_err(|error| explain::failure(error).context(name.clone()))?;
    for note in &process.notes {
        console.note(&format!("{name}: {note}"));
    }
    let mut moment = Moment::from(&vmarea_explain::explain(&process, List::Summary));
    moment.taken_unix_ms = time_of(path);
    if moment.taken_unix_ms.is_some() {
        console.note(&format!(
            "{name}: its time of last change is taken as that of the list"
        ));
    }
    Ok(moment)
}

/// Returns the time at which a file was last changed, in milliseconds since 1970.
pub fn time_of(path: &Path) -> Option<u64> {
    let facts = std::fs::metadata(path).ok()?;
    unix_ms(facts.modified().ok()?)
}
