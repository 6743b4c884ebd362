//! The tracer's loop: collects stops, dispatches each to its handler, and advances the stream.
//!
//! One thread runs the loop and all handlers, because `ptrace` accepts requests only from the
//! tracing thread. The thread sleeps in `poll` until `SIGCHLD`, until a ring fills, or until a
//! deadline. [`super::calls`] handles calls; [`super::lifecycle`] and [`super::exit`] handle tasks.

use super::actions::Concurrent;
use super::attachment::Attachment;
use super::call_queue::ObservedCalls;
use super::clock::clock;
use super::command::Command;
use super::emitter::Emitter;
use super::files::Files;
use super::filter::Stopping;
use super::pauses::{Stale, Throttle};
use super::program_filters::ProgramFilters;
use super::residence::Place;
use super::settings_watch::SettingsWatch;
use super::signals::{SignalAction, Signals, has_pending, is_stop_signal, is_traced_stop, send};
use super::snapshot::Snapshotter;
use super::sources::{header, open_calls, open_samples, open_view};
use super::stops::{Stop, Stops, Tree};
use super::tasks::{Mode, Resumption, Space, Task, UNRECORDED};
use super::timeline::Timeline;
use super::{Options, Outcome, Progress, RecordError, Sink, Stacks};
use crate::samples::{Samples, Start};
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use vmarea_linux_sys::ptrace::{self, Resume};
use vmarea_linux_sys::spawn::{Privileges, Started};
use vmarea_trace::event::{Event, FaultSource, MmId, Nanos};

/// Time for which a thread waits for other threads' calls if lock tracepoints show their order.
const TURN: Nanos = 20_000_000;
/// Time for which a thread waits for other threads' calls if only call exits show their order.
const TURN_WITHOUT_LOCKS: Nanos = 100_000_000;
/// Interval at which the tracer empties the rings and advances the stream while events arrive.
const PUMP: Nanos = 10_000_000;
/// Interval at which the caller receives progress.
const REPORT: Nanos = 100_000_000;

/// Time for which the tracer polls for the next stop before it sleeps.
///
/// Most calls end before a sleeping tracer could wake up.
const SPIN: Nanos = 50_000;

/// A running recording.
pub(crate) struct Tracer<'a> {
    pub(super) tasks: HashMap<i32, Task>,
    pub(super) spaces: HashMap<MmId, Space>,
    pub(super) timeline: Timeline,
    pub(super) files: Files,
    pub(super) snapshotter: Snapshotter,
    /// The command, if this tracer has started it.
    pub(super) command: Option<(Command, Started)>,
    /// The state of a recording of a process that was running before.
    pub(super) attachment: Option<Attachment>,
    /// Whether set-user-ID programs can gain privileges.
    pub(super) privileges: Privileges,
    pub(super) checkpoint: Option<NonZeroU64>,
    pub(super) stacks: Stacks,
    pub(super) program_filters: ProgramFilters,
    /// Which calls of the table stop a thread that has the recorder's filter.
    pub(super) stopping: Stopping,
    /// The calls that do not stop; `None` if all do, and at the end.
    pub(super) observed: Option<ObservedCalls>,
    pub(super) concurrent: Concurrent,
    pub(super) throttle: Throttle,
    pub(super) stale: Stale,
    /// Number of address spaces whose last list of mappings was read inside of a call.
    pub(super) inexact_ends: u64,
    /// Number of tasks created with `CLONE_UNTRACED`.
    pub(super) untraced: u64,
    /// True if the note about refused `ptrace` calls has already been made; it is made only once.
    pub(super) tracing_noted: bool,
    pub(super) pidfds: HashMap<i32, OwnedFd>,
    /// Wait statuses of tasks that stopped before their parents' events arrived, by thread id.
    pub(super) early_stops: HashMap<i32, i32>,
    /// Process id of the command, or of the process that this tracer attached to.
    pub(super) root: i32,
    pub(super) root_status: Option<i32>,
    pub(super) last_mm: MmId,
    /// Error that the recording returns after the tracer has followed the command to its end.
    pub(super) failure: Option<RecordError>,
    pub(super) samples: Option<Samples>,
    pub(super) rings_silent: bool,
    pub(super) emitter: Emitter<'a>,
    pub(super) progress: &'a mut dyn FnMut(Progress),
    pub(super) signals: Signals,
    stops: Stops,
    pub(super) settings: SettingsWatch,
    pub(super) notes: Vec<String>,
    /// Time at which the recording began.
    pub(super) begun: Nanos,
    pumped: Nanos,
    reported: Nanos,
}

/// Components of a recording that are created before its tracer.
pub(super) struct Setup<'a> {
    pub(super) root: i32,
    pub(super) privileges: Privileges,
    pub(super) checkpoint: Option<NonZeroU64>,
    pub(super) stacks: Stacks,
    pub(super) signals: Signals,
    pub(super) snapshotter: Snapshotter,
    pub(super) emitter: Emitter<'a>,
    pub(super) progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Tracer<'a> {
    /// Starts the command. If this fails, the command has not run.
    ///
    /// # Errors
    /// The errors of [`Command`], and of a sink that rejects the header.
    pub(crate) fn start(
        options: &Options,
        sink: &'a mut dyn Sink,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Tracer<'a>, RecordError> {
        Tracer::start_with(options, None, sink, progress)
    }

    /// Starts the command, with rings of `ring_bytes` per CPU for observed calls, if it is given.
    pub(super) fn start_with(
        options: &Options,
        ring_bytes: Option<usize>,
        sink: &'a mut dyn Sink,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Tracer<'a>, RecordError> {
        let command = Command::find(&options.command)?;
        let signals = Signals::catch().map_err(RecordError::Follow)?;
        let mut notes = Vec::new();
        if command.privileges == Privileges::NoNew {
            notes.push(
                "not root: no_new_privs is set, so set-user-ID programs run without extra privileges"
                    .to_owned(),
            );
        }
        let kernel = open_view(options.kernel_view, &mut notes);
        let observed = open_calls(options, ring_bytes, &mut notes)?;
        let stopping = match observed {
            Some(_) => Stopping::Others,
            None => Stopping::All,
        };
        let waiting = command.fork(stopping)?;
        let root = waiting.pid();
        let samples = open_samples(options.faults, root, Start::Exec, &mut notes);
        let words = options.command.iter();
        let words = words.map(|w| w.to_string_lossy().into_owned()).collect();
        let header = header(words, samples.as_ref(), kernel.is_some());
        if let Err(error) = sink.header(&header) {
            super::command::abandon(waiting);
            return Err(RecordError::Sink(error));
        }
        let started = waiting.go().map_err(RecordError::Start)?;
        let mut tracer = Tracer::with(Setup {
            root,
            privileges: command.privileges,
            checkpoint: options.checkpoint,
            stacks: options.stacks,
            signals,
            snapshotter: Snapshotter::new(kernel),
            emitter: Emitter::new(sink),
            progress,
        });
        tracer.command = Some((command, started));
        tracer.observe_calls(observed);
        tracer.sample_with(samples);
        tracer.timeline.residence.moves(root, 0, Place::Nowhere);
        let task = Task::new(root, UNRECORDED, Mode::Filtered);
        tracer.tasks.insert(root, task);
        for note in notes {
            tracer.note(note);
        }
        Ok(tracer)
    }

    /// Creates a tracer that follows no task yet.
    pub(super) fn with(setup: Setup<'a>) -> Tracer<'a> {
        Tracer {
            tasks: HashMap::new(),
            spaces: HashMap::from([(UNRECORDED, Space::default())]),
            timeline: Timeline::default(),
            files: Files::new(),
            snapshotter: setup.snapshotter,
            command: None,
            attachment: None,
            privileges: setup.privileges,
            checkpoint: setup.checkpoint,
            stacks: setup.stacks,
            program_filters: ProgramFilters::default(),
            stopping: Stopping::All,
            observed: None,
            concurrent: Concurrent::default(),
            throttle: Throttle::default(),
            stale: Stale::default(),
            inexact_ends: 0,
            untraced: 0,
            tracing_noted: false,
            pidfds: HashMap::new(),
            early_stops: HashMap::new(),
            root: setup.root,
            root_status: None,
            last_mm: UNRECORDED,
            failure: None,
            rings_silent: true,
            samples: None,
            emitter: setup.emitter,
            progress: setup.progress,
            signals: setup.signals,
            stops: Stops::default(),
            settings: SettingsWatch::new(clock()),
            notes: Vec::new(),
            begun: clock(),
            pumped: 0,
            reported: clock(),
        }
    }

    /// Reads page faults from `samples` from now on.
    pub(super) fn sample_with(&mut self, samples: Option<Samples>) {
        self.rings_silent = samples.is_none();
        if samples.as_ref().map(Samples::source) == Some(FaultSource::Tracepoints) {
            self.timeline.expect_locks();
        }
        self.samples = samples;
    }

    /// Takes the calls that do not stop from `observed`, if it is given.
    fn observe_calls(&mut self, observed: Option<ObservedCalls>) {
        if observed.is_some() {
            self.stopping = Stopping::Others;
            self.files.identify_by_record();
        }
        self.observed = observed;
    }

    /// Follows the command to its end.
    ///
    /// # Errors
    /// [`RecordError`] if the command could not be executed or the sink failed.
    pub(crate) fn follow(mut self) -> Result<Outcome, RecordError> {
        loop {
            self.signals.take(clock());
            if !self.take_stops()? {
                break;
            }
            self.handle_signals();
            self.adopt_orphans();
            self.advance()?;
        }
        self.finish()
    }

    /// Advances the stream and sleeps until there is something to do.
    pub(super) fn advance(&mut self) -> Result<(), RecordError> {
        let now = clock();
        self.let_in_overdue(now);
        if now - self.pumped >= PUMP || self.is_behind() {
            self.pump(now);
        }
        self.take_over_stale();
        self.sleep(now)
    }

    fn handle_signals(&mut self) {
        if self.attachment.is_some() {
            // A request to exit ends the recording, not the process: see `is_attachment_due`.
            return;
        }
        match self.signals.action(clock()) {
            SignalAction::None => {}
            SignalAction::Interrupt if self.root_status.is_none() => {}
            SignalAction::Interrupt => self.pass_on(libc::SIGTERM),
            // The command received the signal as well and has not handled it yet.
            SignalAction::Pass(signal) if has_pending(self.root, signal) => {}
            // The command is stopped, perhaps at this very signal: decide later.
            SignalAction::Pass(signal) if is_traced_stop(self.root) => {
                self.signals.postpone(signal, clock())
            }
            SignalAction::Pass(signal) => self.pass_on(signal),
            SignalAction::End => self.kill_all(),
        }
    }

    /// Handles every pending stop. Returns false if no traced task remains.
    pub(super) fn take_stops(&mut self) -> Result<bool, RecordError> {
        let mut handled = None;
        loop {
            let begun = clock();
            let tree = self.stops.collect(clock);
            let tree = tree.map_err(|error| RecordError::Follow(error.into()))?;
            let mut any = false;
            while let Some(Stop { tid, status, t }) = self.stops.next() {
                any = true;
                self.report(tid, status, t);
                let now = clock();
                if now - self.pumped >= PUMP {
                    self.pump(now);
                    self.signals.take(now);
                }
            }
            // Signals are not handled between two stops, because a pending stop may show that the
            // command received the signal too; and stops may keep arriving forever.
            self.handle_signals();
            // Calls that ended in the meantime are not collected yet.
            self.let_in_overdue(begun);
            if self.is_attachment_due(begun) {
                return Ok(tree == Tree::Alive);
            } else if any {
                handled = Some(clock());
            } else if tree == Tree::Gone {
                return Ok(false);
            } else if handled.is_some_and(|at| clock() - at < SPIN) {
                std::thread::yield_now();
            } else {
                return Ok(!self.tasks.is_empty() || !self.early_stops.is_empty());
            }
        }
    }

    fn report(&mut self, tid: i32, status: i32, now: Nanos) {
        if !libc::WIFSTOPPED(status) {
            self.gone(tid, status, now);
        } else if self.tasks.contains_key(&tid) {
            self.stopped(tid, status, now);
        } else {
            // The parent's event arrives later and identifies the task.
            self.early_stops.insert(tid, status);
        }
    }

    pub(super) fn stopped(&mut self, tid: i32, status: i32, now: Nanos) {
        const AT_SYSCALL: i32 = libc::SIGTRAP | 0x80;
        let signal = libc::WSTOPSIG(status);
        let task = self.tasks.get_mut(&tid);
        if let Some(untraced) = task.and_then(|task| task.untraced.take()) {
            untraced.restore(tid);
        }
        match status >> 16 {
            0 if signal == AT_SYSCALL => self.at_syscall(tid, now),
            0 => self.at_signal(tid, signal, now),
            libc::PTRACE_EVENT_SECCOMP => self.at_filter(tid, now),
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                self.at_clone_event(tid, now);
            }
            libc::PTRACE_EVENT_EXEC => self.at_exec_event(tid, now),
            libc::PTRACE_EVENT_EXIT => self.at_exit_event(tid, now),
            libc::PTRACE_EVENT_STOP if is_stop_signal(signal) => self.at_group_stop(tid),
            libc::PTRACE_EVENT_STOP => self.at_interrupt(tid),
            _ => self.resume(tid, 0),
        }
    }

    /// Handles a group-stop of job control: the thread stays stopped until its process receives
    /// SIGCONT, which the kernel reports.
    fn at_group_stop(&mut self, tid: i32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.was_stopped = true;
        }
        self.resume_as(tid, Resumption::Listen);
    }

    fn at_signal(&mut self, tid: i32, signal: i32, now: Nanos) {
        let task = self.tasks.get(&tid);
        if task.is_some_and(|task| task.pid == self.root) {
            self.signals.command_got(signal, now);
        }
        self.before_signal(tid, signal);
        self.resume(tid, signal);
    }

    /// Resumes a stopped task until its next stop, and delivers `signal` to it (0 for none).
    ///
    /// While threads are being stopped ([`super::attach`]), the task stays where it is.
    pub(super) fn resume(&mut self, tid: i32, signal: i32) {
        self.resume_as(tid, Resumption::Run(signal));
    }

    fn resume_as(&mut self, tid: i32, how: Resumption) {
        if !self.keep(tid, how) {
            self.let_run(tid, how);
        }
    }

    /// Resumes a stopped task, even while threads are being stopped.
    ///
    /// A task that has been killed in the meantime has left its stop and is now at its exit stop.
    /// The tracer handles the exit stop next and must not resume the task until then.
    pub(super) fn let_run(&mut self, tid: i32, how: Resumption) {
        let has_left_stop = self.has_left_stop(tid);
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.listens = how == Resumption::Listen;
        if has_left_stop {
            return;
        }
        if task.leaving {
            return self.release(tid);
        }
        let filtered = self.attachment.is_none() && task.mode == Mode::Filtered;
        let (how, signal) = match how {
            Resumption::Listen => (Resume::Listen, 0),
            Resumption::Run(signal) if filtered && task.call.is_none() => {
                (Resume::Continue, signal)
            }
            Resumption::Run(signal) => (Resume::UntilSyscall, signal),
        };
        let _ = ptrace::resume(tid, how, signal);
    }

    /// True if a thread has been killed at the stop that is being handled.
    ///
    /// What `ptrace` has told about the thread before this call may then be about its exit stop.
    pub(super) fn has_left_stop(&self, tid: i32) -> bool {
        self.stops.waits(tid) || ptrace::has_left_stop(tid)
    }

    /// Returns the time for which a thread waits for other threads' calls.
    pub(super) fn turn(&self) -> Nanos {
        match self.timeline.sees_locks() {
            true => TURN,
            false => TURN_WITHOUT_LOCKS,
        }
    }

    /// Adds a note to the trace and reports it to the caller.
    pub(super) fn note(&mut self, text: String) {
        self.push(clock(), vec![Event::Note(text.clone())]);
        (self.progress)(Progress::Note(text.clone()));
        self.notes.push(text);
    }

    pub(super) fn report_command_ended(&mut self, status: i32) {
        if self.attachment.is_some() {
            return (self.progress)(Progress::ProcessEnded);
        }
        let left: Vec<i32> = self.processes().collect();
        if !left.is_empty() {
            (self.progress)(Progress::CommandEnded { status, left });
        }
    }

    /// Empties the rings, advances the stream and reports progress.
    fn pump(&mut self, now: Nanos) {
        if self
            .attachment
            .as_ref()
            .is_some_and(Attachment::holds_stream)
        {
            return;
        }
        self.pumped = now;
        for written in self.settings.written(now) {
            self.note(written.to_string());
        }
        let mut taken = Vec::new();
        let seen = match &mut self.samples {
            Some(samples) => samples.drain(&mut taken),
            None => now,
        };
        let watermark = self.handle_observed(seen);
        self.throttle();
        self.timeline
            .samples(&mut taken, watermark.saturating_sub(1));
        let failed_before = self.emitter.has_failed();
        let (emitter, files) = (&mut self.emitter, &self.files);
        self.timeline
            .advance(now, &mut |event| emitter.emit(&event, files));
        if now - self.reported >= REPORT {
            emitter.tick();
        }
        if self.emitter.has_failed() && !failed_before {
            let text = "the trace cannot be written any more: the command continues unrecorded";
            (self.progress)(Progress::Note(text.to_owned()));
        }
        if now - self.reported >= REPORT {
            self.reported = now;
            self.emitter.counts.tasks = self.tasks.len() as u64;
            (self.progress)(Progress::Counts(self.emitter.counts));
        }
    }

    /// Forwards an exit request to the command, or to its descendants if the command has exited.
    fn pass_on(&self, signal: i32) {
        match self.root_status {
            None => send(self.root, signal),
            Some(_) => self.processes().for_each(|pid| send(pid, libc::SIGTERM)),
        }
    }

    /// Kills the process tree: a program with the recorder's filter cannot continue without a
    /// tracer.
    pub(super) fn kill_all(&self) {
        self.processes().for_each(|pid| send(pid, libc::SIGKILL));
    }

    fn processes(&self) -> impl Iterator<Item = i32> {
        let pids: BTreeSet<i32> = self.tasks.values().map(|task| task.pid).collect();
        pids.into_iter()
    }
}
