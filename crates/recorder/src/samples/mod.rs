//! Page faults and lock acquisitions of a process and its descendants, as the kernel reports them.
//!
//! Each CPU has a ring into which the kernel writes samples of a task and all its descendants.
//! [`Samples::drain`] empties the rings and orders the samples by time. For root, the samples come
//! from tracepoints, which distinguish reads from writes, include faults that the kernel takes on
//! the process's behalf, and show when each thread took `mmap_lock`. A process that runs already is
//! followed by BPF programs at the same tracepoints ([`programs`]). Otherwise the samples come
//! from the software event `page-faults` in user mode. Lost samples are always reported: see
//! [`Sample::Lost`]. The samples do not contain the mapping that a fault hit; the reader must find
//! it.
//!
//! # Picture
//! ```text
//! events of CPU 0 -> ring 0 --\
//! events of CPU 1 -> ring 1 ---+-> pending, sorted by time -> older than the watermark -> out
//! events of CPU n -> ring n --/
//! ```
//! A sample gets its time stamp a moment before it appears in its ring, so one CPU may show time 5
//! before another has written time 4. Samples younger than [`SETTLE`] are held back. A sample that
//! takes even longer gets the time of the watermark and is counted by [`Samples::late`].
//!
//! # Linux
//! `perf_event_open(2)`. An inherited event can be mapped only if it is bound to a CPU, hence one
//! ring per CPU. No source shows `MAP_POPULATE`, `mlock`, `MADV_POPULATE_*`, `O_DIRECT`,
//! `vmsplice`, `process_vm_writev` or `/proc/PID/mem`.

mod error;
mod programs;
mod record;
mod sizes;
mod tracepoint;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use vmarea_trace::event::{FaultSource, Nanos};

pub use error::SamplesError;
pub(crate) use error::explain;
pub(crate) use programs::{BTF_PATH, sees_all_ids};
use record::Decoder;
pub(crate) use record::{split_record, u32_at, u64_at};
use sizes::RING_BYTES;
pub(crate) use sizes::{default_ring_bytes, is_full, online_cpus, wakeup_bytes};
use tracepoint::Tracepoints;
use vmarea_linux_sys::fault_trace::FaultTrace;
use vmarea_linux_sys::perf::{Begin, Event, What};
use vmarea_linux_sys::ring::Ring;

/// Longest time between a sample's time stamp and its arrival in the ring.
pub const SETTLE: Duration = Duration::from_millis(10);

/// Minimum useful size of a CPU's ring in bytes.
pub(crate) const MIN_RING_BYTES: usize = 64 << 10;

/// A sample that the kernel reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sample {
    /// A page fault at a user-space address, reported even if it ends in a signal or is retried.
    Fault {
        /// Time of the fault.
        t: Nanos,
        /// Thread group of the thread.
        pid: i32,
        /// Thread that took the fault.
        tid: i32,
        /// Faulting address.
        addr: u64,
        /// True for a write, false for a read; `None` if the source does not distinguish them.
        write: Option<bool>,
        /// True for a fault that the source reports as an instruction fetch.
        exec: bool,
        /// True if a page was present but its permissions did not allow the access.
        ///
        /// False if the source does not report whether a page was present.
        present: bool,
        /// True if the fault was taken in kernel mode, while copying to or from user memory.
        kernel: bool,
    },
    /// A thread took `mmap_lock`.
    LockTaken {
        /// Time at which `mmap_lock` was taken.
        t: Nanos,
        /// Thread group of the thread.
        pid: i32,
        /// Thread that took `mmap_lock`.
        tid: i32,
        /// Kernel address of the `mm_struct`, as in [`vmarea_process::view::MmFields::mm`].
        mm: u64,
        /// True if `mmap_lock` was taken for writing.
        write: bool,
        /// True if `mmap_lock` was taken some time before `t`: see [`Samples::late`].
        late: bool,
    },
    /// Samples were lost: some time before this point if they did not fit into a ring, and after it
    /// if a program did not write them.
    Lost {
        /// Time at which the loss was noticed.
        t: Nanos,
        /// Minimum number of samples that were lost.
        count: u64,
    },
}

impl Sample {
    /// Returns the time of the sample.
    pub fn t(&self) -> Nanos {
        match *self {
            Sample::Fault { t, .. } | Sample::LockTaken { t, .. } | Sample::Lost { t, .. } => t,
        }
    }

    fn t_mut(&mut self) -> &mut Nanos {
        match self {
            Sample::Fault { t, .. } | Sample::LockTaken { t, .. } | Sample::Lost { t, .. } => t,
        }
    }
}

/// Time at which sampling starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Immediately.
    Now,
    /// At the task's next `execve`.
    Exec,
}

/// Source of the samples, which determines how they are opened and read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Tracepoints(Tracepoints),
    /// BPF programs at the same tracepoints.
    Programs,
    SoftwareUser,
}

impl Source {
    fn events(&self) -> Vec<What> {
        match self {
            Source::Tracepoints(points) => points.ids().map(What::Tracepoint).to_vec(),
            Source::Programs => vec![What::BpfOutput { stack_bytes: 0 }],
            Source::SoftwareUser => vec![What::UserPageFaults],
        }
    }
}

/// The ring of one CPU and the events that fill it; the first event owns the ring.
#[derive(Debug)]
struct Cpu {
    number: u32,
    ring: Ring,
    events: Vec<Event>,
}

/// Open rings for a process and its descendants.
#[derive(Debug)]
pub struct Samples {
    source: Source,
    /// The programs, if they are the source.
    programs: Option<FaultTrace>,
    /// Number of samples that the programs did not write when they were last asked, and the time.
    unwritten: (u64, Nanos),
    cpus: Vec<Cpu>,
    ring_bytes: usize,
    decoder: Decoder,
    /// Samples that were read but are too recent to be returned.
    held: Vec<Sample>,
    bytes: Vec<u8>,
    watermark: Nanos,
    late: u64,
    /// True if a ring was full, or nearly, when it was last read.
    overflowed: bool,
    notes: Vec<String>,
}

impl Samples {
    /// Opens rings for task `pid` and for its future children; sampling starts now.
    ///
    /// Existing threads and children of the process are not included: see [`Samples::add`].
    ///
    /// # Errors
    /// The errors of [`Samples::open_at`].
    pub fn open(pid: i32) -> Result<Samples, SamplesError> {
        Samples::open_at(pid, Start::Now)
    }

    /// Opens rings that start sampling at `start`, with the best source that is permitted.
    ///
    /// # Errors
    /// [`SamplesError::Permission`] if not even user-mode faults may be recorded,
    /// [`SamplesError::NoSuchTask`], [`SamplesError::TooManyFiles`],
    /// [`SamplesError::Unsupported`].
    pub fn open_at(pid: i32, start: Start) -> Result<Samples, SamplesError> {
        let why = match Tracepoints::find() {
            Ok(points) => {
                let source = Source::Tracepoints(points);
                match Samples::open_source(pid, start, source, default_ring_bytes(RING_BYTES)?) {
                    Err(SamplesError::Permission { .. }) => "perf events: permission denied".into(),
                    done => return done,
                }
            }
            Err(why) => why,
        };
        let mut samples = Samples::open_source(
            pid,
            start,
            Source::SoftwareUser,
            default_ring_bytes(RING_BYTES)?,
        )?;
        samples.notes.push(format!(
            "only page faults in user mode are recorded, and reads are not distinguished from writes ({why})"
        ));
        Ok(samples)
    }

    /// Opens rings of at most `ring_bytes` each, or smaller ones if locked memory is limited.
    fn open_source(
        pid: i32,
        start: Start,
        source: Source,
        ring_bytes: usize,
    ) -> Result<Samples, SamplesError> {
        let numbers = online_cpus()?;
        let needed = numbers.len() * source.events().len();
        let mut bytes = ring_bytes;
        let cpus = loop {
            match open_cpus(pid, start, &source, &numbers, bytes) {
                Ok(cpus) => break cpus,
                Err(OpenError::Ring) if bytes > MIN_RING_BYTES => bytes /= 2,
                Err(OpenError::Ring) => {
                    return Err(io::Error::from(io::ErrorKind::OutOfMemory).into());
                }
                Err(OpenError::Event(error)) => {
                    return Err(explain(error, pid, needed, numbers.len()));
                }
            }
        };
        let mut notes = Vec::new();
        if bytes < ring_bytes {
            notes.push(format!(
                "the buffers for page faults have {} KiB instead of {} KiB each: raise kernel.perf_event_mlock_kb or ulimit -l",
                bytes >> 10,
                ring_bytes >> 10
            ));
        }
        Ok(Samples {
            decoder: Decoder::new(source),
            source,
            programs: None,
            unwritten: (0, crate::clock::clock()),
            cpus,
            ring_bytes: bytes,
            held: Vec::new(),
            bytes: Vec::new(),
            watermark: 0,
            late: 0,
            overflowed: false,
            notes,
        })
    }

    /// Adds another task and its future children.
    ///
    /// To sample a process that is already running, stop all its threads, open the rings for one of
    /// them, add the others, and let them continue. Do not add a task that was created by an
    /// included task: it is included already and would count twice.
    ///
    /// # Errors
    /// The errors of [`Samples::open_at`]. The task may then be included on some CPUs only.
    pub fn add(&mut self, tid: i32) -> Result<(), SamplesError> {
        if let Some(programs) = &self.programs {
            return programs::mark(programs, tid);
        }
        let events = self.source.events();
        let count = self.cpus.len();
        for cpu in &mut self.cpus {
            for &what in &events {
                let wakeup = wakeup_bytes(self.ring_bytes);
                let event = Event::open(what, tid, cpu.number, Begin::Enabled, wakeup)
                    .map_err(|e| explain(e, tid, count * events.len(), count))?;
                event.output_to(&cpu.events[0])?;
                event.enable()?;
                cpu.events.push(event);
            }
        }
        Ok(())
    }

    /// Returns the number of descriptors that the rings hold open.
    pub(crate) fn descriptors(&self) -> usize {
        self.cpus.iter().map(|cpu| cpu.events.len()).sum()
    }

    /// Returns the source of the samples.
    pub fn source(&self) -> FaultSource {
        match self.source {
            Source::Tracepoints(_) | Source::Programs => FaultSource::Tracepoints,
            Source::SoftwareUser => FaultSource::SoftwareUser,
        }
    }

    /// Returns notes for the user about missing data, with the reasons.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns descriptors for `poll(2)` that become readable when a ring is a quarter full.
    ///
    /// `POLLHUP` means that no remaining task can write to the ring, which may still contain
    /// samples.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|cpu| cpu.events[0].as_fd())
    }

    /// Returns the number of samples that came too late and were given the watermark's time.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// True if samples may have been lost since the last but one time that the rings were read.
    ///
    /// The kernel reports a loss only with the next sample that fits.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Empties the rings and appends all settled samples to `out`, ordered by time over all CPUs.
    ///
    /// Returns a watermark: later calls of this method return no sample with an earlier time.
    pub fn drain(&mut self, out: &mut Vec<Sample>) -> Nanos {
        // Read the clock before the rings: a sample still missing there was stamped at most SETTLE
        // ago.
        let watermark = crate::clock::clock().saturating_sub(SETTLE.as_nanos() as u64);
        self.collect();
        // An error is reported at the end.
        let _ = self.look_for_losses();
        self.watermark = self.watermark.max(watermark);
        self.give(self.watermark, out);
        self.watermark
    }

    /// Adds a loss if the programs have left out samples since they were last asked.
    fn look_for_losses(&mut self) -> io::Result<()> {
        let asked = crate::clock::clock();
        let total = self.programs.as_ref().map_or(Ok(0), FaultTrace::lost)?;
        let (known, t) = std::mem::replace(&mut self.unwritten, (total, asked));
        if total > known {
            let count = total - known;
            self.held.push(Sample::Lost { t, count });
        }
        Ok(())
    }

    /// Ends the sampling and returns all remaining samples, settled or not.
    ///
    /// Tasks can still be running. Samples that the kernel counted but the rings do not contain are
    /// reported as lost.
    ///
    /// # Errors
    /// Fails if the kernel does not stop sampling or does not return its counters; `out` then
    /// contains all samples from the rings.
    pub fn finish(&mut self, out: &mut Vec<Sample>) -> io::Result<()> {
        let stopped = self.stop();
        self.collect();
        // A thread on another processor may be between counting and writing its sample.
        for _ in 0..SETTLE.as_millis() {
            if !self.counted().is_ok_and(|n| self.decoder.awaits(n)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            self.collect();
        }
        self.give(u64::MAX, out);
        stopped?;
        if let Some(count) = self.decoder.missing(self.counted()?) {
            let t = out.last().map_or(self.watermark, Sample::t);
            out.push(Sample::Lost { t, count });
        }
        Ok(())
    }

    fn stop(&mut self) -> io::Result<()> {
        if let Some(programs) = &mut self.programs {
            programs.detach();
            // They may still be running on another processor.
            std::thread::sleep(SETTLE);
            self.collect();
            self.look_for_losses()?;
        }
        let mut events = self.cpus.iter().flat_map(|cpu| &cpu.events);
        events.try_for_each(Event::disable)
    }

    /// Returns the number of samples, whether they were read, lost, or are still in the rings.
    fn counted(&self) -> io::Result<u64> {
        let events = self.cpus.iter().flat_map(|cpu| &cpu.events);
        if self.source == Source::Programs {
            // The kernel counts only those that did not fit.
            let lost = events.map(Event::lost).sum::<io::Result<u64>>()?;
            return Ok(self.decoder.seen() + lost);
        }
        events.map(Event::count).sum()
    }

    /// Moves the contents of the rings to `held`.
    fn collect(&mut self) {
        self.overflowed = false;
        for cpu in &mut self.cpus {
            self.bytes.clear();
            cpu.ring.take(&mut self.bytes);
            self.overflowed |= is_full(self.bytes.len(), self.ring_bytes);
            let from = self.held.len();
            self.decoder.decode(&self.bytes, &mut self.held);
            for sample in &mut self.held[from..] {
                let t = sample.t_mut();
                if *t < self.watermark {
                    *t = self.watermark;
                    self.late += 1;
                    if let Sample::LockTaken { late, .. } = sample {
                        *late = true;
                    }
                }
            }
        }
    }

    /// Appends all samples older than `until` to `out`.
    fn give(&mut self, until: Nanos, out: &mut Vec<Sample>) {
        // Each ring is a sorted run, which makes the stable sort fast.
        self.held.sort_by_key(Sample::t);
        let ready = self.held.partition_point(|sample| sample.t() < until);
        out.extend(self.held.drain(..ready));
    }
}

/// True if this process may use the tracepoints of locks.
pub(crate) fn shows_locks() -> bool {
    Tracepoints::find().is_ok()
}

enum OpenError {
    /// A ring of this size is not permitted or does not fit into memory.
    Ring,
    Event(io::Error),
}

fn open_cpus(
    pid: i32,
    start: Start,
    source: &Source,
    numbers: &[u32],
    ring_bytes: usize,
) -> Result<Vec<Cpu>, OpenError> {
    let begin = match start {
        Start::Now => Begin::Enabled,
        Start::Exec => Begin::Exec,
    };
    let mut cpus = Vec::with_capacity(numbers.len());
    for &number in numbers {
        let open = |what| Event::open(what, pid, number, begin, wakeup_bytes(ring_bytes));
        let mut events = Vec::new();
        for what in source.events() {
            match open(what) {
                Ok(event) => events.push(event),
                // The CPU went offline in the meantime.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => break,
                Err(e) => return Err(OpenError::Event(e)),
            }
        }
        let Some((owner, others)) = events.split_first() else {
            continue;
        };
        let ring = Ring::map(owner, ring_bytes).map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM | libc::ENOMEM) => OpenError::Ring,
            _ => OpenError::Event(e),
        })?;
        for event in others {
            event.output_to(owner).map_err(OpenError::Event)?;
        }
        if start == Start::Now {
            // Until here, what occurs would be counted but not written.
            let enabled = events.iter().try_for_each(Event::enable);
            enabled.map_err(OpenError::Event)?;
        }
        cpus.push(Cpu {
            number,
            ring,
            events,
        });
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests;
