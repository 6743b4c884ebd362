//! `vmarea run --keep-merged`: runs a program and keeps its mappings merged.
//!
//! This process executes the program in place of vmarea, with a preloaded object that does the
//! merging (see `vmarea-preload`); no vmarea process remains.

use crate::exit::{Failure, Result, Status};
use anyhow::{Context, anyhow};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vmarea_preload::{FILE_NAME, Settings, VARIABLE};
use vmarea_process::executable;

const PRELOAD: &str = "LD_PRELOAD";

/// Executes `command`. Returns only on failure.
pub(super) fn run(command: &[OsString], threshold: Option<u64>, max_pause: Duration) -> Result {
    let object = vmarea_preload::find().ok_or_else(|| {
        anyhow!(
            "cannot find {FILE_NAME} beside this program or in ../lib/vmarea: install the package \
             vmarea, or in a checkout run `cargo build --release -p vmarea-preload` and copy \
             target/release/{FILE_NAME} there"
        )
    })?;
    let settings = Settings {
        threshold: match threshold {
            Some(threshold) => threshold,
            None => half_of_the_limit()?,
        },
        max_pause,
    };
    // Report a missing permission now rather than when the first merge fails.
    vmarea_repair::can_repair_itself().map_err(|error| {
        let status = if error.is_permission() {
            Status::Permission
        } else {
            Status::Error
        };
        Failure::new(status, error)
    })?;
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| anyhow!("a command is needed"))?;
    warn_where_in_vain(program);
    let failed = Command::new(program)
        .args(arguments)
        .env(PRELOAD, with_others(&object))
        .env(VARIABLE, settings.to_value())
        .exec();
    let name = Path::new(program).display().to_string();
    Err(anyhow!(failed).context(format!("cannot run {name}")).into())
}

/// Warns if the program does not load the preloaded object.
///
/// The program runs nevertheless, because its children could load the preloaded object.
fn warn_where_in_vain(program: &OsStr) {
    let found = executable::find(program);
    // If the file is missing or cannot be read, the kernel reports that.
    let reason = found.and_then(|path| executable::takes_none(&path).ok()?);
    if let Some(reason) = reason {
        eprintln!("vmarea: --keep-merged does nothing for this program: {reason}");
    }
}

/// Returns the value for `LD_PRELOAD`: `object`, followed by the objects that are already
/// preloaded.
fn with_others(object: &Path) -> OsString {
    let mut value = object.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

fn half_of_the_limit() -> anyhow::Result<u64> {
    const LIMIT: &str = "/proc/sys/vm/max_map_count";
    let text = std::fs::read_to_string(LIMIT).with_context(|| format!("cannot read {LIMIT}"))?;
    let limit: u64 = text
        .trim()
        .parse()
        .with_context(|| format!("{LIMIT} contains no number"))?;
    Ok(limit / 2)
}
