//! Programs that the kernel does not sample any more once they are executed.
//!
//! # Linux
//! `begin_new_exec` takes all perf events from a task whose new program may not be dumped: one with
//! another effective than real user or group, one with capabilities of its file, or one that its user may
//! not read. Who may trace such a program may sample it anew.

use super::tracer::Tracer;
use std::fs;
use std::os::unix::fs::MetadataExt;
use vmarea_trace::event::{Event, Nanos};

impl Tracer<'_> {
    /// Samples a thread again that stands at the end of its `execve`, where the kernel has ceased to.
    pub(super) fn sample_again(&mut self, tid: i32, now: Nanos) {
        let Some(samples) = &mut self.samples else {
            return;
        };
        if may_be_dumped(tid) {
            return;
        }
        if let Err(error) = samples.add(tid) {
            self.note(format!(
                "the page faults of thread {tid} are not seen after it has changed its user: {error}"
            ));
            self.push(now, vec![Event::Lost { count: 1, t: now }]);
        }
    }
}

/// True where a stopped task whose `execve` is at its end may be dumped, or is not there any more.
fn may_be_dumped(tid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let ids = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let (Some((uid, euid)), Some((gid, egid))) = (ids("Uid:"), ids("Gid:")) else {
        return true;
    };
    // What may not be dumped belongs to root, by its files in `/proc`.
    let owner = fs::metadata(format!("/proc/{tid}/maps")).map_or(euid, |file| file.uid());
    if uid == euid && gid == egid {
        return owner == euid;
    }
    let setting = fs::read_to_string("/proc/sys/fs/suid_dumpable").unwrap_or_default();
    setting.trim() == "1"
}
