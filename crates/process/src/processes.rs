//! The processes of this machine, and data about them that is cheap to read: names, states, sizes,
//! and the system's limit on mappings per process.
//!
//! Every function takes a few microseconds per process, regardless of the process's size: no page
//! table is walked, so `smaps` and similar files are never read. The module [`crate::maps`] reads
//! the mappings.

use std::fs;
use std::io::{self, Read};

use vmarea_linux_sys::task_status::TaskStatus;

/// Default of `vm.max_map_count` in Linux.
pub const DEFAULT_MAX_MAP_COUNT: u64 = 65_530;

/// More bytes than a line of `/proc/PID/stat` has.
const STAT_BYTES: usize = 2048;

/// Data about a process from `/proc/PID/status`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Name of the first thread.
    pub name: String,
    /// State letter, such as `Z` for a zombie.
    pub state: char,
    /// Private bytes in memory or in swap; `None` for a process without an address space.
    pub anonymous_bytes: Option<u64>,
    /// Number of threads.
    pub threads: u64,
}

impl Facts {
    /// Returns true if the process has exited.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Reads the status of process `pid`.
///
/// # Errors
/// `NotFound` or `ESRCH` if there is no such process.
pub fn facts(pid: i32) -> io::Result<Facts> {
    TaskStatus::read(pid).map(|status| facts_of(&status))
}

/// Returns the threads of a process; none if it has exited.
pub fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries.into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns a thread through which `/proc` shows the memory of a process whose first thread has exited.
pub fn other_thread(pid: i32) -> Option<i32> {
    let has_memory = |tid| facts(tid).is_ok_and(|facts| facts.anonymous_bytes.is_some());
    let mut others = threads(pid).into_iter().filter(|tid| *tid != pid);
    others.find(|tid| has_memory(*tid))
}

fn facts_of(status: &TaskStatus) -> Facts {
    let bytes = |name| Some(status.number::<u64>(name)?.saturating_mul(1024));
    let swapped = bytes("VmSwap").unwrap_or(0);
    Facts {
        name: status.field("Name").unwrap_or_default().to_owned(),
        state: status.state().unwrap_or_default(),
        anonymous_bytes: bytes("RssAnon").map(|present| present.saturating_add(swapped)),
        threads: status.number("Threads").unwrap_or(0),
    }
}

/// Fields of `/proc/PID/stat` that are cheap to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Name of the first thread.
    pub name: String,
    /// The kernel's flags of the task (`PF_…`).
    pub flags: u64,
    /// Start time in clock ticks since boot; together with the process ID, it identifies the
    /// process.
    pub started: u64,
    /// Work since the start, which a process that has only slept has not increased: page faults
    /// and clock ticks of processor time.
    pub work: u64,
    /// Size of the address space in bytes; 0 for a kernel thread and for a process that has exited.
    pub virtual_bytes: u64,
}

impl Stat {
    /// Returns true if the process is a kernel thread (`PF_KTHREAD`).
    pub fn is_of_kernel(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }
}

/// Reads `/proc/PID/stat` of process `pid`.
///
/// # Errors
/// `NotFound` or `ESRCH` if there is no such process.
pub fn stat(pid: i32) -> io::Result<Stat> {
    stat_at(&format!("/proc/{pid}/stat"))
}

/// Reads `/proc/PID/task/TID/stat` of a thread of process `pid`.
///
/// # Errors
/// `NotFound` or `ESRCH` if there is no such thread.
pub fn stat_of_thread(pid: i32, tid: i32) -> io::Result<Stat> {
    stat_at(&format!("/proc/{pid}/task/{tid}/stat"))
}

fn stat_at(path: &str) -> io::Result<Stat> {
    // The file is read for every process at every sample of `top`: one read for the whole line.
    let mut line = [0; STAT_BYTES];
    let len = fs::File::open(path)?.read(&mut line)?;
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    parse_stat(&String::from_utf8_lossy(&line[..len])).ok_or_else(wrong)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name in parentheses may contain any character; fields are counted after it, from field 3.
    let (before, rest) = text.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    let mut fields = rest.split_ascii_whitespace();
    let flags: u64 = fields.nth(9 - 3)?.parse().ok()?;
    let mut number = |skipped| fields.nth(skipped)?.parse::<u64>().ok();
    let faults = number(0)?.saturating_add(number(1)?);
    let ticks = number(1)?.saturating_add(number(0)?);
    Some(Stat {
        name: name.to_owned(),
        flags,
        started: number(22 - 16)?,
        virtual_bytes: number(0)?,
        work: faults.saturating_add(ticks),
    })
}

/// Returns true if procfs is mounted at `/proc`, so that processes are listed there.
pub fn are_shown() -> bool {
    fs::metadata("/proc/self/status").is_ok()
}

/// Returns the IDs of all processes (thread groups) in this pid namespace, unordered.
///
/// # Errors
/// Any error from listing `/proc`.
pub fn list() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        pids.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(pids)
}

/// Returns true if the process IDs in `/proc` are those of this process's own pid namespace.
///
/// If `/proc` was mounted for another pid namespace, the same ID denotes another process.
pub fn numbers_are_ours() -> bool {
    let own = fs::read_link("/proc/self").ok();
    own.is_some_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// Returns the maximum number of mappings per process (`vm.max_map_count`).
///
/// If the file cannot be read, the result is Linux's default.
pub fn max_map_count() -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    text.and_then(|text| text.trim().parse().ok())
        .unwrap_or(DEFAULT_MAX_MAP_COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_gives_what_is_private_in_memory_or_swap() {
        let text =
            "Name:\tjava\nState:\tS (sleeping)\nRssAnon:\t 8 kB\nVmSwap:\t4 kB\nThreads:\t7\n";
        let facts = facts_of(&text.to_owned().into());
        assert_eq!(facts.name, "java");
        assert_eq!(facts.anonymous_bytes, Some(12 << 10));
        assert_eq!(facts.threads, 7);
        assert!(!facts.has_ended());
        let zombie = facts_of(&"Name:\tx\nState:\tZ (zombie)\n".to_owned().into());
        assert!(zombie.has_ended());
        assert_eq!(zombie.anonymous_bytes, None);
    }

    #[test]
    fn a_name_may_hold_anything() {
        let line = "12 (a) R (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 8192 5 6";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.name, "a) R (b");
        assert!(!stat.is_of_kernel());
        let thread = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0";
        assert!(parse_stat(thread).unwrap().is_of_kernel());
        assert_eq!((stat.started, stat.virtual_bytes), (4242, 8192));
        assert_eq!(stat.work, 7 + 9 + 11 + 12);
        assert_eq!(parse_stat("12 (a) S 1 2"), None);
    }

    #[test]
    fn this_process_is_among_them() {
        let own = std::process::id() as i32;
        assert!(list().unwrap().contains(&own));
        assert!(facts(own).unwrap().anonymous_bytes > Some(0));
        assert!(numbers_are_ours());
        assert!(facts(i32::MAX).is_err());
    }
}
