//! Address spaces whose calls were lost, and the beginning of their recording anew.
//!
//! What lost calls did is unknown, so the address spaces that existed at the time end in the trace
//! ([`super::emitter`]). Programs that are executed later begin with a list of mappings as always.
//! For the others, the recorder stops the threads that run, reads the list of mappings while no
//! thread is inside of a call that changes it, and records the address space from there on, as
//! another one. A sleeping thread is not stopped, because a stop would interrupt its call.
//!
//! # Picture
//! ```text
//!   mm 1  ---calls---[ ring overflows ]      threads stopped | list
//!                    ^ mm 1 ends                             ^ mm 2 begins (attach) ---calls---
//! ```

use super::actions::Action;
use super::attach::{interrupt, sleeping};
use super::call_table::{self, Role};
use super::calls::is_running;
use super::clock::clock;
use super::lifecycle::task_start;
use super::mapped_files::RangeChange;
use super::residence::Place;
use super::tasks::{Space, UNRECORDED};
use super::tracer::Tracer;
use std::collections::BTreeSet;
use vmarea_trace::event::{Event, MmId, MmStart, Nanos, Origin, SnapReason};

/// Longest time for which threads are kept stopped while others do not stop.
const PATIENCE: Nanos = 50_000_000;
/// Time between two attempts.
const SPACING: Nanos = 100_000_000;

/// Address spaces that are to be recorded anew.
#[derive(Debug)]
pub(crate) struct Stale {
    /// The newest of the address spaces that existed when calls were lost.
    up_to: MmId,
    /// Time since which threads are being stopped.
    since: Option<Nanos>,
    /// Time of the next attempt.
    due: Nanos,
}

impl Default for Stale {
    fn default() -> Self {
        Stale {
            up_to: UNRECORDED,
            since: None,
            due: 0,
        }
    }
}

impl Stale {
    /// True if the calls of an address space were lost.
    pub(crate) fn contains(&self, mm: MmId) -> bool {
        mm != UNRECORDED && mm <= self.up_to
    }

    /// True if the threads of an address space are being stopped.
    pub(crate) fn stops(&self, mm: MmId) -> bool {
        self.since.is_some() && self.contains(mm)
    }
}

impl Tracer<'_> {
    /// Begins to record anew the address spaces that exist now, because calls were lost.
    pub(super) fn record_anew(&mut self) {
        self.stale.up_to = self.last_mm;
    }

    /// Takes over the address spaces whose threads rest, and asks the others to stop.
    pub(super) fn take_over_stale(&mut self) {
        let now = clock();
        if self.stale.up_to == UNRECORDED || now < self.stale.due {
            return;
        }
        let users = self.tasks.values().filter(|task| !task.leaving);
        let mut mms: BTreeSet<MmId> = users.map(|task| task.mm).collect();
        mms.retain(|mm| self.stale.contains(*mm));
        if mms.is_empty() {
            self.stale = Stale::default();
            return self.end_stops();
        }
        let since = *self.stale.since.get_or_insert(now);
        for mm in mms {
            self.take_over_if_at_rest(mm);
        }
        if now - since > PATIENCE {
            self.stale.since = None;
            self.stale.due = now + SPACING;
            self.end_stops();
        }
    }

    fn take_over_if_at_rest(&mut self, mm: MmId) {
        let Some(before) = self.rest(mm) else {
            return;
        };
        let tids: Vec<i32> = before.iter().map(|(tid, _)| *tid).collect();
        let Some(&tid) = tids.first() else {
            return;
        };
        let new = self.new_mm();
        let t = clock();
        let Some(mut list) = self.snapshot(tid, new, SnapReason::Attach, t) else {
            return;
        };
        if self.rest(mm).as_ref() != Some(&before) {
            return;
        }
        list.exact = true;
        self.replace_space(mm, new, &tids, t);
        self.files.adopt(new, &list.vmas);
        let origin = Origin::Attach;
        let mut events = vec![Event::MmStart(MmStart { mm: new, origin, t })];
        for tid in tids {
            let pid = self.tasks.get(&tid).map_or(tid, |task| task.pid);
            events.push(task_start(tid, pid, new, t));
        }
        events.push(Event::Snapshot(list));
        self.push(t, events);
    }

    /// Returns the users of an address space, each with its number of context switches if it
    /// sleeps; `None` if one of them may be changing the address space. Asks those that run to stop.
    fn rest(&mut self, mm: MmId) -> Option<Vec<(i32, Option<u64>)>> {
        if !self.spaces.get(&mm)?.inside.is_empty() {
            return None;
        }
        let users = self.tasks.iter_mut().filter(|(_, task)| task.mm == mm);
        let mut resting = Some(Vec::new());
        for (&tid, task) in users {
            let state = match task.call.as_ref() {
                _ if task.leaving => continue,
                // A thread that waits to enter its call is stopped.
                Some(call) => (call.entry == 0).then_some(None),
                None if task.kept.is_some() || task.listens => Some(None),
                None => sleeping(tid).filter(|_| !changes_mappings(tid)).map(Some),
            };
            match state {
                Some(switches) => {
                    if let Some(resting) = &mut resting {
                        resting.push((tid, switches));
                    }
                }
                None => {
                    resting = None;
                    if task.call.is_none() && !task.interrupted && is_running(tid) {
                        interrupt(tid, task);
                    }
                }
            }
        }
        let mut resting = resting?;
        resting.sort_unstable();
        Some(resting)
    }

    /// Lets all users of an address space use a new one in the stream from time `t` on.
    fn replace_space(&mut self, old: MmId, new: MmId, tids: &[i32], t: Nanos) {
        if let Some(mut space) = self.spaces.remove(&old) {
            space.fallback_snapshot = None;
            self.spaces.insert(new, Space { calls: 0, ..space });
        }
        for task in self.tasks.values_mut().filter(|task| task.mm == old) {
            task.mm = new;
        }
        for &tid in tids {
            self.timeline.residence.moves(tid, t, Place::In(new));
            self.call_discarded(tid, t);
        }
        if tids.len() > 1 {
            self.timeline.share(new);
        }
        self.files.mapped.will_end(old);
        self.at(t, Action::Ranges(old, RangeChange::End));
        self.at(t, Action::MmEnded(old));
        for &tid in tids {
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.interrupted = false;
                if let Some(how) = task.kept.take() {
                    self.let_run(tid, how);
                }
            }
        }
    }

    /// Lets the threads continue that were stopped, unless they are stopped for another reason.
    fn end_stops(&mut self) {
        if !self.throttle.is_active() {
            self.release_threads();
        }
    }
}

/// True if a sleeping thread may be inside of a call that changes mappings.
fn changes_mappings(tid: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{tid}/syscall")).unwrap_or_default();
    let mut words = text.split_whitespace();
    // A thread inside of a page fault has the number -1: the fault may attach an anon_vma.
    let Some(Ok(nr)) = words.next().map(str::parse::<u64>) else {
        return true;
    };
    let mut args = [0; 6];
    for (arg, word) in args.iter_mut().zip(words) {
        *arg = u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
    }
    call_table::rule_for(nr, &args).is_some_and(|rule| rule.role == Role::ChangesMappings)
}
