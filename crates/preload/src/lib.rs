//! A shared object that keeps the mappings of a running program merged.
//!
//! `vmarea run --keep-merged` loads it with `LD_PRELOAD`. It then starts a thread that merges
//! mappings whenever there are more of them than a threshold. Allocators and runtimes can link it and
//! call `vmarea_merge_range` from C. `vmarea_repair` does all the work; this crate holds the entry
//! points and replaces no function of the program.
//!
//! # Linux
//! A child of a fork has no such thread; after `execve` the object is loaded again and starts one.

#[allow(unsafe_code)]
mod c;
mod collector;

use std::path::PathBuf;
use std::time::Duration;

/// Name of the file.
pub const FILE_NAME: &str = "libvmarea_preload.so";

/// Environment variable by which the thread is asked for: see [`Settings`].
pub const VARIABLE: &str = "VMAREA_KEEP_MERGED";

/// When the thread acts, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// It acts where there are more mappings than this.
    pub threshold: u64,
    /// How long a thread of the program may be kept from its memory.
    pub max_pause: Duration,
}

impl Settings {
    /// As the value of [`VARIABLE`]: `THRESHOLD,MICROSECONDS`.
    pub fn to_value(self) -> String {
        format!("{},{}", self.threshold, self.max_pause.as_micros())
    }

    /// From a value of [`VARIABLE`]; nothing where it is not one.
    pub fn from_value(value: &str) -> Option<Settings> {
        let (threshold, micros) = value.split_once(',')?;
        Some(Settings {
            threshold: threshold.parse().ok()?,
            max_pause: Duration::from_micros(micros.parse().ok()?),
        })
    }
}

/// Where the object lies for a program that was installed or built with it: beside the executable,
/// in `deps` beside it (as cargo puts it), or in `../lib/vmarea`.
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
