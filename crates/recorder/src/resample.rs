//! Restarts the sampling of a thread after an `execve` if the kernel has ended the sampling.
//!
//! # Linux
//! `begin_new_exec` removes all perf events from a task whose new program is not dumpable: the
//! task's effective user or group differs from the real one, the program's file has capabilities,
//! or the user is not permitted to read the file. A tracer that is permitted to trace such a
//! program is also permitted to sample it again.

use super::tracer::Tracer;
use std::fs;
use std::os::unix::fs::MetadataExt;
use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_trace::event::{Event, Nanos};

impl Tracer<'_> {
    /// Restarts the sampling of a thread at the end of its `execve` if the kernel has ended the
    /// sampling.
    pub(super) fn sample_again(&mut self, tid: i32, now: Nanos) {
        let Some(samples) = &mut self.samples else {
            return;
        };
        if may_be_dumped(tid) {
            return;
        }
        if let Err(error) = samples.add(tid) {
            self.note(format!(
                "the page faults of thread {tid} are not recorded after an execve that raised its privileges: {error}"
            ));
            self.push(now, vec![Event::Lost { count: 1, t: now }]);
        }
    }
}

/// True if a task stopped at the end of its `execve` is dumpable, or has exited.
fn may_be_dumped(tid: i32) -> bool {
    let status = TaskStatus::read(tid).unwrap_or_default();
    let ids = |name| {
        let mut numbers = status.numbers::<u32>(name);
        Some((numbers.next()?, numbers.next()?))
    };
    let (Some((uid, euid)), Some((gid, egid))) = (ids("Uid"), ids("Gid")) else {
        return true;
    };
    // The `/proc` files of a task that is not dumpable belong to root.
    let owner = fs::metadata(format!("/proc/{tid}/maps")).map_or(euid, |file| file.uid());
    if uid == euid && gid == egid {
        return owner == euid;
    }
    let setting = fs::read_to_string("/proc/sys/fs/suid_dumpable").unwrap_or_default();
    setting.trim() == "1"
}
