//! What `/proc` says of a process that is to be repaired.
//!
//! Who traces it, whether filters see its calls, when it began, which threads it has and who else
//! uses its memory. Nothing here changes or stops anything.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::RepairError;
use vmarea_linux_sys::ptrace;
use vmarea_process::maps::{self, MapName};

/// What `/proc/PID/status` says.
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
    if number("Tgid:") != Some(pid) {
        return Err(RepairError::NoProcess(pid));
    }
    Ok(Status {
        tracer: number("TracerPid:").unwrap_or(0),
        seccomp: number("Seccomp:").unwrap_or(0) != 0,
        has_memory: text.contains("\nVmSize:"),
        // On its way out a process has no memory before it shows as ended; kernel threads, which
        // are children of number 2, never have any.
        has_ended: !text.contains("\nVmSize:") && pid != 2 && number("PPid:") != Some(2),
    })
}

/// What a process may do, and as whom.
pub(super) struct Rights {
    /// Real, effective, saved and of files; and those of its folder in `/proc`, which is root's where it
    /// may not be looked at by its user.
    pub(super) users: [u32; 5],
    /// It has a capability.
    pub(super) is_privileged: bool,
    pub(super) seccomp: bool,
}

/// What process `pid` may do; `None` where that cannot be read.
pub(super) fn rights(pid: i32) -> Option<Rights> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let mut users = [fs::metadata(format!("/proc/{pid}")).ok()?.uid(); 5];
    let mut ids = value("Uid:")?.split_ascii_whitespace();
    for user in &mut users[..4] {
        *user = ids.next()?.parse().ok()?;
    }
    let has = |name| u64::from_str_radix(value(name)?.trim(), 16).ok();
    Some(Rights {
        is_privileged: users != [0; 5] && has("CapPrm:")? | has("CapAmb:").unwrap_or(0) != 0,
        users,
        seccomp: value("Seccomp:").is_some_and(|mode| mode.trim() != "0"),
    })
}

/// The stop signals that wait for a process that is stopped already; none where that cannot be read.
/// `SIGCONT` would take them away. Not those that wait for one thread: we send such ourselves, and where
/// we end before it has taken one, that is what is left.
pub(super) fn pending_stops(pid: i32) -> Vec<Signal> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    let pending = pending.unwrap_or(0);
    let stops = [Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU];
    let is_pending = |signal: &Signal| pending >> (signal.as_raw() - 1) & 1 != 0;
    stops.into_iter().filter(is_pending).collect()
}

/// `error`, or that the process has ended, where that is what is behind it. The end of a process
/// takes a while, and its threads and memory refuse us before it shows.
pub(super) fn ended_or(pid: i32, error: RepairError) -> RepairError {
    for _ in 0..ENDING_MS {
        match read_status(pid) {
            Ok(status) if status.has_memory => std::thread::sleep(Duration::from_millis(1)),
            _ => return RepairError::Ended(pid),
        }
    }
    error
}

/// How long one may be about to end.
const ENDING_MS: u32 = 30;

/// True for a process some pages of which a device or the kernel may write to behind its back. Which
/// they are is told nobody.
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

/// True where requests of the older kind may be under way (`io_setup`).
fn has_aio(pid: i32) -> bool {
    // Where nobody has any, the list need not be read: it may be long.
    let anybody = fs::read_to_string("/proc/sys/fs/aio-nr").is_ok_and(|count| count.trim() != "0");
    anybody
        && maps::read(pid).is_ok_and(|mappings| {
            let is_ring = |name: &MapName| matches!(name, MapName::Path(path) if path.as_bytes().starts_with(b"/[aio]"));
            mappings.iter().any(|mapping| is_ring(&mapping.name))
        })
}

/// When a process began: with its number, its identity.
///
/// # Errors
/// [`RepairError::NoProcess`].
pub(super) fn start_time(pid: i32) -> Result<u64, RepairError> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| RepairError::NoProcess(pid))?;
    // The name may hold anything; the fields after its last parenthesis are numbers.
    let (_, fields) = text.rsplit_once(')').ok_or(RepairError::NoProcess(pid))?;
    let field = fields.split_ascii_whitespace().nth(19);
    field
        .and_then(|field| field.parse().ok())
        .ok_or(RepairError::NoProcess(pid))
}

pub(super) fn tasks(pid: i32) -> Result<Vec<i32>, RepairError> {
    let folder = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| RepairError::Ended(pid))?;
    let names = folder.flatten().map(|entry| entry.file_name());
    Ok(names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
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

/// Another process with the same memory (after `vfork`, or a `clone` with `CLONE_VM`): its threads
/// would not be stopped.
pub(super) fn shares_memory(pid: i32) -> Option<i32> {
    let folder = fs::read_dir("/proc").ok()?;
    folder
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|&other: &i32| other != pid && ptrace::same_mm(pid, other).unwrap_or(false))
}

/// How many processes are asked for by number, rather than those that there are.
const MANY: i32 = 1_000;

/// The same among the processes and threads that began after number `before`, up to `last`; all that
/// belong to the process are known to be its threads.
pub(super) fn shares_memory_since(pid: i32, before: i32, last: i32) -> Option<i32> {
    if !(before..before.saturating_add(MANY)).contains(&last) {
        // Many, or the numbers have begun anew.
        return shares_memory(pid);
    }
    let shares = |&other: &i32| {
        ptrace::same_mm(pid, other).unwrap_or(false)
            && fs::metadata(format!("/proc/{pid}/task/{other}")).is_err()
    };
    (before + 1..=last).find(shares)
}

/// The number of the process or thread that began last; one that never was where it is not told.
pub(super) fn last_process() -> i32 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = text.split_ascii_whitespace().next_back();
    last.and_then(|last| last.parse().ok()).unwrap_or(i32::MAX)
}

/// The ids of a process and a thread as the process itself knows them.
pub(super) fn inner_ids(pid: i32, tid: i32) -> (i32, i32) {
    let read = |name: &str| -> Option<i32> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next_back()?.parse().ok()
    };
    (
        read("NStgid:").unwrap_or(pid),
        read("NSpid:").unwrap_or(tid),
    )
}
