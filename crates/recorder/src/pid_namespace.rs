//! Translates process ids from the pid namespace of a recorded process.
//!
//! A process refers to other processes by IDs in its own pid namespace. In a container these IDs
//! differ from those that the recorder sees.

use super::tracer::Tracer;
use std::fs;
use std::path::PathBuf;
use vmarea_linux_sys::task_status::TaskStatus;

impl Tracer<'_> {
    /// Finds the recorded process whose limits a `prlimit64` call with argument `pid` sets.
    ///
    /// Returns the id of the process's leader, as used in events; `None` if the process is not
    /// recorded.
    pub(super) fn prlimit_target(&self, tid: i32, pid: i32) -> Option<i32> {
        let target = match pid {
            0 => tid,
            _ if namespace(tid) == namespace_of_recorder() => pid,
            _ => self.find_in_namespace(tid, pid)?,
        };
        self.tasks.get(&target).map(|task| task.pid)
    }

    /// Returns the task that has id `pid` in the pid namespace of `tid`.
    fn find_in_namespace(&self, tid: i32, pid: i32) -> Option<i32> {
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

/// Returns the id of a task in its own pid namespace.
fn innermost_number(tid: i32) -> Option<i32> {
    TaskStatus::read(tid).ok()?.numbers("NSpid").next_back()
}
