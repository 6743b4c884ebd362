//! `futex`: threads sleep until another thread changes a word of memory.
//!
//! Priority inheritance and robust futex lists are not implemented.

use crate::cpu::clock;
use crate::failure::{Failure, RESTART, Value};
use crate::scheduler::task::Woken;
use crate::scheduler::{self, Event};
use crate::space::Mm;
use linux_raw_sys::errno::{EAGAIN, EINVAL, ENOSYS, ETIMEDOUT};
use linux_raw_sys::general::{
    FUTEX_CLOCK_REALTIME, FUTEX_CMP_REQUEUE, FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_WAIT,
    FUTEX_WAIT_BITSET, FUTEX_WAKE, FUTEX_WAKE_BITSET, FUTEX_WAKE_OP,
};
use vmarea::types::VmFlags;

/// The arguments of the system call.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub uaddr: u64,
    pub op: u32,
    pub val: u32,
    /// Address of a timeout, or a count, depending on the operation.
    pub timeout: u64,
    pub uaddr2: u64,
    pub val3: u32,
}

/// Returns the event for a futex, identified by its position in a shared file or by its address.
fn event(mm: &Mm, addr: u64) -> Result<Event, Failure> {
    if !addr.is_multiple_of(4) {
        return Err(EINVAL.into());
    }
    let shared = mm.with_entry(addr, |vma, _| {
        let file = vma
            .body
            .file
            .filter(|_| vma.body.flags.contains(VmFlags::MAYSHARE))?;
        Some(Event::Futex(
            !file.inode,
            vma.pgoff_at(addr).0 << 12 | addr & 4095,
        ))
    });
    let private = Event::Futex(mm.id().to_bits(), addr);
    Ok(shared.flatten().unwrap_or(private))
}

/// Performs the system call.
///
/// # Errors
/// EAGAIN if the word does not have the expected value; ETIMEDOUT; EFAULT; EINVAL; ENOSYS.
pub fn futex(mm: &Mm, request: &Request) -> Result<Value, Failure> {
    let Request {
        uaddr,
        val,
        timeout,
        uaddr2,
        val3,
        ..
    } = *request;
    let here = event(mm, uaddr)?;
    let limit = |count: u32| count as i32 as usize;
    match request.op & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME) {
        FUTEX_WAIT => {
            let deadline = mm
                .read_time_if_given(timeout)?
                .map(|t| clock::now().saturating_add(t));
            wait(mm, here, request, !0, deadline)
        }
        FUTEX_WAIT_BITSET if val3 != 0 => {
            let deadline = mm.read_time_if_given(timeout)?;
            wait(mm, here, request, val3, deadline)
        }
        FUTEX_WAKE => Ok(scheduler::wake(here, limit(val)) as u64),
        FUTEX_WAKE_BITSET if val3 != 0 => Ok(scheduler::wake_masked(here, limit(val), val3) as u64),
        op @ (FUTEX_REQUEUE | FUTEX_CMP_REQUEUE) => {
            let there = event(mm, uaddr2)?;
            if op == FUTEX_CMP_REQUEUE && mm.read_value::<u32>(uaddr)? != val3 {
                return Err(EAGAIN.into());
            }
            let woken = scheduler::wake(here, limit(val));
            let moved = scheduler::requeue(here, there, limit(timeout as u32));
            let counted = if op == FUTEX_REQUEUE { 0 } else { moved };
            Ok((woken + counted) as u64)
        }
        FUTEX_WAKE_OP => {
            let there = event(mm, uaddr2)?;
            let wanted = change_word(mm, uaddr2, val3)?;
            let mut woken = scheduler::wake(here, limit(val));
            if wanted {
                woken += scheduler::wake(there, limit(timeout as u32));
            }
            Ok(woken as u64)
        }
        FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET => Err(EINVAL.into()),
        _ => Err(ENOSYS.into()),
    }
}

fn wait(
    mm: &Mm,
    here: Event,
    request: &Request,
    mask: u32,
    deadline: Option<u64>,
) -> Result<Value, Failure> {
    scheduler::doze(here, mask, deadline);
    match mm.read_value::<u32>(request.uaddr) {
        Ok(value) if value == request.val => {}
        other => {
            let woken = scheduler::stop_dozing();
            other?;
            return if woken { Ok(0) } else { Err(EAGAIN.into()) };
        }
    }
    match scheduler::sleep() {
        Woken::Event => Ok(0),
        Woken::Timeout => Err(ETIMEDOUT.into()),
        Woken::Signal => Err(RESTART.into()),
    }
}

/// Changes a word as `FUTEX_WAKE_OP` requests; true if the old value meets the condition.
fn change_word(mm: &Mm, addr: u64, operation: u32) -> Result<bool, Failure> {
    let signed = |shift: u32| ((operation >> shift << 20) as i32 >> 20) as u32;
    let (argument, compared) = (signed(12), signed(0));
    let argument = match operation >> 28 & 8 {
        0 => argument,
        _ => 1 << (argument & 31),
    };
    let kind = operation >> 28 & 7;
    if kind > 4 {
        return Err(ENOSYS.into());
    }
    let old = mm.update_word(addr, |old| match kind {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        _ => old ^ argument,
    })?;
    let (old, compared) = (old as i32, compared as i32);
    Ok(match operation >> 24 & 15 {
        0 => old == compared,
        1 => old != compared,
        2 => old < compared,
        3 => old <= compared,
        4 => old > compared,
        5 => old >= compared,
        _ => return Err(ENOSYS.into()),
    })
}

/// Wakes up to `limit` threads that wait for the word at `addr`.
pub fn wake_at(mm: &Mm, addr: u64, limit: usize) {
    if let Ok(event) = event(mm, addr) {
        scheduler::wake(event, limit);
    }
}
