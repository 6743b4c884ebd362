//! The process under repair: checks, access to its memory, and the agent's code.
//!
//! The code that stops the process is in [`stop`](super::stop).

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::RepairError;
use crate::journal::Agent;
use crate::plan::PAGE;
use crate::proc_status::{self, is_32_bit, read_status};
use vmarea_linux_sys::inject::{self, Seccomp};
use vmarea_process::maps::{self, MapName};
use vmarea_process::processes;

/// Default maximum time for a thread to stop.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Mark at the end of the agent's code page. Every later version must use the same mark.
const MARK: &[u8; 16] = b"vmarea's agent\0\0";
const MARK_AT: u64 = PAGE - MARK.len() as u64;

/// A process that can be stopped.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) pid: i32,
    pub(super) seccomp: Seccomp,
    pub(super) memory: File,
    /// Address of a system-call instruction in the process.
    pub(super) syscall: u64,
    /// Maximum time for a thread to stop. The other threads of the process are stopped meanwhile.
    pub(super) stop_timeout: Cell<Duration>,
    /// Id of the newest process at the time of the last check for processes that share the memory.
    pub(super) looked_at: Cell<i32>,
    /// Threads that were asked to stop and did not stop in time. They are still traced, because
    /// only a stopped thread can be detached.
    pub(super) late: RefCell<Vec<i32>>,
}

impl Target {
    /// Opens a process after checking that it can be repaired.
    ///
    /// # Errors
    /// A separate error for each reason, which says what to do.
    pub(super) fn open(pid: i32) -> Result<Target, RepairError> {
        if !processes::numbers_are_ours() {
            return Err(RepairError::ForeignNumbers(pid));
        }
        let status = read_status(pid)?;
        if status.tracer != 0 {
            return Err(RepairError::Traced {
                pid,
                tracer: proc_status::process_of(status.tracer),
            });
        }
        if status.has_ended {
            return Err(RepairError::Ended(pid));
        }
        if !status.has_memory {
            return Err(RepairError::NoMemory(pid));
        }
        if is_32_bit(pid) {
            return Err(RepairError::Bits32(pid));
        }
        // Read before the check, so that processes started in between are checked again later.
        let looked_at = Cell::new(proc_status::last_process());
        if let Some(other) = proc_status::shares_memory(pid) {
            return Err(RepairError::SharedMemory { pid, other });
        }
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map_err(|_| proc_status::ended_or(pid, RepairError::Forbidden(pid)))?;
        let seccomp = if status.seccomp {
            Seccomp::Suspend
        } else {
            Seccomp::None
        };
        let mut target = Target {
            pid,
            seccomp,
            memory,
            syscall: 0,
            stop_timeout: Cell::new(STOP_TIMEOUT),
            looked_at,
            late: RefCell::default(),
        };
        target.syscall = target.find_syscall_in_time()?;
        Ok(target)
    }

    /// Sets the maximum time for a thread to stop.
    pub(super) fn set_stop_timeout(&self, stop_timeout: Duration) {
        self.stop_timeout.set(stop_timeout);
    }

    /// True if the agent of an earlier run is still in the process.
    pub(super) fn has(&self, agent: &Agent) -> bool {
        let mut mark = [0; MARK.len()];
        let read = self.memory.read_exact_at(&mut mark, agent.code + MARK_AT);
        read.is_ok() && mark == *MARK
    }

    /// True if the process contains the agent of any repair.
    pub(super) fn has_agent(&self) -> bool {
        let mappings = maps::read(self.pid).unwrap_or_default();
        mappings.iter().any(|m| {
            let mut mark = [0; MARK.len()];
            let is_page = m.end - m.start == PAGE && m.ino == 0 && m.perms.exec && !m.perms.write;
            is_page
                && self
                    .memory
                    .read_exact_at(&mut mark, m.start + MARK_AT)
                    .is_ok()
                && mark == *MARK
        })
    }

    /// Writes the agent's code to its page, with the mark at the end of the page.
    ///
    /// # Errors
    /// Errors from writing to `/proc/PID/mem`.
    pub(super) fn put_code(&self, code: u64) -> io::Result<()> {
        self.write(inject::agent_code(), code)?;
        self.write(MARK, code + MARK_AT)
    }

    /// Like [`find_syscall`](Self::find_syscall), but retries: while the kernel is still loading
    /// the program, some mappings, such as the vDSO, may be missing.
    fn find_syscall_in_time(&self) -> Result<u64, RepairError> {
        for _ in 0..100 {
            match self.find_syscall() {
                Err(RepairError::NoSyscall(_)) => std::thread::sleep(Duration::from_millis(1)),
                found => return found,
            }
        }
        self.find_syscall()
    }

    /// Returns the address of a system-call instruction in the process.
    fn find_syscall(&self) -> Result<u64, RepairError> {
        let wanted = inject::syscall_instruction();
        let mut mappings = maps::read(self.pid).map_err(|_| RepairError::Ended(self.pid))?;
        mappings.retain(|m| m.perms.exec && m.perms.read);
        // The vDSO contains such an instruction, and programs do not change the vDSO.
        mappings.sort_by_key(|m| !matches!(&m.name, MapName::Special(name) if name == "[vdso]"));
        let mut readable = false;
        for mapping in mappings {
            let len = (mapping.end - mapping.start).min(4 << 20) as usize;
            let mut bytes = vec![0; len];
            let got = self.memory.read_at(&mut bytes, mapping.start).unwrap_or(0);
            readable |= got > 0;
            let found = bytes[..got].windows(wanted.len()).position(|w| w == wanted);
            if let Some(at) = found {
                return Ok(mapping.start + at as u64);
            }
        }
        // If no memory can be read, the process is about to execute another program or to end.
        Err(match readable {
            true => RepairError::NoSyscall(self.pid),
            false => proc_status::ended_or(self.pid, RepairError::Replaced(self.pid)),
        })
    }

    /// Fills an empty page by writing a zero to it; returns false if the kernel does not permit the
    /// write.
    pub(super) fn touch(&self, page: u64) -> bool {
        self.write(&[0], page).is_ok()
    }

    /// Writes to the memory of the process, regardless of the memory's protection.
    pub(super) fn write(&self, bytes: &[u8], address: u64) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }
}
