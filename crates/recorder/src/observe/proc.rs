//! What `/proc` shows of a process: its threads, and what it has open that lets the kernel change its
//! memory without an observed event.

use std::collections::BTreeSet;
use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_process::processes;

/// `O_DIRECT` in the octal flags of `/proc/PID/fdinfo`.
const DIRECT: u32 = libc::O_DIRECT as u32;

/// Returns what the process has open that changes its memory unobserved, if anything.
pub(super) fn unobserved(pid: i32) -> Option<&'static str> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    entries.flatten().find_map(|entry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        match target.to_string_lossy().as_ref() {
            "anon_inode:[io_uring]" => return Some("an io_uring"),
            "anon_inode:[userfaultfd]" => return Some("a userfaultfd"),
            _ => {}
        }
        let fd = entry.file_name();
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", fd.display())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        (flags & DIRECT != 0).then_some("a file open for direct I/O")
    })
}

/// True if a thread has exited, so that it no longer uses its address space.
pub(super) fn is_zombie(tid: i32) -> bool {
    TaskStatus::read(tid).map_or(true, |status| status.has_ended())
}

/// Returns the threads of a process; none if it has exited.
pub(super) fn threads(pid: i32) -> BTreeSet<i32> {
    processes::threads(pid).into_iter().collect()
}
