//! System calls, dispatched by their Linux numbers, with one file for each family of calls.
//!
//! A family's `call` function returns `None` if the call belongs to another family.

pub mod io;
pub mod memory;
pub mod poll;
pub mod process;
pub mod signals;
pub mod system;
pub mod time;
pub mod tree;

use crate::cpu::Registers;
use crate::failure::{Failure, Value};
use crate::process::{Thread, delivery, with_current_thread};
use crate::say;
use crate::space::{Mm, reclaim};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::errno::{EFAULT, ENOSYS};

/// Outcome of a system call; `None` if the call belongs to another family.
pub type Outcome = Option<Result<Value, Failure>>;

/// A system call that a thread makes.
pub struct Call<'a> {
    /// The calling thread.
    pub thread: &'a Thread,
    /// The address space of the calling thread.
    pub mm: &'a Arc<Mm>,
    /// Number of the call.
    pub number: u32,
    /// Arguments.
    pub args: [u64; 6],
    /// Registers of the program.
    pub registers: &'a mut Registers,
}

/// Whether every system call is printed, for debugging the kernel.
static TRACE: AtomicBool = AtomicBool::new(false);

/// Starts printing every system call.
pub fn trace() {
    // ORDERING: Relaxed; set before programs run.
    TRACE.store(true, Ordering::Relaxed);
}

/// Handles a system call; called by `entry.s`.
#[unsafe(no_mangle)]
extern "C" fn system_call(registers: &mut Registers) {
    with_current_thread(|thread| {
        registers.rax = perform(thread, registers);
        delivery::deliver(thread, registers);
    });
}

fn perform(thread: &Thread, registers: &mut Registers) -> u64 {
    let Some(mm) = thread.process.mm() else {
        return (-i64::from(EFAULT)) as u64;
    };
    let r = &*registers;
    let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    let number = r.rax as u32;
    let mut call = Call {
        thread,
        mm: &mm,
        number,
        args,
        registers,
    };
    // Calls that create or write files take frames, too.
    reclaim::check();
    let outcome = memory::call(&call)
        .or_else(|| io::call(&call))
        .or_else(|| tree::call(&call))
        .or_else(|| process::call(&mut call))
        .or_else(|| signals::call(&mut call))
        .or_else(|| time::call(&call))
        .or_else(|| poll::call(&call))
        .or_else(|| system::call(&call));
    let result = outcome.unwrap_or(Err(ENOSYS.into()));
    // ORDERING: Relaxed; the value does not change while programs run.
    if TRACE.load(Ordering::Relaxed) {
        let [a, b, c, d, ..] = args;
        say!(
            "[{}] call {number}({a:#x}, {b:#x}, {c:#x}, {d:#x}) = {result:x?}",
            thread.tid
        );
    }
    match result {
        Ok(value) => value,
        Err(failure) => (-i64::from(failure.errno())) as u64,
    }
}
