//! Stops all threads for a snapshot, and resumes them.
//!
//! A thread that runs is asked to stop ([`Tracer::stop_threads`]) and kept at its next stop. A
//! thread that sleeps inside a call is left asleep: it cannot change the address space, and a stop
//! would interrupt its call. If the thread has not run between the check before the snapshot and
//! the check after it, the snapshot is as exact as if the thread had been stopped. A thread inside
//! a recorded call has to finish that call first.

use crate::RecordError;
use crate::clock::clock;
use crate::signals::is_stop_signal;
use crate::tasks::{Resumption, Task, UNRECORDED};
use crate::tracer::Tracer;
use std::collections::HashMap;
use std::time::Duration;
use vmarea_linux_sys::syscall_restart::Waited;
use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_linux_sys::{inject, ptrace};
use vmarea_trace::event::{Event, MmId, Nanos, SnapReason};

const EINTR: i64 = -(libc::EINTR as i64);
/// Result `ERESTARTNOHAND`: the call has had no effect and is restarted.
const RESTARTS: i64 = -514;
/// Time between two checks whether all threads are stopped.
const CHECK: Duration = Duration::from_micros(100);

/// Threads that sleep inside a call, each with the number of its context switches.
pub(super) type Sleepers = HashMap<i32, u64>;

impl Tracer<'_> {
    /// True while threads are being stopped or are kept stopped.
    fn is_keeping(&self) -> bool {
        self.attachment.as_ref().is_some_and(|a| a.keeps)
    }

    /// Keeps a thread at its stop if threads are being stopped; returns whether it is kept.
    pub(crate) fn keep(&mut self, tid: i32, how: Resumption) -> bool {
        let keeping = self.is_keeping();
        if keeping && let Some(task) = self.tasks.get_mut(&tid) {
            task.kept = Some(how);
        }
        keeping
    }

    /// Stops all threads, or finds that they sleep. Gives up at time `until`.
    ///
    /// Returns the sleeping threads; `None` if a thread neither stopped nor slept.
    pub(super) fn stop_threads(&mut self, until: Nanos) -> Result<Option<Sleepers>, RecordError> {
        if let Some(attachment) = &mut self.attachment {
            attachment.keeps = true;
        }
        for (tid, task) in &mut self.tasks {
            if !task.inside && !task.listens && !task.leaving {
                interrupt(*tid, task);
            }
        }
        self.wait_for_stops(until)
    }

    /// Waits until every thread is kept at a stop or sleeps inside a call.
    pub(super) fn wait_for_stops(&mut self, until: Nanos) -> Result<Option<Sleepers>, RecordError> {
        loop {
            self.take_stops()?;
            let mut sleepers = Sleepers::new();
            if self
                .tasks
                .iter()
                .all(|(tid, task)| match rests(*tid, task) {
                    Rest::Sleeps { switches } => {
                        sleepers.insert(*tid, switches);
                        true
                    }
                    Rest::Kept => true,
                    Rest::No => false,
                })
            {
                return Ok(Some(sleepers));
            }
            if clock() >= until {
                return Ok(None);
            }
            std::thread::sleep(CHECK);
        }
    }

    /// Returns a thread that neither stopped nor sleeps.
    pub(super) fn restless(&self) -> Option<i32> {
        let mut tasks = self.tasks.iter();
        let found = tasks.find(|(tid, task)| matches!(rests(**tid, task), Rest::No));
        found.map(|(tid, _)| *tid)
    }

    /// Resumes the threads that were kept.
    pub(crate) fn release_threads(&mut self) {
        if let Some(attachment) = &mut self.attachment {
            attachment.keeps = false;
        }
        let kept = self.tasks.iter_mut().filter_map(|(tid, task)| {
            task.interrupted = false;
            Some((*tid, task.kept.take()?))
        });
        let kept: Vec<(i32, Resumption)> = kept.collect();
        for (tid, how) in kept {
            self.let_run(tid, how);
        }
    }

    /// Takes a snapshot of each address space while all threads are stopped.
    ///
    /// Without `sleepers`, some threads may run, and the snapshots are not exact. Returns the
    /// address spaces whose mappings could be read.
    pub(super) fn snapshot_all(
        &mut self,
        reason: SnapReason,
        sleepers: Option<&Sleepers>,
    ) -> Vec<MmId> {
        let mut users: HashMap<MmId, i32> = HashMap::new();
        for (tid, task) in self.tasks.iter().filter(|(_, task)| !task.leaving) {
            users.entry(task.mm).or_insert(*tid);
        }
        users.remove(&UNRECORDED);
        let mut users: Vec<(MmId, i32)> = users.into_iter().collect();
        users.sort_unstable();
        let mut read = Vec::with_capacity(users.len());
        for (mm, tid) in users {
            let t = clock();
            let Some(mut snapshot) = self.snapshot(tid, mm, reason, t) else {
                continue;
            };
            let exact = sleepers.is_some_and(|sleepers| self.still_rest(mm, sleepers));
            snapshot.exact = exact;
            if reason == SnapReason::Attach {
                self.files.adopt(mm, &snapshot.vmas);
            }
            self.push(t, vec![Event::Snapshot(snapshot)]);
            read.push(mm);
        }
        read
    }

    /// True if no user of `mm` has run since it was stopped or seen asleep.
    fn still_rest(&self, mm: MmId, sleepers: &Sleepers) -> bool {
        let mut users = self.tasks.iter().filter(|(_, task)| task.mm == mm);
        users.all(|(tid, task)| match sleepers.get(tid) {
            Some(switches) => sleeping(*tid) == Some(*switches),
            // A killed thread leaves its stop.
            None => task.leaving || !ptrace::is_reported(*tid),
        })
    }

    /// Handles the stop of a thread that was asked to stop, or of a new thread.
    pub(crate) fn at_interrupt(&mut self, tid: i32) {
        let joining = self.attachment.as_ref().is_some_and(|a| a.joins);
        let throttled = self.throttle.is_active();
        let (mut asked, mut kept) = (joining, false);
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.inside = false;
            asked |= task.interrupted;
            if task.interrupted && (throttled || self.stale.stops(task.mm)) {
                task.kept = Some(Resumption::Run(0));
                kept = true;
            }
        }
        if asked {
            // The thread may have been killed in the meantime.
            let _ = ptrace::restart_call(tid, Waited::Perhaps);
        }
        if !kept {
            self.resume(tid, 0);
        }
    }

    /// Handles a thread's stop at the arrival of a signal.
    ///
    /// A signal that the program ignores interrupts a call only because the thread is traced. A stop
    /// by job control interrupts a call without a tracer, too, and so does a handler.
    pub(crate) fn before_signal(&mut self, tid: i32, signal: i32) {
        let task = self.tasks.get_mut(&tid);
        let was_stopped = task.is_some_and(|task| std::mem::take(&mut task.was_stopped));
        if !was_stopped && !is_stop_signal(signal) {
            // The thread may have been killed in the meantime.
            let _ = ptrace::restart_call(tid, Waited::Perhaps);
        }
    }

    /// Returns the result of a call that has ended, and makes the kernel restart the call if only
    /// the tracer has interrupted it.
    pub(crate) fn result_after_interrupt(&mut self, tid: i32, ret: i64) -> i64 {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return ret;
        };
        task.inside = false;
        // The thread entered the call after the request to stop, so the call has not waited.
        let restarts = task.interrupted
            && ret == EINTR
            && ptrace::restart_call(tid, Waited::Not).unwrap_or(false);
        if restarts { RESTARTS } else { ret }
    }
}

/// State of a thread while threads are being stopped.
enum Rest {
    /// Kept at a stop, in a group-stop, or past its exit stop.
    Kept,
    /// Asleep inside a call that does not change an address space.
    Sleeps { switches: u64 },
    /// Running, or inside a recorded call.
    No,
}

fn rests(tid: i32, task: &Task) -> Rest {
    if task.kept.is_some() || task.listens || task.leaving {
        return Rest::Kept;
    }
    match sleeping(tid).filter(|_| task.inside && task.call.is_none()) {
        Some(switches) => Rest::Sleeps { switches },
        None => Rest::No,
    }
}

/// Returns the number of context switches of a sleeping thread; `None` if it does not sleep.
pub(crate) fn sleeping(tid: i32) -> Option<u64> {
    let status = TaskStatus::read(tid).ok()?;
    if !matches!(status.state(), Some('S' | 'D')) {
        return None;
    }
    let count = |name| status.number::<u64>(name);
    Some(count("voluntary_ctxt_switches")? + count("nonvoluntary_ctxt_switches")?)
}

/// Asks a thread to stop.
pub(crate) fn interrupt(tid: i32, task: &mut Task) {
    task.interrupted = true;
    // The thread may have exited.
    let _ = inject::interrupt(tid);
}
