//! `vmarea export --folded`: the calls that made the mappings, as folded stacks.

use crate::command::explain::of_recorded;
use crate::command::show::Source;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use vmarea_explain::profile::Profile;
use vmarea_explain::recorded::{CallStacks, at_peak};
use vmarea_explain::stacks::Stacks;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{Output, Target};

/// Writes the profile of a trace, which has no stacks of functions: each line is one call.
///
/// # Errors
/// Fails if the trace cannot be replayed, or if the destination cannot be written.
pub(super) fn write(console: &Console, trace: &Path, target: &Target) -> Result<()> {
    let output = Output::open(target, Kind::FOLDED)?;
    // Says whether the trace is complete, and fails if it has no events.
    Source::open(console, Some(trace), &[])?.events(console, |_| Ok(true))?;
    let open = || Ok(BufReader::new(File::open(trace)?));
    let named = |error| of_recorded(error).context(trace.display().to_string());
    let recorded = at_peak(open, CallStacks::default()).map_err(named)?;
    let profile = Profile {
        recorded: &recorded,
        stacks: &Stacks::default(),
    };
    let mut text = Vec::new();
    profile.write_folded(&mut text)?;
    output.write(console, &text)
}
