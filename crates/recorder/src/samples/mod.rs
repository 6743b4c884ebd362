//! Page faults and lock acquisitions of a process and its descendants, as the kernel reports them.
//!
//! Each CPU has a ring into which the kernel writes samples of the task and all its descendants.
//! [`Samples::drain`] empties the rings and orders the samples by time. For root they come from
//! tracepoints, which distinguish reads from writes, include faults that the kernel takes on the
//! process's behalf, and show which thread took `mmap_lock` and when. Otherwise they come from the
//! software event `page-faults` in user mode. Lost samples are always reported: see
//! [`Sample::Lost`]. Which mapping a fault hit is left to the reader.
//!
//! # Picture
//! ```text
//! events of CPU 0 -> ring 0 --\
//! events of CPU 1 -> ring 1 ---+-> pending, sorted by time -> older than the watermark -> out
//! events of CPU n -> ring n --/
//! ```
//! A sample gets its time stamp a moment before it appears in its ring, so one CPU may show time 5
//! before another has written time 4. Samples younger than [`SETTLE`] are held back. A sample that
//! takes even longer is moved up to the watermark and counted by [`Samples::late`].
//!
//! # Linux
//! `perf_event_open(2)`. An inherited event can be mapped only if it is bound to a CPU, hence one
//! ring per CPU. No source shows `MAP_POPULATE`, `mlock`, `MADV_POPULATE_*`, `O_DIRECT`,
//! `vmsplice`, `process_vm_writev` or `/proc/PID/mem`.

mod record;
mod tracepoint;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use vmarea_trace::event::{FaultSource, Nanos};

use record::Decoder;
use tracepoint::Tracepoints;
use vmarea_linux_sys::perf::{Begin, Event, What};
use vmarea_linux_sys::ring::Ring;
use vmarea_process::rights::{self, Capability};

/// Longest time between a sample's time stamp and its arrival in the ring.
pub const SETTLE: Duration = Duration::from_millis(10);

/// Largest ring of a CPU in bytes.
const RING_BYTES: usize = 8 << 20;
/// Smallest ring that is still useful.
const MIN_RING_BYTES: usize = 64 << 10;
/// All rings together take at most this fraction of the available memory.
const MEMORY_SHARE: u64 = 16;

/// One report of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sample {
    /// A page fault at a user-space address, reported even if it ends in a signal or is retried.
    Fault {
        /// When.
        t: Nanos,
        /// Thread group.
        pid: i32,
        /// Thread.
        tid: i32,
        /// Faulting address.
        addr: u64,
        /// Write or read; `None` if the source does not say.
        write: Option<bool>,
        /// An instruction fetch. False if the source does not say.
        exec: bool,
        /// A page was present but did not permit the access. False if the source does not say.
        present: bool,
        /// Taken in kernel mode, while copying to or from user memory.
        kernel: bool,
    },
    /// A thread took `mmap_lock`.
    LockTaken {
        /// When.
        t: Nanos,
        /// Thread group.
        pid: i32,
        /// Thread.
        tid: i32,
        /// The kernel's address of the `mm_struct`, as in [`vmarea_process::view::MmFields::mm`].
        mm: u64,
        /// For writing.
        write: bool,
        /// It was taken some time before `t`: see [`Samples::late`].
        late: bool,
    },
    /// Samples that did not fit into a ring some time before this.
    Lost {
        /// When it was noticed.
        t: Nanos,
        /// How many, at least.
        count: u64,
    },
}

impl Sample {
    /// When it happened.
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

/// When sampling starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At once.
    Now,
    /// From the task's next `execve`.
    Exec,
}

/// Why there are no samples.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// No permission.
    #[error(
        "no permission to record page faults (kernel.perf_event_paranoid is {paranoid}): \
         needs CAP_PERFMON ({}), or a value of 2 or less",
        rights::remedy(&[Capability::Perfmon])
    )]
    Permission {
        /// Value of `kernel.perf_event_paranoid`, or `unknown`.
        paranoid: String,
    },
    /// The task has exited.
    #[error("no process {0}")]
    NoSuchTask(i32),
    /// Too many events for the limit of open files.
    #[error("too many open files: {cpus} CPUs need {needed} (raise it with ulimit -n)")]
    TooManyFiles {
        /// Descriptors that the rings need.
        needed: usize,
        /// CPUs.
        cpus: usize,
    },
    /// This kernel has no perf events.
    #[error("this kernel has no perf events")]
    Unsupported,
    /// Anything else.
    #[error("cannot record page faults: {0}")]
    Io(#[from] io::Error),
}

/// Source of the samples, which decides how they are opened and read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Tracepoints(Tracepoints),
    SoftwareUser,
}

impl Source {
    fn events(&self) -> Vec<What> {
        match self {
            Source::Tracepoints(points) => points.ids().map(What::Tracepoint).to_vec(),
            Source::SoftwareUser => vec![What::UserPageFaults],
        }
    }
}

/// The ring of one CPU with the events that fill it; the first event owns it.
#[derive(Debug)]
struct Cpu {
    number: u32,
    ring: Ring,
    events: Vec<Event>,
}

/// Open rings on a process and its descendants.
#[derive(Debug)]
pub struct Samples {
    source: Source,
    cpus: Vec<Cpu>,
    ring_bytes: usize,
    decoder: Decoder,
    /// Samples that were read and are still too young to be returned.
    held: Vec<Sample>,
    bytes: Vec<u8>,
    watermark: Nanos,
    late: u64,
    notes: Vec<String>,
}

impl Samples {
    /// Opens rings on task `pid` and its later children, starting now.
    ///
    /// Threads and children that it already has are not included: see [`Samples::add`].
    ///
    /// # Errors
    /// As [`Samples::open_at`].
    pub fn open(pid: i32) -> Result<Samples, SamplesError> {
        Samples::open_at(pid, Start::Now)
    }

    /// Opens rings that begin at `start`, with the best source that is permitted.
    ///
    /// # Errors
    /// [`SamplesError::Permission`] if not even user-mode faults may be recorded,
    /// [`SamplesError::NoSuchTask`], [`SamplesError::TooManyFiles`],
    /// [`SamplesError::Unsupported`].
    pub fn open_at(pid: i32, start: Start) -> Result<Samples, SamplesError> {
        let why = match Tracepoints::find() {
            Ok(points) => {
                let source = Source::Tracepoints(points);
                match Samples::open_source(pid, start, source, default_ring_bytes()?) {
                    Err(SamplesError::Permission { .. }) => "perf events: permission denied".into(),
                    done => return done,
                }
            }
            Err(why) => why,
        };
        let mut samples =
            Samples::open_source(pid, start, Source::SoftwareUser, default_ring_bytes()?)?;
        samples.notes.push(format!(
            "only page faults of user mode are recorded, without telling reads from writes ({why})"
        ));
        Ok(samples)
    }

    /// Opens rings of at most `ring_bytes` each, smaller ones if the limit does not permit that
    /// much.
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
                "the sample rings have {} KiB instead of {} KiB (kernel.perf_event_mlock_kb, ulimit -l)",
                bytes >> 10,
                ring_bytes >> 10
            ));
        }
        Ok(Samples {
            decoder: Decoder::new(source),
            source,
            cpus,
            ring_bytes: bytes,
            held: Vec::new(),
            bytes: Vec::new(),
            watermark: 0,
            late: 0,
            notes,
        })
    }

    /// Adds another task and its later children.
    ///
    /// For a process that is already running: stop all its threads, open with one of them, add the
    /// others, and let them continue. Do not add a task that a member created after it was
    /// included: it would count twice.
    ///
    /// # Errors
    /// As [`Samples::open_at`]. The task may then be included on some CPUs only.
    pub fn add(&mut self, tid: i32) -> Result<(), SamplesError> {
        let events = self.source.events();
        let count = self.cpus.len();
        for cpu in &mut self.cpus {
            for &what in &events {
                let wakeup = wakeup_bytes(self.ring_bytes);
                let event = Event::open(what, tid, cpu.number, Begin::Now, wakeup)
                    .map_err(|e| explain(e, tid, count * events.len(), count))?;
                event.output_to(&cpu.events[0])?;
                cpu.events.push(event);
            }
        }
        Ok(())
    }

    /// Source of the samples.
    pub fn source(&self) -> FaultSource {
        match self.source {
            Source::Tracepoints(_) => FaultSource::Tracepoints,
            Source::SoftwareUser => FaultSource::SoftwareUser,
        }
    }

    /// Remarks for the user: what is missing, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Descriptors for `poll(2)` that become readable when a ring is a quarter full.
    ///
    /// `POLLHUP` says that no task is left that could write to the ring; it may still hold
    /// samples.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|cpu| cpu.events[0].as_fd())
    }

    /// Number of samples whose time was moved up to a watermark already returned.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Empties the rings and appends what is settled to `out`, ordered by time over all CPUs.
    ///
    /// Returns a watermark: every sample of a later call has at least that time.
    pub fn drain(&mut self, out: &mut Vec<Sample>) -> Nanos {
        // Read before the rings: a sample that they still lack was stamped at most SETTLE earlier.
        let watermark = crate::tracer::clock().saturating_sub(SETTLE.as_nanos() as u64);
        self.collect();
        self.watermark = self.watermark.max(watermark);
        self.give(self.watermark, out);
        self.watermark
    }

    /// Ends the sampling and takes everything, settled or not.
    ///
    /// Tasks may still run. Samples that the kernel counted and the rings do not hold are reported
    /// as lost.
    ///
    /// # Errors
    /// Fails if the kernel does not stop sampling or does not return its counters; `out` then
    /// holds what the rings held.
    pub fn finish(&mut self, out: &mut Vec<Sample>) -> io::Result<()> {
        let events = || self.cpus.iter().flat_map(|cpu| &cpu.events);
        let stopped = events().try_for_each(Event::disable);
        let counted = events().map(Event::count).sum::<io::Result<u64>>();
        self.collect();
        // A thread on another processor may be between counting and writing its sample.
        let unwritten = |decoder: &Decoder| counted.as_ref().is_ok_and(|n| decoder.awaits(*n));
        for _ in 0..SETTLE.as_millis() {
            if !unwritten(&self.decoder) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            self.collect();
        }
        self.give(u64::MAX, out);
        stopped?;
        if let Some(count) = self.decoder.missing(counted?) {
            let t = out.last().map_or(self.watermark, Sample::t);
            out.push(Sample::Lost { t, count });
        }
        Ok(())
    }

    /// Moves the contents of the rings to `held`.
    fn collect(&mut self) {
        for cpu in &mut self.cpus {
            self.bytes.clear();
            cpu.ring.take(&mut self.bytes);
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

    /// Appends what is older than `until` to `out`.
    fn give(&mut self, until: Nanos, out: &mut Vec<Sample>) {
        // Each ring is a sorted run, which the stable sort exploits.
        self.held.sort_by_key(Sample::t);
        let ready = self.held.partition_point(|sample| sample.t() < until);
        out.extend(self.held.drain(..ready));
    }
}

enum OpenError {
    /// A ring of this size is not permitted or does not fit.
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
        Start::Now => Begin::Now,
        Start::Exec => Begin::Exec,
    };
    let mut cpus = Vec::with_capacity(numbers.len());
    for &number in numbers {
        let open = |what| Event::open(what, pid, number, begin, wakeup_bytes(ring_bytes));
        let mut events = Vec::new();
        for what in source.events() {
            match open(what) {
                Ok(event) => events.push(event),
                // It went offline in the meantime.
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
        cpus.push(Cpu {
            number,
            ring,
            events,
        });
    }
    Ok(cpus)
}

fn explain(error: io::Error, tid: i32, needed: usize, cpus: usize) -> SamplesError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let paranoid = paranoid.map_or("unknown".to_owned(), |text| text.trim().to_owned());
            SamplesError::Permission { paranoid }
        }
        Some(libc::ESRCH) => SamplesError::NoSuchTask(tid),
        Some(libc::EMFILE | libc::ENFILE) => SamplesError::TooManyFiles { needed, cpus },
        Some(libc::ENOSYS | libc::ENOENT) => SamplesError::Unsupported,
        _ => SamplesError::Io(error),
    }
}

fn wakeup_bytes(ring_bytes: usize) -> u32 {
    u32::try_from(ring_bytes / 4).unwrap_or(u32::MAX)
}

/// A size at which all rings together do not put the machine under memory pressure.
fn default_ring_bytes() -> io::Result<usize> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    let available = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        << 10;
    let each = available / MEMORY_SHARE / online_cpus()?.len() as u64;
    let each = usize::try_from(each).unwrap_or(usize::MAX);
    let each = each.clamp(MIN_RING_BYTES, RING_BYTES);
    Ok(1 << each.ilog2())
}

/// Numbers of the online CPUs.
fn online_cpus() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpu_list(text.trim())
        .filter(|cpus| !cpus.is_empty())
        .ok_or_else(|| io::Error::other("/sys/devices/system/cpu/online has an unknown format"))
}

/// Parses a list such as `0-2,5`.
fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    const MOST: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last > MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests;
