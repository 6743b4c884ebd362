//! Tasks that are observed: those that exist at the start, and those that they create.

use super::proc::threads;
use super::spaces::{Space, task_start};
use super::{Observer, Task};
use crate::call_rings::loss::Loss;
use crate::call_rings::record::Observed;
use crate::clock::clock;
use crate::residence::Place;
use crate::samples::{Samples, SamplesError};
use crate::timeline::{Alone, Ended};
use std::collections::{BTreeSet, HashSet};
use vmarea_trace::event::{Event, MmId, MmStart, Nanos, Origin, Tid};

const CLONE_VM: u64 = libc::CLONE_VM as u64;
/// Limit on the passes over a list of threads that keeps changing.
const PASSES: usize = 20;

impl Observer<'_> {
    /// Begins to observe a process with all its threads.
    ///
    /// # Errors
    /// [`SamplesError::NoSuchTask`] if the process has exited, and the errors of [`Samples::add`].
    pub(super) fn follow_process(&mut self, pid: i32) -> Result<(), SamplesError> {
        for _ in 0..PASSES {
            let threads = threads(pid);
            if threads.is_empty() {
                return Err(SamplesError::NoSuchTask(pid));
            }
            let new: Vec<i32> = threads
                .into_iter()
                .filter(|tid| !self.sampled.contains_key(tid))
                .collect();
            if new.is_empty() {
                break;
            }
            self.sample_threads(&new)?;
        }
        let mm = self.new_mm();
        let mut users: BTreeSet<i32> = threads(pid);
        users.retain(|tid| !super::proc::is_zombie(*tid));
        let t = clock();
        for &tid in &users {
            self.nowhere(tid, 0);
            self.tasks.insert(tid, Task::new(pid, mm));
        }
        let hidden = super::proc::unobserved(pid);
        let space = Space::new(users, hidden.is_some(), t);
        self.spaces.insert(mm, space);
        if let Some(why) = hidden {
            self.note(format!(
                "the process has {why}, which changes memory unobserved: anon_vmas are not \
                 compared"
            ));
        }
        Ok(())
    }

    /// Opens the faults of threads that no sampled thread has created.
    fn sample_threads(&mut self, new: &[i32]) -> Result<(), SamplesError> {
        let mut records = Vec::new();
        self.rings.drain(&mut records);
        self.records.extend(records);
        for &tid in new {
            let inherits = self.records.iter().any(|record| match record.what {
                Observed::Created {
                    parent, tid: child, ..
                } if child == tid => self.sampled.get(&parent).is_some_and(|t| *t < record.t),
                _ => false,
            });
            if !inherits {
                match self
                    .samples
                    .as_mut()
                    .map(|samples: &mut Samples| samples.add(tid))
                {
                    // The thread has exited in the meantime.
                    None | Some(Ok(()) | Err(SamplesError::NoSuchTask(_))) => {}
                    Some(Err(error)) => return Err(error),
                }
            }
            self.sampled.insert(tid, clock());
        }
        Ok(())
    }

    /// Handles a new task.
    pub(super) fn created(&mut self, t: Nanos, parent: i32, tid: i32, pid: i32) {
        if self.tasks.contains_key(&tid) {
            return;
        }
        let Some(task) = self.tasks.get_mut(&parent) else {
            return;
        };
        let (parent_pid, mm) = (task.pid, task.mm);
        let call = task.call.take_if(|call| call.clones());
        let flags = call.as_ref().and_then(|call| call.clone_flags());
        let shares = match flags {
            Some(flags) => flags & CLONE_VM != 0,
            None => pid == parent_pid,
        };
        let Some(space) = self.spaces.get_mut(&mm) else {
            return;
        };
        let (recorded, hidden) = (space.recorded, space.hidden);
        space.inside.remove(&parent);
        if !shares {
            space.changed = t;
        }
        let child_mm = if shares { mm } else { self.new_mm() };
        let child = self.spaces.entry(child_mm).or_default();
        child.users.insert(tid);
        (child.recorded, child.hidden) = (recorded, hidden);
        child.changed = child.changed.max(t);
        let users = child.users.len();
        let since = call.as_ref().map_or(t, |call| call.entry);
        let place = match recorded {
            true => Place::In(child_mm),
            false => Place::Nowhere,
        };
        self.timeline.residence.moves(tid, since, place);
        self.tasks.insert(tid, Task::new(pid, child_mm));
        if !recorded {
            return self.timeline.call_discarded(parent);
        }
        if users == 2 {
            self.timeline.share(child_mm);
        }
        let mut events = Vec::with_capacity(3);
        if let Some(call) = call {
            events.push(self.call_event(parent, call, tid.into(), t));
        }
        if !shares {
            let origin = Origin::Fork { parent: mm };
            let mm = child_mm;
            events.push(Event::MmStart(MmStart { mm, origin, t }));
        }
        events.push(task_start(tid, pid, child_mm, t));
        let ended = Ended {
            mm,
            exit: t,
            alone: Alone::Yes,
            child: Some(tid),
            events,
        };
        self.timeline.call_ends(parent, ended);
    }

    /// Handles the exit of a task.
    pub(super) fn exited(&mut self, t: Nanos, tid: i32) {
        let Some(task) = self.tasks.remove(&tid) else {
            return;
        };
        self.timeline.call_discarded(tid);
        self.nowhere(tid, t);
        let recorded = self.leave(tid, task.mm, t);
        if recorded {
            let (tid, status) = (Tid(tid), 0);
            self.push(t, vec![Event::TaskEnd { tid, status, t }]);
        }
        // The call may or may not have taken effect before the task was killed.
        if task.call.is_some_and(|call| call.changes_mappings()) {
            self.restart(task.mm, t);
        }
    }

    /// Removes a thread from an address space. Returns whether the address space is recorded.
    fn leave(&mut self, tid: i32, mm: MmId, t: Nanos) -> bool {
        let Some(space) = self.spaces.get_mut(&mm) else {
            return false;
        };
        space.users.remove(&tid);
        space.inside.remove(&tid);
        let recorded = space.recorded;
        if space.users.is_empty() {
            self.spaces.remove(&mm);
            if recorded {
                self.end_mm(mm, t);
            }
        }
        recorded
    }

    /// Handles a process that has executed a program, in a new address space.
    pub(super) fn executed(&mut self, t: Nanos, pid: i32) {
        let threads = self.tasks.iter().filter(|(_, task)| task.pid == pid);
        let threads: Vec<(i32, MmId)> = threads.map(|(tid, task)| (*tid, task.mm)).collect();
        if threads.is_empty() {
            return;
        }
        for (tid, mm) in threads {
            self.tasks.remove(&tid);
            self.timeline.call_discarded(tid);
            self.nowhere(tid, t);
            let recorded = self.leave(tid, mm, t);
            if recorded && tid != pid {
                let (tid, status) = (Tid(tid), 0);
                self.push(t, vec![Event::TaskEnd { tid, status, t }]);
            }
        }
        self.add_unrecorded(pid, BTreeSet::from([pid]), t);
    }

    fn add_unrecorded(&mut self, pid: i32, users: BTreeSet<i32>, t: Nanos) {
        let mm = self.new_mm();
        for &tid in &users {
            self.nowhere(tid, t);
            self.tasks.insert(tid, Task::new(pid, mm));
        }
        let space = Space::new(users, false, t);
        self.spaces.insert(mm, space);
    }

    /// Handles lost records: anything may have happened, so every address space begins anew.
    pub(super) fn lost(&mut self, loss: &Loss) {
        let (t, count) = (loss.from, loss.count);
        if count != 0 {
            self.push(t, vec![Event::Lost { count, t }]);
        }
        if !std::mem::replace(&mut self.has_lost, true) {
            self.note(format!(
                "{}; each address space is recorded anew from its next snapshot on",
                loss.told(self.begun)
            ));
        }
        for tid in self.tasks.keys().copied().collect::<Vec<_>>() {
            self.timeline.call_discarded(tid);
        }
        for mm in self.spaces.keys().copied().collect::<Vec<_>>() {
            self.restart_after(mm, t, loss.until);
        }
        let pids: HashSet<i32> = self.tasks.values().map(|task| task.pid).collect();
        for pid in pids {
            // The call cannot fail.
            let _ = self.rings.mark(pid);
            self.list_again(pid, t);
        }
    }

    /// Compares the observed threads of a process with those that exist.
    fn list_again(&mut self, pid: i32, t: Nanos) {
        let now = threads(pid);
        let known = self.tasks.iter().filter(|(_, task)| task.pid == pid);
        let known: Vec<(i32, MmId)> = known.map(|(tid, task)| (*tid, task.mm)).collect();
        let Some(&(_, mm)) = known.first() else {
            return;
        };
        for &tid in &now {
            if !self.tasks.contains_key(&tid)
                && let Some(space) = self.spaces.get_mut(&mm)
            {
                space.users.insert(tid);
                self.nowhere(tid, t);
                self.tasks.insert(tid, Task::new(pid, mm));
            }
        }
        for (tid, _) in known {
            if !now.contains(&tid) {
                self.exited(t, tid);
            }
        }
    }
}
