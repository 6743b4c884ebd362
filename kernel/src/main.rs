//! A small x86-64 kernel whose address spaces are those of the `vmarea` crate.
//!
//! The kernel boots under QEMU through PVH on one or more CPUs, unpacks an initramfs and runs
//! static Linux programs. Its purpose is to show the core on a real MMU. The modules `memory` and
//! `space` contain everything that an embedder has to provide; the other modules contain what
//! programs need in order to run.
//!
//! The modules are in an order, and each uses only those below it; `ci/checks/layers.py` finds modules
//! that use each other. Higher modules reach lower ones by three more ways: traits that they
//! implement (`scheduler::task::Runnable`, `files::open::Generated`), symbols that the entry code
//! calls, and the function that `space::shortage` calls to kill a process.
//!
//! ```text
//! main       starts everything        boot: the boot loader's information, backtrace: for a panic
//! traps      page faults, exceptions, the timer interrupt
//! syscall    system calls by number
//! proc       the files of /proc
//! process    processes, threads, signals
//! files      inodes, open files, pipes, the terminal
//! space      the core (vmarea) and its address spaces, faults, reclaim
//! scheduler  thread switches, sleeping and waking
//! memory     frames, tables, the page cache, and what the core needs from below: platform, mmu
//! cpu        per-CPU data, entry code, interrupts, time          console: the serial line
//! failure    results of system calls
//! ```
#![no_std]
#![no_main]
#![allow(
    non_upper_case_globals,
    reason = "the numbers of system calls have Linux's names"
)]

extern crate alloc;

mod backtrace;
mod boot;
mod console;
mod cpu;
mod failure;
mod files;
mod memory;
mod proc;
mod process;
mod scheduler;
mod space;
mod syscall;
mod traps;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use boot::{BootInfo, Options};
use console::exit;
use core::ops::Range;
use cpu::direct_map::pointer_to;
use cpu::{Registers, apic};
use files::open::{Object, OpenFile};
use files::{FileTable, initramfs, path};
use linux_raw_sys::general::O_RDWR;
use memory::{frames, heap, mmu, platform, swap};
use process::exec::{self, Command};
use process::signal::{Actions, ThreadSignals};
use process::{Inherited, Process, Thread, oom};
use scheduler::task::{VectorState, new_stack};
use space::{reclaim, shortage};
use vmarea::policy::Policy;

/// Divisor that determines the heap's size: the heap gets `1 / HEAP_SHARE` of the memory.
const HEAP_SHARE: u64 = 6;
/// Exit code for a panic; QEMU's exit status is then `2 * PANICKED + 1`.
const PANICKED: u32 = 49;

/// Starts the kernel on the first CPU; called by `start.s` with the boot information's address.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(info: u64) -> ! {
    // SAFETY: PVH passes the address, and nothing has run yet.
    let boot = unsafe { BootInfo::read(info) };
    let rest = start_heap(&boot);
    // SAFETY: once, on the first CPU.
    unsafe { cpu::start() };
    let options = Options::parse(boot.command_line);
    start_frames(rest, &options);
    if options.trace {
        syscall::trace();
    }
    mmu::set_window(options.widen);
    if options.flush_local {
        mmu::flush_only_here();
    }
    let Some(policy) = Policy::by_name(&options.policy) else {
        panic!("no policy {}", options.policy);
    };
    space::start(policy);
    shortage::set_killer(oom::kill);
    initramfs::add_devices();
    // SAFETY: the boot loader has put the archive there, and the pool does not contain it.
    let archive = unsafe { bytes_at(&boot.initramfs) };
    let files = initramfs::unpack(archive);
    apic::start_others();
    say!(
        "policy {}, VMA lock: {}, {} CPUs, {} frames, {} pages of swap, {files} files",
        policy.name,
        platform::LOCK_NAME,
        cpu::online(),
        frames::total_frames(),
        swap::slots(),
    );
    proc::check::start();
    if swap::slots() != 0 {
        reclaim::start(options.reclaim_always);
    }
    start_init(options.arguments);
    scheduler::idle()
}

/// Starts another CPU; called by `start.s`.
#[unsafe(no_mangle)]
extern "C" fn ap_main() -> ! {
    // SAFETY: once on each CPU; `start_others` starts them one after the other.
    unsafe { cpu::start() };
    scheduler::idle()
}

/// Puts the heap after the kernel; returns the memory after the heap, up to the initramfs if any.
fn start_heap(boot: &BootInfo) -> Range<u64> {
    let all = boot.memory.clone();
    let size = ((all.end - all.start) / HEAP_SHARE).next_multiple_of(4096);
    let end = match boot.initramfs.start {
        0 => all.end,
        initramfs => initramfs & !4095,
    };
    assert!(all.start + size < end, "too little memory");
    // SAFETY: the memory after the kernel and below the initramfs is nobody's.
    unsafe { heap::start(pointer_to(all.start), size as usize) };
    all.start + size..end
}

/// Divides the memory into page frames and, after them, the swap device.
fn start_frames(memory: Range<u64>, options: &Options) {
    let swap = options.swap & !4095;
    assert!(
        swap < memory.end - memory.start,
        "too little memory for swap"
    );
    let device = memory.end - swap;
    let end = match options.memory & !4095 {
        0 => device,
        size => device.min(memory.start + size),
    };
    // SAFETY: `memory` is nobody's, and the two parts are apart.
    unsafe {
        frames::add_memory(memory.start..end);
        swap::start(device..memory.end);
    }
}

/// Returns the bytes in a range of physical addresses.
///
/// # Safety
/// The bytes never change.
unsafe fn bytes_at(range: &Range<u64>) -> &'static [u8] {
    let len = (range.end - range.start) as usize;
    // SAFETY: as the caller promises; the direct map shows them.
    unsafe { core::slice::from_raw_parts(pointer_to(range.start), len) }
}

/// Creates the first process, which runs `/init` and has the terminal as its standard files.
fn start_init(arguments: Vec<alloc::string::String>) {
    let mut all = vec!["/init".into()];
    all.extend(arguments);
    let command = Command {
        path: "/init".into(),
        arguments: all,
        environment: vec!["HOME=/".into(), "TERM=linux".into(), "PATH=/bin".into()],
    };
    let inherited = Inherited::first();
    let loaded = exec::load(command, &inherited, None)
        .unwrap_or_else(|why| panic!("cannot run /init: {why:?}"));
    let files = FileTable::default();
    let terminal = path::find("/", "/dev/console").expect("devices exist");
    let terminal = OpenFile::new(Object::Inode(terminal), "/dev/console".into(), O_RDWR);
    for _ in 0..3 {
        files
            .add(Arc::clone(&terminal), 0, false)
            .expect("an empty table");
    }
    let pid = process::new_number();
    let actions = Arc::new(Actions::default());
    let process = Process::new(pid, 0, 0, loaded.mm, Arc::new(files), actions, inherited);
    let registers = Registers::at_start(loaded.entry, loaded.stack);
    let stack = new_stack().expect("memory for a stack");
    let (vector, signals) = (VectorState::initial(), ThreadSignals::default());
    let thread = Thread::new(
        stack,
        pid,
        Arc::clone(&process),
        registers,
        vector,
        0,
        signals,
    );
    process.start_thread(thread);
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: this CPU stops here, and may have held the lock.
    unsafe { console::CONSOLE.force_unlock() };
    let (place, why) = (info.location(), info.message());
    let place = place.map_or("?".into(), |at| alloc::format!("{at}"));
    say!("panic on CPU {} at {place}: {why}", cpu::number());
    backtrace::print();
    exit(PANICKED)
}
