//! The local interrupt controller (APIC): its timer, inter-processor interrupts, and CPU startup.

use super::direct_map::pointer_to;
use super::{MAX_CPUS, clock, online};
use alloc::boxed::Box;
use alloc::vec;
use x86_64::instructions::port::Port;

/// Vector of the timer interrupt.
pub const TIMER: u64 = 32;
/// Vector of the interrupt that wakes an idle CPU.
pub const WAKE: u64 = 33;
/// Vector of the interrupt that stops a CPU.
pub const STOP: u64 = 34;
const SPURIOUS: u32 = 0x2f;

const REGISTERS: u64 = 0xfee0_0000;
const END_OF_INTERRUPT: u64 = 0xb0;
const ENABLE: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_TARGET: u64 = 0x310;
const TIMER_ENTRY: u64 = 0x320;
const TIMER_COUNT: u64 = 0x380;
const TIMER_NOW: u64 = 0x390;
const TIMER_DIVISOR: u64 = 0x3e0;

const PERIODIC: u32 = 1 << 17;
const DIVIDE_BY_ONE: u32 = 0xb;
const DELIVER_NMI: u32 = 0x4400;
const DELIVER_INIT: u32 = 0x4500;
/// Command that sends a startup interrupt; its low byte is the page number of the trampoline.
const DELIVER_STARTUP: u32 = 0x4608;
const DELIVER_FIXED: u32 = 0x4000;
const TRAMPOLINE: u64 = 0x8000;

/// Number of timer counts per tick. QEMU's timer counts nanoseconds.
const NANOSECONDS_PER_TICK: u32 = 4_000_000;
const AP_STACK: usize = 64 << 10;

fn write(register: u64, value: u32) {
    // SAFETY: a register of this CPU's interrupt controller, which the direct map contains.
    unsafe { pointer_to::<u32>(REGISTERS + register).write_volatile(value) };
}

fn read(register: u64) -> u32 {
    // SAFETY: as in `write`.
    unsafe { pointer_to::<u32>(REGISTERS + register).read_volatile() }
}

/// Starts this CPU's interrupt controller and its timer.
pub fn start() {
    write(ENABLE, 0x100 | SPURIOUS);
    write(TIMER_DIVISOR, DIVIDE_BY_ONE);
    if online() == 0 {
        clock::calibrate(|nanoseconds| {
            write(TIMER_ENTRY, 1 << 16);
            write(TIMER_COUNT, u32::MAX);
            while u32::MAX - read(TIMER_NOW) < nanoseconds {}
        });
    }
    write(TIMER_ENTRY, TIMER as u32 | PERIODIC);
    write(TIMER_COUNT, NANOSECONDS_PER_TICK);
}

/// Signals the end of the interrupt that is being handled.
pub fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

fn send(cpu: usize, command: u32) {
    write(COMMAND_TARGET, (cpu as u32) << 24);
    write(COMMAND, command);
}

/// Sends a non-maskable interrupt to a CPU.
pub fn send_nmi(cpu: usize) {
    send(cpu, DELIVER_NMI);
}

/// Wakes a CPU that is idle, waiting for an interrupt.
pub fn send_wake(cpu: usize) {
    send(cpu, DELIVER_FIXED | WAKE as u32);
}

/// Stops a CPU; see [`stop`](super::stop).
pub fn send_stop(cpu: usize) {
    send(cpu, DELIVER_FIXED | STOP as u32);
}

/// Returns the machine's number of CPUs, read from QEMU's configuration device.
fn present() -> usize {
    const CPUS: u16 = 5;
    let mut bytes = [0u8; 2];
    // SAFETY: the ports of the configuration device; reading them changes no memory.
    unsafe {
        Port::new(0x510).write(CPUS);
        bytes.fill_with(|| Port::<u8>::new(0x511).read());
    }
    usize::from(u16::from_le_bytes(bytes)).clamp(1, MAX_CPUS)
}

unsafe extern "C" {
    static ap_trampoline: u8;
    static ap_trampoline_end: u8;
    static mut ap_stack: u64;
}

/// Starts the other CPUs one after another.
pub fn start_others() {
    let code = &raw const ap_trampoline;
    let len = &raw const ap_trampoline_end as usize - code as usize;
    // SAFETY: the page at `TRAMPOLINE` is below the kernel and nothing else uses it; the code was
    // linked at its physical address.
    unsafe { pointer_to::<u8>(TRAMPOLINE).copy_from(pointer_to::<u8>(code as u64), len) };
    for cpu in 1..present() {
        let stack = Box::leak(vec![0u8; AP_STACK].into_boxed_slice());
        let top = (stack.as_ptr() as u64 + AP_STACK as u64) & !15;
        // SAFETY: only the CPU that starts now reads `ap_stack`, which was linked at its physical
        // address.
        unsafe { pointer_to::<u64>(&raw const ap_stack as u64).write_volatile(top) };
        send(cpu, DELIVER_INIT);
        send(cpu, DELIVER_STARTUP);
        while online() <= cpu {
            core::hint::spin_loop();
        }
    }
}
