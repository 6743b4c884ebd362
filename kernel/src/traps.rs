//! Trap handling: page faults, exceptions and interrupts.

use crate::cpu::{self, Registers, apic, stop};
use crate::files::terminal;
use crate::process::signal::SigInfo;
use crate::process::{self, Thread, alarm, delivery, send};
use crate::scheduler;
use crate::space::mm::BadAccess;
use linux_raw_sys::general::{
    BUS_ADRALN, BUS_ADRERR, FPE_INTDIV, ILL_ILLOPN, SEGV_ACCERR, SEGV_MAPERR, SI_KERNEL, SIGBUS,
    SIGFPE, SIGILL, SIGINT, SIGSEGV, SIGTRAP, TRAP_BRKPT,
};
use vmarea::fault::Access;
use x86_64::registers::control::Cr2;

const DIVIDE: u64 = 0;
const DEBUG: u64 = 1;
const BREAKPOINT: u64 = 3;
const ILLEGAL: u64 = 6;
const STACK: u64 = 12;
const PAGE_FAULT: u64 = 14;
const FLOATING_POINT: u64 = 16;
const ALIGNMENT: u64 = 17;
const SIMD: u64 = 19;

/// Bits of a page fault's error code.
const WRITE: u64 = 2;
const FETCH: u64 = 16;

/// Handles a trap; `entry.s` calls it with the registers of the interrupted code.
#[unsafe(no_mangle)]
extern "C" fn trap(registers: &mut Registers) {
    if !registers.is_from_user() {
        return trap_in_kernel(registers);
    }
    match registers.vector {
        PAGE_FAULT => {
            return process::with_current_thread(|thread| {
                page_fault(thread, registers);
                delivery::deliver(thread, registers);
            });
        }
        apic::TIMER => {
            apic::end_of_interrupt();
            tick();
            scheduler::schedule();
        }
        apic::WAKE => apic::end_of_interrupt(),
        apic::STOP => stop_here(),
        vector => send::force(exception(vector, registers.rip)),
    }
    leave_kernel(registers);
}

fn trap_in_kernel(registers: &Registers) {
    match registers.vector {
        // An idle CPU was waiting for this interrupt, or a kernel thread has enabled interrupts.
        apic::TIMER => {
            apic::end_of_interrupt();
            tick();
        }
        apic::WAKE => apic::end_of_interrupt(),
        apic::STOP => stop_here(),
        vector => panic!(
            "exception {vector} in the kernel: error {:#x}, rip {:#x}, rsp {:#x}, address {:#x}",
            registers.error_or_call,
            registers.rip,
            registers.rsp,
            Cr2::read_raw(),
        ),
    }
}

fn stop_here() {
    apic::end_of_interrupt();
    stop::wait();
}

/// Sends due alarms, receives typed bytes and ends sleeps whose deadline has passed.
fn tick() {
    if cpu::number() != 0 {
        return;
    }
    alarm::ring();
    if terminal::receive() {
        send::to_all(SigInfo::of_kernel(SIGINT));
    }
    scheduler::wake_due();
}

/// Delivers pending signals, which may end the thread, before the thread returns to user mode.
///
/// Does nothing for a new kernel thread, which has no signals.
#[unsafe(no_mangle)]
extern "C" fn leave_kernel(registers: &mut Registers) {
    if registers.is_from_user() {
        process::with_current_thread(|thread| delivery::deliver(thread, registers));
    }
}

fn page_fault(thread: &Thread, registers: &Registers) {
    let addr = Cr2::read_raw();
    let access = match registers.error_or_call {
        error if error & FETCH != 0 => Access::Exec,
        error if error & WRITE != 0 => Access::Write,
        _ => Access::Read,
    };
    let Some(mm) = thread.process.mm() else {
        return;
    };
    let Err(bad) = mm.fault(addr, access) else {
        return;
    };
    let (number, code) = match bad {
        BadAccess::NoMapping => (SIGSEGV, SEGV_MAPERR),
        BadAccess::NoAccess => (SIGSEGV, SEGV_ACCERR),
        BadAccess::NoPage => (SIGBUS, BUS_ADRERR),
        // `oom` has made the process end.
        BadAccess::NoMemory => return,
    };
    send::force(SigInfo::fault(number, code as i32, addr));
}

/// Returns the signal for an exception at `rip`.
fn exception(vector: u64, rip: u64) -> SigInfo {
    match vector {
        DIVIDE => SigInfo::fault(SIGFPE, FPE_INTDIV as i32, rip),
        FLOATING_POINT | SIMD => SigInfo::fault(SIGFPE, 0, rip),
        DEBUG | BREAKPOINT => SigInfo::fault(SIGTRAP, TRAP_BRKPT as i32, rip),
        ILLEGAL => SigInfo::fault(SIGILL, ILL_ILLOPN as i32, rip),
        ALIGNMENT => SigInfo::fault(SIGBUS, BUS_ADRALN as i32, 0),
        STACK => SigInfo::fault(SIGBUS, SI_KERNEL as i32, 0),
        _ => SigInfo::fault(SIGSEGV, SI_KERNEL as i32, 0),
    }
}
