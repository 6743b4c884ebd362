//! BPF programs that write chosen system calls of chosen processes into perf rings.
//!
//! Two programs run at the entry and at the exit of each call of the machine. A table in a BPF map
//! decides by the call's number, and by two of its arguments, whether to write a record;
//! [`MarkedProcesses`] are the chosen ones. Two tracepoints replace
//! one pair per call: the kernel waits for grace periods when it removes a tracepoint of perf, but
//! not when it detaches a BPF program.
//!
//! # Picture
//! ```text
//!   entry record  | kind 8 | nr 8 | 6 arguments 8 each | file 8 |
//!   exit record   | kind 8 | nr 8 | result 8 |
//! ```
//!
//! # Linux
//! Tracepoints `raw_syscalls:sys_enter` and `sys_exit` (Linux 5.5). x86-64 only: elsewhere,
//! [`CallTrace::attach`] does not find the registers of the arguments. A call by the 32-bit interface
//! has a number of another table; the caller must not observe processes that make such calls.

use super::bpf::tracepoint::{Attached, Context, event_map, offset};
use super::bpf::{Assembler, Counter, LoadError, MAP_TYPE_ARRAY, Map, Reg, Width};
use super::btf::Btf;
use super::marked::MarkedProcesses;
use super::open_file::OpenFiles;
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;

/// Kind of a record of a call's entry.
pub const ENTRY: u64 = 1;
/// Kind of a record of a call's exit.
pub const EXIT: u64 = 2;
/// Number of calls for which the table has space.
pub const CALLS: u32 = 512;

/// Members of `struct pt_regs` with the arguments of a call, in order.
const ARGUMENTS: [&str; 6] = ["di", "si", "dx", "r10", "r8", "r9"];
/// Offset of the record from the frame pointer; the key of a look-up is above it.
const RECORD: i16 = -80;
const ENTRY_BYTES: i32 = 72;
const EXIT_BYTES: i32 = 24;

/// Which occurrences of a call are written.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallFilter {
    /// 1 if the entry is written.
    pub entry: u64,
    /// 1 if the exit is written.
    pub exit: u64,
    /// 1 if the entry is written to the event with stacks.
    pub stack: u64,
    /// Mask and value: the entry is written only if the second argument under the mask equals the
    /// value.
    pub second: [u64; 2],
    /// As `second`, for the third argument.
    pub third: [u64; 2],
    /// 1 if the call is `mmap`: the record of a mapping that is not anonymous contains the kernel's
    /// address of the `struct file` behind the descriptor. In all other records it is 0.
    pub file: u64,
}

/// Events of one CPU that receive the records.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Number of the CPU.
    pub cpu: u32,
    /// Event for records without stacks.
    pub plain: BorrowedFd<'a>,
    /// Event for records with stacks.
    pub with_stack: BorrowedFd<'a>,
}

/// Attached programs; dropping the value detaches them.
#[derive(Debug)]
pub struct CallTrace {
    programs: [Attached; 2],
    unwritten: Counter,
    /// The kernel removes the events from a map when the map's descriptor is closed.
    _events: [Map; 2],
}

impl CallTrace {
    /// Attaches the programs with `filters`, each for the call with the given number. Without
    /// `processes`, the calls of all processes are written.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_PERFMON`; `NotFound` if the kernel does not describe the
    /// tracepoints; the verifier's reason if it rejects a program.
    pub fn attach(
        btf: &Btf,
        filters: impl IntoIterator<Item = (u32, CallFilter)>,
        outputs: &[Output<'_>],
        processes: Option<&MarkedProcesses>,
    ) -> Result<CallTrace, LoadError> {
        let table = Map::new(MAP_TYPE_ARRAY, size_of::<CallFilter>(), CALLS)?;
        for (nr, filter) in filters {
            table.set(nr, filter)?;
        }
        let events = Events {
            plain: event_map(outputs.iter().map(|output| (output.cpu, output.plain)))?,
            with_stack: event_map(outputs.iter().map(|output| (output.cpu, output.with_stack)))?,
            unwritten: Counter::new()?,
        };
        let context = Context::of(btf);
        let places = Places::find(btf, context)?;
        let files = OpenFiles::find(btf)?;
        let entry = places.entry_program((&table, processes), &files, &events);
        let exit = places.exit_program((&table, processes), &events);
        let run = |code, name, point| Attached::run(btf, context, code, name, point);
        // An exit without its entry is easier to interpret than an entry without its exit.
        let exit = run(&exit, c"vmarea_exit", "raw_syscalls/sys_exit")?;
        let entry = run(&entry, c"vmarea_entry", "raw_syscalls/sys_enter")?;
        Ok(CallTrace {
            programs: [entry, exit],
            unwritten: events.unwritten,
            _events: [events.plain, events.with_stack],
        })
    }

    /// Detaches the programs, which may still be running on other CPUs.
    pub fn detach(&mut self) {
        self.programs.iter_mut().for_each(Attached::detach);
    }

    /// Returns how many records may be missing, apart from those that did not fit into a ring, which
    /// the ring counts: the programs were skipped, for whatever call of whatever process, or could
    /// not write.
    ///
    /// # Errors
    /// The call cannot fail.
    pub fn lost(&self) -> io::Result<u64> {
        let [entry, exit] = &self.programs;
        Ok(entry.skipped()? + exit.skipped()? + self.unwritten.get())
    }
}

/// Where the programs write.
struct Events {
    plain: Map,
    with_stack: Map,
    unwritten: Counter,
}

/// The table of calls, and the processes whose calls are written; `None` for all.
type Chosen<'a> = (&'a Map, Option<&'a MarkedProcesses>);

/// Offsets of a call's number, arguments and result.
struct Places {
    context: Context,
    /// In the context of an entry.
    entered: i16,
    /// In what R9 points to.
    arguments: [i16; 6],
    /// In what R9 points to.
    returned: i16,
    /// In the context of an exit.
    result: i16,
}

impl Places {
    fn find(btf: &Btf, context: Context) -> io::Result<Places> {
        let mut arguments = [0; 6];
        match context {
            // The arguments are the registers, and the number or the result.
            Context::Arguments => {
                for (to, name) in arguments.iter_mut().zip(ARGUMENTS) {
                    *to = offset(btf, "pt_regs", name, 8)?;
                }
                Ok(Places {
                    context,
                    entered: 8,
                    arguments,
                    returned: offset(btf, "pt_regs", "orig_ax", 8)?,
                    result: 8,
                })
            }
            Context::Record => {
                let [enter, exit] = ["trace_event_raw_sys_enter", "trace_event_raw_sys_exit"];
                let first = offset(btf, enter, "args", 48)?;
                for (n, to) in (0..).zip(&mut arguments) {
                    *to = first + 8 * n;
                }
                Ok(Places {
                    context,
                    entered: offset(btf, enter, "id", 8)?,
                    arguments,
                    returned: offset(btf, exit, "id", 8)?,
                    result: offset(btf, exit, "ret", 8)?,
                })
            }
        }
    }

    /// Begins a program: sets R6 to the context, and R9 to the registers or to the record.
    fn begin(&self) -> Assembler {
        let mut code = Assembler::default();
        code.copy(Reg::R6, Reg::R1);
        match self.context {
            Context::Arguments => code.load(Width::Double, Reg::R9, Reg::R6, 0),
            Context::Record => code.copy(Reg::R9, Reg::R6),
        }
        code
    }

    /// Assembles the program for entries.
    fn entry_program(&self, chosen: Chosen<'_>, files: &OpenFiles, events: &Events) -> Assembler {
        let (table, processes) = chosen;
        // R6: the context. R7: the number. R8: the filter. R9: what contains the arguments.
        let mut code = self.begin();
        code.load(Width::Double, Reg::R7, Reg::R6, self.entered);
        code.store(Reg::Frame, -8, Reg::R7);
        code.look_up(table);
        let unknown = code.jump_if_zero(Reg::R0);
        code.copy(Reg::R8, Reg::R0);
        code.load(Width::Double, Reg::R1, Reg::R8, 0);
        let unwanted = code.jump_if_zero(Reg::R1);
        if let Some(processes) = processes {
            processes.only_marked(&mut code);
        }
        code.set(Reg::R1, ENTRY as i32);
        code.store(Reg::Frame, RECORD, Reg::R1);
        code.store(Reg::Frame, RECORD + 8, Reg::R7);
        for (n, offset) in self.arguments.into_iter().enumerate() {
            code.load(Width::Double, Reg::R1, Reg::R9, offset);
            code.store(Reg::Frame, RECORD + 16 + 8 * n as i16, Reg::R1);
        }
        let mut differs = Vec::new();
        for (argument, filter) in [(24, 24), (32, 40)] {
            code.load(Width::Double, Reg::R1, Reg::Frame, RECORD + argument);
            code.load(Width::Double, Reg::R2, Reg::R8, filter);
            code.load(Width::Double, Reg::R3, Reg::R8, filter + 8);
            code.and(Reg::R1, Reg::R2);
            differs.push(code.jump_unless_same(Reg::R1, Reg::R3));
        }
        add_file(&mut code, files);
        code.load(Width::Double, Reg::R1, Reg::R8, 16);
        let without = code.jump_if_zero(Reg::R1);
        code.output(&events.with_stack, RECORD, ENTRY_BYTES, &events.unwritten);
        code.exit();
        code.land(without);
        code.output(&events.plain, RECORD, ENTRY_BYTES, &events.unwritten);
        for jump in differs.into_iter().chain([unknown, unwanted]) {
            code.land(jump);
        }
        code.exit();
        code
    }

    /// Assembles the program for exits.
    fn exit_program(&self, (table, processes): Chosen<'_>, events: &Events) -> Assembler {
        let mut code = self.begin();
        code.load(Width::Double, Reg::R7, Reg::R9, self.returned);
        code.store(Reg::Frame, -8, Reg::R7);
        code.look_up(table);
        let unknown = code.jump_if_zero(Reg::R0);
        code.load(Width::Double, Reg::R1, Reg::R0, 8);
        let unwanted = code.jump_if_zero(Reg::R1);
        if let Some(processes) = processes {
            processes.only_marked(&mut code);
        }
        code.set(Reg::R1, EXIT as i32);
        code.store(Reg::Frame, RECORD, Reg::R1);
        code.store(Reg::Frame, RECORD + 8, Reg::R7);
        code.load(Width::Double, Reg::R1, Reg::R6, self.result);
        code.store(Reg::Frame, RECORD + 16, Reg::R1);
        code.output(&events.plain, RECORD, EXIT_BYTES, &events.unwritten);
        code.land(unknown);
        code.land(unwanted);
        code.exit();
        code
    }
}

/// Adds the file that a call is about to map to the record of its entry; R8 is the filter.
fn add_file(code: &mut Assembler, files: &OpenFiles) {
    let argument = |n: i16| RECORD + 16 + 8 * n;
    const FILE: i16 = RECORD + 64;
    code.set(Reg::R1, 0);
    code.store(Reg::Frame, FILE, Reg::R1);
    code.load(
        Width::Double,
        Reg::R1,
        Reg::R8,
        offset_of!(CallFilter, file) as i16,
    );
    let unwanted = code.jump_if_zero(Reg::R1);
    code.load(Width::Double, Reg::R1, Reg::Frame, argument(3));
    code.set(Reg::R2, libc::MAP_ANONYMOUS);
    code.and(Reg::R1, Reg::R2);
    let anonymous = code.jump_unless_zero(Reg::R1);
    files.address(code, argument(4), FILE);
    code.land(unwanted);
    code.land(anonymous);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::tracepoint::kernel_types;

    #[test]
    fn a_record_that_cannot_be_written_counts_as_lost() {
        let Some(btf) = kernel_types() else { return };
        let nr = libc::SYS_getppid as u32;
        let filter = CallFilter {
            entry: 1,
            ..CallFilter::default()
        };
        // No CPU has an event that receives records.
        let mut trace = match CallTrace::attach(&btf, [(nr, filter)], &[], None) {
            Ok(trace) => trace,
            Err(error) => return eprintln!("skipped: {error:?}"),
        };
        let before = trace.lost().unwrap();
        for _ in 0..10 {
            // SAFETY: the call has no arguments.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        trace.detach();
        assert!(trace.lost().unwrap() >= before + 10);
    }
}
