//! Which process a call on another process means.
//!
//! A process names others by the numbers of its own pid namespace, which are not those of the
//! recorder where it runs in a container.

use super::tracer::Tracer;
use std::fs;
use std::path::PathBuf;

impl Tracer<'_> {
    /// The process whose limits `prlimit64` sets with `pid`, if it is one of the recorded: by the
    /// number of its leader, as events have it.
    pub(super) fn limited_process(&self, tid: i32, pid: i32) -> Option<i32> {
        let target = match pid {
            0 => tid,
            _ if namespace(tid) == namespace_of_recorder() => pid,
            _ => self.named_elsewhere(tid, pid)?,
        };
        self.tasks.get(&target).map(|task| task.pid)
    }

    /// The task that has this number in the pid namespace of `tid`.
    fn named_elsewhere(&self, tid: i32, pid: i32) -> Option<i32> {
        let own = namespace(tid)?;
        let mut tasks = self.tasks.keys();
        let found = tasks.find(|other| {
            namespace(**other).as_ref() == Some(&own) && innermost_number(**other) == Some(pid)
        });
        found.copied()
    }
}

fn namespace(tid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{tid}/ns/pid")).ok()
}

fn namespace_of_recorder() -> Option<PathBuf> {
    fs::read_link("/proc/self/ns/pid").ok()
}

/// The number of a task in its own pid namespace.
fn innermost_number(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}
