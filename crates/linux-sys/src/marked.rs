//! Table of the processes whose events BPF programs record.
//!
//! A process that a marked one creates is marked before it runs.
//!
//! # Linux
//! Tracepoint `sched:sched_process_fork`, as a `tp_btf` program. The programs know processes by
//! their thread group IDs in the initial PID namespace.

use super::bpf::tracepoint::{found, run_at};
use super::bpf::{Assembler, LoadError, MAP_TYPE_ARRAY, Map, Reg, Width};
use super::btf::{Btf, Kind};
use std::io;
use std::os::fd::OwnedFd;

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
    _follows: OwnedFd,
}

impl MarkedProcesses {
    /// Creates a table without a marked process.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_PERFMON`; `NotFound` if the kernel does not describe the
    /// tracepoint; the verifier's reason if it rejects the program.
    pub fn attach(btf: &Btf) -> Result<MarkedProcesses, LoadError> {
        let table = Map::new(MAP_TYPE_ARRAY, 8, PROCESSES)?;
        let code = fork_program(thread_group(btf)?, &table);
        let follows = run_at(btf, &code, c"vmarea_fork", "sched_process_fork")?;
        Ok(MarkedProcesses {
            table,
            _follows: follows,
        })
    }

    /// Marks the process with a thread group ID of the initial PID namespace.
    ///
    /// # Errors
    /// Those of `BPF_MAP_UPDATE_ELEM`.
    pub fn mark(&self, tgid: u32) -> io::Result<()> {
        self.table.set(tgid % PROCESSES, 1u64)
    }

    /// Ends a program here unless the current process is marked.
    ///
    /// Overwrites R0 to R5 and the 8 bytes at the top of the stack.
    pub(super) fn only_marked(&self, code: &mut Assembler) {
        code.call(HELPER_CURRENT_PID_TGID);
        code.store(Reg::Frame, KEY, Reg::R0);
        // The thread group is the high half.
        code.load(Width::Word, Reg::R1, Reg::Frame, KEY + 4);
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

/// Returns the offset of a task's thread group ID.
fn thread_group(btf: &Btf) -> io::Result<i16> {
    let task = found(btf.find(Kind::Struct, "task_struct"))?;
    let member = btf.member(task, "tgid").filter(|member| member.size == 4);
    found(member.and_then(|member| i16::try_from(member.offset).ok()))
}

/// Looks up the entry of the process whose ID `R1` holds: sets `R0` to its address or to null.
fn look_up(code: &mut Assembler, table: &Map) {
    code.set(Reg::R2, PROCESSES as i32 - 1);
    code.and(Reg::R1, Reg::R2);
    code.store(Reg::Frame, KEY, Reg::R1);
    code.look_up(table);
}

/// Assembles the program that marks the child of a marked process; the arguments are both tasks.
fn fork_program(tgid: i16, table: &Map) -> Assembler {
    let mut code = Assembler::default();
    code.copy(Reg::R6, Reg::R1);
    code.load(Width::Double, Reg::R1, Reg::R6, 0);
    code.load(Width::Word, Reg::R1, Reg::R1, tgid);
    look_up(&mut code, table);
    let unknown = code.jump_if_zero(Reg::R0);
    code.load(Width::Double, Reg::R1, Reg::R0, 0);
    let unmarked = code.jump_if_zero(Reg::R1);
    code.load(Width::Double, Reg::R1, Reg::R6, 8);
    code.load(Width::Word, Reg::R1, Reg::R1, tgid);
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
