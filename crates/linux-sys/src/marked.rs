//! Table of the processes whose events BPF programs record.
//!
//! A process that a marked one creates is marked before it runs.
//!
//! # Linux
//! Tracepoint `sched:sched_process_fork`. The programs know processes by their thread group IDs in
//! the initial PID namespace.

use super::bpf::tracepoint::{Attached, Context, offset};
use super::bpf::{Assembler, LoadError, MAP_TYPE_ARRAY, Map, Reg, Width};
use super::btf::Btf;
use std::io;

/// Number of entries of the table, a power of two. Processes whose IDs have the same remainder share
/// an entry; the reader drops the records of the others.
const PROCESSES: u32 = 1 << 16;
/// `bpf_get_current_pid_tgid()`.
const HELPER_CURRENT_PID_TGID: i32 = 14;
/// Offset from the frame pointer of the key of a look-up.
const KEY: i16 = -8;

/// The table, and the program that follows the creation of processes; dropping the value detaches it.
#[derive(Debug)]
pub struct MarkedProcesses {
    table: Map,
    follows: Attached,
}

impl MarkedProcesses {
    /// Creates a table without a marked process.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_PERFMON`; `NotFound` if the kernel does not describe the
    /// tracepoint; the verifier's reason if it rejects the program.
    pub fn attach(btf: &Btf) -> Result<MarkedProcesses, LoadError> {
        let table = Map::new(MAP_TYPE_ARRAY, 8, PROCESSES)?;
        let context = Context::of(btf);
        let child = match context {
            Context::Arguments => offset(btf, "task_struct", "tgid", 4)?,
            Context::Record => offset(btf, "trace_event_raw_sched_process_fork", "child_pid", 4)?,
        };
        let code = fork_program(context, child, &table);
        let point = "sched/sched_process_fork";
        let follows = Attached::run(btf, context, &code, c"vmarea_fork", point)?;
        Ok(MarkedProcesses { table, follows })
    }

    /// Marks the process with a thread group ID of the initial PID namespace.
    ///
    /// # Errors
    /// Those of `BPF_MAP_UPDATE_ELEM`.
    pub fn mark(&self, tgid: u32) -> io::Result<()> {
        self.table.set(tgid % PROCESSES, 1u64)
    }

    /// Returns how many tasks may have been created without being marked.
    ///
    /// # Errors
    /// The call cannot fail.
    pub fn lost(&self) -> io::Result<u64> {
        self.follows.skipped()
    }

    /// Ends a program here unless the current process is marked.
    ///
    /// Overwrites R0 to R5 and the 8 bytes at the top of the stack.
    pub(super) fn only_marked(&self, code: &mut Assembler) {
        current_process(code);
        look_up(code, &self.table);
        let known = code.jump_unless_zero(Reg::R0);
        code.exit();
        code.land(known);
        code.load(Width::Double, Reg::R1, Reg::R0, 0);
        let marked = code.jump_unless_zero(Reg::R1);
        code.exit();
        code.land(marked);
    }
}

/// Sets R1 to the thread group ID of the current task. Overwrites R0 to R5.
fn current_process(code: &mut Assembler) {
    code.call(HELPER_CURRENT_PID_TGID);
    code.store(Reg::Frame, KEY, Reg::R0);
    // The thread group is the high half.
    code.load(Width::Word, Reg::R1, Reg::Frame, KEY + 4);
}

/// Looks up the entry of the process whose ID `R1` holds: sets `R0` to its address or to null.
fn look_up(code: &mut Assembler, table: &Map) {
    code.set(Reg::R2, PROCESSES as i32 - 1);
    code.and(Reg::R1, Reg::R2);
    code.store(Reg::Frame, KEY, Reg::R1);
    code.look_up(table);
}

/// Assembles the program that marks the child of a marked process. The tracepoint's arguments are
/// both tasks, and the parent is the current one; `child` is the offset of the child's ID in its task
/// or in the record. The record has the ID of the task, which for a thread is not that of a process.
fn fork_program(context: Context, child: i16, table: &Map) -> Assembler {
    let mut code = Assembler::default();
    code.copy(Reg::R6, Reg::R1);
    current_process(&mut code);
    look_up(&mut code, table);
    let unknown = code.jump_if_zero(Reg::R0);
    code.load(Width::Double, Reg::R1, Reg::R0, 0);
    let unmarked = code.jump_if_zero(Reg::R1);
    if context == Context::Arguments {
        code.load(Width::Double, Reg::R6, Reg::R6, 8);
    }
    code.load(Width::Word, Reg::R1, Reg::R6, child);
    look_up(&mut code, table);
    let none = code.jump_if_zero(Reg::R0);
    code.set(Reg::R1, 1);
    code.store(Reg::R0, 0, Reg::R1);
    for jump in [unknown, unmarked, none] {
        code.land(jump);
    }
    code.exit();
    code
}
