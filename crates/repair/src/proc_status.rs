//! Reads the state of a process under repair from `/proc`.
//!
//! The state includes the tracer, seccomp filters, the start time, the threads, and other processes
//! that share the memory. This module does not change or stop any process.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::RepairError;
use vmarea_linux_sys::ptrace;
use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_process::maps::{self, MapName};
use vmarea_process::{kernel, processes};

/// Reads the status of a process.
///
/// # Errors
/// [`RepairError::NoProcess`].
pub(super) fn read_status(pid: i32) -> Result<TaskStatus, RepairError> {
    TaskStatus::read(pid).map_err(|_| RepairError::NoProcess(pid))
}

/// Returns the thread through which `/proc` shows the memory of a process: its first one, or another
/// one if that has exited.
pub(super) fn thread_with_memory(pid: i32) -> i32 {
    match read_status(pid) {
        Ok(status) if status.has_memory() => pid,
        _ => processes::other_thread(pid).unwrap_or(pid),
    }
}

/// Returns the program that traces a thread; `None` if nothing does.
pub(super) fn tracer_of(tid: i32) -> Option<i32> {
    read_status(tid).ok()?.tracer()
}

/// True if a thread of the process has memory.
pub(super) fn has_memory(pid: i32) -> bool {
    read_status(thread_with_memory(pid)).is_ok_and(|status| status.has_memory())
}

/// Returns the id of the process to which a thread belongs; the thread's id if it cannot be read.
pub(super) fn process_of(tid: i32) -> i32 {
    let process = read_status(tid).ok().and_then(|status| status.process());
    process.unwrap_or(tid)
}

/// Returns [`RepairError::Ended`] if the process has ended or will end soon, otherwise `error`.
/// While a process ends, access to its threads and memory fails before `/proc` shows that the
/// process has ended.
pub(super) fn ended_or(pid: i32, error: RepairError) -> RepairError {
    for _ in 0..ENDING_MS {
        match read_status(pid) {
            Ok(status) if status.has_memory() => std::thread::sleep(Duration::from_millis(1)),
            _ => return RepairError::Ended(pid),
        }
    }
    error
}

/// Time in milliseconds to wait for a process that may be about to end.
const ENDING_MS: u32 = 30;

/// True if a device or the kernel may write to some pages of the process without a page fault. The
/// kernel does not report which pages these are.
pub(super) fn may_be_pinned(pid: i32) -> bool {
    const BY: [&str; 6] = [
        "anon_inode:[io_uring]",
        "/dev/vfio/",
        "/dev/infiniband/",
        "/dev/nvidia",
        "/dev/kfd",
        "/dev/dri/",
    ];
    let pinned = read_status(pid).map(|status| status.number::<u64>("VmPin"));
    if pinned.is_ok_and(|kib| kib.is_some_and(|kib| kib != 0)) {
        return true;
    }
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let links = files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok());
    let is_such = |link: &Path| {
        BY.iter()
            .any(|by| link.as_os_str().as_bytes().starts_with(by.as_bytes()))
    };
    links.into_iter().any(|link| is_such(&link)) || has_aio(pid)
}

/// True if requests of the older asynchronous I/O interface (`io_setup`) may be in flight.
fn has_aio(pid: i32) -> bool {
    // If no process on the machine has such requests, the list of mappings need not be read.
    let anybody = fs::read_to_string("/proc/sys/fs/aio-nr").is_ok_and(|count| count.trim() != "0");
    anybody
        && maps::read(pid).is_ok_and(|mappings| {
            let is_ring = |name: &MapName| matches!(name, MapName::Path(path) if path.as_bytes().starts_with(b"/[aio]"));
            mappings.iter().any(|mapping| is_ring(&mapping.name))
        })
}

/// Returns the start time of a process, which together with its id identifies the process.
///
/// # Errors
/// [`RepairError::NoProcess`].
pub(super) fn start_time(pid: i32) -> Result<u64, RepairError> {
    let stat = processes::stat(pid).map_err(|_| RepairError::NoProcess(pid))?;
    Ok(stat.started)
}

/// Returns the threads of a process.
///
/// # Errors
/// [`RepairError::Ended`].
pub(super) fn tasks(pid: i32) -> Result<Vec<i32>, RepairError> {
    match processes::threads(pid) {
        none if none.is_empty() => Err(RepairError::Ended(pid)),
        threads => Ok(threads),
    }
}

pub(super) fn is_32_bit(pid: i32) -> bool {
    const ELFCLASS32: u8 = 1;
    let mut head = [0; 5];
    File::open(format!("/proc/{pid}/exe"))
        .and_then(|file| file.read_exact_at(&mut head, 0))
        .is_ok_and(|()| head.starts_with(b"\x7fELF") && head[4] == ELFCLASS32)
}

/// Finds another process that shares the memory of `pid` (after `vfork`, or by `CLONE_VM`).
///
/// A repair stops only the threads of `pid`, not those of other processes that share the memory.
pub(super) fn shares_memory(pid: i32) -> Option<i32> {
    let folder = fs::read_dir("/proc").ok()?;
    folder
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|&other: &i32| other != pid && shares(pid, other))
}

/// True if two tasks have the same memory. Those that have none, such as kernel threads and a process
/// that is ending, share nothing.
fn shares(pid: i32, other: i32) -> bool {
    let has_memory = || read_status(other).is_ok_and(|status| status.has_memory());
    ptrace::same_mm(pid, other).unwrap_or(false) && has_memory()
}

/// Maximum number of process ids to query one by one. If there are more ids, all existing processes
/// are listed.
const MANY: i32 = 1_000;

/// Finds a process with an id in `before + 1..=last` that shares the memory of process `pid`.
/// Threads of `pid` itself are skipped.
pub(super) fn shares_memory_since(pid: i32, before: i32, last: i32) -> Option<i32> {
    if !(before..before.saturating_add(MANY)).contains(&last) {
        // There are too many ids to query, or the ids have wrapped around.
        return shares_memory(pid);
    }
    let shares = |&other: &i32| {
        shares(pid, other) && fs::metadata(format!("/proc/{pid}/task/{other}")).is_err()
    };
    (before + 1..=last).find(shares)
}

/// Returns the id of the most recently created process or thread; `i32::MAX` if it cannot be read.
pub(super) fn last_process() -> i32 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = text.split_ascii_whitespace().next_back();
    last.and_then(|last| last.parse().ok()).unwrap_or(i32::MAX)
}

/// Returns the id of the process to which `pid` belongs, in that process's own pid namespace.
pub(super) fn inner_id(pid: i32) -> i32 {
    let inner = |status: TaskStatus| status.numbers("NStgid").next_back();
    read_status(pid).ok().and_then(inner).unwrap_or(pid)
}

/// True if a userfaultfd of the process may handle faults in the kernel.
pub(super) fn may_handle_kernel_faults(pid: i32) -> bool {
    let everybody = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    everybody.is_ok_and(|text| text.trim() == "1") || has_capability(pid, CAP_SYS_PTRACE)
}

/// Bits of capabilities.
pub(super) const CAP_SYS_PTRACE: u32 = 19;
pub(super) const CAP_SYS_ADMIN: u32 = 21;

/// True if a process has a capability in effect.
pub(super) fn has_capability(pid: i32, bit: u32) -> bool {
    read_status(pid).is_ok_and(|status| status.has_capability(bit))
}

/// True if an emptied mapping loses its anon_vma (Linux 5.13), without which it cannot be joined.
pub(super) fn kernel_forgets_anon_vma() -> bool {
    kernel::rules().policy.rules.dontunmap.loses_anon_vma
}

/// True if a thread of the process uses a shadow stack.
pub(super) fn has_shadow_stack(pid: i32) -> bool {
    let has_one = |tid: &i32| {
        let status = TaskStatus::of_thread(pid, *tid).unwrap_or_default();
        let features = status.field("x86_Thread_features");
        features.is_some_and(|features| features.contains("shstk"))
    };
    tasks(pid).is_ok_and(|tids| tids.iter().any(has_one))
}

/// True if a thread works for the kernel only (a worker of an io_uring).
pub(super) fn is_worker(pid: i32, tid: i32) -> bool {
    /// `PF_IO_WORKER` and `PF_USER_WORKER`.
    const WORKER: u64 = 0x10 | 0x4000;
    processes::stat_of_thread(pid, tid).is_ok_and(|stat| stat.flags & WORKER != 0)
}
