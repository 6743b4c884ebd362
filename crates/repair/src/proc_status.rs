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
use vmarea_process::maps::{self, MapName};
use vmarea_process::{kernel, processes};

/// Selected fields of `/proc/PID/status`.
pub(super) struct Status {
    pub(super) tracer: i32,
    pub(super) seccomp: bool,
    pub(super) has_memory: bool,
    pub(super) has_ended: bool,
}

pub(super) fn read_status(pid: i32) -> Result<Status, RepairError> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|_| RepairError::NoProcess(pid))?;
    let number = |name: &str| -> Option<i32> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Ok(Status {
        tracer: number("TracerPid:").unwrap_or(0),
        seccomp: number("Seccomp:").unwrap_or(0) != 0,
        has_memory: text.contains("\nVmSize:"),
        // A process that is exiting loses its memory before its state shows that it has ended.
        // Kernel threads, which are children of process 2, never have memory.
        has_ended: !text.contains("\nVmSize:") && pid != 2 && number("PPid:") != Some(2),
    })
}

/// Returns the thread through which `/proc` shows the memory of a process: its first one, or another
/// one if that has exited.
pub(super) fn thread_with_memory(pid: i32) -> i32 {
    match read_status(pid) {
        Ok(status) if status.has_memory => pid,
        _ => processes::other_thread(pid).unwrap_or(pid),
    }
}

/// Returns the program that traces a thread; `None` if nothing does.
pub(super) fn tracer_of(tid: i32) -> Option<i32> {
    let tracer = read_status(tid).map_or(0, |status| status.tracer);
    (tracer != 0).then_some(tracer)
}

/// True if a thread of the process has memory.
pub(super) fn has_memory(pid: i32) -> bool {
    read_status(thread_with_memory(pid)).is_ok_and(|status| status.has_memory)
}

/// Returns the id of the process to which a thread belongs; the thread's id if it cannot be read.
pub(super) fn process_of(tid: i32) -> i32 {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("Tgid:"));
    group
        .and_then(|group| group.trim().parse().ok())
        .unwrap_or(tid)
}

/// Returns [`RepairError::Ended`] if the process has ended or will end soon, otherwise `error`.
/// While a process ends, access to its threads and memory fails before `/proc` shows that the
/// process has ended.
pub(super) fn ended_or(pid: i32, error: RepairError) -> RepairError {
    for _ in 0..ENDING_MS {
        match read_status(pid) {
            Ok(status) if status.has_memory => std::thread::sleep(Duration::from_millis(1)),
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
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pinned = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    if pinned.is_some_and(|size| size.trim() != "0 kB") {
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
    let text =
        fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| RepairError::NoProcess(pid))?;
    // The name may contain any characters; the fields after the last parenthesis are numbers.
    let (_, fields) = text.rsplit_once(')').ok_or(RepairError::NoProcess(pid))?;
    let field = fields.split_ascii_whitespace().nth(19);
    field
        .and_then(|field| field.parse().ok())
        .ok_or(RepairError::NoProcess(pid))
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

pub(super) fn has_ended(pid: i32, tid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).map_or(true, |text| {
        text.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    })
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
    let has_memory = || read_status(other).is_ok_and(|status| status.has_memory);
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
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("NStgid:"));
    let inner = line.and_then(|line| line.split_ascii_whitespace().next_back());
    inner.and_then(|id| id.parse().ok()).unwrap_or(pid)
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
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    rights.is_some_and(|rights| rights >> bit & 1 == 1)
}

/// True if an emptied mapping loses its anon_vma (Linux 5.13), without which it cannot be joined.
pub(super) fn kernel_forgets_anon_vma() -> bool {
    kernel::rules().policy.rules.dontunmap.loses_anon_vma
}

/// True if a thread of the process uses a shadow stack.
pub(super) fn has_shadow_stack(pid: i32) -> bool {
    let has_one = |tid: &i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
        let mut lines = text.lines();
        lines.any(|line| line.starts_with("x86_Thread_features:") && line.contains("shstk"))
    };
    tasks(pid).is_ok_and(|tids| tids.iter().any(has_one))
}

/// True if a thread works for the kernel only (a worker of an io_uring).
pub(super) fn is_worker(pid: i32, tid: i32) -> bool {
    /// `PF_IO_WORKER` and `PF_USER_WORKER`.
    const WORKER: u64 = 0x10 | 0x4000;
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let flags = text
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6)?.parse().ok());
    flags.is_some_and(|flags: u64| flags & WORKER != 0)
}
