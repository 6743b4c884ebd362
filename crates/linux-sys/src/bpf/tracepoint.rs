//! BPF programs at tracepoints that write records into perf rings.
//!
//! # Linux
//! `tp_btf` programs (Linux 5.5): the context is an array with the tracepoint's arguments, eight
//! bytes each. They count for every task, and cost nothing when tasks are switched.

use super::{Assembler, LoadError, Map, Program, Reg, TRACE_RAW_TP, bpf};
use crate::btf::{Btf, Kind};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

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
    /// `R6` must hold the program's context. Overwrites R1 to R5.
    pub(crate) fn output(&mut self, events: &Map, offset: i16, bytes: i32) {
        self.copy(Reg::R1, Reg::R6);
        self.load_map(Reg::R2, events);
        self.set_low(Reg::R3, CURRENT_CPU);
        self.copy(Reg::R4, Reg::Frame);
        self.add(Reg::R4, offset.into());
        self.set(Reg::R5, bytes);
        self.call(HELPER_PERF_EVENT_OUTPUT);
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

/// Loads a program and attaches it to a tracepoint; closing the result detaches it.
pub(crate) fn run_at(
    btf: &Btf,
    code: &Assembler,
    name: &CStr,
    tracepoint: &str,
) -> Result<OwnedFd, LoadError> {
    let target = found(btf.find(Kind::Typedef, &format!("btf_trace_{tracepoint}")))?;
    // The helper that writes to perf events requires a GPL-compatible licence.
    let licence = c"Dual MIT/GPL";
    let program = Program::load_for(TRACE_RAW_TP, code, (name, licence), target)?;
    let mut attr = OpenAttr {
        prog_fd: program.fd.as_raw_fd() as u32,
        ..OpenAttr::default()
    };
    // SAFETY: `attr` has no pointers.
    Ok(unsafe { bpf(CMD_RAW_TRACEPOINT_OPEN, &mut attr) }?)
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
