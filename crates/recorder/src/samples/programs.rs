//! Samples by BPF programs, which follow a process at no cost when its tasks are switched.
//!
//! See [`vmarea_linux_sys::fault_trace`]. The events belong to the CPUs, and each process is marked
//! once. The programs know processes by their IDs in the initial PID namespace, so a recorder in
//! another one cannot use them.

use super::tracepoint::{FormatMismatch, fault_at};
use super::{Samples, SamplesError, Source, Start};
use crate::samples::{RING_BYTES, Sample, default_ring_bytes};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use vmarea_linux_sys::bpf::LoadError;
use vmarea_linux_sys::btf::Btf;
use vmarea_linux_sys::fault_trace::{FaultTrace, KERNEL_FAULT, LOCK, USER_FAULT};
use vmarea_linux_sys::perf::EVERY_TASK;
use vmarea_linux_sys::task_status::TaskStatus;

pub(crate) const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
/// Name of the initial PID namespace (`PROC_PID_INIT_INO`).
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";

/// True if this process knows processes by the IDs by which BPF programs know them.
pub(crate) fn sees_all_ids() -> bool {
    let namespace = fs::read_link("/proc/self/ns/pid");
    namespace.is_ok_and(|namespace| namespace.as_os_str() == INITIAL_NAMESPACE)
}

impl Samples {
    /// Opens rings for process `pid` and its future children: by BPF programs if they are permitted,
    /// otherwise like [`Samples::open`].
    ///
    /// # Errors
    /// The errors of [`Samples::open`].
    pub(crate) fn follow(pid: i32) -> Result<Samples, SamplesError> {
        let by_programs = default_ring_bytes(RING_BYTES)
            .map_err(SamplesError::from)
            .and_then(|bytes| Samples::by_programs(pid, bytes));
        by_programs.or_else(|_| Samples::open(pid))
    }

    pub(super) fn by_programs(pid: i32, ring_bytes: usize) -> Result<Samples, SamplesError> {
        if !sees_all_ids() {
            return Err(SamplesError::Unsupported);
        }
        let btf = Btf::parse(fs::read(BTF_PATH)?).map_err(io::Error::other)?;
        let source = Source::Programs;
        let mut samples = Samples::open_source(EVERY_TASK, Start::Now, source, ring_bytes)?;
        let outputs = samples.cpus.iter();
        let outputs = outputs.map(|cpu| (cpu.number, cpu.events[0].as_fd()));
        let attached = FaultTrace::attach(&btf, outputs);
        let attached = attached.map_err(|LoadError { cause, .. }| cause)?;
        samples.programs = Some(attached);
        samples.add(pid)?;
        Ok(samples)
    }
}

/// Marks the process of a task.
pub(super) fn mark(programs: &FaultTrace, tid: i32) -> Result<(), SamplesError> {
    let process = TaskStatus::read(tid)
        .ok()
        .and_then(|status| status.process());
    let tgid = process.ok_or(SamplesError::NoSuchTask(tid))?;
    Ok(programs.mark(tgid.cast_unsigned())?)
}

/// Decodes a record; `Ok(None)` for one that is not needed: a fault at a kernel address.
pub(super) fn decode(
    (t, pid, tid): (u64, i32, i32),
    raw: &[u8],
) -> Result<Option<Sample>, FormatMismatch> {
    let (words, _) = raw.as_chunks();
    let &[kind, what, how, ..] = words else {
        return Err(FormatMismatch);
    };
    let [kind, what, how] = [kind, what, how].map(u64::from_ne_bytes);
    match kind {
        USER_FAULT | KERNEL_FAULT => Ok(fault_at(what, how, (t, pid, tid), kind == KERNEL_FAULT)),
        LOCK => Ok(Some(Sample::LockTaken {
            t,
            pid,
            tid,
            mm: what,
            write: how != 0,
            late: false,
        })),
        _ => Err(FormatMismatch),
    }
}
