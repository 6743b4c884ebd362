//! The loop: waits for stops of the traced tree, hands each to its handler, and keeps the stream
//! flowing.
//!
//! One thread does all of it, for `ptrace` answers only the thread that traces. It sleeps in
//! `poll` until `SIGCHLD`, a ring that fills, or a deadline. What happens at calls is in
//! [`super::calls`], what happens to tasks in [`super::lifecycle`].

use super::command::Command;
use super::emitter::Emitter;
use super::files::Files;
use super::program_filters::Sandboxes;
use super::signals::{Signals, Wish};
use super::snapshot::Looks;
use super::sources::{header, open_samples, open_view};
use super::stops::{Stop, Stops, Tree};
use super::tasks::{Mode, Space, Task, UNRECORDED};
use super::timeline::Timeline;
use super::{CallStack, Options, Outcome, Progress, RecordError, Sink, Stacks};
use crate::samples::Samples;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};
use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use vmarea_linux_sys::ptrace::{self, Resume};
use vmarea_linux_sys::spawn::{Privileges, Started};
use vmarea_trace::event::{Event, FaultSource, MmId, Nanos};

/// How long a thread waits for others that stay inside of a call, where the locks tell in which
/// order calls take effect, and where nothing else does.
const TURN: Nanos = 20_000_000;
const TURN_UNTOLD: Nanos = 100_000_000;
/// How often the rings are emptied and the stream moved on, at least while something happens.
const PUMP: Nanos = 10_000_000;
/// How often the caller hears of progress.
const REPORT: Nanos = 100_000_000;
/// Longest sleep; with rings that report nothing any more, the shorter one.
const SLEEP: Nanos = 200_000_000;
const SLEEP_UNTOLD: Nanos = 20_000_000;

/// How long the next stop is awaited awake: most calls are over sooner than a thread that sleeps
/// comes to its feet.
const SPIN: Nanos = 50_000;

/// A recording that runs.
pub(crate) struct Tracer<'a> {
    pub(super) tasks: HashMap<i32, Task>,
    pub(super) spaces: HashMap<MmId, Space>,
    pub(super) timeline: Timeline,
    pub(super) files: Files,
    pub(super) looks: Looks,
    pub(super) command: Command,
    pub(super) checkpoint: Option<NonZeroU64>,
    pub(super) stacks: Stacks,
    pub(super) sandboxes: Sandboxes,
    /// Tasks that were to be made with `CLONE_UNTRACED`.
    pub(super) untraced: u64,
    /// It was said that only the recorder traces.
    pub(super) tracing_noted: bool,
    pub(super) pidfds: HashMap<i32, OwnedFd>,
    /// First stops of tasks whose parents have not told of them yet.
    pub(super) early: HashMap<i32, i32>,
    /// The process that became the command.
    pub(super) root: i32,
    pub(super) root_status: Option<i32>,
    pub(super) last_mm: MmId,
    /// Why the recording is to fail although it was followed to its end.
    pub(super) failure: Option<RecordError>,
    pub(super) samples: Option<Samples>,
    rings_silent: bool,
    emitter: Emitter<'a>,
    progress: &'a mut dyn FnMut(Progress),
    signals: Signals,
    stops: Stops,
    started: Started,
    notes: Vec<String>,
    pumped: Nanos,
    reported: Nanos,
}

/// `CLOCK_MONOTONIC`, which the samples use as well.
pub(crate) fn clock() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl<'a> Tracer<'a> {
    /// Starts the command; it has not run yet when an error comes back.
    ///
    /// # Errors
    /// Those of [`Command`], and of a sink that does not take the header.
    pub(crate) fn start(
        options: &Options,
        sink: &'a mut dyn Sink,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Tracer<'a>, RecordError> {
        let command = Command::find(&options.command)?;
        let signals = Signals::catch().map_err(RecordError::Follow)?;
        let mut notes = Vec::new();
        if command.privileges == Privileges::NoNew {
            notes.push(
                "not root: no_new_privs is set, so set-user-ID programs run without privileges"
                    .to_owned(),
            );
        }
        let kernel = open_view(options.kernel_view, &mut notes);
        let waiting = command.fork()?;
        let root = waiting.pid();
        let samples = open_samples(options.faults, root, &mut notes);
        let header = header(options, samples.as_ref(), kernel.is_some());
        if let Err(error) = sink.header(&header) {
            super::command::abandon(waiting);
            return Err(RecordError::Sink(error));
        }
        let started = waiting.go().map_err(RecordError::Start)?;
        let task = Task::new(root, UNRECORDED, Mode::Filtered);
        let mut tracer = Tracer {
            tasks: HashMap::from([(root, task)]),
            spaces: HashMap::from([(UNRECORDED, Space::default())]),
            timeline: Timeline::default(),
            files: Files::new(),
            looks: Looks::new(kernel),
            command,
            checkpoint: options.checkpoint,
            stacks: options.stacks,
            sandboxes: Sandboxes::default(),
            untraced: 0,
            tracing_noted: false,
            pidfds: HashMap::new(),
            early: HashMap::new(),
            root,
            root_status: None,
            last_mm: UNRECORDED,
            failure: None,
            rings_silent: samples.is_none(),
            samples,
            emitter: Emitter::new(sink),
            progress,
            signals,
            stops: Stops::default(),
            started,
            notes: Vec::new(),
            pumped: 0,
            reported: clock(),
        };
        if header.faults == FaultSource::Tracepoints {
            tracer.timeline.expect_locks();
        }
        tracer
            .timeline
            .lives
            .moves(root, 0, super::residence::Place::Nowhere);
        for note in notes {
            tracer.note(note);
        }
        Ok(tracer)
    }

    /// Follows the command to its end.
    ///
    /// # Errors
    /// [`RecordError`], where the command could not be executed or the sink failed.
    pub(crate) fn follow(mut self) -> Result<Outcome, RecordError> {
        loop {
            self.signals.take(clock());
            if !self.take_stops()? {
                break;
            }
            self.heed_signals();
            self.adopt_orphans();
            let now = clock();
            self.let_in_overdue(now);
            if now - self.pumped >= PUMP {
                self.pump(now);
            }
            self.sleep(now)?;
        }
        self.finish()
    }

    fn heed_signals(&mut self) {
        match self.signals.wish(clock()) {
            Wish::None => {}
            Wish::Interrupt if self.root_status.is_none() => {}
            Wish::Interrupt => self.pass_on(libc::SIGTERM),
            // It got it by itself, and has not come to it yet.
            Wish::Pass(signal) if has_pending(self.root, signal) => {}
            // It stands where that was not asked yet: at this signal, perhaps.
            Wish::Pass(signal) if is_traced_stop(self.root) => {
                self.signals.postpone(signal, clock())
            }
            Wish::Pass(signal) => self.pass_on(signal),
            Wish::End => self.kill_all(),
        }
    }

    /// Handles every stop that waits. Answers false when nothing is left to be traced.
    fn take_stops(&mut self) -> Result<bool, RecordError> {
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
            // Not between stops: one that waits may tell that the command got a signal. And there may be no
            // end of stops.
            self.heed_signals();
            // What has come to its end meanwhile is not collected yet.
            self.let_in_overdue(begun);
            if any {
                handled = Some(clock());
            } else if tree == Tree::Gone {
                return Ok(false);
            } else if handled.is_some_and(|at| clock() - at < SPIN) {
                std::thread::yield_now();
            } else {
                return Ok(!self.tasks.is_empty() || !self.early.is_empty());
            }
        }
    }

    fn report(&mut self, tid: i32, status: i32, now: Nanos) {
        if !libc::WIFSTOPPED(status) {
            self.gone(tid, status, now);
        } else if self.tasks.contains_key(&tid) {
            self.stopped(tid, status, now);
        } else {
            // Its parent's event comes next, and says who it is.
            self.early.insert(tid, status);
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
            0 => {
                if self
                    .tasks
                    .get(&tid)
                    .is_some_and(|task| task.pid == self.root)
                {
                    self.signals.command_got(signal, now);
                }
                self.resume(tid, signal);
            }
            libc::PTRACE_EVENT_SECCOMP => self.at_filter(tid, now),
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                self.has_child(tid, now);
            }
            libc::PTRACE_EVENT_EXEC => self.has_executed(tid, now),
            libc::PTRACE_EVENT_EXIT => self.leaves(tid, now),
            libc::PTRACE_EVENT_STOP if is_stop_signal(signal) => {
                // Stopped as by job control: it stays so until SIGCONT, which is reported.
                let _ = ptrace::resume(tid, Resume::Listen, 0);
            }
            _ => self.resume(tid, 0),
        }
    }

    /// Lets a stopped task run on to where it stops next. One that was killed meanwhile has gone on
    /// by itself and stands at its end: that stop is taken next, and must not be passed over.
    pub(super) fn resume(&self, tid: i32, signal: i32) {
        let Some(task) = self.tasks.get(&tid) else {
            return;
        };
        let how = match (task.mode, &task.call) {
            (Mode::Filtered, None) => Resume::Continue,
            _ => Resume::UntilSyscall,
        };
        if !self.stops.waits(tid) && !ptrace::is_reported(tid) {
            let _ = ptrace::resume(tid, how, signal);
        }
    }

    /// How long a thread waits for others that stay inside of a call.
    pub(super) fn turn(&self) -> Nanos {
        match self.timeline.sees_locks() {
            true => TURN,
            false => TURN_UNTOLD,
        }
    }

    /// Gives the sink the stack of a call.
    pub(super) fn hand_over(&mut self, stack: &CallStack) {
        self.emitter.stack(stack);
    }

    /// Places events.
    pub(super) fn push(&mut self, t: Nanos, events: Vec<Event>) {
        self.timeline.push(t, events);
    }

    /// Makes a remark, in the trace and to the caller.
    pub(super) fn note(&mut self, text: String) {
        self.push(clock(), vec![Event::Note(text.clone())]);
        (self.progress)(Progress::Note(text.clone()));
        self.notes.push(text);
    }

    pub(super) fn tell_command_ended(&mut self, status: i32) {
        let mut left: Vec<i32> = self.tasks.values().map(|task| task.pid).collect();
        left.sort_unstable();
        left.dedup();
        if !left.is_empty() {
            (self.progress)(Progress::CommandEnded { status, left });
        }
    }

    /// Moves the stream on.
    fn pump(&mut self, now: Nanos) {
        self.pumped = now;
        let mut taken = Vec::new();
        let watermark = match &mut self.samples {
            Some(samples) => samples.drain(&mut taken).saturating_sub(1),
            None => now,
        };
        self.timeline.samples(&mut taken, watermark);
        let failed_before = self.emitter.has_failed();
        let (emitter, files) = (&mut self.emitter, &self.files);
        self.timeline
            .advance(now, &mut |event| emitter.emit(&event, files));
        if now - self.reported >= REPORT {
            emitter.tick();
        }
        if self.emitter.has_failed() && !failed_before {
            let text = "the trace cannot be written any more: the command runs on unrecorded";
            (self.progress)(Progress::Note(text.to_owned()));
        }
        if now - self.reported >= REPORT {
            self.reported = now;
            self.emitter.counts.tasks = self.tasks.len() as u64;
            (self.progress)(Progress::Counts(self.emitter.counts));
        }
    }

    fn sleep(&mut self, now: Nanos) -> Result<(), RecordError> {
        let longest = if self.rings_silent {
            SLEEP_UNTOLD
        } else {
            SLEEP
        };
        let turn = self.turn();
        let until = self.spaces.values().filter_map(|s| s.next_due(turn));
        let until = until.chain(self.signals.deadline()).min();
        let nanos = until.map_or(longest, |until| until.saturating_sub(now).min(longest));
        let mut fds: Vec<PollFd<'_>> = self
            .signals
            .fds()
            .into_iter()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        if !self.rings_silent
            && let Some(samples) = &self.samples
        {
            let rings = samples.poll_fds();
            fds.extend(rings.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: nanos as i64,
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(RecordError::Follow(error.into())),
        }
        // The task on which they were opened has gone; its children still fill them.
        let silent = fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP));
        self.rings_silent |= silent;
        Ok(())
    }

    /// Passes a wish to end on to the command, or asks what it left behind to end.
    fn pass_on(&self, signal: i32) {
        match self.root_status {
            None => send(self.root, signal),
            Some(_) => self.processes().for_each(|pid| send(pid, libc::SIGTERM)),
        }
    }

    /// Ends the tree. A program whose filter has lost its tracer cannot run on.
    pub(super) fn kill_all(&self) {
        self.processes().for_each(|pid| send(pid, libc::SIGKILL));
    }

    fn processes(&self) -> impl Iterator<Item = i32> {
        let leaders = self.tasks.iter().filter(|(tid, task)| **tid == task.pid);
        leaders.map(|(tid, _)| *tid)
    }

    fn finish(mut self) -> Result<Outcome, RecordError> {
        match self.untraced {
            0 => {}
            1 => self.note("1 task was made with CLONE_UNTRACED: recorded nevertheless".to_owned()),
            n => self.note(format!(
                "{n} tasks were made with CLONE_UNTRACED: recorded nevertheless"
            )),
        }
        self.finish_samples();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.last_mm == UNRECORDED {
            return Err(self.command.explain(self.started.failure()));
        }
        let (emitter, files) = (&mut self.emitter, &self.files);
        self.timeline
            .finish(&mut |event| emitter.emit(&event, files));
        let status = self.root_status.unwrap_or(0);
        let t = clock();
        emitter.emit(&Event::End { status, t }, files);
        emitter.counts.tasks = 0;
        let counts = emitter.counts;
        (self.progress)(Progress::Counts(counts));
        match self.emitter.failure() {
            Some(error) => Err(RecordError::Sink(error)),
            None => Ok(Outcome {
                status,
                counts,
                notes: self.notes,
            }),
        }
    }

    /// Takes the last samples, and says what of them is in doubt.
    fn finish_samples(&mut self) {
        let Some(mut samples) = self.samples.take() else {
            return;
        };
        let mut taken = Vec::new();
        if let Err(error) = samples.finish(&mut taken) {
            self.note(format!(
                "it is not known whether samples were lost: {error}"
            ));
        }
        self.timeline.samples(&mut taken, Nanos::MAX);
        let (emitter, files) = (&mut self.emitter, &self.files);
        self.timeline
            .finish(&mut |event| emitter.emit(&event, files));
        if samples.late() != 0 {
            self.note(format!("{} samples came too late", samples.late()));
        }
        let strays = self.timeline.strays();
        if strays != 0 {
            self.note(format!("{strays} samples of threads that are not known"));
        }
    }
}

fn is_stop_signal(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
    )
}

/// True where a process stands in a stop of its tracer.
fn is_traced_stop(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tt"))
}

/// True where a signal has been sent to a process and not been taken.
fn has_pending(pid: i32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        line.strip_prefix("SigPnd:")
            .or(line.strip_prefix("ShdPnd:"))
    });
    masks
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask >> (signal - 1) & 1 == 1)
}

fn send(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) {
        // It may have gone, or run under another user by now.
        let _: io::Result<()> = rustix::process::kill_process(pid, signal).map_err(Into::into);
    }
}
