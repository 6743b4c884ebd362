//! Decodes the records of a CPU's ring into entries and exits of calls, mappings and tasks.

use super::loss::{Loss, Why};
use crate::samples::{split_record, u32_at, u64_at};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use vmarea_linux_sys::call_trace::{ENTRY, EXIT};
use vmarea_linux_sys::perf::{
    MISC_COMM_EXEC, RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_LOST, RECORD_LOST_SAMPLES,
    RECORD_MMAP2, RECORD_SAMPLE, RECORD_THROTTLE,
};
use vmarea_process::maps::{MapName, MapsEntry};
use vmarea_trace::event::{Nanos, Perms};

/// Length of the thread and time fields at the end of every record that is not a sample.
const TRAILER: usize = 16;
/// Length of a MMAP2 record's fixed fields.
const MAPPED: usize = 64;

/// A record with its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) t: Nanos,
    pub(crate) what: Observed,
}

/// What a record reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Observed {
    /// A thread entered a call.
    Entered {
        tid: i32,
        nr: u32,
        args: [u64; 6],
        /// Kernel's address of the `struct file` that the call is about to map; 0 if there is none.
        file: u64,
        stack: Option<Box<UserStack>>,
    },
    /// A thread returned from a call.
    Returned { tid: i32, nr: u32, ret: i64 },
    /// A thread mapped a range, perhaps joined with its neighbours.
    Mapped { tid: i32, mapping: Box<MapsEntry> },
    /// `parent` created a task.
    Created { parent: i32, tid: i32, pid: i32 },
    /// A task exited.
    Exited { tid: i32 },
    /// A process executed a program.
    Executed { pid: i32 },
    /// Records were lost, from the time of this one on.
    Lost(Loss),
}

/// Registers and stack memory of a thread at the entry of a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct UserStack {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    pub(crate) bytes: Vec<u8>,
}

impl UserStack {
    /// Returns the `len` bytes at an address if the sample contains them.
    pub(crate) fn at(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(addr.checked_sub(self.sp)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}

/// Decoder of one set of rings, which counts what was lost.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    lost: u64,
    last: Nanos,
}

impl Decoder {
    /// Returns how many of the records that the kernel could not write were not reported in a ring.
    pub(super) fn missing(&self, lost: u64) -> u64 {
        lost.saturating_sub(self.lost)
    }

    /// Decodes whole records and appends them to `out`.
    pub(super) fn decode(&mut self, mut bytes: &[u8], out: &mut Vec<Record>) {
        while !bytes.is_empty() {
            let Some((kind, body, rest)) = split_record(bytes) else {
                return self.report_lost(1, out);
            };
            let misc = u32_at(bytes, 4).unwrap_or(0) as u16;
            bytes = rest;
            let record = match kind {
                RECORD_SAMPLE => sample(body),
                RECORD_MMAP2 => mapped(body),
                RECORD_COMM if misc & MISC_COMM_EXEC != 0 => executed(body),
                RECORD_FORK => task(body, |pid, _, tid, parent| Observed::Created {
                    parent,
                    tid,
                    pid,
                }),
                RECORD_EXIT => task(body, |_, _, tid, _| Observed::Exited { tid }),
                RECORD_LOST => u64_at(body, 8).map(|count| self.lost_at(body, count)),
                RECORD_LOST_SAMPLES => u64_at(body, 0).map(|count| self.lost_at(body, count)),
                // From here on the kernel skips samples and does not report how many.
                RECORD_THROTTLE => Some(self.lost_at(body, 1)),
                _ => continue,
            };
            match record {
                Some(record) => {
                    self.last = record.t;
                    out.push(record);
                }
                None => self.report_lost(1, out),
            }
        }
    }

    fn lost_at(&mut self, body: &[u8], count: u64) -> Record {
        self.lost = self.lost.saturating_add(count);
        full(count, trailer_time(body).unwrap_or(self.last))
    }

    fn report_lost(&mut self, count: u64, out: &mut Vec<Record>) {
        out.push(full(count, self.last));
    }
}

/// Returns the record of a loss that a ring reports at time `t`.
fn full(count: u64, t: Nanos) -> Record {
    let loss = Loss {
        count,
        from: t,
        until: t,
        why: Why::RingFull,
    };
    loss.into()
}

impl From<Loss> for Record {
    fn from(loss: Loss) -> Record {
        Record {
            t: loss.from,
            what: Observed::Lost(loss),
        }
    }
}

/// Decodes the record of a call.
fn sample(body: &[u8]) -> Option<Record> {
    let tid = u32_at(body, 4)? as i32;
    let t = u64_at(body, 8)?;
    let len = u32_at(body, 16)? as usize;
    let raw = body.get(20..)?.get(..len)?;
    let nr = u64_at(raw, 8)? as u32;
    let what = match u64_at(raw, 0)? {
        EXIT => {
            let ret = u64_at(raw, 16)? as i64;
            Observed::Returned { tid, nr, ret }
        }
        ENTRY => {
            let mut args = [0; 6];
            for (n, arg) in args.iter_mut().enumerate() {
                *arg = u64_at(raw, 16 + 8 * n)?;
            }
            let file = u64_at(raw, 64)?;
            let stack = body.get(20 + len..).filter(|rest| !rest.is_empty());
            let stack = match stack {
                Some(rest) => Some(Box::new(user_stack(rest)?)),
                None => None,
            };
            Observed::Entered {
                tid,
                nr,
                args,
                file,
                stack,
            }
        }
        _ => return None,
    };
    Some(Record { t, what })
}

/// Decodes registers and stack, which follow the raw data of a sample.
fn user_stack(body: &[u8]) -> Option<UserStack> {
    // The ABI of the registers is 0 for a thread without a user mode.
    let abi = u64_at(body, 0)?;
    let mut stack = UserStack::default();
    let mut at = 8;
    if abi != 0 {
        [stack.bp, stack.sp, stack.ip] = [u64_at(body, 8)?, u64_at(body, 16)?, u64_at(body, 24)?];
        at += 24;
    }
    let size = u64_at(body, at)? as usize;
    at += 8;
    if size != 0 {
        let bytes = body.get(at..at.checked_add(size)?)?;
        let copied = u64_at(body, at + size)? as usize;
        stack.bytes = bytes.get(..copied)?.to_vec();
    }
    Some(stack)
}

fn trailer_time(body: &[u8]) -> Option<Nanos> {
    u64_at(body, body.len().checked_sub(TRAILER)? + 8)
}

fn task(body: &[u8], of: impl Fn(i32, i32, i32, i32) -> Observed) -> Option<Record> {
    let [pid, parent_pid] = [u32_at(body, 0)? as i32, u32_at(body, 4)? as i32];
    let [tid, parent] = [u32_at(body, 8)? as i32, u32_at(body, 12)? as i32];
    let t = u64_at(body, 16)?;
    let what = of(pid, parent_pid, tid, parent);
    Some(Record { t, what })
}

fn executed(body: &[u8]) -> Option<Record> {
    let pid = u32_at(body, 0)? as i32;
    let t = trailer_time(body)?;
    let what = Observed::Executed { pid };
    Some(Record { t, what })
}

fn mapped(body: &[u8]) -> Option<Record> {
    let tid = u32_at(body, 4)? as i32;
    let (start, len) = (u64_at(body, 8)?, u64_at(body, 16)?);
    let path = body.get(MAPPED..body.len().checked_sub(TRAILER)?)?;
    let path = path.split(|byte| *byte == 0).next()?;
    let prot = u32_at(body, 56)? as i32;
    let shared = u32_at(body, 60)? as i32 & libc::MAP_SHARED != 0;
    let mapping = Box::new(MapsEntry {
        start,
        end: start.checked_add(len)?,
        perms: Perms {
            read: prot & libc::PROT_READ != 0,
            write: prot & libc::PROT_WRITE != 0,
            exec: prot & libc::PROT_EXEC != 0,
            shared,
        },
        offset: u64_at(body, 24)?,
        dev: u64::from(u32_at(body, 32)?) << 20 | u64::from(u32_at(body, 36)?),
        ino: u64_at(body, 40)?,
        name: MapName::Path(OsStr::from_bytes(path).into()),
    });
    let what = Observed::Mapped { tid, mapping };
    let t = trailer_time(body)?;
    Some(Record { t, what })
}
