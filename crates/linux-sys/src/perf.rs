//! Perf events: opening them, sharing a ring among them, and reading their counters.
//!
//! This module defines only those fields of `struct perf_event_attr` that the recorder sets. If an
//! older kernel lacks a feature, opening the event fails with an error. `ring` reads the samples,
//! and `vmarea_recorder::samples` interprets them.
//!
//! # Linux
//! `perf_event_open(2)`. The attribute structure has the 112 bytes of version 5 (Linux 4.1), which
//! later kernels accept.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `PERF_SAMPLE_TID`.
pub const SAMPLE_TID: u64 = 1 << 1;
/// `PERF_SAMPLE_TIME`.
pub const SAMPLE_TIME: u64 = 1 << 2;
/// `PERF_SAMPLE_ADDR`.
pub const SAMPLE_ADDR: u64 = 1 << 3;
/// `PERF_SAMPLE_RAW`.
pub const SAMPLE_RAW: u64 = 1 << 10;
/// `PERF_SAMPLE_REGS_USER`.
pub const SAMPLE_REGS_USER: u64 = 1 << 12;
/// `PERF_SAMPLE_STACK_USER`.
pub const SAMPLE_STACK_USER: u64 = 1 << 13;

/// Registers of a sample with a stack, in this order: frame pointer, stack pointer, instruction
/// pointer (x86-64).
const STACK_REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// `PERF_RECORD_LOST`.
pub const RECORD_LOST: u32 = 2;
/// `PERF_RECORD_COMM`.
pub const RECORD_COMM: u32 = 3;
/// `PERF_RECORD_EXIT`.
pub const RECORD_EXIT: u32 = 4;
/// `PERF_RECORD_FORK`.
pub const RECORD_FORK: u32 = 7;
/// `PERF_RECORD_MMAP2`.
pub const RECORD_MMAP2: u32 = 10;
/// `PERF_RECORD_MISC_COMM_EXEC`: the name changed because the task executed a program.
pub const MISC_COMM_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_THROTTLE`.
pub const RECORD_THROTTLE: u32 = 5;
/// `PERF_RECORD_SAMPLE`.
pub const RECORD_SAMPLE: u32 = 9;
/// `PERF_RECORD_LOST_SAMPLES`.
pub const RECORD_LOST_SAMPLES: u32 = 13;

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const COUNT_SW_PAGE_FAULTS: u64 = 2;
const COUNT_SW_DUMMY: u64 = 9;
const COUNT_SW_BPF_OUTPUT: u64 = 10;

/// `PERF_FORMAT_LOST`.
const FORMAT_LOST: u64 = 1 << 4;

const FLAG_DISABLED: u64 = 1 << 0;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HV: u64 = 1 << 6;
const FLAG_MMAP: u64 = 1 << 8;
const FLAG_COMM: u64 = 1 << 9;
const FLAG_ENABLE_ON_EXEC: u64 = 1 << 12;
const FLAG_TASK: u64 = 1 << 13;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_MMAP_DATA: u64 = 1 << 17;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_MMAP2: u64 = 1 << 23;
const FLAG_COMM_EXEC: u64 = 1 << 24;
const FLAG_USE_CLOCKID: u64 = 1 << 25;

const OPEN_CLOEXEC: libc::c_ulong = 1 << 3;
// `_IO('$', n)`, for machines on which `_IO` has no direction bits (all except alpha, mips,
// powerpc, sparc).
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
// `_IOW('$', 8, u32)`.
const IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// Instead of a thread id: every task, as far as the caller is permitted to see it.
pub const EVERY_TASK: i32 = -1;

/// Kind of event that is counted and sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The tracepoint with this id, in user and kernel mode; samples contain its raw record.
    Tracepoint(u64),
    /// Output of a BPF program, which samples contain as raw data. If `stack_bytes` is not 0, they
    /// also contain three registers and up to that many bytes of the thread's stack. It must be a
    /// multiple of 8.
    BpfOutput {
        /// Maximum number of bytes of stack in a sample.
        stack_bytes: u32,
    },
    /// No samples: only records of mappings, of executed programs, and of tasks that start and
    /// exit.
    TaskRecords,
    /// Page faults in user mode; samples contain the address.
    UserPageFaults,
}

/// Time at which an event starts to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// Immediately.
    Now,
    /// At the task's next `execve`.
    Exec,
    /// At [`Event::enable`].
    Enabled,
}

/// `struct perf_event_attr`, version 5.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

impl Attr {
    /// Selects the event and the data of its samples.
    fn select(&mut self, what: What) {
        match what {
            What::Tracepoint(id) => {
                self.kind = TYPE_TRACEPOINT;
                self.config = id;
                self.sample_type |= SAMPLE_RAW;
            }
            What::BpfOutput { stack_bytes } => {
                self.kind = TYPE_SOFTWARE;
                self.config = COUNT_SW_BPF_OUTPUT;
                self.sample_type |= SAMPLE_RAW;
                self.read_format = FORMAT_LOST;
                // BPF programs cannot write to inherited events.
                self.flags &= !FLAG_INHERIT;
                if stack_bytes != 0 {
                    self.sample_type |= SAMPLE_REGS_USER | SAMPLE_STACK_USER;
                    self.sample_regs_user = STACK_REGISTERS;
                    self.sample_stack_user = stack_bytes;
                }
            }
            What::TaskRecords => {
                self.kind = TYPE_SOFTWARE;
                self.read_format = FORMAT_LOST;
                self.config = COUNT_SW_DUMMY;
                self.flags |= FLAG_MMAP
                    | FLAG_MMAP_DATA
                    | FLAG_MMAP2
                    | FLAG_COMM
                    | FLAG_COMM_EXEC
                    | FLAG_TASK;
            }
            What::UserPageFaults => {
                self.kind = TYPE_SOFTWARE;
                self.config = COUNT_SW_PAGE_FAULTS;
                self.sample_type |= SAMPLE_ADDR;
                self.flags |= FLAG_EXCLUDE_KERNEL;
            }
        }
    }
}

/// An open perf event that counts on one CPU, for one task and all children it creates later.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

impl Event {
    /// Opens an event that samples every occurrence.
    ///
    /// A sample contains the thread, the `CLOCK_MONOTONIC` time and the data that [`What`] lists. A
    /// thread that waits for the event's ring is woken when the ring holds `wakeup_bytes` unread
    /// bytes. With [`EVERY_TASK`] as `tid` the event counts on its CPU for all tasks.
    ///
    /// # Errors
    /// The errors of `perf_event_open(2)`: `EACCES` and `EPERM` without permission, `ESRCH` if the
    /// task does not exist, `ENODEV` if the CPU is not online, `ENOENT` for an unknown tracepoint,
    /// `EMFILE` if the limit of open files is too low for the number of CPUs.
    pub fn open(
        what: What,
        tid: i32,
        cpu: u32,
        begin: Begin,
        wakeup_bytes: u32,
    ) -> io::Result<Event> {
        let mut attr = Attr {
            size: size_of::<Attr>() as u32,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME,
            flags: FLAG_INHERIT
                | FLAG_EXCLUDE_HV
                | FLAG_WATERMARK
                | FLAG_SAMPLE_ID_ALL
                | FLAG_USE_CLOCKID,
            wakeup_watermark: wakeup_bytes,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        attr.select(what);
        attr.flags |= match begin {
            Begin::Now => 0,
            Begin::Exec => FLAG_DISABLED | FLAG_ENABLE_ON_EXEC,
            Begin::Enabled => FLAG_DISABLED,
        };
        let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: `attr` lives across the call and contains its own size; the other arguments are
        // numbers.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                tid,
                cpu,
                -1 as libc::c_int,
                OPEN_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor, and it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Event { fd })
    }

    /// Redirects this event's samples to the ring of `owner`, an event on the same CPU.
    pub fn output_to(&self, owner: &impl AsFd) -> io::Result<()> {
        let owner = owner.as_fd();
        // SAFETY: both descriptors are open; the request takes the second one as a number.
        let done =
            unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_SET_OUTPUT as _, owner.as_raw_fd()) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Runs a BPF program whenever the event's tracepoint is passed, until the event is closed.
    pub(crate) fn run(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open; the request takes the second one as a number.
        let done =
            unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_SET_BPF as _, program.as_raw_fd()) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Enables the event.
    pub fn enable(&self) -> io::Result<()> {
        self.control(IOC_ENABLE)
    }

    /// Disables the event for its task and the task's descendants.
    pub fn disable(&self) -> io::Result<()> {
        self.control(IOC_DISABLE)
    }

    fn control(&self, request: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the descriptor is open; the request takes a number.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, 0) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the number of times that the event has occurred in the task and its descendants.
    pub fn count(&self) -> io::Result<u64> {
        self.read::<1>().map(|[count]| count)
    }

    /// Returns how many records of this event did not fit into the ring.
    ///
    /// # Errors
    /// `UnexpectedEof` unless the event is [`What::BpfOutput`] or [`What::TaskRecords`].
    pub fn lost(&self) -> io::Result<u64> {
        self.read::<2>().map(|[_, lost]| lost)
    }

    fn read<const N: usize>(&self) -> io::Result<[u64; N]> {
        let mut bytes = [0; 16];
        let got = rustix::io::read(&self.fd, &mut bytes)?;
        if got != 8 * N {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let word = |n: usize| u64::from_ne_bytes(std::array::from_fn(|at| bytes[8 * n + at]));
        Ok(std::array::from_fn(word))
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attribute_block_has_the_size_of_version_5() {
        assert_eq!(size_of::<Attr>(), 112);
    }
}
