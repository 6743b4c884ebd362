//! Recording of a running process by `ptrace`.
//!
//! A running process cannot be given a seccomp filter, because a filter could not be removed again.
//! Therefore each thread stops at the entry and the exit of each system call, and continues at once
//! unless the call is in the call table.
//!
//! # Picture
//! ```text
//!   join:    seize every thread, ask it to stop | rings | MmStart, TaskStart, Snapshot{Attach}
//!   follow:  stops ... | every second: all threads stopped or asleep, Snapshot{Checkpoint} | ...
//!   leave:   Snapshot{Checkpoint} | detach those that are stopped; the others at the thread's end
//! ```
//!
//! # Invariants
//! The process runs on if the recorder dies: there is no `PTRACE_O_EXITKILL`, and no change to a
//! thread's registers lasts longer than the stop in which it is made, except that a call that the
//! stop has interrupted is restarted.

use super::AttachOptions;
use super::target::{self, Tracing, forbidden};
use crate::attachment::Attachment;
use crate::clock::clock;
use crate::command::{SYS_PTRACE, has_capability};
use crate::emitter::Emitter;
use crate::files;
use crate::lifecycle::task_start;
use crate::residence::Place;
use crate::samples::{SamplesError, Start};
use crate::signals::Signals;
use crate::snapshot::Snapshotter;
use crate::sources::{command_line, header, open_samples, open_view};
use crate::tasks::{Mode, Resumption, Task};
use crate::tracer::{Setup, Tracer};
use crate::{Faults, Outcome, Progress, RecordError, Sink};
use nix::sys::ptrace::Options;
use nix::unistd::Pid;
use std::path::Path;
use vmarea_linux_sys::ptrace;
use vmarea_linux_sys::reaper::Reaper;
use vmarea_linux_sys::spawn::Privileges;
use vmarea_process::processes;
use vmarea_trace::event::{Event, MmId, MmStart, Nanos, Origin, SnapReason};

const SECOND: Nanos = 1_000_000_000;
/// How often a thread is seized that cannot be, though nobody traces it.
const SEIZE_TRIES: u32 = 3;
/// Longest time for which a thread may take to stop at the beginning.
const JOINING: Nanos = 10 * SECOND;
/// Longest time for which threads are kept stopped for a periodic snapshot.
const STOPPING: Nanos = SECOND / 20;
/// Longest time for which threads are kept stopped for the last snapshot.
const LEAVING: Nanos = SECOND;

impl<'a> Tracer<'a> {
    /// Joins a running process and takes over its mappings.
    ///
    /// # Errors
    /// [`RecordError`]. The process then runs on as soon as this thread exits.
    pub(super) fn join(
        options: &AttachOptions,
        sink: &'a mut dyn Sink,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Tracer<'a>, RecordError> {
        let signals = Signals::catch().map_err(RecordError::Follow)?;
        let mut notes = Vec::new();
        let kernel = open_view(options.kernel_view, &mut notes);
        let has_view = kernel.is_some();
        let mut tracer = Tracer::with(Setup {
            root: options.pid,
            privileges: match has_capability(SYS_PTRACE) {
                true => Privileges::Kept,
                false => Privileges::NoNew,
            },
            checkpoint: options.checkpoint,
            stacks: options.stacks,
            signals,
            snapshotter: Snapshotter::new(kernel),
            emitter: Emitter::new(sink),
            progress,
        });
        tracer.attachment = Some(Attachment {
            joins: true,
            keeps: true,
            ..Attachment::default()
        });
        tracer.seize_all()?;
        tracer.open_rings(options.faults, &mut notes)?;
        let command = command_line(options.pid);
        let header = header(command, tracer.samples.as_ref(), has_view);
        tracer.emitter.header(&header)?;
        tracer.take_over()?;
        for note in notes {
            tracer.note(note);
        }
        let now = clock();
        if let Some(attachment) = &mut tracer.attachment {
            attachment.joins = false;
            attachment.next_snapshot = now + SECOND;
            let nanos = options.duration.map(|time| time.as_nanos());
            let nanos = nanos.map(|nanos| Nanos::try_from(nanos).unwrap_or(Nanos::MAX));
            attachment.until = nanos.map(|nanos| now.saturating_add(nanos));
        }
        tracer.release_threads();
        Ok(tracer)
    }

    /// Seizes and stops all threads of the process, including those that it creates meanwhile.
    fn seize_all(&mut self) -> Result<(), RecordError> {
        let pid = self.root;
        let mm = self.new_mm();
        let begun = clock();
        let mode = match target::has_direct_file(pid) {
            true => Mode::EverySyscall,
            false => Mode::Filtered,
        };
        let origin = Origin::Attach;
        let start = MmStart {
            mm,
            origin,
            t: begun,
        };
        self.push(begun, vec![Event::MmStart(start)]);
        let reaper = Reaper::default();
        loop {
            let mut found = false;
            for tid in processes::threads(pid) {
                if !self.tasks.contains_key(&tid) && reaper.seize(tid, || self.seize(tid))? {
                    found = true;
                    if !Path::new(&format!("/proc/{pid}/task/{tid}")).exists() {
                        // It may have executed a program during its seizure, and then has another id.
                        return Err(RecordError::Executed(pid));
                    }
                    let now = clock();
                    let mut task = Task::new(pid, mm, mode);
                    super::stopping::interrupt(tid, &mut task);
                    self.add_task(tid, task, begun);
                    self.push(now, vec![task_start(tid, pid, mm, now)]);
                }
            }
            for tid in reaper.take_ended() {
                self.gone(tid, 0, clock());
            }
            self.wait_to_join(begun + JOINING)?;
            if !found {
                break;
            }
        }
        for tid in self.tasks.keys() {
            // A thread that was killed in the meantime has no exit stop.
            let _ = nix::sys::ptrace::setoptions(Pid::from_raw(*tid), options());
        }
        match self.tasks.values().any(|task| !task.leaving) {
            true if self.last_mm == mm => Ok(()),
            false if processes::threads(pid).is_empty() => Err(RecordError::Ended(pid)),
            _ => Err(RecordError::Executed(pid)),
        }
    }

    /// Waits until all seized threads have stopped.
    fn wait_to_join(&mut self, until: Nanos) -> Result<(), RecordError> {
        let pid = self.root;
        while self
            .wait_for_stops(until.min(clock() + STOPPING))?
            .is_none()
        {
            // A thread that was not seized has executed a program, and now has the id of the first one,
            // of whose end no `wait` reports.
            let is_replaced =
                self.tasks.contains_key(&pid) && matches!(target::tracing_of(pid), Tracing::Nobody);
            if is_replaced {
                return Err(RecordError::Executed(pid));
            }
            if clock() >= until
                && let Some(tid) = self.restless()
            {
                return Err(RecordError::DoesNotStop { pid, tid });
            }
        }
        Ok(())
    }

    /// Seizes a thread. Returns false if it has exited, or is traced because its creator is.
    ///
    /// The thread has no exit stop until all are stopped: the seizure of another one can wait for its end
    /// ([`vmarea_linux_sys::reaper`]).
    fn seize(&self, tid: i32) -> Result<bool, RecordError> {
        let pid = self.root;
        let options = options() - Options::PTRACE_O_TRACEEXIT;
        let mut tries = 0..SEIZE_TRIES;
        loop {
            match nix::sys::ptrace::seize(Pid::from_raw(tid), options) {
                Ok(()) => return Ok(true),
                Err(nix::errno::Errno::ESRCH) => return Ok(false),
                Err(nix::errno::Errno::EPERM) => match target::tracing_of(tid) {
                    // The leader may have exited while other threads run on.
                    Tracing::Exited => return Ok(false),
                    Tracing::By(tracer) if tracer == own_tid() => return Ok(false),
                    Tracing::By(tracer) => return Err(target::traced_already(pid, tracer)),
                    // Another thread may have executed a program, and now has the id of the first one.
                    Tracing::Nobody if tries.next().is_some() => {}
                    Tracing::Nobody => return Err(forbidden(pid)),
                },
                Err(error) => return Err(RecordError::Follow(error.into())),
            }
        }
    }

    /// Opens the rings for all threads, which are stopped.
    ///
    /// # Errors
    /// [`RecordError::TooManyFiles`] if that leaves no descriptors for the recording itself.
    fn open_rings(&mut self, faults: Faults, notes: &mut Vec<String>) -> Result<(), RecordError> {
        let mut tids: Vec<i32> = self.tasks.keys().copied().collect();
        tids.sort_unstable();
        let Some((first, others)) = tids.split_first() else {
            return Ok(());
        };
        let mut samples = open_samples(faults, *first, Start::Now, notes);
        if let Some(samples) = &mut samples {
            for tid in others {
                match samples.add(*tid) {
                    Ok(()) => {}
                    Err(SamplesError::TooManyFiles { needed, .. }) => {
                        return Err(files::too_many(needed * tids.len()));
                    }
                    Err(error) => {
                        notes.push(format!("page faults of thread {tid} are missing: {error}"));
                    }
                }
            }
            if !files::are_left() {
                return Err(files::too_many(samples.descriptors()));
            }
        }
        self.sample_with(samples);
        Ok(())
    }

    /// Takes over the mappings of the stopped process.
    fn take_over(&mut self) -> Result<(), RecordError> {
        let stopped = self.wait_for_stops(clock())?;
        let taken = self.snapshot_all(SnapReason::Attach, stopped.as_ref());
        if !taken.contains(&MmId(1)) {
            return Err(RecordError::Ended(self.root));
        }
        Ok(())
    }

    /// Records the process until the recording is over, and leaves the process running.
    ///
    /// # Errors
    /// [`RecordError::Follow`], [`RecordError::Sink`].
    pub(super) fn follow_process(mut self) -> Result<Outcome, RecordError> {
        loop {
            self.signals.take(clock());
            let alive = self.take_stops()?;
            if !alive || self.is_over(clock()) {
                break;
            }
            self.adopt_orphans();
            self.snapshot_if_due()?;
            self.advance()?;
        }
        self.leave()?;
        self.finish()
    }

    /// True if the loop must act before it handles more stops.
    pub(crate) fn is_attachment_due(&self, now: Nanos) -> bool {
        let due = |a: &Attachment| !a.keeps && (now >= a.deadline() || self.is_over(now));
        self.attachment.as_ref().is_some_and(due)
    }

    fn is_over(&self, now: Nanos) -> bool {
        let until = self.attachment.as_ref().and_then(|a| a.until);
        self.root_status.is_some()
            || self.signals.has_request()
            || self.emitter.has_failed()
            || until.is_some_and(|until| now >= until)
    }

    fn snapshot_if_due(&mut self) -> Result<(), RecordError> {
        let now = clock();
        if self
            .attachment
            .as_ref()
            .is_none_or(|a| now < a.next_snapshot)
        {
            return Ok(());
        }
        let stopped = self.stop_threads(now + STOPPING)?;
        if stopped.is_some() {
            self.snapshot_all(SnapReason::Checkpoint, stopped.as_ref());
        }
        self.release_threads();
        if let Some(attachment) = &mut self.attachment {
            attachment.left_out += u64::from(stopped.is_none());
            attachment.next_snapshot = clock() + SECOND;
        }
        Ok(())
    }

    /// Takes the last snapshots, and stops tracing the threads that are stopped.
    ///
    /// The threads that sleep are traced until this thread exits; nothing that they do in the
    /// meantime is recorded.
    fn leave(&mut self) -> Result<(), RecordError> {
        let stopped = self.stop_threads(clock() + LEAVING)?;
        self.snapshot_all(SnapReason::Checkpoint, stopped.as_ref());
        let left = self.attachment.as_ref().map_or(0, |a| a.left_out);
        if left != 0 {
            self.note(format!(
                "{left} of the lists of mappings that are read every second were left out, because \
                 a thread did not stop in time"
            ));
        }
        let now = clock();
        for (tid, task) in &mut self.tasks {
            self.timeline.residence.moves(*tid, now, Place::Nowhere);
            let signal = match task.kept.take() {
                Some(Resumption::Run(signal)) => signal,
                Some(Resumption::Listen) | None => 0,
            };
            // A thread that sleeps or is in a group-stop cannot be detached explicitly.
            let _ = ptrace::detach(*tid, signal);
        }
        Ok(())
    }
}

fn options() -> Options {
    Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEEXIT
}

fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}
