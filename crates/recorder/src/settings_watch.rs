//! Writes to settings of the machine during a recording.
//!
//! The kernel obeys a new value at once. inotify reports each write, even if the old value is written
//! again before the recorder looks. It does not see writes through another mount of `/proc` or `/sys`,
//! so the values are also read again once a second.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use vmarea_process::system;
use vmarea_trace::event::Nanos;
use vmarea_trace::setting::SettingWritten;

/// Interval at which all values are read again.
const READ: Nanos = 1_000_000_000;

/// Watches the settings that decide calls.
#[derive(Debug)]
pub(crate) struct SettingsWatch {
    files: Vec<Watched>,
    /// Queue of inotify; `None` if the kernel has refused it.
    queue: Option<OwnedFd>,
    /// Time of the last look at the queue.
    looked: Nanos,
    /// Time at which all values were last read.
    read: Nanos,
}

#[derive(Debug)]
struct Watched {
    name: &'static str,
    path: PathBuf,
    /// Number by which inotify reports the file.
    watch: Option<i32>,
    value: Option<String>,
}

impl SettingsWatch {
    /// Watches the running kernel's settings from now on.
    pub(crate) fn new(now: Nanos) -> SettingsWatch {
        SettingsWatch::of(system::deciding_files(), now)
    }

    fn of(files: impl IntoIterator<Item = (&'static str, PathBuf)>, now: Nanos) -> SettingsWatch {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        let watched = |(name, path): (_, PathBuf)| {
            let add = |queue| inotify::add_watch(queue, &path, WatchFlags::MODIFY).ok();
            Watched {
                name,
                watch: queue.as_ref().and_then(add),
                value: system::read_setting(&path),
                path,
            }
        };
        SettingsWatch {
            files: files.into_iter().map(watched).collect(),
            queue,
            looked: now,
            read: now,
        }
    }

    /// Returns the settings that were written since the last look.
    pub(crate) fn written(&mut self, now: Nanos) -> Vec<SettingWritten> {
        let reported = self.reported();
        let all = now.saturating_sub(self.read) >= READ;
        let mut written = Vec::new();
        for file in &mut self.files {
            let is_reported = file.watch.is_some_and(|watch| reported.contains(&watch));
            if !is_reported && !all {
                continue;
            }
            let value = system::read_setting(&file.path);
            let has_changed = file.value != value;
            file.value = value;
            if let Some(value) = &file.value
                && (is_reported || has_changed)
            {
                written.push(SettingWritten {
                    name: file.name.to_owned(),
                    value: value.clone(),
                    since: if is_reported { self.looked } else { self.read },
                    until: now,
                });
            }
        }
        self.looked = now;
        if all {
            self.read = now;
        }
        written
    }

    /// Empties the queue; returns the watches of the files that were written.
    fn reported(&self) -> Vec<i32> {
        let mut reported = Vec::new();
        if let Some(queue) = &self.queue {
            let mut buffer = [MaybeUninit::uninit(); 1024];
            let mut events = Reader::new(queue, &mut buffer);
            while let Ok(event) = events.next() {
                if event.events().contains(ReadFlags::MODIFY) {
                    reported.push(event.wd());
                }
            }
        }
        reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_write_is_seen_even_if_the_old_value_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        for name in ["count", "mode"] {
            fs::write(path(name), "1\n").unwrap();
        }
        let files = ["count", "mode"].map(|name| (name, path(name)));
        let mut watch = SettingsWatch::of(files, 10);
        assert_eq!(watch.written(20), []);
        fs::write(path("count"), "2\n").unwrap();
        fs::write(path("count"), "1\n").unwrap();
        let written = |value: &str, since, until| SettingWritten {
            name: "count".to_owned(),
            value: value.to_owned(),
            since,
            until,
        };
        assert_eq!(watch.written(30), [written("1", 20, 30)]);
        assert_eq!(watch.written(40), []);
        // Another mount has another inode.
        fs::write(path("elsewhere"), "3\n").unwrap();
        fs::rename(path("elsewhere"), path("count")).unwrap();
        assert_eq!(watch.written(50), []);
        let later = 10 + READ;
        assert_eq!(watch.written(later), [written("3", 10, later)]);
        assert_eq!(watch.written(later + READ), []);
    }
}
