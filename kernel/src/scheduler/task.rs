//! `Task`: what the scheduler knows of a thread, with its kernel stack and saved registers.

use crate::cpu::{self, Registers};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use vmarea::types::MmId;

/// Size of a kernel stack, in units of 16 bytes.
const STACK_UNITS: usize = 3 << 10;
/// Number of registers that `switch_stacks` saves.
const SWITCHED_REGISTERS: usize = 6;

/// The floating-point and vector registers in the layout of `fxsave`.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct VectorState(pub [u8; 512]);

impl VectorState {
    /// Byte offset of MXCSR, the SSE control and status register.
    const MXCSR: usize = 24;

    /// Returns the register values with which a program starts.
    pub fn initial() -> Self {
        let mut bytes = [0; 512];
        bytes[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        bytes[Self::MXCSR..][..4].copy_from_slice(&0x1f80_u32.to_le_bytes());
        VectorState(bytes)
    }

    /// Clears the MXCSR bits that the processor does not accept.
    pub fn make_valid(&mut self) {
        self.0[Self::MXCSR + 2..][..2].fill(0);
    }
}

/// Scheduling state of a thread, protected by the lock of the scheduler's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RunState {
    /// In the queue of ready threads.
    Ready,
    /// On a CPU.
    Running,
    /// Running on a CPU, but registered as a sleeper.
    Dozing,
    /// Registered as a sleeper, and not running on any CPU.
    Asleep,
    /// Ended; never runs again.
    Ended,
}

impl RunState {
    const ALL: [RunState; 5] = [
        RunState::Ready,
        RunState::Running,
        RunState::Dozing,
        RunState::Asleep,
        RunState::Ended,
    ];
}

/// Why a thread woke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The event happened.
    Event,
    /// The deadline passed.
    Timeout,
    /// A signal is pending.
    Signal,
}

/// A thread that the scheduler can run: one of a process, or one of the kernel itself.
pub trait Runnable: Any + Send + Sync {
    /// Returns the scheduler's part of the thread.
    fn task(&self) -> &Task;

    /// Returns the address space in which the thread runs; `None` for the kernel's page tables.
    fn address_space(&self) -> Option<MmId>;

    /// True if the thread must not sleep, because a signal is pending or the thread must end.
    fn has_signal(&self) -> bool;
}

struct Saved {
    stack_pointer: u64,
    vector: VectorState,
}

/// A kernel stack.
pub type Stack = Box<[u128]>;

/// Allocates a kernel stack; returns `None` if there is no memory for it.
pub fn new_stack() -> Option<Stack> {
    let mut stack = Vec::new();
    stack.try_reserve_exact(STACK_UNITS).ok()?;
    stack.resize(STACK_UNITS, 0);
    Some(stack.into_boxed_slice())
}

/// The scheduling state of a thread, its kernel stack, and the registers that a switch saves.
pub struct Task {
    stack: Stack,
    saved: UnsafeCell<Saved>,
    fs_base: AtomicU64,
    state: AtomicU8,
    woken: AtomicU8,
}

// SAFETY: `saved` is used only by the CPU that runs the thread or switches to it. The lock of the
// scheduler's queues ensures that this is only one CPU at a time.
unsafe impl Sync for Task {}

unsafe extern "C" {
    fn thread_start();
}

impl Task {
    /// Creates the task of a thread that starts with `registers`.
    pub fn new(mut stack: Stack, registers: Registers, vector: VectorState, fs_base: u64) -> Task {
        // SAFETY: the frame, the return address and the switched registers fit in the stack.
        let stack_pointer = unsafe {
            let frame = stack.as_mut_ptr_range().end.cast::<Registers>().sub(1);
            frame.write(registers);
            let back = frame.cast::<u64>().sub(1);
            back.write(thread_start as *const () as u64);
            back.sub(SWITCHED_REGISTERS) as u64
        };
        Task {
            stack,
            saved: UnsafeCell::new(Saved {
                stack_pointer,
                vector,
            }),
            fs_base: AtomicU64::new(fs_base),
            state: AtomicU8::new(RunState::Ready as u8),
            woken: AtomicU8::new(0),
        }
    }

    /// Returns the first address after the kernel stack.
    pub fn stack_top(&self) -> u64 {
        self.stack.as_ptr_range().end as u64
    }

    /// Returns the kernel stack pointer saved by the last thread switch.
    pub fn stack_pointer(&self) -> u64 {
        // SAFETY: as for `Sync` above.
        unsafe { (*self.saved.get()).stack_pointer }
    }

    /// Returns a pointer to the cell in which a thread switch saves the kernel stack pointer.
    pub fn stack_pointer_cell(&self) -> *mut u64 {
        // SAFETY: only makes a pointer to the field.
        unsafe { &raw mut (*self.saved.get()).stack_pointer }
    }

    /// Saves this CPU's vector registers in the thread.
    pub fn save_registers(&self) {
        // SAFETY: the thread runs on this CPU; the state is 512 aligned bytes.
        unsafe {
            let to = &raw mut (*self.saved.get()).vector;
            core::arch::asm!("fxsave64 [{}]", in(reg) to, options(nostack));
        }
    }

    /// Loads the thread's vector registers into this CPU.
    pub fn restore_registers(&self) {
        // SAFETY: as in `save_registers`, and the state is valid.
        unsafe {
            let from = &raw const (*self.saved.get()).vector;
            core::arch::asm!("fxrstor64 [{}]", in(reg) from, options(nostack));
        }
    }

    /// Returns the current thread's vector registers.
    pub fn vector_state(&self) -> VectorState {
        self.save_registers();
        // SAFETY: as for `Sync` above.
        unsafe { (*self.saved.get()).vector }
    }

    /// Sets the current thread's vector registers.
    pub fn set_vector_state(&self, mut state: VectorState) {
        state.make_valid();
        // SAFETY: as for `Sync` above.
        unsafe { (*self.saved.get()).vector = state };
        self.restore_registers();
    }

    /// Returns the base of the thread's `fs` segment.
    pub fn fs_base(&self) -> u64 {
        // ORDERING: Relaxed; used by the thread itself, or passed on under the queues' lock.
        self.fs_base.load(Ordering::Relaxed)
    }

    /// Sets the base of the current thread's `fs` segment.
    pub fn set_fs_base(&self, base: u64) {
        // ORDERING: Relaxed, as above.
        self.fs_base.store(base, Ordering::Relaxed);
        cpu::fs_base::set(base);
    }

    /// Returns the scheduling state of the thread.
    pub fn state(&self) -> RunState {
        // ORDERING: Relaxed; changes under the queues' lock.
        RunState::ALL[usize::from(self.state.load(Ordering::Relaxed))]
    }

    /// Sets the scheduling state and returns the old one; the caller holds the queues' lock.
    pub fn set_state(&self, state: RunState) -> RunState {
        // ORDERING: Relaxed, as above.
        RunState::ALL[usize::from(self.state.swap(state as u8, Ordering::Relaxed))]
    }

    /// Returns the reason why the thread last woke.
    pub fn woken(&self) -> Woken {
        // ORDERING: Relaxed; set under the queues' lock before the thread ran.
        [Woken::Event, Woken::Timeout, Woken::Signal]
            [usize::from(self.woken.load(Ordering::Relaxed))]
    }

    /// Sets the reason why the thread wakes; the caller holds the queues' lock.
    pub fn set_woken(&self, why: Woken) {
        // ORDERING: Relaxed, as above.
        self.woken.store(why as u8, Ordering::Relaxed);
    }
}

/// A thread of the kernel itself.
pub struct KernelThread(Task);

impl KernelThread {
    /// Creates a thread that runs `main`.
    ///
    /// # Panics
    /// Panics if there is no memory for the thread's stack.
    pub fn new(main: extern "C" fn() -> !) -> KernelThread {
        let stack = new_stack().expect("memory for a stack");
        // A function starts with the stack as a call leaves it: 8 bytes below an aligned address.
        let top = stack.as_ptr_range().end as u64 - 8;
        let registers = Registers::in_kernel(main as *const () as u64, top);
        KernelThread(Task::new(stack, registers, VectorState::initial(), 0))
    }
}

impl Runnable for KernelThread {
    fn task(&self) -> &Task {
        &self.0
    }

    fn address_space(&self) -> Option<MmId> {
        None
    }

    fn has_signal(&self) -> bool {
        false
    }
}
