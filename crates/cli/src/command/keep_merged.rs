//! `vmarea run --keep-merged`: runs a program and keeps its mappings merged.
//!
//! This process executes the program in place of vmarea. A process of its own, the keeper, does the
//! merging from outside (see `vmarea_repair::start_keeper`), and ends with the program and its
//! descendants.

use super::merge::failure;
use anyhow::{Context, anyhow};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vmarea_process::processes;
use vmarea_repair::{KEEP_VARIABLE, Options};
use vmarea_terminal::exit::Result;

/// Executes `command`. Returns only on failure.
pub(super) fn run(command: &[OsString], threshold: Option<u64>, max_pause: Duration) -> Result {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| anyhow!("a command is needed"))?;
    let threshold = threshold.unwrap_or_else(|| processes::max_map_count() / 2);
    let options = Options {
        max_pause: Some(max_pause),
        ..Options::default()
    };
    let value = vmarea_repair::start_keeper(threshold, options).map_err(failure)?;
    let failed = Command::new(program)
        .args(arguments)
        .env(KEEP_VARIABLE, value)
        .exec();
    let name = Path::new(program).display().to_string();
    Err(failed).with_context(|| format!("cannot run {name}"))?
}
