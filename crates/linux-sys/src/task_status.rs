//! What `/proc/PID/status` shows of a process or a thread.
//!
//! The name of a task is any bytes: the kernel cuts it after 15 of them, in the middle of a
//! character too. The text is therefore never required to be UTF-8.

use std::fs;
use std::io;
use std::str::FromStr;

/// The text of `/proc/PID/status` at one moment.
#[derive(Clone, Debug, Default)]
pub struct TaskStatus(String);

impl TaskStatus {
    /// Reads the status of a process or of any thread.
    ///
    /// # Errors
    /// `NotFound` or `ESRCH` if there is no such task.
    pub fn read(tid: i32) -> io::Result<TaskStatus> {
        TaskStatus::from_file(&format!("/proc/{tid}/status"))
    }

    /// Reads the status of a thread of process `pid`.
    ///
    /// # Errors
    /// `NotFound` or `ESRCH` if the process has no such thread.
    pub fn of_thread(pid: i32, tid: i32) -> io::Result<TaskStatus> {
        TaskStatus::from_file(&format!("/proc/{pid}/task/{tid}/status"))
    }

    /// Reads the status of the calling thread's process; empty without procfs.
    pub fn own() -> TaskStatus {
        TaskStatus::from_file("/proc/self/status").unwrap_or_default()
    }

    fn from_file(path: &str) -> io::Result<TaskStatus> {
        let text = fs::read(path)?;
        Ok(TaskStatus(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Returns the text after `NAME:`.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    }

    /// Returns the first number after `NAME:`.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.numbers(name).next()
    }

    /// Returns the numbers after `NAME:`.
    pub fn numbers<T: FromStr>(&self, name: &str) -> impl DoubleEndedIterator<Item = T> {
        let words = self.field(name).unwrap_or_default();
        let words = words.split_ascii_whitespace();
        words.filter_map(|word| word.parse().ok())
    }

    /// Returns the mask in hexadecimal after `NAME:`.
    pub fn mask(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.field(name)?, 16).ok()
    }

    /// True if a capability is in effect, given its number.
    pub fn has_capability(&self, number: u32) -> bool {
        self.mask("CapEff")
            .is_some_and(|mask| mask >> number & 1 == 1)
    }

    /// Returns the letter of the state, such as `S` for a task that sleeps.
    pub fn state(&self) -> Option<char> {
        self.field("State")?.chars().next()
    }

    /// True if the task has exited.
    pub fn has_ended(&self) -> bool {
        matches!(self.state(), Some('Z' | 'X'))
    }

    /// True if the task has an address space.
    pub fn has_memory(&self) -> bool {
        self.field("VmSize").is_some()
    }

    /// True for threads of the kernel, which are children of process 2 or that process itself.
    pub fn is_of_kernel(&self) -> bool {
        self.number("Pid") == Some(2) || self.number("PPid") == Some(2)
    }

    /// Returns the task that traces this one, if any.
    pub fn tracer(&self) -> Option<i32> {
        self.number("TracerPid").filter(|tracer| *tracer != 0)
    }

    /// True if a seccomp filter examines the task's system calls.
    pub fn is_filtered(&self) -> bool {
        self.number("Seccomp").is_some_and(|mode: u32| mode != 0)
    }

    /// Returns the process to which the task belongs.
    pub fn process(&self) -> Option<i32> {
        self.number("Tgid")
    }
}

/// Takes the text of a status file.
impl From<String> for TaskStatus {
    fn from(text: String) -> TaskStatus {
        TaskStatus(text)
    }
}

/// True if process `pid` has no thread `tid` that still runs. A file that cannot be read for another
/// reason, such as too many open files, is no end.
pub fn has_ended(pid: i32, tid: i32) -> bool {
    match TaskStatus::of_thread(pid, tid) {
        Ok(status) => status.has_ended(),
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let text = "Name:\tVmLck: 1 kB\nState:\tt (tracing stop)\nTgid:\t12\nPid:\t14\nPPid:\t1\n\
                    NSpid:\t14\t3\nVmLck:\t      16 kB\nCapEff:\t0000000000004000\n";
        let status = TaskStatus(text.to_owned());
        assert_eq!(status.field("Vm"), None);
        assert_eq!(status.number::<u64>("VmLck"), Some(16));
        assert_eq!(status.numbers::<i32>("NSpid").collect::<Vec<_>>(), [14, 3]);
        assert_eq!(status.mask("CapEff"), Some(1 << 14));
        assert!(status.has_capability(14) && !status.has_capability(13));
        assert_eq!((status.state(), status.has_ended()), (Some('t'), false));
        assert_eq!(status.process(), Some(12));
        assert!(!status.has_memory() && !status.is_of_kernel());
    }

    /// A name of Cyrillic letters is cut in the middle of one.
    #[test]
    fn a_name_that_is_not_utf8() {
        let thread = std::thread::spawn(|| {
            let name = c"\xd1\x81\xd0\xbe\xd0\xb5\xd0\xb4\xd0\xb8\xd0\xbd\xd0\xb5\xd0";
            rustix::thread::set_name(name).unwrap();
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            let status = TaskStatus::of_thread(pid, tid).unwrap();
            assert!(status.has_memory() && !has_ended(pid, tid));
            assert_eq!(status.process(), Some(pid));
            assert_eq!(TaskStatus::read(tid).unwrap().number("Pid"), Some(tid));
            (pid, tid)
        });
        let (pid, tid) = thread.join().unwrap();
        // The kernel may show the thread for a moment after it has been joined.
        while !has_ended(pid, tid) {
            std::thread::yield_now();
        }
        assert!(TaskStatus::read(i32::MAX).is_err() && has_ended(pid, i32::MAX));
    }
}
