//! Rings of the calls, mappings and tasks of one process and its descendants, one per CPU.
//!
//! The events count for every task, not for the observed ones, because an event that belongs to a
//! task is switched with it, which costs a busy server more at each switch than other programs'
//! mappings and tasks do. BPF programs select the calls ([`vmarea_linux_sys::call_trace`]) and the
//! processes; in another than the initial PID namespace, they write the calls of all processes. The
//! reader keeps the records of the observed tasks.
//! Records come back in order of time; see [`crate::samples`], whose rings work in the same way.

pub(crate) mod loss;
pub(crate) mod record;

use crate::Stacks;
use crate::clock::clock;
use crate::samples::{
    BTF_PATH, MIN_RING_BYTES, SETTLE, SamplesError, explain, is_full, online_cpus, sees_all_ids,
    wakeup_bytes,
};
use loss::{Loss, Why};
use record::{Decoder, Record};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use vmarea_linux_sys::bpf::LoadError;
use vmarea_linux_sys::btf::Btf;
use vmarea_linux_sys::call_trace::{CallFilter, CallTrace, Output};
use vmarea_linux_sys::marked::MarkedProcesses;
use vmarea_linux_sys::perf::{Begin, EVERY_TASK, Event, What};
use vmarea_linux_sys::ring::Ring;
use vmarea_trace::event::Nanos;

/// Maximum size of a CPU's ring of calls in bytes, enough for 2,000 calls with stacks or for 200,000
/// without.
pub(crate) const RING_BYTES: usize = 32 << 20;
/// Stack bytes in a sample of a call whose arguments point to memory, often on the stack.
const ARGUMENT_STACK: u32 = 1 << 10;
/// Stack bytes in every sample if the caller asks for stacks.
const CALL_STACK: u32 = 16 << 10;

/// Returns the number of stack bytes in the record of an entry with a stack.
pub(crate) fn stack_bytes(stacks: Stacks) -> u32 {
    match stacks {
        Stacks::Copy => CALL_STACK,
        Stacks::Skip => ARGUMENT_STACK,
    }
}

/// What the rings contain in addition to calls without stacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// Event that owns each ring.
    pub(crate) owner: What,
    /// Maximum number of stack bytes in the records of calls with stacks.
    pub(crate) stack_bytes: u32,
}

#[derive(Debug)]
struct Cpu {
    ring: Ring,
    ring_bytes: usize,
    number: u32,
    /// Event that owns the ring.
    records: Event,
    /// Events of the calls, without and with stacks.
    calls: [Event; 2],
}

/// Open rings of every CPU.
#[derive(Debug)]
pub(crate) struct CallRings {
    trace: CallTrace,
    /// The processes whose calls are written; `None` for all.
    processes: Option<MarkedProcesses>,
    /// Number of records that the programs did not write when they were last asked, and the time.
    unwritten: (u64, Nanos),
    cpus: Vec<Cpu>,
    decoder: Decoder,
    /// Records that are too recent to be returned.
    held: Vec<Record>,
    bytes: Vec<u8>,
    watermark: Nanos,
    overflowed: bool,
}

impl CallRings {
    /// Opens rings for process `root` and its future children, of at most `ring_bytes` each, or
    /// smaller ones if locked memory is limited.
    ///
    /// # Errors
    /// The errors of [`crate::samples::Samples::open_at`].
    pub(crate) fn open(
        root: u32,
        contents: Contents,
        filters: impl IntoIterator<Item = (u32, CallFilter)>,
        ring_bytes: usize,
    ) -> Result<CallRings, SamplesError> {
        let mut bytes = ring_bytes;
        let numbers = online_cpus()?;
        let needed = numbers.len() * 3;
        let mut cpus = Vec::with_capacity(numbers.len());
        for &number in &numbers {
            loop {
                match open_cpu(contents, number, bytes) {
                    Ok(cpu) => {
                        cpus.push(cpu);
                        break;
                    }
                    // The CPU went offline in the meantime.
                    Err(e) if e.raw_os_error() == Some(libc::ENODEV) => break,
                    Err(e) if is_too_large(&e) && bytes > MIN_RING_BYTES => bytes /= 2,
                    Err(e) => return Err(reason(e, needed, numbers.len())),
                }
            }
        }
        let (trace, processes) = trace(root, filters, &cpus)?;
        Ok(CallRings {
            trace,
            processes,
            unwritten: (0, clock()),
            cpus,
            decoder: Decoder::default(),
            held: Vec::new(),
            bytes: Vec::new(),
            watermark: 0,
            overflowed: false,
        })
    }

    /// Returns descriptors for `poll(2)` that become readable when a ring is a quarter full.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|cpu| cpu.records.as_fd())
    }

    /// True if records may have been lost since the last but one time that the rings were read.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Appends all settled records to `out`, in order of time.
    ///
    /// Returns a watermark: later calls of this method return no record with an earlier time.
    pub(crate) fn drain(&mut self, out: &mut impl Extend<Record>) -> Nanos {
        let watermark = clock().saturating_sub(SETTLE.as_nanos() as u64);
        self.collect();
        // An error is reported at the end.
        let _ = self.look_for_losses();
        self.watermark = self.watermark.max(watermark);
        self.give(self.watermark, out);
        self.watermark
    }

    /// Marks a process as one whose calls are written. The kernel may have skipped the program that
    /// marks new processes.
    ///
    /// # Errors
    /// The call cannot fail.
    pub(crate) fn mark(&self, pid: i32) -> io::Result<()> {
        let processes = self.processes.as_ref();
        processes.map_or(Ok(()), |processes| processes.mark(pid.cast_unsigned()))
    }

    /// Adds a record if the programs have left out some since they were last asked.
    ///
    /// That time is later than the last watermark.
    fn look_for_losses(&mut self) -> io::Result<()> {
        let asked = clock();
        let processes = self.processes.as_ref();
        let total = self.trace.lost()? + processes.map_or(Ok(0), MarkedProcesses::lost)?;
        let (known, from) = std::mem::replace(&mut self.unwritten, (total, asked));
        if total > known {
            let loss = Loss {
                count: total - known,
                from,
                until: clock(),
                why: Why::NotWritten,
            };
            self.held.push(loss.into());
        }
        Ok(())
    }

    /// Ends the recording and returns all remaining records. A loss that no ring reports is reported
    /// here.
    ///
    /// # Errors
    /// Fails if the kernel does not return its counters; `out` then contains all records from the
    /// rings.
    pub(crate) fn finish(&mut self, out: &mut impl Extend<Record>) -> io::Result<()> {
        self.trace.detach();
        std::thread::sleep(SETTLE);
        self.collect();
        let looked = self.look_for_losses();
        let last = self.held.iter().map(|record| record.t).max();
        self.give(Nanos::MAX, out);
        looked?;
        let events = |cpu: &Cpu| -> io::Result<u64> {
            Ok(cpu.records.lost()? + cpu.calls[0].lost()? + cpu.calls[1].lost()?)
        };
        let lost = self.cpus.iter().map(events).sum::<io::Result<u64>>()?;
        let count = self.decoder.missing(lost);
        if count != 0 {
            let from = last.unwrap_or(self.watermark);
            let loss = Loss {
                count,
                from,
                until: from,
                why: Why::RingFull,
            };
            out.extend([loss.into()]);
        }
        Ok(())
    }

    fn collect(&mut self) {
        self.overflowed = false;
        for cpu in &mut self.cpus {
            self.bytes.clear();
            cpu.ring.take(&mut self.bytes);
            self.overflowed |= is_full(self.bytes.len(), cpu.ring_bytes);
            let from = self.held.len();
            self.decoder.decode(&self.bytes, &mut self.held);
            for record in &mut self.held[from..] {
                record.t = record.t.max(self.watermark);
            }
        }
    }

    fn give(&mut self, until: Nanos, out: &mut impl Extend<Record>) {
        // Each ring is a sorted run, which makes the stable sort fast.
        self.held.sort_by_key(|record| record.t);
        let ready = self.held.partition_point(|record| record.t < until);
        out.extend(self.held.drain(..ready));
    }
}

/// Returns what an error from opening an event means.
fn reason(error: io::Error, needed: usize, cpus: usize) -> SamplesError {
    match explain(error, EVERY_TASK, needed, cpus) {
        SamplesError::Permission { .. } => SamplesError::CallsForbidden,
        reason => reason,
    }
}

fn is_too_large(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM))
}

fn open_cpu(contents: Contents, number: u32, ring_bytes: usize) -> io::Result<Cpu> {
    let wakeup = wakeup_bytes(ring_bytes);
    let open = |what| Event::open(what, EVERY_TASK, number, Begin::Enabled, wakeup);
    let records = open(contents.owner)?;
    let ring = Ring::map(&records, ring_bytes)?;
    let output = |stack_bytes| {
        let event = open(What::BpfOutput { stack_bytes })?;
        event.output_to(&records)?;
        event.enable()?;
        Ok::<_, io::Error>(event)
    };
    let calls = [output(0)?, output(contents.stack_bytes)?];
    records.enable()?;
    Ok(Cpu {
        ring,
        ring_bytes,
        number,
        records,
        calls,
    })
}

/// Begins to write the calls of process `root` and its future children into the rings.
fn trace(
    root: u32,
    filters: impl IntoIterator<Item = (u32, CallFilter)>,
    cpus: &[Cpu],
) -> Result<(CallTrace, Option<MarkedProcesses>), SamplesError> {
    let btf = Btf::parse(std::fs::read(BTF_PATH)?).map_err(io::Error::other)?;
    let outputs: Vec<Output<'_>> = cpus
        .iter()
        .map(|cpu| Output {
            cpu: cpu.number,
            plain: cpu.calls[0].as_fd(),
            with_stack: cpu.calls[1].as_fd(),
        })
        .collect();
    let attach = || -> Result<_, LoadError> {
        let processes = match sees_all_ids() {
            true => Some(MarkedProcesses::attach(&btf)?),
            false => None,
        };
        if let Some(processes) = &processes {
            processes.mark(root)?;
        }
        let trace = CallTrace::attach(&btf, filters, &outputs, processes.as_ref())?;
        Ok((trace, processes))
    };
    attach().map_err(|LoadError { cause, verdict }| match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if verdict.is_empty() => SamplesError::CallsForbidden,
        _ => io::Error::other(format!("BPF: {cause} {verdict}")).into(),
    })
}
