//! BPF programs that write page faults and lock acquisitions of chosen processes into perf rings.
//!
//! A table marks the chosen processes. A process that a marked one creates is marked before it runs.
//! Perf's own tracepoint events can follow a process too, but they belong to its tasks and are
//! switched with them, which costs a busy server a microsecond per switch.
//!
//! # Picture
//! ```text
//!   fault record  | kind 8 | address 8 | error code 8 |
//!   lock record   | kind 8 | mm_struct 8 | 1 for writing 8 |
//! ```
//!
//! # Linux
//! Tracepoints `exceptions:page_fault_user` and `page_fault_kernel` (x86-64 only),
//! `mmap_lock:mmap_lock_acquire_returned` and `sched:sched_process_fork`, as `tp_btf` programs.

use super::bpf::tracepoint::{event_map, found, run_at};
use super::bpf::{Assembler, LoadError, MAP_TYPE_ARRAY, Map, Reg, Width};
use super::btf::{Btf, Kind};
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Kind of a record of a fault in user mode.
pub const USER_FAULT: u64 = 1;
/// Kind of a record of a fault that the kernel took.
pub const KERNEL_FAULT: u64 = 2;
/// Kind of a record of `mmap_lock` that was acquired.
pub const LOCK: u64 = 3;
/// Number of bytes of a record.
pub const RECORD_BYTES: usize = 24;

/// Number of entries of the table, a power of two. Processes whose IDs have the same remainder share
/// an entry; the reader drops the records of the others.
const PROCESSES: u32 = 1 << 16;
/// `bpf_get_current_pid_tgid()`.
const HELPER_CURRENT_PID_TGID: i32 = 14;
/// Offset of the record from the frame pointer; the key of a look-up is above it.
const RECORD: i16 = -32;
const KEY: i16 = -8;

/// Attached programs; dropping the value detaches them.
#[derive(Debug)]
pub struct FaultTrace {
    _links: [OwnedFd; 4],
    processes: Map,
    /// The kernel removes the events from a map when the map's descriptor is closed.
    _events: Map,
}

impl FaultTrace {
    /// Attaches the programs, which write to the event of each CPU. No process is marked.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_PERFMON`; `NotFound` if the kernel does not describe the
    /// tracepoints; the verifier's reason if it rejects a program.
    pub fn attach<'a>(
        btf: &Btf,
        outputs: impl Iterator<Item = (u32, BorrowedFd<'a>)> + Clone,
    ) -> Result<FaultTrace, LoadError> {
        let processes = Map::new(MAP_TYPE_ARRAY, 8, PROCESSES)?;
        let events = event_map(outputs)?;
        let run = |code: &Assembler, name: &CStr, tracepoint| run_at(btf, code, name, tracepoint);
        let tgid = task_member(btf, "tgid")?;
        let user = fault_program(USER_FAULT, &processes, &events);
        let kernel = fault_program(KERNEL_FAULT, &processes, &events);
        let lock = lock_program(&processes, &events);
        let links = [
            // A process that is created while the others are attached is already followed.
            run(
                &fork_program(tgid, &processes),
                c"vmarea_fork",
                "sched_process_fork",
            )?,
            run(&user, c"vmarea_user", "page_fault_user")?,
            run(&kernel, c"vmarea_kernel", "page_fault_kernel")?,
            run(&lock, c"vmarea_lock", "mmap_lock_acquire_returned")?,
        ];
        Ok(FaultTrace {
            _links: links,
            processes,
            _events: events,
        })
    }

    /// Marks the process with a thread group ID of the initial PID namespace.
    ///
    /// # Errors
    /// Those of `BPF_MAP_UPDATE_ELEM`.
    pub fn mark(&self, tgid: u32) -> io::Result<()> {
        self.processes.set(tgid % PROCESSES, 1u64)
    }
}

fn task_member(btf: &Btf, name: &str) -> io::Result<i16> {
    let task = found(btf.find(Kind::Struct, "task_struct"))?;
    let member = btf.member(task, name).filter(|member| member.size == 4);
    found(member.and_then(|member| i16::try_from(member.offset).ok()))
}

/// Looks up the entry of the process whose ID `R7` holds: sets `R0` to its address or to null.
fn look_up(code: &mut Assembler, processes: &Map) {
    code.set(Reg::R2, PROCESSES as i32 - 1);
    code.and(Reg::R7, Reg::R2);
    code.store(Reg::Frame, KEY, Reg::R7);
    code.look_up(processes);
}

/// Begins a program that ends here unless the current process is marked. Sets `R6` to the context.
fn of_marked(code: &mut Assembler, processes: &Map) {
    code.copy(Reg::R6, Reg::R1);
    code.call(HELPER_CURRENT_PID_TGID);
    code.store(Reg::Frame, KEY, Reg::R0);
    // The thread group is the high half.
    code.load(Width::Word, Reg::R7, Reg::Frame, KEY + 4);
    look_up(code, processes);
    let known = code.jump_unless_zero(Reg::R0);
    code.exit();
    code.land(known);
    code.load(Width::Double, Reg::R1, Reg::R0, 0);
    let marked = code.jump_unless_zero(Reg::R1);
    code.exit();
    code.land(marked);
}

/// Writes a record of two arguments of the tracepoint.
fn write(code: &mut Assembler, kind: u64, arguments: [i16; 2], events: &Map) {
    code.set(Reg::R1, kind as i32);
    code.store(Reg::Frame, RECORD, Reg::R1);
    for (at, argument) in [(8, arguments[0]), (16, arguments[1])] {
        code.load(Width::Double, Reg::R1, Reg::R6, 8 * argument);
        code.store(Reg::Frame, RECORD + at, Reg::R1);
    }
    code.output(events, RECORD, RECORD_BYTES as i32);
    code.exit();
}

/// Assembles a program for faults; the arguments are the address, the registers, the error code.
fn fault_program(kind: u64, processes: &Map, events: &Map) -> Assembler {
    let mut code = Assembler::default();
    of_marked(&mut code, processes);
    write(&mut code, kind, [0, 2], events);
    code
}

/// Assembles the program for locks; the arguments are the `mm_struct`, whether it was for writing,
/// and whether it succeeded.
fn lock_program(processes: &Map, events: &Map) -> Assembler {
    let mut code = Assembler::default();
    of_marked(&mut code, processes);
    code.load(Width::Double, Reg::R1, Reg::R6, 16);
    let acquired = code.jump_unless_zero(Reg::R1);
    code.exit();
    code.land(acquired);
    write(&mut code, LOCK, [0, 1], events);
    code
}

/// Assembles the program that marks the child of a marked process; the arguments are both tasks.
fn fork_program(tgid: i16, processes: &Map) -> Assembler {
    let mut code = Assembler::default();
    code.copy(Reg::R6, Reg::R1);
    code.load(Width::Double, Reg::R1, Reg::R6, 0);
    code.load(Width::Word, Reg::R7, Reg::R1, tgid);
    look_up(&mut code, processes);
    let unknown = code.jump_if_zero(Reg::R0);
    code.load(Width::Double, Reg::R8, Reg::R0, 0);
    let unmarked = code.jump_if_zero(Reg::R8);
    code.load(Width::Double, Reg::R1, Reg::R6, 8);
    code.load(Width::Word, Reg::R7, Reg::R1, tgid);
    look_up(&mut code, processes);
    let none = code.jump_if_zero(Reg::R0);
    code.set(Reg::R1, 1);
    code.store(Reg::R0, 0, Reg::R1);
    for jump in [unknown, unmarked, none] {
        code.land(jump);
    }
    code.exit();
    code
}
