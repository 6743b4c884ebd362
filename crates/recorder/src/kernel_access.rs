//! Memory accesses that cause no recorded page fault, derived from the calls that make them.
//!
//! `process_vm_writev` from another process, `vmsplice`, and I/O that bypasses the page cache all
//! access the process's pages from within the kernel. The recorder reads the addresses from the
//! arguments after the call, limited to the bytes that the call transferred.

use super::call_table::{Buffer, KernelAccess};
use super::memory::{self, Range};
use super::tasks::{Pending, UNRECORDED};
use super::tracer::Tracer;
use vmarea_trace::event::{Access, Event, MmId, Nanos, Order, Tid, Touch};

impl Tracer<'_> {
    /// Returns a call's memory accesses that cause no recorded page fault.
    pub(super) fn kernel_accesses(
        &self,
        tid: i32,
        mm: MmId,
        kind: KernelAccess,
        call: &Pending,
        ret: i64,
        t: Nanos,
    ) -> Vec<Event> {
        let Ok(done) = u64::try_from(ret) else {
            return Vec::new();
        };
        let a = &call.args;
        let other = || self.tasks.get(&(a[0] as i32)).map(|task| task.mm);
        let (mm, access, ranges) = match kind {
            KernelAccess::ReadsOther => {
                (other(), Access::Read, memory::iovecs(tid, a[3], a[4], done))
            }
            KernelAccess::WritesOther => (
                other(),
                Access::Write,
                memory::iovecs(tid, a[3], a[4], done),
            ),
            KernelAccess::ReadsOwn => (
                Some(mm),
                Access::Read,
                memory::iovecs(tid, a[1], a[2], done),
            ),
            KernelAccess::PinsOwn => (Some(mm), Access::Write, pinned(tid, a)),
            KernelAccess::FromFile(buffer) => {
                (Some(mm), Access::Write, in_buffer(tid, buffer, a, done))
            }
            KernelAccess::ToFile(buffer) => {
                (Some(mm), Access::Read, in_buffer(tid, buffer, a, done))
            }
            KernelAccess::Blocks => return self.control_block_accesses(tid, mm, a, done, t),
        };
        match mm.filter(|mm| *mm != UNRECORDED) {
            Some(mm) => access_events(tid, mm, access, &ranges, t),
            None => Vec::new(),
        }
    }

    /// Returns the kernel's accesses to the buffers in the control blocks that `io_submit`
    /// accepted.
    fn control_block_accesses(
        &self,
        tid: i32,
        mm: MmId,
        args: &[u64; 6],
        taken: u64,
        t: Nanos,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        for block in memory::words(tid, args[2], taken.min(1024)) {
            // struct iocb: the opcode is in the third word, buffer and length in the fourth and
            // fifth.
            let words = memory::words(tid, block, 5);
            let &[_, _, operation, addr, len] = words.as_slice() else {
                continue;
            };
            let (access, vector) = match operation & 0xffff {
                0 => (Access::Write, false),
                1 => (Access::Read, false),
                7 => (Access::Write, true),
                8 => (Access::Read, true),
                _ => continue,
            };
            let ranges = match vector {
                true => memory::iovecs(tid, addr, len, u64::MAX),
                false => vec![Range { addr, len }],
            };
            events.extend(access_events(tid, mm, access, &ranges, t));
        }
        events
    }
}

fn in_buffer(tid: i32, buffer: Buffer, args: &[u64; 6], done: u64) -> Vec<Range> {
    match buffer {
        Buffer::Plain => vec![Range {
            addr: args[1],
            len: done,
        }],
        Buffer::Iovecs => memory::iovecs(tid, args[1], args[2], done),
    }
}

/// Returns the buffers that `io_uring_register` registers.
fn pinned(tid: i32, args: &[u64; 6]) -> Vec<Range> {
    match args[1] {
        0 => memory::iovecs(tid, args[2], args[3], u64::MAX),
        _ => {
            // struct io_uring_rsrc_register: number and flags, reserved, data, tags
            let words = memory::words(tid, args[2], 3);
            match words.as_slice() {
                &[count, _, data] => memory::iovecs(tid, data, count & 0xffff_ffff, u64::MAX),
                _ => Vec::new(),
            }
        }
    }
}

fn access_events(tid: i32, mm: MmId, access: Access, ranges: &[Range], t: Nanos) -> Vec<Event> {
    let touch = |range: &Range| {
        Event::Touch(Touch {
            tid: Tid(tid),
            mm,
            addr: range.addr,
            len: range.len,
            access,
            t,
            order: Order::Exact,
        })
    };
    ranges.iter().filter(|r| r.len != 0).map(touch).collect()
}
