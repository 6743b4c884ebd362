//! The processor: its number, and the segment and trap tables.
//!
//! `entry.s` calls the handlers of traps and system calls, which higher modules define, by their
//! symbols: `trap` and `leave_kernel` (`traps`), `system_call` and `finish_switch`.
//!
//! Interrupts are off in the kernel, except while a CPU is idle or a kernel thread yields its CPU.
//! A thread therefore keeps its CPU until the thread yields, and holders of spin locks do not have
//! to mask interrupts.

pub mod apic;
pub mod clock;
pub mod direct_map;
pub mod registers;
pub mod stop;

pub use registers::Registers;

use alloc::boxed::Box;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicUsize, Ordering};
use x86_64::VirtAddr;
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;

core::arch::global_asm!(include_str!("entry.s"));

/// Maximum number of CPUs. A set of CPUs is stored in one word.
pub const MAX_CPUS: usize = 32;
/// Size in bytes of the stack on which NMIs or double faults are handled.
const TRAP_STACK: usize = 8192;
const DOUBLE_FAULT: u64 = 8;
const NMI: u64 = 2;
const BREAKPOINT: u64 = 3;

/// The processor's own data about a CPU; `gs` points to it while the CPU is in the kernel.
///
/// `entry.s` depends on the offsets of the first three fields.
#[repr(C)]
pub struct Cpu {
    this: *const Cpu,
    user_rsp: Cell<u64>,
    kernel_stack: Cell<u64>,
    number: usize,
    task: UnsafeCell<TaskStateSegment>,
    segments: UnsafeCell<GlobalDescriptorTable>,
    trap_stacks: [[u8; TRAP_STACK]; 2],
}

static ONLINE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static trap_stubs: u8;
    fn flush_entry();
    fn system_call_entry();
}

/// Returns this CPU. After the thread has called the scheduler, it may run on another CPU.
pub fn this() -> &'static Cpu {
    let cpu: *const Cpu;
    // SAFETY: `start` has set `gs` to a `Cpu` that is never freed, and `entry.s` restores it.
    unsafe {
        core::arch::asm!("mov {}, gs:[0]", out(reg) cpu, options(nostack, readonly, preserves_flags));
        &*cpu
    }
}

/// Returns the number of this CPU, counted from 0.
pub fn number() -> usize {
    this().number
}

/// Returns the number of CPUs that have started.
pub fn online() -> usize {
    // ORDERING: Acquire, pairs with the Release in `start`.
    ONLINE.load(Ordering::Acquire)
}

/// A value for each CPU, which only that CPU uses.
pub struct PerCpu<T>([T; MAX_CPUS]);

// SAFETY: `get` returns only the value of the CPU that calls it. Interrupts are off in the kernel,
// so a thread keeps its CPU while it uses the value.
unsafe impl<T> Sync for PerCpu<T> {}

impl<T> PerCpu<T> {
    /// Creates the values for all CPUs.
    pub const fn new(values: [T; MAX_CPUS]) -> Self {
        PerCpu(values)
    }

    /// Returns this CPU's value, which the caller must not use after it has called the scheduler.
    pub fn get(&self) -> &T {
        &self.0[number()]
    }
}

impl Cpu {
    /// Sets the stack on which the kernel handles this CPU's next trap from user mode.
    pub fn set_kernel_stack(&self, top: u64) {
        self.kernel_stack.set(top);
        // SAFETY: only this CPU uses its task segment; the processor reads it at a trap.
        unsafe { (*self.task.get()).privilege_stack_table[0] = VirtAddr::new(top) };
    }
}

/// The interrupt descriptor table, with two words for each vector.
struct Gates(UnsafeCell<[[u64; 2]; 48]>);

// SAFETY: written once, before other CPUs run; afterwards only the processors read it.
unsafe impl Sync for Gates {}

static GATES: Gates = Gates(UnsafeCell::new([[0; 2]; 48]));

impl Gates {
    /// Fills in the table. The `x86_64` crate's setters need an unstable calling convention.
    ///
    /// # Safety
    /// No other CPU runs.
    unsafe fn fill(&self) {
        let stubs = &raw const trap_stubs as u64;
        for vector in 0..48u64 {
            let (handler, stack) = match vector {
                NMI => (flush_entry as *const () as u64, 1),
                DOUBLE_FAULT => (stubs + vector * 16, 2),
                _ => (stubs + vector * 16, 0),
            };
            let level = if vector == BREAKPOINT { 3 } else { 0 };
            let low = handler & 0xffff | 8 << 16 | stack << 32 | (0x8e00 | level << 13) << 32;
            // SAFETY: as the caller promises.
            let gates = unsafe { &mut *self.0.get() };
            gates[vector as usize] = [low | (handler >> 16 & 0xffff) << 48, handler >> 32];
        }
    }

    /// Loads the table on this CPU.
    fn load(&self) {
        let pointer = x86_64::structures::DescriptorTablePointer {
            base: VirtAddr::from_ptr(self.0.get()),
            limit: (size_of::<[[u64; 2]; 48]>() - 1) as u16,
        };
        // SAFETY: a static table of valid gates.
        unsafe { x86_64::instructions::tables::lidt(&pointer) };
    }
}

/// Initializes this CPU: per-CPU data, segments, traps, system calls, interrupts.
///
/// # Safety
/// Called once on each CPU, before anything that uses [`this`]; no two CPUs call it at the same
/// time.
pub unsafe fn start() {
    let number = online();
    let cpu = Box::leak(Box::new(Cpu {
        this: core::ptr::null(),
        user_rsp: Cell::new(0),
        kernel_stack: Cell::new(0),
        number,
        task: UnsafeCell::new(TaskStateSegment::new()),
        segments: UnsafeCell::new(GlobalDescriptorTable::new()),
        trap_stacks: [[0; TRAP_STACK]; 2],
    }));
    cpu.this = cpu;
    for (at, stack) in cpu.trap_stacks.iter().enumerate() {
        let top = VirtAddr::from_ptr(stack.as_ptr()) + TRAP_STACK as u64;
        cpu.task.get_mut().interrupt_stack_table[at] = top.align_down(16u64);
    }
    let cpu: &'static Cpu = cpu;
    // SAFETY: the structures live forever, and only this CPU uses them.
    unsafe {
        let segments = &mut *cpu.segments.get();
        segments.append(Descriptor::kernel_code_segment());
        segments.append(Descriptor::kernel_data_segment());
        segments.append(Descriptor::user_data_segment());
        segments.append(Descriptor::user_code_segment());
        let task = segments.append(Descriptor::tss_segment_unchecked(cpu.task.get()));
        (*cpu.segments.get()).load_unsafe();
        x86_64::instructions::tables::load_tss(task);
        if number == 0 {
            mask_legacy_interrupts();
            GATES.fill();
        }
        GATES.load();
        set_registers(cpu);
    }
    apic::start();
    // ORDERING: Release, pairs with the Acquire in `online`.
    ONLINE.fetch_add(1, Ordering::Release);
}

/// Masks the two legacy interrupt controllers, whose vectors overlap the exception vectors.
fn mask_legacy_interrupts() {
    // SAFETY: the mask registers of these controllers; the kernel uses none of their interrupts.
    unsafe {
        Port::<u8>::new(0x21).write(0xff);
        Port::<u8>::new(0xa1).write(0xff);
    }
}

/// Sets the registers for system calls and for per-CPU data.
///
/// # Safety
/// `entry.s` and the segments match the values.
unsafe fn set_registers(cpu: &'static Cpu) {
    const FLAGS_OFF: u64 = 0x4_7700;
    // SAFETY: as the caller promises.
    unsafe {
        Msr::new(0xc000_0101).write(cpu.this as u64); // GS base
        Msr::new(0xc000_0102).write(0); // GS base of user mode
        Msr::new(0xc000_0081).write(8 << 32 | 0x10 << 48); // STAR: segments
        Msr::new(0xc000_0082).write(system_call_entry as *const () as u64); // LSTAR
        Msr::new(0xc000_0084).write(FLAGS_OFF); // FMASK
    }
}

/// The base of the `fs` segment, the address of a program's thread-local data.
pub mod fs_base {
    use x86_64::registers::model_specific::Msr;

    /// Sets the base to a user address.
    pub fn set(base: u64) {
        debug_assert!(base >> 47 == 0);
        // SAFETY: the kernel does not use `fs`.
        unsafe { Msr::new(0xc000_0100).write(base) };
    }
}
