//! Tasks that exit.
//!
//! A thread stops once more before it exits. There the recorder notes the thread's end, takes the
//! final snapshot if the thread is the last user of its address space, and stops tracing the thread.
//! The thread then ends as if it had never been traced. A traced thread would remain a zombie until
//! its tracer has waited for it. The kernel hides such a zombie from its parent, but announces it
//! by a pidfd nevertheless.
//!
//! `SIGKILL` wakes a thread from its exit stop, unless its process is already being killed. Such a
//! thread ends while it is traced, and `wait` reports its end. So it does for the command, which is
//! a child of this process.
//!
//! # Invariants
//! The leader of a process stays in the tracer's tasks until all threads of the process are gone:
//! until then, the kernel does not reuse its id, and another thread may take it over by `execve`.

use super::actions::Action;
use super::call_table::Role;
use super::clock::clock;
use super::residence::Place;
use super::tasks::{Task, UNRECORDED};
use super::tracer::Tracer;
use vmarea_linux_sys::ptrace;
use vmarea_trace::event::{MmId, Nanos, SnapReason, Snapshot};

const ENOSYS: i64 = -(libc::ENOSYS as i64);

impl Tracer<'_> {
    /// Handles the exit stop of a thread that exits by itself or is killed by a signal.
    pub(super) fn at_exit_event(&mut self, tid: i32, now: Nanos) {
        self.end_call(tid, now);
        if let Some(task) = self.tasks.get_mut(&tid)
            && !std::mem::replace(&mut task.leaving, true)
        {
            let mm = task.mm;
            task.kept = None;
            self.timeline.residence.moves(tid, now, Place::Nowhere);
            let snapshot = self.last_snapshot(tid, mm, now);
            self.leave_space(tid, mm, snapshot, now);
        }
        self.resume(tid, 0);
    }

    /// Stops tracing a thread that is at its exit stop.
    pub(super) fn release(&mut self, tid: i32) {
        // The thread's id may be used again as soon as the thread is released.
        let now = clock();
        let Ok(status) = ptrace::event_message(tid).map(|status| status as i32) else {
            return;
        };
        let alone = exits_alone(tid) && libc::WIFEXITED(status);
        if ptrace::detach(tid, 0).is_err() {
            return;
        }
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.released = true;
        let pid = task.pid;
        if let Some(leader) = self.tasks.get_mut(&pid) {
            if !alone {
                leader.status = Some(status);
            } else if tid == pid {
                leader.status.get_or_insert(status);
            }
        }
        match tid == pid {
            true => self.process_gone(pid, now),
            false => self.gone(tid, status, now),
        }
    }

    /// Handles the end of a process, if its leader has been released and all other threads are gone.
    fn process_gone(&mut self, pid: i32, now: Nanos) {
        let is_command = pid == self.root && self.command.is_some();
        let Some(leader) = self.tasks.get(&pid) else {
            return;
        };
        let status = leader.status.unwrap_or(0);
        let mut others = self.tasks.iter().filter(|(tid, _)| **tid != pid);
        if leader.released && !is_command && others.all(|(_, task)| task.pid != pid) {
            self.gone(pid, status, now);
        }
    }

    /// Ends the call in which a thread was killed; records the call if it may have taken effect.
    fn end_call(&mut self, tid: i32, now: Nanos) {
        let Some(call) = self.tasks.get(&tid).and_then(|task| task.call.as_ref()) else {
            return;
        };
        let (role, entered) = (call.rule.role, call.entry != 0);
        let result = ptrace::result_register(tid).unwrap_or(ENOSYS);
        if entered && role == Role::Clones && result > 0 {
            self.add_child(tid, result as i32, now);
        } else if entered && result != ENOSYS && role != Role::Executes {
            self.finish_call(tid, result, now);
        } else {
            self.call_discarded(tid, now);
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.call = None;
            }
        }
    }

    /// Takes the final snapshot of an address space if this thread is the last that can change it.
    ///
    /// If the only other user is inside `execve`, the snapshot is kept until that user leaves the
    /// address space. If all users are exiting, the snapshot is only a fallback.
    fn last_snapshot(&mut self, tid: i32, mm: MmId, now: Nanos) -> Option<Snapshot> {
        if mm == UNRECORDED {
            return None;
        }
        let users = self.spaces.get(&mm).map_or(0, |space| space.users);
        if users == 1 {
            return self.snapshot(tid, mm, SnapReason::Exit, now);
        }
        let executing = |task: &Task| {
            let call = task.call.as_ref();
            call.is_some_and(|call| call.rule.role == Role::Executes && call.entry != 0)
        };
        let others = self
            .tasks
            .iter()
            .filter(|(other, task)| **other != tid && task.mm == mm && !task.leaving);
        let mut executing = others
            .filter(|(_, task)| executing(task))
            .map(|(tid, _)| *tid);
        if users == 2
            && let Some(other) = executing.next()
        {
            let snapshot = self.exact_snapshot(tid, mm, now);
            let task = self.tasks.get_mut(&other);
            if let Some(call) = task.and_then(|task| task.call.as_mut()) {
                call.last_snapshot = snapshot;
            }
        } else if self.all_users_exit(tid, mm) {
            self.fallback_snapshot(tid, mm, now);
        }
        None
    }

    /// Takes a snapshot and marks it as exact.
    ///
    /// The caller must ensure that no other user of the address space can still change its
    /// mappings.
    fn exact_snapshot(&mut self, tid: i32, mm: MmId, now: Nanos) -> Option<Snapshot> {
        let mut snapshot = self.snapshot(tid, mm, SnapReason::Exit, now)?;
        snapshot.exact = true;
        Some(snapshot)
    }

    /// True if no thread will change the address space any more.
    ///
    /// The condition is that all users are threads of one process that exits or is replaced, and
    /// that none of them is inside a call other than `execve`.
    fn all_users_exit(&self, tid: i32, mm: MmId) -> bool {
        let Some(pid) = self.tasks.get(&tid).map(|task| task.pid) else {
            return false;
        };
        let mut users = self.tasks.values().filter(|task| task.mm == mm);
        let rests = |task: &Task| {
            let call = task.call.as_ref();
            call.is_none_or(|call| call.entry == 0 || call.rule.role == Role::Executes)
        };
        !exits_alone(tid) && users.all(|task| task.pid == pid && rests(task))
    }

    /// Takes an early snapshot of the address space of a process that is about to end.
    ///
    /// `SIGKILL` wakes a thread from its exit stop, so the thread and its mappings may no longer
    /// exist when the final snapshot is due.
    fn fallback_snapshot(&mut self, tid: i32, mm: MmId, now: Nanos) {
        if self
            .spaces
            .get(&mm)
            .is_none_or(|space| space.fallback_snapshot.is_some())
        {
            return;
        }
        let Some(mut snapshot) = self.exact_snapshot(tid, mm, now) else {
            return;
        };
        // The other threads run until they notice the kill, and may fault. A fault does not change
        // which mappings exist, but may attach an anon_vma.
        snapshot.vmas.iter_mut().for_each(|vma| vma.kernel = None);
        if let Some(space) = self.spaces.get_mut(&mm) {
            space.fallback_snapshot = Some(snapshot);
        }
    }

    /// Handles the exit of a task, after which the kernel can reuse the task's thread ID.
    pub(super) fn gone(&mut self, tid: i32, status: i32, now: Nanos) {
        self.early_stops.remove(&tid);
        let Some(task) = self.tasks.remove(&tid) else {
            return;
        };
        self.call_discarded(tid, now);
        self.at(now, Action::Gone { tid });
        self.program_filters.gone(tid);
        self.end_task(tid, &task, status, now);
        if tid == task.pid {
            self.pidfds.remove(&tid);
        } else {
            self.process_gone(task.pid, now);
        }
        if tid == self.root {
            self.root_status = Some(status);
            self.report_command_ended(status);
        }
    }
}

/// True if a thread at its exit stop exits by its own `exit` call.
///
/// Every other cause ends the whole process, or, for an `execve`, all other threads of the process.
fn exits_alone(tid: i32) -> bool {
    ptrace::call_number(tid).is_ok_and(|nr| nr == libc::SYS_exit)
}
