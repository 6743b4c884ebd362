//! The process under repair: checks before anything is changed, and access to its memory.
//!
//! The code that stops the process is in [`stop`](super::stop).

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use vmarea_linux_sys::agent::{self, STUB_BYTES};
use vmarea_linux_sys::inject::Seccomp;
use vmarea_linux_sys::ptrace;
use vmarea_merge::types::VmRange;
use vmarea_process::processes;

use super::image::Image;
use super::mark::{self, Mark};
use super::vdso;
use crate::RepairError;
use crate::proc_status::{self, is_32_bit, read_status};

/// Default maximum time for a thread to stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// A process that can be stopped.
#[derive(Debug)]
pub(super) struct Target {
    /// Id of the process, or of one of its threads if its first thread has exited: `/proc` shows the
    /// memory of any thread that lives.
    pub(super) pid: i32,
    pub(super) seccomp: Seccomp,
    pub(super) memory: File,
    /// The program whose memory this is.
    image: Image,
    /// Unused bytes of the vDSO: the mark, then the stub.
    slack: VmRange,
    /// Maximum time for a thread to stop. The other threads of the process are stopped meanwhile.
    pub(super) stop_timeout: Cell<Duration>,
    /// True once threads have been left in their stubs, which restore them by themselves.
    pub(super) has_parked: Cell<bool>,
    /// Id of the newest process at the time of the last check for processes that share the memory.
    looked_at: Cell<i32>,
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
        if !agent::IS_SUPPORTED || !proc_status::kernel_forgets_anon_vma() {
            return Err(RepairError::Unsupported);
        }
        if !processes::numbers_are_ours() {
            return Err(RepairError::ForeignNumbers(pid));
        }
        let pid = proc_status::thread_with_memory(pid);
        let status = read_status(pid)?;
        if let Some(tracer) = status.tracer() {
            return Err(traced(pid, tracer));
        }
        // A process that is exiting loses its memory before its state shows that it has ended.
        if !status.has_memory() && !status.is_of_kernel() {
            return Err(RepairError::Ended(pid));
        }
        if !status.has_memory() {
            return Err(RepairError::NoMemory(pid));
        }
        if is_32_bit(pid) {
            return Err(RepairError::Bits32(pid));
        }
        if proc_status::has_shadow_stack(pid) {
            return Err(RepairError::ShadowStack(pid));
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
        let seccomp = if status.is_filtered() {
            Seccomp::Suspend
        } else {
            Seccomp::None
        };
        let slack = find_slack_in_time(pid, &memory)?;
        Ok(Target {
            pid,
            seccomp,
            image: Image::read(pid, &memory),
            memory,
            slack,
            stop_timeout: Cell::new(STOP_TIMEOUT),
            has_parked: Cell::new(false),
            looked_at,
            late: RefCell::default(),
        })
    }

    /// Sets the maximum time for a thread to stop.
    pub(super) fn set_stop_timeout(&self, stop_timeout: Duration) {
        self.stop_timeout.set(stop_timeout);
    }

    /// Returns the address of the stub.
    pub(super) fn stub(&self) -> u64 {
        self.slack.start + mark::BYTES
    }

    /// Returns why a thread of the process cannot be traced: `tracer` is another program that was seen
    /// to trace the thread, or 0. It may trace only some threads, while this one traces others.
    pub(super) fn not_traceable(&self, tracer: i32) -> RepairError {
        match tracer {
            0 => RepairError::Forbidden(self.pid),
            tracer => traced(self.pid, tracer),
        }
    }

    /// Returns why a thread is gone: the process has ended, or executes another program.
    pub(super) fn gone(&self) -> RepairError {
        proc_status::ended_or(self.pid, RepairError::Replaced(self.pid))
    }

    /// Returns the mark of a repair; `None` if there is none.
    pub(super) fn mark(&self) -> Option<Mark> {
        Mark::read(self.pid, &self.memory, self.slack.start)
    }

    /// Writes the mark of this repair, with which the stub may be used. A thread must be stopped.
    ///
    /// # Errors
    /// Errors from writing to the process.
    pub(super) fn set_mark(&self, tid: i32, scratch: VmRange) -> io::Result<()> {
        let bytes = Mark::of(self.pid, scratch).bytes();
        self.write_code(tid, &bytes, self.slack.start)
    }

    /// Removes the mark and the stub.
    ///
    /// # Errors
    /// Errors from writing to the process.
    pub(super) fn remove_mark(&self, tid: i32) -> io::Result<()> {
        let bytes = [0; (mark::BYTES + STUB_BYTES) as usize];
        self.write_code(tid, &bytes, self.slack.start)
    }

    /// True if a thread at `pc` executes the stub.
    pub(super) fn is_in_stub(&self, pc: u64) -> bool {
        (self.stub()..self.slack.end).contains(&pc)
    }

    /// Checks that the process, to which thread `tid` belongs, still has the address space that was
    /// opened. Also checks that no other process shares the address space. All threads must be
    /// stopped.
    ///
    /// # Errors
    /// [`RepairError::Ended`], [`RepairError::Replaced`], [`RepairError::SharedMemory`].
    pub(super) fn is_same(&self, tid: i32) -> Result<(), RepairError> {
        match Image::now(tid) {
            now if now == Image::default() => return Err(RepairError::Ended(self.pid)),
            now if self.image.is_still(&now) => {}
            _ => return Err(RepairError::Replaced(self.pid)),
        }
        let last = proc_status::last_process();
        if let Some(other) = proc_status::shares_memory_since(self.pid, self.looked_at.get(), last)
        {
            return Err(RepairError::SharedMemory {
                pid: self.pid,
                other,
            });
        }
        self.looked_at.set(last);
        Ok(())
    }

    /// Fills an empty page by writing a zero to it; returns false if the kernel does not permit the
    /// write.
    pub(super) fn touch(&self, tid: i32, page: u64) -> bool {
        self.write_code(tid, &[0; 8], page).is_ok()
    }

    /// Writes to memory that is writable for the process.
    ///
    /// # Errors
    /// Errors from writing to `/proc/PID/mem`.
    pub(super) fn write(&self, bytes: &[u8], address: u64) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// Writes to memory regardless of its protection; the number of bytes is a multiple of eight.
    /// Thread `tid` must be stopped: where the kernel does not let `/proc/PID/mem` ignore the
    /// protection (`proc_mem.force_override`), `ptrace` writes word by word.
    ///
    /// # Errors
    /// Errors from writing to the process.
    pub(super) fn write_code(&self, tid: i32, bytes: &[u8], address: u64) -> io::Result<()> {
        if self.write(bytes, address).is_ok() {
            return Ok(());
        }
        let (words, rest) = bytes.as_chunks::<8>();
        assert!(rest.is_empty(), "whole words");
        for (n, word) in words.iter().enumerate() {
            ptrace::poke(tid, address + 8 * n as u64, u64::from_ne_bytes(*word))?;
        }
        Ok(())
    }
}

/// Returns the error for a process that `tracer` traces: another repair, or another program.
fn traced(pid: i32, tracer: i32) -> RepairError {
    let tracer = proc_status::process_of(tracer);
    let mark = || {
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        let slack = vdso::slack(pid, &memory)?;
        Mark::read(pid, &memory, slack.start)
    };
    match mark().and_then(|mark| mark.at_work()) {
        Some(by) if by == Some(tracer) => RepairError::AtWork { pid, by },
        _ => RepairError::Traced { pid, tracer },
    }
}

/// Like [`vdso::slack`], but retries: while the kernel is still loading the program, some mappings,
/// such as the vDSO, may be missing.
fn find_slack_in_time(pid: i32, memory: &File) -> Result<VmRange, RepairError> {
    let fits = |slack: &VmRange| slack.len_bytes() >= mark::BYTES + STUB_BYTES;
    for _ in 0..100 {
        if let Some(slack) = vdso::slack(pid, memory) {
            return Some(slack).filter(fits).ok_or(RepairError::NoSlack(pid));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // If no memory can be read, the process is about to execute another program or to end.
    let mapped = vmarea_process::maps::read(pid).unwrap_or_default();
    let is_readable = |start: u64| memory.read_at(&mut [0], start).unwrap_or(0) > 0;
    match mapped.iter().any(|mapping| is_readable(mapping.start)) {
        true => Err(RepairError::NoSlack(pid)),
        false => Err(proc_status::ended_or(pid, RepairError::Replaced(pid))),
    }
}
