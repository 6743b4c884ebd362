//! The scheduler: one queue of threads that are ready to run, and one list of sleeping threads.
//!
//! A thread yields its CPU at the timer interrupt or when it sleeps. To sleep, a thread first
//! registers as a sleeper ([`doze`]), then checks the condition that it waits for, and then calls
//! [`sleep`], so that a wake-up after the check finds the thread registered. During a thread
//! switch, the old thread locks the queues and the new thread unlocks them, so no CPU runs a thread
//! whose registers have not been saved yet.
//!
//! # Picture
//! ```text
//! Ready ──▶ Running ──doze──▶ Dozing ──schedule──▶ Asleep
//!   ▲          │ ▲              │ wake               │ wake
//!   └─schedule─┘ └──────────────┘                    │
//!   └────────────────────────────────────────────────┘
//! ```

pub mod task;

use crate::cpu::{self, MAX_CPUS, PerCpu, apic, clock, fs_base};
use crate::memory::mmu;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;
use task::{KernelThread, RunState, Runnable, Task, Woken};
use x86_64::instructions::interrupts;

/// Event that a thread can sleep for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A wake-up on a futex, identified by its address space and address or its file and offset.
    Futex(u64, u64),
    /// A state change of the pipe or terminal at this address.
    File(usize),
    /// A state change of any file, for `poll`.
    AnyFile,
    /// A state change of any child of the process with this number.
    Child(u32),
    /// The process with this number, created by `vfork`, has executed a program or has ended.
    OwnProgram(u32),
    /// Few frames are free.
    LowMemory,
    /// No event: only a signal or the deadline ends the sleep.
    Nothing,
}

struct Sleeper {
    thread: Arc<dyn Runnable>,
    event: Event,
    /// For a futex, the mask bits of the wake-ups that wake this sleeper.
    mask: u32,
    deadline: u64,
}

struct Queues {
    ready: VecDeque<Arc<dyn Runnable>>,
    sleepers: Vec<Sleeper>,
}

static QUEUES: Mutex<Queues> = Mutex::new(Queues {
    ready: VecDeque::new(),
    sleepers: Vec::new(),
});
/// The idle CPUs, one bit each.
static IDLE: AtomicU64 = AtomicU64::new(0);

/// What runs on one CPU.
struct Here {
    current: UnsafeCell<Option<Arc<dyn Runnable>>>,
    /// The thread that the CPU is switching away from, during a thread switch.
    previous: Cell<Option<Arc<dyn Runnable>>>,
    /// Stack pointer of the idle loop while a thread runs on this CPU.
    idle_rsp: Cell<u64>,
}

static HERE: PerCpu<Here> = PerCpu::new(
    [const {
        Here {
            current: UnsafeCell::new(None),
            previous: Cell::new(None),
            idle_rsp: Cell::new(0),
        }
    }; MAX_CPUS],
);

unsafe extern "C" {
    fn switch_stacks(save: *mut u64, to: u64);
}

impl Queues {
    /// Wakes at most `limit` sleepers that `take` selects; returns the number of threads woken.
    fn wake(
        &mut self,
        limit: usize,
        why: Woken,
        mut take: impl FnMut(&mut Sleeper) -> bool,
    ) -> usize {
        let mut woken = 0;
        let mut at = 0;
        while at < self.sleepers.len() && woken < limit {
            if !take(&mut self.sleepers[at]) {
                at += 1;
                continue;
            }
            let thread = self.sleepers.remove(at).thread;
            thread.task().set_woken(why);
            woken += 1;
            if thread.task().set_state(RunState::Running) == RunState::Asleep {
                self.make_ready(thread);
            }
        }
        woken
    }

    fn make_ready(&mut self, thread: Arc<dyn Runnable>) {
        thread.task().set_state(RunState::Ready);
        self.ready.push_back(thread);
    }
}

/// Calls `f` with the queues, then wakes idle CPUs if threads are ready.
fn with_queues<R>(f: impl FnOnce(&mut Queues) -> R) -> R {
    let (result, waiting) = {
        let mut queues = QUEUES.lock();
        (f(&mut queues), queues.ready.len())
    };
    for _ in 0..waiting {
        // ORDERING: SeqCst; the queue was filled before, and an idle CPU checks the queue
        // afterwards.
        let idle = IDLE.load(Ordering::SeqCst);
        if idle == 0 {
            break;
        }
        let cpu = idle.trailing_zeros() as usize;
        // ORDERING: SeqCst, as above.
        if IDLE.fetch_and(!(1 << cpu), Ordering::SeqCst) >> cpu & 1 != 0 {
            apic::send_wake(cpu);
        }
    }
    result
}

/// Returns the thread that runs on this CPU; `None` while the CPU is idle.
///
/// The reference must not be used any more once the CPU switches to another thread.
fn running() -> &'static Option<Arc<dyn Runnable>> {
    // SAFETY: only this CPU uses the cell, with interrupts off, and `switch` changes it when no
    // reference to the old value is used any more.
    unsafe { &*HERE.get().current.get() }
}

/// Returns the current thread.
///
/// # Panics
/// Panics if the CPU is idle.
pub fn current() -> Arc<dyn Runnable> {
    running().clone().expect("a thread runs")
}

/// Calls `f` with the current thread, without counting a reference to it.
///
/// `f` may call the scheduler.
///
/// # Panics
/// Panics if the CPU is idle.
pub fn with_current<R>(f: impl FnOnce(&dyn Runnable) -> R) -> R {
    let current: *const dyn Runnable = Arc::as_ptr(running().as_ref().expect("a thread runs"));
    // SAFETY: until a thread has ended, a CPU, the queue of ready threads or the list of sleepers
    // keeps it. `f` runs on the thread's own stack, so it does not run any more after that.
    f(unsafe { &*current })
}

/// Creates a thread of the kernel that runs `main`.
pub fn start_kernel_thread(main: extern "C" fn() -> !) {
    add(Arc::new(KernelThread::new(main)));
}

/// Lets a new thread run.
pub fn add(thread: Arc<dyn Runnable>) {
    with_queues(|queues| queues.make_ready(thread));
}

/// Wakes at most `limit` threads that wait for an event; returns the number of threads woken.
pub fn wake(event: Event, limit: usize) -> usize {
    with_queues(|queues| queues.wake(limit, Woken::Event, |s| s.event == event))
}

/// Like [`wake`], but wakes only sleepers whose mask has a bit in common with `mask`.
pub fn wake_masked(event: Event, limit: usize, mask: u32) -> usize {
    let matches = |s: &mut Sleeper| s.event == event && s.mask & mask != 0;
    with_queues(|queues| queues.wake(limit, Woken::Event, matches))
}

/// Makes at most `limit` sleepers wait for `to` instead of `from`; returns the number changed.
pub fn requeue(from: Event, to: Event, limit: usize) -> usize {
    let mut queues = QUEUES.lock();
    let waiting = queues.sleepers.iter_mut().filter(|s| s.event == from);
    waiting.take(limit).map(|s| s.event = to).count()
}

/// Wakes a thread from any wait, because a signal is pending or the thread must end.
pub fn interrupt(task: &Task) {
    let is_it = |s: &mut Sleeper| core::ptr::eq(s.thread.task(), task);
    with_queues(|queues| queues.wake(1, Woken::Signal, is_it));
}

/// Registers the current thread as a sleeper while it still runs.
pub fn doze(event: Event, mask: u32, deadline: Option<u64>) {
    let thread = current();
    let mut queues = QUEUES.lock();
    thread.task().set_state(RunState::Dozing);
    queues.sleepers.push(Sleeper {
        thread,
        event,
        mask,
        deadline: deadline.unwrap_or(u64::MAX),
    });
}

/// Ends the current thread's registration as a sleeper; returns true if it was already woken.
pub fn stop_dozing() -> bool {
    let thread = current();
    let mut queues = QUEUES.lock();
    let at = queues
        .sleepers
        .iter()
        .position(|s| Arc::ptr_eq(&s.thread, &thread));
    let sleeper = at.map(|at| queues.sleepers.remove(at));
    thread.task().set_state(RunState::Running);
    drop(queues);
    sleeper.is_none()
}

/// Sleeps until the current thread, which is registered as a sleeper, is woken.
pub fn sleep() -> Woken {
    let thread = current();
    if thread.has_signal() && !stop_dozing() {
        return Woken::Signal;
    }
    schedule();
    thread.task().woken()
}

/// Sleeps until `ready` returns a value, the deadline passes or a signal arrives.
///
/// # Errors
/// `Timeout` or `Signal`.
pub fn wait<T>(
    event: Event,
    deadline: Option<u64>,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T, Woken> {
    loop {
        doze(event, !0, deadline);
        if let Some(value) = ready() {
            stop_dozing();
            return Ok(value);
        }
        match sleep() {
            Woken::Event => {}
            why => return ready().ok_or(why),
        }
    }
}

/// Switches to a ready thread, or else to the idle loop if the current thread cannot run.
pub fn schedule() {
    let mut queues = QUEUES.lock();
    let current = running().clone();
    let next = queues.ready.pop_front();
    let state = current.as_ref().map(|thread| thread.task().state());
    if next.is_none() && matches!(state, None | Some(RunState::Running)) {
        return;
    }
    if let Some(current) = current {
        match state {
            Some(RunState::Running) => queues.make_ready(current),
            Some(RunState::Dozing) => {
                current.task().set_state(RunState::Asleep);
            }
            _ => {}
        }
    }
    // `finish_switch` unlocks the queues, on the stack of the next thread.
    core::mem::forget(queues);
    switch(next);
    finish_switch();
}

fn switch(next: Option<Arc<dyn Runnable>>) {
    let here = HERE.get();
    mmu::switch(next.as_ref().and_then(|thread| thread.address_space()));
    if let Some(thread) = running() {
        thread.task().save_registers();
    }
    let to = match &next {
        Some(thread) => {
            let task = thread.task();
            task.set_state(RunState::Running);
            task.restore_registers();
            fs_base::set(task.fs_base());
            cpu::this().set_kernel_stack(task.stack_top());
            task.stack_pointer()
        }
        None => here.idle_rsp.get(),
    };
    // SAFETY: as in `running`.
    let previous = unsafe { core::mem::replace(&mut *here.current.get(), next) };
    let save = match &previous {
        Some(thread) => thread.task().stack_pointer_cell(),
        None => here.idle_rsp.as_ptr(),
    };
    here.previous.set(previous);
    // SAFETY: `to` is a stack pointer that `switch_stacks` saved or `Task::new` made, and the
    // lock of the queues keeps other CPUs off that stack; `previous` keeps the cell of the old
    // stack pointer in place.
    unsafe { switch_stacks(save, to) };
}

/// Completes a thread switch, on the stack of the new thread.
#[unsafe(no_mangle)]
extern "C" fn finish_switch() {
    let previous = HERE.get().previous.take();
    // SAFETY: `schedule` has left the queues locked for this thread to unlock.
    unsafe { QUEUES.force_unlock() };
    // This may be the last reference to a thread that has ended.
    drop(previous);
}

/// Yields the CPU; if no other thread is ready, first waits for an interrupt.
pub fn pause() {
    if QUEUES.lock().ready.is_empty() {
        interrupts::enable_and_hlt();
        interrupts::disable();
    }
    schedule();
}

/// Handles pending interrupts, then yields the CPU if another thread is ready; for kernel threads.
pub fn yield_now() {
    interrupts::enable();
    // An interrupt arrives after the instruction that follows `sti`.
    x86_64::instructions::nop();
    interrupts::disable();
    schedule();
}

/// Runs ready threads forever, on the CPU's initial stack.
pub fn idle() -> ! {
    loop {
        // ORDERING: SeqCst; the flag is set before the queue is checked.
        IDLE.fetch_or(1 << cpu::number(), Ordering::SeqCst);
        schedule();
        interrupts::enable_and_hlt();
        interrupts::disable();
    }
}

/// Ends the current thread.
pub fn end_thread(thread: Arc<dyn Runnable>) -> ! {
    thread.task().set_state(RunState::Ended);
    drop(thread);
    schedule();
    unreachable!("a thread that has ended runs again");
}

/// Wakes the threads whose deadlines have passed; called by the timer interrupt.
pub fn wake_due() {
    let now = clock::now();
    with_queues(|queues| queues.wake(usize::MAX, Woken::Timeout, |s| s.deadline <= now));
}
