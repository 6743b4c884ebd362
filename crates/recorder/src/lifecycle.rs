//! Tasks that start and execute programs, and the address spaces that they create and leave.
//!
//! A child is announced by a ptrace event of its parent. If the child's own first stop arrives
//! earlier, the recorder handles it after the parent's event. An address space ends with its last
//! user. The recorder takes the final snapshot just before that user leaves: at the user's exit
//! stop ([`super::exit`]), or before the user executes another program.
//!
//! # Picture
//! ```text
//!   fork:   Call, MmStart{Fork}, TaskStart          one item: nothing comes in between
//!   exec:   Snapshot{Exit}, MmEnd | MmStart{Exec}, TaskStart, Snapshot{Exec}
//!   exit:   Snapshot{Exit}, MmEnd | TaskEnd
//! ```

use super::RecordError;
use super::actions::Action;
use super::call_table::Role;
use super::clock::clock;
use super::command::is_setuid;
use super::residence::Place;
use super::tasks::{Mode, Pending, Task, UNRECORDED};
use super::timeline::{Alone, Ended};
use super::tracer::Tracer;
use std::path::PathBuf;
use vmarea_linux_sys::spawn::Privileges;
use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_linux_sys::{arch, ptrace};
use vmarea_trace::event::{Event, MmId, MmStart, Nanos, Origin, SnapReason, Snapshot, Tid};

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;

impl Tracer<'_> {
    /// Handles the ptrace event of a thread that has created a task.
    pub(super) fn at_clone_event(&mut self, tid: i32, now: Nanos) {
        let child = ptrace::event_message(tid);
        let child = child.ok().filter(|_| !self.has_left_stop(tid));
        if let Some(child) = child {
            self.add_child(tid, child as i32, now);
        }
        // Before the child, which may end their process: a thread that is killed between the tracer's
        // look and its resumption is resumed from its exit stop, at which it must be released.
        self.resume(tid, 0);
        if let Some(child) = child {
            self.handle_early_stop(child as i32, now);
        }
    }

    pub(super) fn add_child(&mut self, parent: i32, child: i32, now: Nanos) {
        let Some(task) = self.tasks.get_mut(&parent) else {
            return;
        };
        let (pid, mm, mode) = (task.pid, task.mm, task.mode);
        let call = task.call.take_if(|call| call.rule.role == Role::Clones);
        let flags = match &call {
            Some(call) => call.clone_flags(),
            None => seen_flags(parent, child),
        };
        let child_pid = if flags & CLONE_THREAD == 0 {
            child
        } else {
            pid
        };
        let child_mm = match mm {
            UNRECORDED => UNRECORDED,
            _ if flags & CLONE_VM != 0 => mm,
            _ => self.new_mm(),
        };
        if child_mm != mm {
            self.files.mapped.fork(mm, child_mm);
        }
        let since = call.as_ref().map_or(0, |call| call.entry);
        let mut task = Task::new(child_pid, child_mm, mode);
        task.untraced = call.as_ref().and_then(|call| call.untraced);
        if let Some(untraced) = task.untraced {
            untraced.restore(parent);
            self.untraced += 1;
        }
        self.add_task(child, task, since);
        self.program_filters.inherit(parent, child);
        self.record_clone(parent, (child, child_pid, child_mm), call, now);
        if let Some(space) = self.spaces.get_mut(&mm)
            && space.leave_call(parent)
        {
            self.let_in_next(mm);
        }
    }

    /// Handles the stop of a new task that came before the event which told whose child it is.
    pub(super) fn handle_early_stop(&mut self, child: i32, now: Nanos) {
        if let Some(status) = self.early_stops.remove(&child) {
            self.stopped(child, status, now);
        }
    }

    pub(super) fn add_task(&mut self, tid: i32, task: Task, since: Nanos) {
        let mm = task.mm;
        let space = self.spaces.entry(mm).or_default();
        space.users += 1;
        if mm == UNRECORDED {
            self.timeline.residence.moves(tid, since, Place::Nowhere);
        } else {
            if space.users == 2 {
                self.timeline.share(mm);
            }
            self.timeline.residence.moves(tid, since, Place::In(mm));
        }
        self.tasks.insert(tid, task);
    }

    fn record_clone(
        &mut self,
        parent: i32,
        (child, child_pid, child_mm): (i32, i32, MmId),
        call: Option<Pending>,
        now: Nanos,
    ) {
        let mm = self.tasks.get(&parent).map_or(UNRECORDED, |task| task.mm);
        if mm == UNRECORDED {
            return self.call_discarded(parent, now);
        }
        let alone = call.as_ref().map_or(Alone::Yes, |call| call.alone);
        let mut events = Vec::with_capacity(3);
        if let Some(call) = call {
            events.push(self.call_event(parent, mm, call, child.into(), now));
        }
        if child_mm != mm {
            let origin = Origin::Fork { parent: mm };
            events.push(Event::MmStart(MmStart {
                mm: child_mm,
                origin,
                t: now,
            }));
        }
        events.push(task_start(child, child_pid, child_mm, now));
        let ended = Ended {
            mm,
            exit: now,
            alone,
            child: Some(child),
            events,
        };
        self.call_ends(parent, ended);
    }

    pub(super) fn new_mm(&mut self) -> MmId {
        self.last_mm.0 += 1;
        self.stale.born.push(clock());
        self.last_mm
    }

    /// Handles the ptrace event of a thread that has executed a program.
    pub(super) fn at_exec_event(&mut self, tid: i32, now: Nanos) {
        let former = ptrace::event_message(tid).map_or(tid, |former| former as i32);
        if former != tid && !self.has_left_stop(tid) {
            self.replace_leader(tid, former, now);
        }
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let (old, mode) = (task.mm, task.mode);
        let call = task.call.take();
        let entry = call.as_ref().map_or(now, |call| call.entry);
        self.call_discarded(tid, now);
        self.leave_space(tid, old, call.and_then(|call| call.last_snapshot), now);
        // Between the entry and the exit of `execve`, some accesses went to the old address space
        // and some to the new one. The snapshots before and after `execve` include their effects,
        // unless other tasks still use the old address space.
        let place = match self.spaces.contains_key(&old) && old != UNRECORDED {
            true => Place::Leaving(old),
            false => Place::Nowhere,
        };
        self.timeline.residence.moves(tid, entry, place);
        match ptrace::syscall_stop(tid) {
            Ok((audit, _)) if audit != arch::AUDIT => {
                self.start_foreign_program(tid, old, mode, now)
            }
            _ => self.start_program(tid, mode, now),
        }
        self.sample_again(tid, now);
        self.resume(tid, 0);
    }

    /// Changes the ID of a thread that executed a program to the ID of its thread group's leader.
    fn replace_leader(&mut self, leader: i32, former: i32, now: Nanos) {
        if let Some(task) = self.tasks.remove(&leader) {
            self.end_task(leader, &task, 0, now);
        }
        if let Some(task) = self.tasks.remove(&former) {
            self.call_discarded(former, now);
            let entry = task.call.as_ref().map_or(now, |call| call.entry);
            self.timeline.residence.moves(former, entry, Place::Nowhere);
            self.write_task_end(former, task.mm, 0, now);
            self.program_filters.rename(former, leader);
            self.tasks.insert(leader, task);
        }
    }

    fn start_program(&mut self, tid: i32, mode: Mode, now: Nanos) {
        let mm = self.new_mm();
        self.add_task(tid, Task::new(tid, mm, mode), now);
        let start = MmStart {
            mm,
            origin: Origin::Exec,
            t: now,
        };
        let mut events = vec![Event::MmStart(start), task_start(tid, tid, mm, now)];
        let snapshot = self.snapshot(tid, mm, SnapReason::Exec, now);
        events.extend(snapshot.map(Event::Snapshot));
        self.push(now, events);
        self.note_setuid(tid);
    }

    /// Lets a 32-bit program run without recording it.
    fn start_foreign_program(&mut self, tid: i32, old: MmId, mode: Mode, now: Nanos) {
        self.add_task(tid, Task::new(tid, UNRECORDED, mode), now);
        let program = program_of(tid);
        if self.last_mm == UNRECORDED {
            self.failure = Some(RecordError::ThirtyTwoBit(program));
            return self.kill_all();
        }
        self.write_task_end(tid, old, 0, now);
        self.note(format!(
            "process {tid} runs {}, a 32-bit program: not recorded",
            program.display()
        ));
    }

    fn note_setuid(&mut self, tid: i32) {
        if self.privileges == Privileges::Kept {
            return;
        }
        let program = program_of(tid);
        if is_setuid(&program) {
            self.note(format!(
                "process {tid} runs {} without the privileges of its owner: only root can record \
                 it with them",
                program.display()
            ));
        }
    }

    /// Removes one user of an address space; the address space ends with its last user.
    pub(super) fn leave_space(
        &mut self,
        tid: i32,
        mm: MmId,
        snapshot: Option<Snapshot>,
        now: Nanos,
    ) {
        let Some(space) = self.spaces.get_mut(&mm) else {
            return;
        };
        space.users = space.users.saturating_sub(1);
        let next_may_go = space.leave_call(tid);
        if mm == UNRECORDED || space.users != 0 {
            if next_may_go {
                self.let_in_next(mm);
            }
            return;
        }
        let spare = self
            .spaces
            .remove(&mm)
            .and_then(|space| space.fallback_snapshot);
        self.files.mapped.ended(mm);
        match (snapshot, spare) {
            (Some(last), _) => self.push(last.t, vec![Event::Snapshot(last)]),
            // Only the calls that follow tell whether this list is exact.
            (None, Some(spare)) => self.at(now, Action::LastList(Box::new(spare))),
            (None, None) => {}
        }
        self.at(now, Action::MmEnded(mm));
        self.push(now, vec![Event::MmEnd { mm, t: now }]);
    }

    pub(super) fn end_task(&mut self, tid: i32, task: &Task, status: i32, now: Nanos) {
        if !task.leaving {
            self.timeline.residence.moves(tid, now, Place::Nowhere);
            self.leave_space(tid, task.mm, None, now);
        }
        self.write_task_end(tid, task.mm, status, now);
    }

    fn write_task_end(&mut self, tid: i32, mm: MmId, status: i32, now: Nanos) {
        if mm != UNRECORDED {
            let tid = Tid(tid);
            self.push(
                now,
                vec![Event::TaskEnd {
                    tid,
                    status,
                    t: now,
                }],
            );
        }
    }

    /// Adds tasks whose parents were killed before their clone events arrived.
    pub(super) fn adopt_orphans(&mut self) {
        let cloning = |task: &Task| {
            let call = task.call.as_ref();
            call.is_some_and(|call| call.rule.role == Role::Clones && call.entry != 0)
        };
        if self.early_stops.is_empty() || self.tasks.values().any(cloning) {
            return;
        }
        let now = clock();
        for (tid, status) in std::mem::take(&mut self.early_stops) {
            let pid = thread_group(tid).unwrap_or(tid);
            let relative = self.tasks.iter().find(|(other, task)| {
                !task.leaving && ptrace::same_mm(tid, **other).unwrap_or(false)
            });
            let mode = Mode::Filtered;
            if let Some(mm) = relative.map(|(_, task)| task.mm) {
                self.add_task(tid, Task::new(pid, mm, mode), 0);
                self.push(now, vec![task_start(tid, pid, mm, now)]);
            } else {
                let mm = self.new_mm();
                self.add_task(tid, Task::new(pid, mm, mode), 0);
                let start = MmStart {
                    mm,
                    origin: Origin::Attach,
                    t: now,
                };
                let mut events = vec![Event::MmStart(start), task_start(tid, pid, mm, now)];
                let snapshot = self.snapshot(tid, mm, SnapReason::Attach, now);
                events.extend(snapshot.map(Event::Snapshot));
                self.push(now, events);
            }
            self.stopped(tid, status, now);
        }
    }
}

pub(super) fn task_start(tid: i32, pid: i32, mm: MmId, t: Nanos) -> Event {
    Event::TaskStart {
        tid: Tid(tid),
        pid: Tid(pid),
        mm,
        t,
    }
}

/// Derives a child's clone flags from its thread group and mm if the clone call is not known.
fn seen_flags(parent: i32, child: i32) -> u64 {
    let mut flags = 0;
    if thread_group(child).is_some_and(|group| group != child) {
        flags |= CLONE_THREAD | CLONE_VM;
    }
    if ptrace::same_mm(parent, child).unwrap_or(false) {
        flags |= CLONE_VM;
    }
    flags
}

/// Returns the process to which a thread belongs.
pub(super) fn thread_group(tid: i32) -> Option<i32> {
    TaskStatus::read(tid).ok()?.process()
}

fn program_of(tid: i32) -> PathBuf {
    std::fs::read_link(format!("/proc/{tid}/exe")).unwrap_or_default()
}
