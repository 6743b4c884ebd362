//! BPF programs at tracepoints that write records into perf rings.
//!
//! # Linux
//! `tp_btf` programs (Linux 5.5) get the tracepoint's arguments ([`Context::Arguments`]). Since
//! Linux 7.2 (`trace_call_bpf_faultable`) programs of perf's tracepoint events are attached instead
//! ([`Context::Record`]). Both run for every task, and cost nothing when tasks are switched.

use super::{Assembler, Counter, LoadError, Map, Program, Purpose, Reg, TRACE_RAW_TP, bpf};
use crate::btf::{Btf, Kind};
use crate::perf::{Begin, EVERY_TASK, Event, What};
use crate::tracefs;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const CMD_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
/// `bpf_perf_event_output(ctx, map, flags, data, size)`.
const HELPER_PERF_EVENT_OUTPUT: i32 = 25;
/// `BPF_F_CURRENT_CPU` as the low half of a register.
const CURRENT_CPU: i32 = -1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct OpenAttr {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

impl Assembler {
    /// Writes a record from the stack, at `Frame + offset`, to the current CPU's event in `events`.
    ///
    /// `R6` must hold the program's context. Adds 1 to `unwritten` if the record cannot be written
    /// for another reason than a full ring, which the ring counts. Overwrites R0 to R5 and the 8
    /// bytes at the top of the stack.
    pub(crate) fn output(&mut self, events: &Map, offset: i16, bytes: i32, unwritten: &Counter) {
        self.copy(Reg::R1, Reg::R6);
        self.load_map(Reg::R2, events);
        self.set_low(Reg::R3, CURRENT_CPU);
        self.copy(Reg::R4, Reg::Frame);
        self.add(Reg::R4, offset.into());
        self.set(Reg::R5, bytes);
        self.call(HELPER_PERF_EVENT_OUTPUT);
        let written = self.jump_if_zero(Reg::R0);
        let full = self.jump_if(Reg::R0, -libc::ENOSPC);
        self.find(&unwritten.number);
        let none = self.jump_if_zero(Reg::R0);
        self.set(Reg::R1, 1);
        self.add_atomically(Reg::R0, Reg::R1);
        for jump in [written, full, none] {
            self.land(jump);
        }
    }
}

/// Creates the map of the CPUs' events. The kernel removes the events when the map is closed.
pub(crate) fn event_map<'a>(
    outputs: impl Iterator<Item = (u32, BorrowedFd<'a>)> + Clone,
) -> io::Result<Map> {
    let cpus = outputs.clone().map(|(cpu, _)| cpu + 1).max();
    let map = Map::new(MAP_TYPE_PERF_EVENT_ARRAY, 4, cpus.unwrap_or(1))?;
    for (cpu, event) in outputs {
        map.set(cpu, event.as_raw_fd())?;
    }
    Ok(map)
}

/// What a program gets when it runs at a tracepoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Context {
    /// The tracepoint's arguments, eight bytes each.
    Arguments,
    /// The record that perf makes of the arguments: `struct trace_event_raw_NAME`.
    Record,
}

impl Context {
    /// Returns the context in which no program is skipped because it meets itself.
    ///
    /// Since Linux 7.2 a thread can lose its CPU inside of a program that gets the arguments, and
    /// the kernel skips the program for the next thread there. perf forbids that with its programs.
    pub(crate) fn of(btf: &Btf) -> Context {
        match btf.find(Kind::Func, "trace_call_bpf_faultable") {
            Some(_) => Context::Record,
            None => Context::Arguments,
        }
    }
}

/// A program at a tracepoint; dropping the value detaches it.
#[derive(Debug)]
pub(crate) struct Attached {
    program: Program,
    /// `None` if the program has been detached.
    hold: Option<Hold>,
}

/// What keeps a program at its tracepoint until it is closed.
#[derive(Debug)]
enum Hold {
    Link { _fd: OwnedFd },
    Perf { _event: Event },
}

impl Attached {
    /// Loads a program and attaches it to a tracepoint, such as `sched/sched_process_fork`.
    pub(crate) fn run(
        btf: &Btf,
        context: Context,
        code: &Assembler,
        name: &CStr,
        tracepoint: &str,
    ) -> Result<Attached, LoadError> {
        let point = tracepoint.rsplit('/').next().unwrap_or_default();
        let purpose = match context {
            Context::Arguments => {
                let target = btf.find(Kind::Typedef, &format!("btf_trace_{point}"));
                Purpose::Traces(TRACE_RAW_TP, found(target)?)
            }
            Context::Record => Purpose::ReadsRecords,
        };
        // The helper that writes to perf events requires a GPL-compatible licence.
        let program = Program::load_for(purpose, code, name, c"Dual MIT/GPL")?;
        let hold = match context {
            Context::Arguments => Hold::Link {
                _fd: link(&program)?,
            },
            Context::Record => {
                let id = tracefs::event_id(&tracefs::open()?, tracepoint)?;
                // The program runs on every CPU, also while the event is not enabled.
                let event = Event::open(What::Tracepoint(id), EVERY_TASK, 0, Begin::Enabled, 0)?;
                event.run(program.fd.as_fd())?;
                Hold::Perf { _event: event }
            }
        };
        let hold = Some(hold);
        Ok(Attached { program, hold })
    }

    /// Detaches the program, which may still be running on another CPU.
    pub(crate) fn detach(&mut self) {
        self.hold = None;
    }

    /// Returns how often the kernel skipped the program, for whatever thread.
    pub(crate) fn skipped(&self) -> io::Result<u64> {
        self.program.skipped()
    }
}

fn link(program: &Program) -> io::Result<OwnedFd> {
    let mut attr = OpenAttr {
        prog_fd: program.fd.as_raw_fd() as u32,
        ..OpenAttr::default()
    };
    // SAFETY: `attr` has no pointers.
    unsafe { bpf(CMD_RAW_TRACEPOINT_OPEN, &mut attr) }
}

/// Returns the offset of a member of a kernel's struct that has `bytes` bytes.
///
/// # Errors
/// `NotFound` if there is none.
pub(crate) fn offset(btf: &Btf, of: &str, name: &str, bytes: u32) -> io::Result<i16> {
    let of = found(btf.find(Kind::Struct, of))?;
    let member = btf.member(of, name).filter(|member| member.size == bytes);
    found(member.and_then(|member| i16::try_from(member.offset).ok()))
}

/// Returns what the kernel's type information has.
///
/// # Errors
/// `NotFound` if it is not there.
pub(crate) fn found<T>(what: Option<T>) -> io::Result<T> {
    what.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

impl From<io::Error> for LoadError {
    fn from(cause: io::Error) -> LoadError {
        let verdict = String::new();
        LoadError { cause, verdict }
    }
}

/// Returns the kernel's type information; `None` if the kernel has none.
#[cfg(test)]
pub(crate) fn kernel_types() -> Option<Btf> {
    match std::fs::read("/sys/kernel/btf/vmlinux") {
        Ok(bytes) => Some(Btf::parse(bytes).expect("type information")),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;

    /// `bpf_probe_read_user(to, size, from)`.
    const HELPER_PROBE_READ_USER: i32 = 112;
    /// An address at which nothing is mapped.
    const NOTHING: i32 = 4096;

    #[test]
    fn a_program_that_meets_itself_says_so() {
        let Some(btf) = kernel_types() else { return };
        // Runs at faults of the kernel, and makes the kernel fault.
        let mut code = Assembler::default();
        code.copy(Reg::R1, Reg::Frame);
        code.add(Reg::R1, -8);
        code.set(Reg::R2, 8);
        code.set(Reg::R3, NOTHING);
        code.call(HELPER_PROBE_READ_USER);
        code.exit();
        let (context, point) = (Context::Arguments, "exceptions/page_fault_kernel");
        let mut program = match Attached::run(&btf, context, &code, c"vmarea_test", point) {
            Ok(program) => program,
            Err(error) => return eprintln!("skipped: {error:?}"),
        };
        let (_reader, writer) = pipe().unwrap();
        for _ in 0..10 {
            // SAFETY: the kernel does not find the byte, and fails with EFAULT.
            let written = unsafe { libc::write(writer.as_raw_fd(), NOTHING as *const _, 1) };
            assert_eq!(written, -1);
        }
        program.detach();
        assert!(program.skipped().unwrap() >= 10);
    }
}
