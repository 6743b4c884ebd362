//! Records a running process without stopping it: tracepoints of its calls, faults and locks.
//!
//! BPF programs write the entries and exits of the memory calls into rings, and the kernel adds new
//! mappings and the starts and ends of tasks ([`crate::call_rings`]). The faults and lock acquisitions come from
//! [`crate::samples`]. This module reads both in order of time, pairs entries with exits, and
//! passes the calls to the same timeline as the ptrace recorder. An address space is recorded from
//! the first snapshot on into which no call fell ([`spaces`]). If records are lost, or a call
//! cannot be observed, the recording of the affected address spaces begins anew, as a new address
//! space in the trace.
//!
//! # Picture
//! ```text
//!   CPU rings: calls, mappings, tasks --\
//!                                        order by time -> calls, tasks, spaces -> timeline -> Sink
//!   task rings: faults, mmap_lock ------/
//! ```
//!
//! # Invariants
//! The target runs undisturbed: nothing in it changes, and the kernel removes all events when the
//! recorder closes them or dies. A snapshot is compared only if no call overlapped it.
//!
//! # Linux
//! What cannot be observed is unknown in the trace, and the replay counts results that depend on it
//! as undecided: which open file description a call maps, the flags with which it was opened, and
//! memory that direct I/O or another process writes.

mod calls;
mod lifecycle;
mod pause;
mod points;
mod proc;
mod spaces;

use crate::call_rings::loss::Loss;
use crate::call_rings::record::{Observed, Record};
use crate::call_rings::{CallRings, Contents, RING_BYTES, stack_bytes};
use crate::clock::clock;
use crate::emitter::Emitter;
use crate::files::Files;
use crate::residence::Place;
use crate::samples::{Sample, Samples, SamplesError, default_ring_bytes};
use crate::settings_watch::SettingsWatch;
use crate::snapshot::Snapshotter;
use crate::sources::{self, open_view};
use crate::timeline::Timeline;
use crate::{Faults, InKernel, Outcome, Progress, RecordError, Sink, Stacks};
use calls::Pending;
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use spaces::{Fault, Space};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmarea_linux_sys::perf::What;
use vmarea_trace::event::{Event, FaultSource, Header, MmId, Nanos};

/// Interval at which the recorder empties the rings.
const PUMP: Nanos = 20_000_000;
/// Interval at which the caller receives progress.
const REPORT: Nanos = 100_000_000;
/// Time before a snapshot from which faults are replayed after it.
///
/// A fault enters the ring before it has an effect, so the snapshot may lack the effect.
const FAULTS_BEFORE: Nanos = 10_000_000;
/// Shortest time for which the recorder tries to begin.
const JOINING: Nanos = 5_000_000_000;
/// Longest time that the recorder spends on the last snapshots.
const LAST_SNAPSHOTS: Nanos = 300_000_000;

/// Interval between snapshots of an address space.
const CHECKPOINT: Nanos = 1_000_000_000;

/// What to observe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObserveOptions {
    /// Process id.
    pub pid: i32,
    /// Duration of the recording; `None` for as long as the process runs.
    pub duration: Option<Duration>,
    /// Whether to record page faults.
    pub faults: Faults,
    /// Whether to read the kernel's own view.
    pub kernel_view: InKernel,
    /// Whether to copy stacks.
    pub stacks: Stacks,
}

/// Records a running process by observing it.
///
/// # Errors
/// [`RecordError::NotObservable`] if the kernel refuses the events; otherwise those of
/// [`crate::attach`].
pub(crate) fn observe(
    options: &ObserveOptions,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RecordError> {
    let stop = StopRequest::catch().map_err(RecordError::Follow)?;
    let observer = Observer::open(options, None, sink, progress).map_err(|error| match error {
        SamplesError::NoSuchTask(pid) => RecordError::Ended(pid),
        error => RecordError::NotObservable(error),
    })?;
    observer.follow(&stop)
}

/// A task that is being observed.
#[derive(Debug)]
struct Task {
    pid: i32,
    mm: MmId,
    call: Option<Pending>,
    /// Time at which the task last entered or left a call.
    seen: Nanos,
    /// The last fault of the task.
    fault: Option<Fault>,
}

impl Task {
    fn new(pid: i32, mm: MmId) -> Task {
        Task {
            pid,
            mm,
            call: None,
            seen: 0,
            fault: None,
        }
    }
}

/// A recording of a running process.
struct Observer<'a> {
    /// Process ID of the process, whose end ends the recording.
    root: i32,
    command: Vec<String>,
    tasks: HashMap<i32, Task>,
    spaces: HashMap<MmId, Space>,
    last_mm: MmId,
    timeline: Timeline,
    files: Files,
    snapshotter: Snapshotter,
    stacks: Stacks,
    rings: CallRings,
    /// Records that are older than neither watermark.
    records: VecDeque<Record>,
    /// Time up to which the stream has been processed.
    watermark: Nanos,
    samples: Option<Samples>,
    /// Time at which each task's faults began to be recorded.
    sampled: HashMap<i32, Nanos>,
    emitter: Emitter<'a>,
    progress: &'a mut dyn FnMut(Progress),
    notes: Vec<String>,
    settings: SettingsWatch,
    /// Time at which the recording began.
    begun: Nanos,
    /// True once a loss has been told.
    has_lost: bool,
    duration: Option<Nanos>,
    /// Time at which the recording is over, which counts from the first snapshot.
    ends: Option<Nanos>,
    reported: Nanos,
    ending: bool,
}

impl<'a> Observer<'a> {
    /// Opens the events for a process and all its threads, with rings of `ring_bytes` per CPU, or
    /// of a size that fits the machine's memory.
    ///
    /// # Errors
    /// The reason why the kernel refuses, or the process cannot be observed; nothing has been
    /// passed to the sink then.
    fn open(
        options: &ObserveOptions,
        ring_bytes: Option<usize>,
        sink: &'a mut dyn Sink,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Observer<'a>, SamplesError> {
        let ring_bytes = match ring_bytes {
            Some(bytes) => bytes,
            None => default_ring_bytes(RING_BYTES)?,
        };
        let contents = Contents {
            owner: What::TaskRecords,
            stack_bytes: stack_bytes(options.stacks),
        };
        let root = options.pid.cast_unsigned();
        let rings = CallRings::open(root, contents, points::filters(options.stacks), ring_bytes)?;
        let mut notes = Vec::new();
        let samples = match options.faults {
            Faults::Record => Some(Samples::follow(options.pid)?),
            Faults::Skip => None,
        };
        notes.extend(samples.iter().flat_map(Samples::notes).cloned());
        let kernel = open_view(options.kernel_view, &mut notes);
        let mut observer = Observer {
            root: options.pid,
            command: sources::command_line(options.pid),
            tasks: HashMap::new(),
            spaces: HashMap::new(),
            last_mm: MmId(0),
            timeline: Timeline::default(),
            files: Files::new(),
            snapshotter: Snapshotter::new(kernel),
            stacks: options.stacks,
            rings,
            records: VecDeque::new(),
            watermark: 0,
            sampled: HashMap::from([(options.pid, clock())]),
            samples,
            emitter: Emitter::new(sink),
            progress,
            notes: Vec::new(),
            settings: SettingsWatch::new(clock()),
            begun: clock(),
            has_lost: false,
            duration: options.duration.map(nanos),
            ends: options
                .duration
                .map(|time| clock().saturating_add(nanos(time).max(JOINING))),
            reported: 0,
            ending: false,
        };
        observer.follow_process(options.pid)?;
        if observer.source() == FaultSource::Tracepoints {
            observer.timeline.expect_locks();
        }
        notes.into_iter().for_each(|note| observer.note(note));
        Ok(observer)
    }

    /// Returns the header of the trace.
    fn header(&self) -> Header {
        sources::header(
            self.command.clone(),
            self.samples.as_ref(),
            self.snapshotter.reads_kernel(),
        )
    }

    fn source(&self) -> FaultSource {
        self.samples
            .as_ref()
            .map(Samples::source)
            .unwrap_or_default()
    }

    /// Passes the header to the sink and records until the time is over, the process has ended, or
    /// the user asks for the end.
    ///
    /// # Errors
    /// [`RecordError::Sink`] if the sink failed, [`RecordError::Follow`] if the events cannot be
    /// read.
    fn follow(mut self, stop: &StopRequest) -> Result<Outcome, RecordError> {
        let header = self.header();
        self.emitter.header(&header)?;
        loop {
            self.take_snapshots();
            self.sleep().map_err(RecordError::Follow)?;
            self.pump();
            let over = self.ends.is_some_and(|ends| clock() >= ends);
            let has_ended = !self.tasks.values().any(|task| task.pid == self.root);
            if has_ended {
                (self.progress)(Progress::ProcessEnded);
            }
            if stop.is_set() || over || has_ended || self.emitter.has_failed() {
                break;
            }
        }
        self.finish()
    }

    fn sleep(&self) -> io::Result<()> {
        let fds = self.rings.poll_fds();
        let fds = fds.chain(self.samples.iter().flat_map(Samples::poll_fds));
        let mut fds: Vec<_> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // A ring whose last task has exited is always ready.
        let begun = clock();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: PUMP as i64,
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP)) {
            let rest = PUMP.saturating_sub(clock() - begun);
            std::thread::sleep(Duration::from_nanos(rest));
        }
        Ok(())
    }

    /// Empties the rings and advances the stream.
    fn pump(&mut self) {
        for written in self.settings.written(clock()) {
            self.note(written.to_string());
        }
        let before = self.watermark;
        let mut samples = Vec::new();
        let seen = match &mut self.samples {
            Some(all) => all.drain(&mut samples),
            None => Nanos::MAX,
        };
        let mut records = Vec::new();
        let watermark = self.rings.drain(&mut records).min(seen);
        self.records.extend(records);
        self.watermark = watermark;
        if self.overflowed() {
            // The loss began after the rings were emptied the last time.
            self.records.push_front(Loss::of_overflow(before).into());
        }
        self.process(samples, watermark);
        let now = clock();
        let (emitter, files) = (&mut self.emitter, &self.files);
        self.timeline
            .advance(now, &mut |event| emitter.emit(&event, files));
        if now.saturating_sub(self.reported) >= REPORT {
            self.reported = now;
            self.emitter.tick();
            self.emitter.counts.tasks = self.tasks.len() as u64;
            (self.progress)(Progress::Counts(self.emitter.counts));
        }
    }

    /// True if records or samples may be missing among those just read.
    fn overflowed(&self) -> bool {
        self.rings.overflowed() || self.samples.as_ref().is_some_and(Samples::overflowed)
    }

    /// Handles all records before the watermark.
    fn process(&mut self, mut samples: Vec<Sample>, watermark: Nanos) {
        for sample in &samples {
            if let Sample::Fault { t, tid, addr, .. } = *sample {
                self.remember_fault(Fault { t, tid, addr });
            }
        }
        let ready = self.records.partition_point(|record| record.t < watermark);
        for record in self.records.drain(..ready).collect::<Vec<_>>() {
            self.judge_snapshots(record.t);
            self.handle(record);
        }
        self.judge_snapshots(watermark);
        let hold = self.spaces.values().filter_map(Space::holds_from).min();
        let watermark = watermark.min(hold.unwrap_or(Nanos::MAX));
        self.timeline
            .samples(&mut samples, watermark.saturating_sub(1));
    }

    fn handle(&mut self, Record { t, what }: Record) {
        match what {
            Observed::Entered {
                tid,
                nr,
                args,
                file,
                stack,
            } => self.entered((t, tid), nr, (args, file), stack),
            Observed::Returned { tid, nr, ret } => self.returned(t, tid, nr, ret),
            Observed::Mapped { tid, mapping } => {
                if let Some(call) = self.tasks.get_mut(&tid).and_then(|task| task.call.as_mut()) {
                    call.mapped = Some(mapping);
                }
            }
            Observed::Created { parent, tid, pid } => self.created(t, parent, tid, pid),
            Observed::Exited { tid } => self.exited(t, tid),
            Observed::Executed { pid } => self.executed(t, pid),
            Observed::Lost(loss) => self.lost(&loss),
        }
    }

    /// Takes the last snapshots and closes all events.
    fn finish(mut self) -> Result<Outcome, RecordError> {
        self.ending = true;
        let until = clock() + LAST_SNAPSHOTS;
        self.spaces.values_mut().for_each(Space::end);
        while self.spaces.values().any(Space::is_ending) && clock() < until {
            self.take_snapshots();
            std::thread::sleep(Duration::from_millis(5));
            self.pump();
        }
        let mut samples = Vec::new();
        if let Some(mut all) = self.samples.take()
            && let Err(error) = all.finish(&mut samples)
        {
            self.note(format!("cannot tell whether samples were lost: {error}"));
        }
        let mut records = Vec::new();
        if let Err(error) = self.rings.finish(&mut records) {
            self.note(format!("cannot tell whether records were lost: {error}"));
        }
        self.records.extend(records);
        self.process(samples, Nanos::MAX);
        self.note_unrecorded();
        let (emitter, files) = (&mut self.emitter, &self.files);
        self.timeline
            .finish(&mut |event| emitter.emit(&event, files));
        let t = clock();
        emitter.emit(&Event::End { status: 0, t }, files);
        emitter.counts.tasks = 0;
        let counts = emitter.counts;
        (self.progress)(Progress::Counts(counts));
        match self.emitter.failure() {
            Some(error) => Err(RecordError::Sink(error)),
            None => Ok(Outcome {
                status: 0,
                counts,
                notes: self.notes,
            }),
        }
    }

    fn push(&mut self, t: Nanos, events: Vec<Event>) {
        self.timeline.push(t, events);
    }

    /// Adds a note to the trace and reports it to the caller.
    fn note(&mut self, text: String) {
        if self.notes.contains(&text) {
            return;
        }
        self.push(clock(), vec![Event::Note(text.clone())]);
        (self.progress)(Progress::Note(text.clone()));
        self.notes.push(text);
    }

    fn nowhere(&mut self, tid: i32, t: Nanos) {
        self.timeline.residence.moves(tid, t, Place::Nowhere);
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Signals that ask the recorder to end, caught while this value lives.
struct StopRequest {
    asked: Arc<AtomicBool>,
    ids: Vec<SigId>,
}

impl StopRequest {
    fn catch() -> io::Result<StopRequest> {
        let mut stop = StopRequest {
            asked: Arc::default(),
            ids: Vec::new(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            stop.ids
                .push(flag::register(signal, Arc::clone(&stop.asked))?);
        }
        Ok(stop)
    }

    fn is_set(&self) -> bool {
        // ORDERING: Relaxed, the flag carries no other data.
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for StopRequest {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests;
