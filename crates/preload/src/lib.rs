//! A shared object that keeps the mappings of a running program merged.
//!
//! `vmarea run --keep-merged` loads the shared object with `LD_PRELOAD`. When loaded in this way,
//! the shared object starts a thread that merges mappings whenever their number exceeds a
//! threshold. Allocators and runtimes can link the shared object and call `vmarea_merge_range` from
//! C. `vmarea_repair` does all the work; this crate contains only the entry points and replaces no
//! function of the program.
//!
//! # Linux
//! The child of a fork does not inherit the merging thread. After `execve` the object is loaded
//! again and starts a new thread.

#[allow(unsafe_code)]
mod c;
mod collector;

use std::path::PathBuf;
use std::time::Duration;

/// File name of the shared object.
pub const FILE_NAME: &str = "libvmarea_preload.so";

/// Environment variable that configures the merging thread; see [`Settings`].
pub const VARIABLE: &str = "VMAREA_KEEP_MERGED";

/// Threshold and maximum pause for the thread that merges mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Number of mappings above which the thread merges them.
    pub threshold: u64,
    /// Maximum time for which a thread of the program may be blocked.
    pub max_pause: Duration,
}

impl Settings {
    /// Formats the settings as a value of [`VARIABLE`]: `THRESHOLD,MICROSECONDS`.
    pub fn to_value(self) -> String {
        format!("{},{}", self.threshold, self.max_pause.as_micros())
    }

    /// Parses a value of [`VARIABLE`]; returns `None` if the value is malformed.
    pub fn from_value(value: &str) -> Option<Settings> {
        let (threshold, micros) = value.split_once(',')?;
        Some(Settings {
            threshold: threshold.parse().ok()?,
            max_pause: Duration::from_micros(micros.parse().ok()?),
        })
    }
}

/// Finds `libvmarea_preload.so` near the current executable: in its folder, in `deps` or `../deps`
/// (where cargo puts it), or in `../lib/vmarea`.
pub fn find() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    let folder = executable.parent()?;
    ["", "deps", "../deps", "../lib/vmarea"]
        .iter()
        .map(|place| folder.join(place).join(FILE_NAME))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_as_they_went() {
        let settings = Settings {
            threshold: 30_000,
            max_pause: Duration::from_millis(5),
        };
        assert_eq!(Settings::from_value(&settings.to_value()), Some(settings));
        for wrong in ["", "1", "a,b", "-1,1", "1,"] {
            assert_eq!(Settings::from_value(wrong), None, "{wrong}");
        }
    }
}
