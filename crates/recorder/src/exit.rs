//! Tasks that exit.
//!
//! A thread stops once more before it exits: at its own `exit` call, or at its exit stop. There the
//! recorder notes the thread's end, takes the final snapshot if the thread is the last user of its
//! address space, and stops tracing the thread, which then ends as if it had never been traced. A
//! traced thread would remain a zombie until its tracer has waited for it. The kernel hides such a
//! zombie from its parent, but announces it by a pidfd nevertheless.
//!
//! The end of the command itself is reported by `wait`, because it is a child of this process.
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

/// What ends with a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// Only the thread, by its own `exit` call.
    Thread,
    /// The whole process or, for an `execve`, all other threads of the process.
    Process,
}

impl Tracer<'_> {
    /// Handles a thread that is about to enter its own `exit` call.
    ///
    /// The call ends only the thread, so a signal that ends its process could wake the thread from
    /// its exit stop. Therefore the thread is released before the call.
    pub(super) fn at_exit_call(&mut self, tid: i32, code: u64, now: Nanos) {
        let status = (code as i32 & 0xff) << 8;
        self.thread_ends(tid, status, Scope::Thread, now);
    }

    /// Handles the exit stop of a thread that exits by itself or is killed by a signal.
    pub(super) fn at_exit_event(&mut self, tid: i32, now: Nanos) {
        self.end_call(tid, now);
        let status = ptrace::event_message(tid).map_or(0, |status| status as i32);
        let alone = ptrace::call_number(tid).is_ok_and(|nr| nr == libc::SYS_exit);
        let scope = match alone && libc::WIFEXITED(status) {
            true => Scope::Thread,
            false => Scope::Process,
        };
        self.thread_ends(tid, status, scope, now);
    }

    fn thread_ends(&mut self, tid: i32, status: i32, scope: Scope, now: Nanos) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.status = match scope {
            Scope::Thread => task.status.or(Some(status)),
            Scope::Process => Some(status),
        };
        task.kept = None;
        let (pid, mm) = (task.pid, task.mm);
        let has_left = std::mem::replace(&mut task.leaving, true);
        if scope == Scope::Process
            && let Some(leader) = self.tasks.get_mut(&pid)
        {
            leader.status = Some(status);
        }
        if !has_left {
            self.timeline.residence.moves(tid, now, Place::Nowhere);
            let snapshot = self.last_snapshot(tid, mm, scope, now);
            self.leave_space(tid, mm, snapshot, now);
        }
        self.resume(tid, 0);
    }

    /// Stops tracing a thread that is about to exit.
    ///
    /// If the thread has been killed in the meantime, its exit stop follows, or a report of its end.
    pub(super) fn release(&mut self, tid: i32) {
        // The thread's id may be used again as soon as the thread is released.
        let now = clock();
        if ptrace::detach(tid, 0).is_err() {
            return;
        }
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.released = true;
        let (pid, status) = (task.pid, task.status.unwrap_or(0));
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
            self.handle_early_stop(result as i32, now);
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
    fn last_snapshot(&mut self, tid: i32, mm: MmId, scope: Scope, now: Nanos) -> Option<Snapshot> {
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
        } else if scope == Scope::Process && self.all_users_rest(tid, mm) {
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

    /// True if all users of the address space are threads of one process, and none of them is inside
    /// a call other than `execve`.
    ///
    /// If the process ends, no thread changes the address space any more.
    fn all_users_rest(&self, tid: i32, mm: MmId) -> bool {
        let Some(pid) = self.tasks.get(&tid).map(|task| task.pid) else {
            return false;
        };
        let mut users = self.tasks.values().filter(|task| task.mm == mm);
        let rests = |task: &Task| {
            let call = task.call.as_ref();
            call.is_none_or(|call| call.entry == 0 || call.rule.role == Role::Executes)
        };
        users.all(|task| task.pid == pid && rests(task))
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
