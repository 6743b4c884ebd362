//! BPF programs that write page faults and lock acquisitions of chosen processes into perf rings.
//!
//! [`MarkedProcesses`] are the chosen ones. Perf's own tracepoint events can follow a process too, but they belong to its tasks and are
//! switched with them, which costs a busy server a microsecond per switch.
//!
//! # Picture
//! ```text
//!   fault record  | kind 8 | address 8 | error code 8 |
//!   lock record   | kind 8 | mm_struct 8 | 1 for writing 8 |
//! ```
//!
//! # Linux
//! Tracepoints `exceptions:page_fault_user` and `page_fault_kernel` (x86-64 only), and
//! `mmap_lock:mmap_lock_acquire_returned`, as `tp_btf` programs, before Linux 7.2: since then, a
//! program can be skipped.

use super::bpf::tracepoint::{Attached, Context, event_map};
use super::bpf::{Assembler, Counter, LoadError, Map, Reg, Width};
use super::btf::Btf;
use super::marked::MarkedProcesses;
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

/// Kind of a record of a fault in user mode.
pub const USER_FAULT: u64 = 1;
/// Kind of a record of a fault that the kernel took.
pub const KERNEL_FAULT: u64 = 2;
/// Kind of a record of `mmap_lock` that was acquired.
pub const LOCK: u64 = 3;
/// Number of bytes of a record.
pub const RECORD_BYTES: usize = 24;

/// Offset of the record from the frame pointer; the key of a look-up is above it.
const RECORD: i16 = -32;

/// Attached programs; dropping the value detaches them.
#[derive(Debug)]
pub struct FaultTrace {
    programs: [Attached; 3],
    processes: MarkedProcesses,
    unwritten: Counter,
    /// The kernel removes the events from a map when the map's descriptor is closed.
    _events: Map,
}

impl FaultTrace {
    /// Attaches the programs, which write to the event of each CPU. No process is marked.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_PERFMON`; `NotFound` if the kernel does not describe the
    /// tracepoints; the verifier's reason if it rejects a program; `Unsupported` if the kernel may
    /// skip programs because threads lose their CPU inside of them.
    pub fn attach<'a>(
        btf: &Btf,
        outputs: impl Iterator<Item = (u32, BorrowedFd<'a>)> + Clone,
    ) -> Result<FaultTrace, LoadError> {
        let context = Context::of(btf);
        if context != Context::Arguments {
            return Err(io::Error::from(io::ErrorKind::Unsupported).into());
        }
        // A process that is created while the programs are attached is already followed.
        let processes = MarkedProcesses::attach(btf)?;
        let events = event_map(outputs)?;
        let unwritten = Counter::new()?;
        let to = (&events, &unwritten);
        let user = fault_program(USER_FAULT, &processes, to);
        let kernel = fault_program(KERNEL_FAULT, &processes, to);
        let lock = lock_program(&processes, to);
        let run = |code: &Assembler, name: &CStr, point: &str| {
            Attached::run(btf, context, code, name, point)
        };
        let programs = [
            run(&user, c"vmarea_user", "exceptions/page_fault_user")?,
            run(&kernel, c"vmarea_kernel", "exceptions/page_fault_kernel")?,
            run(
                &lock,
                c"vmarea_lock",
                "mmap_lock/mmap_lock_acquire_returned",
            )?,
        ];
        Ok(FaultTrace {
            programs,
            processes,
            unwritten,
            _events: events,
        })
    }

    /// Marks the process with a thread group ID of the initial PID namespace.
    ///
    /// # Errors
    /// Those of `BPF_MAP_UPDATE_ELEM`.
    pub fn mark(&self, tgid: u32) -> io::Result<()> {
        self.processes.mark(tgid)
    }

    /// Detaches the programs, which may still be running on other CPUs.
    pub fn detach(&mut self) {
        self.programs.iter_mut().for_each(Attached::detach);
    }

    /// Returns how many records may be missing, apart from those that did not fit into a ring, as
    /// [`CallTrace::lost`](super::call_trace::CallTrace::lost).
    ///
    /// # Errors
    /// The call cannot fail.
    pub fn lost(&self) -> io::Result<u64> {
        let skipped = self.programs.iter().map(Attached::skipped);
        let skipped = skipped.sum::<io::Result<u64>>()?;
        Ok(skipped + self.processes.lost()? + self.unwritten.get())
    }
}

/// Begins a program that ends here unless the current process is marked. Sets `R6` to the context.
fn of_marked(code: &mut Assembler, processes: &MarkedProcesses) {
    code.copy(Reg::R6, Reg::R1);
    processes.only_marked(code);
}

/// Writes a record of two arguments of the tracepoint.
fn write(code: &mut Assembler, kind: u64, arguments: [i16; 2], to: (&Map, &Counter)) {
    code.set(Reg::R1, kind as i32);
    code.store(Reg::Frame, RECORD, Reg::R1);
    for (at, argument) in [(8, arguments[0]), (16, arguments[1])] {
        code.load(Width::Double, Reg::R1, Reg::R6, 8 * argument);
        code.store(Reg::Frame, RECORD + at, Reg::R1);
    }
    let (events, unwritten) = to;
    code.output(events, RECORD, RECORD_BYTES as i32, unwritten);
    code.exit();
}

/// Assembles a program for faults; the arguments are the address, the registers, the error code.
fn fault_program(kind: u64, processes: &MarkedProcesses, to: (&Map, &Counter)) -> Assembler {
    let mut code = Assembler::default();
    of_marked(&mut code, processes);
    write(&mut code, kind, [0, 2], to);
    code
}

/// Assembles the program for locks; the arguments are the `mm_struct`, whether it was for writing,
/// and whether it succeeded.
fn lock_program(processes: &MarkedProcesses, to: (&Map, &Counter)) -> Assembler {
    let mut code = Assembler::default();
    of_marked(&mut code, processes);
    code.load(Width::Double, Reg::R1, Reg::R6, 16);
    let acquired = code.jump_unless_zero(Reg::R1);
    code.exit();
    code.land(acquired);
    write(&mut code, LOCK, [0, 1], to);
    code
}
