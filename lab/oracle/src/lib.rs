//! Child processes that make real system calls and memory accesses on command.
//!
//! An [`Oracle`] is a group of up to [`PROCESSES`] processes, each with its own address space. The
//! processes execute commands and report the result, the error or the signal, so that tests and
//! experiments can compare the core with the running kernel. The first process starts as a copy of
//! this process without the heap. The caller decides which calls to make and which results to
//! expect.
//!
//! This crate contains all `unsafe` code of the laboratory: [`own_memory`] and [`tsc`] are for
//! measurements in this process.
//!
//! # Picture
//! ```text
//! tester ──slot 0──▶ process 0 ──fork──┐
//!        ──slot 1──▶ process 1 ◀───────┘   all are children of the tester
//! ```

pub mod own_memory;
mod raw;
pub mod tsc;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use raw::channel::{self, CHILD, Channel, Slot, TESTER, command};
use raw::{executor, read_remote};
use vmarea_process::maps::MapName;

/// Maximum number of processes that exist at the same time.
pub const PROCESSES: usize = channel::SLOTS;
/// Minimum size of an anonymous mapping that process 0 unmaps in addition to the heap.
const LARGE: u64 = 1 << 20;
/// Maximum duration of a command, in seconds.
const TIMEOUT_S: i64 = 20;

/// Result of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The eight bytes that were read; 0 for a write.
    Done(u64),
    /// The access raised a signal; the fields are those of `siginfo_t`.
    Signal {
        /// `SIGSEGV` or `SIGBUS`.
        signal: i32,
        /// `SEGV_MAPERR`, `SEGV_ACCERR`, `BUS_ADRERR` or another code.
        code: i32,
    },
}

/// A series of calls or writes whose arguments change by fixed steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Series {
    /// Arguments of the first call.
    pub first: [u64; 6],
    /// Wrapping increment of each argument from one call to the next.
    pub step: [u64; 6],
    /// Number of calls.
    pub times: u64,
}

/// Result of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Went {
    /// Number of calls made.
    pub times: u64,
    /// Total duration.
    pub time: Duration,
    /// Reason for an early stop: a negative errno, or `signal << 8 | code`.
    pub stopped: Option<i64>,
}

/// Reason why a process did not return a result.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// The processes could not be started.
    #[error("cannot start a test process: {0}")]
    Start(#[source] io::Error),
    /// A process ended.
    #[error("test process {process} ended ({how}) at {what}")]
    Ended {
        /// Number of the process.
        process: usize,
        /// Wait status of the process, as text.
        how: String,
        /// The command that the process was executing.
        what: String,
    },
    /// A process does not respond.
    #[error("test process {process} does not respond to {what}")]
    Stuck {
        /// Number of the process.
        process: usize,
        /// The command that the process was executing.
        what: String,
    },
    /// The process does not exist, or a process with this number already exists.
    #[error("test process {0} does not exist, or exists already")]
    NoProcess(usize),
    /// The memory of a process cannot be read.
    #[error("cannot read the memory of test process {process}: {cause}")]
    Memory {
        /// Number of the process.
        process: usize,
        /// Cause of the failure.
        cause: io::Error,
    },
}

/// Creates a close-on-exec file with `memfd_secret`.
///
/// # Errors
/// `ENOSYS` if the kernel lacks `memfd_secret` or does not permit it.
pub fn memfd_secret() -> io::Result<OwnedFd> {
    raw::memfd_secret()
}

/// A group of processes that execute commands.
pub struct Oracle {
    channel: Channel,
    pids: [Option<Pid>; PROCESSES],
}

impl Oracle {
    /// Starts process 0.
    ///
    /// # Errors
    /// [`OracleError::Start`] if no process can be created.
    pub fn start() -> Result<Oracle, OracleError> {
        let channel = Channel::new().map_err(OracleError::Start)?;
        let (unneeded, heap) = unneeded().map_err(OracleError::Start)?;
        let pid = executor::start(&channel, &unneeded, heap).map_err(OracleError::Start)?;
        let mut pids = [None; PROCESSES];
        pids[0] = Some(Pid::from_raw(pid));
        let oracle = Oracle { channel, pids };
        oracle.answer(0, &"start")?;
        Ok(oracle)
    }

    /// Returns the process id, if the process exists.
    pub fn pid(&self, process: usize) -> Option<i32> {
        self.pids.get(process)?.map(Pid::as_raw)
    }

    /// Makes a system call in a process. Returns the call's result or errno.
    ///
    /// # Errors
    /// [`OracleError`] if the process does not exist or the call ends it.
    pub fn call(
        &mut self,
        process: usize,
        number: i64,
        args: [u64; 6],
    ) -> Result<Result<u64, i32>, OracleError> {
        let slot = self.slot(process)?;
        slot.number.store(number as u64, Ordering::Relaxed);
        for (to, from) in slot.args.iter().zip(args) {
            to.store(from, Ordering::Relaxed);
        }
        let what = format_args!("call {number}");
        self.order(process, command::CALL, &what)?;
        let result = slot.result.load(Ordering::Relaxed);
        Ok(if (-4095..0).contains(&result) {
            Err(-result as i32)
        } else {
            Ok(result as u64)
        })
    }

    /// Makes a system call `series.times` times in a process and measures the duration.
    ///
    /// Stops at the first call that fails. Overwrites the scratch memory.
    ///
    /// # Errors
    /// [`OracleError`] if the process does not exist, is ended by a call, or takes too long.
    pub fn calls(
        &mut self,
        process: usize,
        number: i64,
        series: &Series,
    ) -> Result<Went, OracleError> {
        let what = format_args!("{} calls {number}", series.times);
        self.slot(process)?
            .number
            .store(number as u64, Ordering::Relaxed);
        self.series(process, command::CALLS, series, &what)
    }

    /// Writes eight bytes to a process's memory repeatedly.
    ///
    /// The first argument of the series is the address, and the second is the value.
    ///
    /// # Errors
    /// Those of [`calls`](Self::calls).
    pub fn writes(&mut self, process: usize, series: &Series) -> Result<Went, OracleError> {
        let what = format_args!("{} writes", series.times);
        self.series(process, command::WRITES, series, &what)
    }

    fn series(
        &mut self,
        process: usize,
        kind: u32,
        series: &Series,
        what: &dyn fmt::Display,
    ) -> Result<Went, OracleError> {
        let slot = self.slot(process)?;
        for (n, (first, step)) in series.first.iter().zip(series.step).enumerate() {
            slot.args[n].store(*first, Ordering::Relaxed);
            slot.scratch[channel::STEPS + n].store(step, Ordering::Relaxed);
        }
        slot.scratch[channel::TIMES].store(series.times, Ordering::Relaxed);
        self.order(process, kind, what)?;
        let stopped = slot.result.load(Ordering::Relaxed);
        Ok(Went {
            times: slot.scratch[channel::WENT].load(Ordering::Relaxed),
            time: Duration::from_nanos(slot.scratch[channel::TOOK].load(Ordering::Relaxed)),
            stopped: (stopped != 0).then_some(stopped),
        })
    }

    /// Stores words in a process's scratch memory. Returns the address of the words in that
    /// process.
    pub fn scratch(&mut self, process: usize, words: &[u64]) -> Result<u64, OracleError> {
        let slot = self.slot(process)?;
        for (to, &from) in slot.scratch.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        Ok(slot.scratch_address())
    }

    /// Reads eight bytes from a process's memory.
    pub fn read(&mut self, process: usize, addr: u64) -> Result<Access, OracleError> {
        self.access(process, command::READ, addr, 0)
    }

    /// Writes eight bytes to a process's memory.
    pub fn write(&mut self, process: usize, addr: u64, value: u64) -> Result<Access, OracleError> {
        self.access(process, command::WRITE, addr, value)
    }

    fn access(
        &mut self,
        process: usize,
        kind: u32,
        addr: u64,
        value: u64,
    ) -> Result<Access, OracleError> {
        let slot = self.slot(process)?;
        slot.args[0].store(addr, Ordering::Relaxed);
        slot.args[1].store(value, Ordering::Relaxed);
        self.order(process, kind, &format_args!("access {addr:#x}"))?;
        Ok(match slot.signal.load(Ordering::Relaxed) {
            0 => Access::Done(slot.result.load(Ordering::Relaxed) as u64),
            signal => Access::Signal {
                signal: (signal >> 8) as i32,
                code: i32::from(signal as u8),
            },
        })
    }

    /// Makes `process` fork; the new process has the number `child`. Returns the errno if `fork`
    /// fails.
    pub fn fork(&mut self, process: usize, child: usize) -> Result<Result<(), i32>, OracleError> {
        if self.pids.get(child) != Some(&None) {
            return Err(OracleError::NoProcess(child));
        }
        let slot = self.slot(process)?;
        self.channel.slots()[child].expect_child();
        slot.args[0].store(child as u64, Ordering::Relaxed);
        self.order(process, command::FORK, &"fork")?;
        let pid = slot.result.load(Ordering::Relaxed);
        if pid < 0 {
            return Ok(Err(-pid as i32));
        }
        self.pids[child] = Some(Pid::from_raw(pid as i32));
        self.answer(child, &"fork")?;
        Ok(Ok(()))
    }

    /// Kills a process and waits for its exit.
    pub fn exit(&mut self, process: usize) -> Result<(), OracleError> {
        self.slot(process)?;
        if let Some(pid) = self.pids[process].take() {
            end(pid);
        }
        Ok(())
    }

    /// Copies `len` bytes from each of `addresses` in a process's memory, up to the first failed
    /// read.
    ///
    /// Returns the number of bytes copied.
    pub fn memory(
        &self,
        process: usize,
        addresses: &[u64],
        len: usize,
        to: &mut [u8],
    ) -> Result<usize, OracleError> {
        let pid = self.pid(process).ok_or(OracleError::NoProcess(process))?;
        read_remote(pid, addresses, len, to).map_err(|cause| OracleError::Memory { process, cause })
    }

    fn slot(&self, process: usize) -> Result<&Slot, OracleError> {
        self.pid(process).ok_or(OracleError::NoProcess(process))?;
        Ok(&self.channel.slots()[process])
    }

    fn order(&self, process: usize, kind: u32, what: &dyn fmt::Display) -> Result<(), OracleError> {
        let slot = &self.channel.slots()[process];
        slot.command.store(kind, Ordering::Relaxed);
        slot.hand_over(CHILD);
        self.answer(process, what)
    }

    fn answer(&self, process: usize, what: &dyn fmt::Display) -> Result<(), OracleError> {
        let slot = &self.channel.slots()[process];
        let second = libc::timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        for _ in 0..TIMEOUT_S {
            if slot.wait(TESTER, Some(&second)) {
                return Ok(());
            }
            let pid = self.pids[process].ok_or(OracleError::NoProcess(process))?;
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => {}
                ended => {
                    return Err(OracleError::Ended {
                        process,
                        how: format!("{ended:?}"),
                        what: what.to_string(),
                    });
                }
            }
        }
        Err(OracleError::Stuck {
            process,
            what: what.to_string(),
        })
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        for pid in self.pids.iter_mut().filter_map(Option::take) {
            end(pid);
        }
    }
}

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oracle").field("pids", &self.pids).finish()
    }
}

fn end(pid: Pid) {
    // The process may have exited by itself; `waitpid` is needed in any case.
    let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
    let _ = waitpid(pid, None);
}

/// Returns the memory ranges that process 0, a copy of this process, unmaps, and the heap's start.
///
/// A range consists of a start and a length. The start of the heap is 0 if there is no heap.
fn unneeded() -> io::Result<(Vec<(u64, u64)>, u64)> {
    let text = std::fs::read("/proc/self/maps")?;
    let here = &raw const text as u64;
    let maps = vmarea_process::maps::parse(&text)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
    let heap = maps.iter().find(|m| m.name == MapName::Heap);
    let large = maps.iter().filter(|m| {
        m.name == MapName::None
            && m.end - m.start >= LARGE
            && !m.perms.shared
            && !(m.start..m.end).contains(&here)
    });
    let large = large.map(|m| (m.start, m.end - m.start)).collect();
    Ok((large, heap.map_or(0, |m| m.start)))
}

#[cfg(test)]
mod tests;
