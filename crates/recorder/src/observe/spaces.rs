//! Address spaces and their snapshots, which are taken while the program runs.
//!
//! A snapshot is judged once the stream has reached the time at which its reading ended. It shows a
//! single state if no call was in flight at any time while it was read. The first such snapshot
//! starts the recording of an address space, and later ones are compared. If several snapshots of a
//! busy program fail, [`pause`] stops the program for the next one.
//!
//! # Picture
//! ```text
//!   calls    --[   ]----------------------[  ]---
//!   faults   ---------f------f------------------
//!   snapshot ---------[from      to]-------------   no call overlaps: exact, but the mappings with
//!                                                   the faults are not compared beyond /proc
//! ```

use super::{CHECKPOINT, FAULTS_BEFORE, Observer, pause};
use crate::clock::clock;
use crate::residence::Place;
use crate::snapshot::{AllStopped, Subject};
use std::collections::BTreeSet;
use std::io;
use vmarea_trace::event::{
    Event, KernelVma, MmId, MmStart, Nanos, Origin, SnapKind, SnapReason, SnapVma, Snapshot, Tid,
};

/// Number of attempts at the first snapshot of which the last one stops the process.
const UNDISTURBED: u32 = 10;
/// Attempts at an exact checkpoint before an inexact one is recorded.
const ATTEMPTS: u32 = 8;
/// Time after which a fault is taken to be complete.
const LONGEST_FAULT: Nanos = 1_000_000_000;
/// Attempts at the first snapshot that follow each other immediately; later ones are spaced.
const EAGER: u32 = 50;
/// Time between later attempts at the first snapshot.
const SPACING: Nanos = 50_000_000;

/// A snapshot that waits for the stream to reach its time.
#[derive(Debug)]
struct Trial {
    from: Nanos,
    to: Nanos,
    snapshot: Snapshot,
    /// True if no thread ran while the mappings were read.
    stopped: bool,
    /// Faults shortly before or during the snapshot.
    faults: Vec<Fault>,
}

/// A page fault, which has its effect some time after it was reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) t: Nanos,
    pub(super) tid: i32,
    pub(super) addr: u64,
}

/// An address space of the observed tasks.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Threads that use the address space.
    pub(super) users: BTreeSet<i32>,
    /// True from the first successful snapshot on.
    pub(super) recorded: bool,
    /// True if memory may change in a way that is not observed, so that nothing is known about
    /// anon_vmas.
    pub(super) hidden: bool,
    /// Threads inside a call that changes mappings.
    pub(super) inside: BTreeSet<i32>,
    /// Time at which the last such call ended.
    pub(super) changed: Nanos,
    trial: Option<Trial>,
    attempts: u32,
    due: Nanos,
    ending: bool,
}

impl Space {
    /// Creates an address space whose mappings may have changed until time `t`.
    pub(super) fn new(users: BTreeSet<i32>, hidden: bool, t: Nanos) -> Space {
        Space {
            users,
            hidden,
            changed: t,
            ..Space::default()
        }
    }

    /// Returns the time before which the stream must not advance.
    pub(super) fn holds_from(&self) -> Option<Nanos> {
        let trial = self.trial.as_ref()?;
        Some(trial.from.saturating_sub(FAULTS_BEFORE))
    }

    /// Requests a last snapshot.
    pub(super) fn end(&mut self) {
        self.ending = self.recorded;
        self.attempts = 0;
        self.due = 0;
    }

    /// True if the last snapshot has not succeeded yet.
    pub(super) fn is_ending(&self) -> bool {
        self.ending
    }

    /// Abandons what is known, so that the recording begins anew.
    pub(super) fn forget(&mut self, t: Nanos) {
        self.recorded = false;
        self.inside.clear();
        self.changed = t;
        self.trial = None;
        self.attempts = 0;
        self.due = 0;
    }

    /// Returns the snapshot if no call overlapped it.
    fn judge(&self, trial: &Trial) -> bool {
        self.inside.is_empty() && self.changed < trial.from && !trial.stack_grew(self.changed)
    }
}

impl Trial {
    /// True if a fault after time `since` may have extended a stack, which changes a mapping
    /// without a call.
    fn stack_grew(&self, since: Nanos) -> bool {
        let grows = |addr: u64| {
            let vmas = &self.snapshot.vmas;
            let at = vmas.partition_point(|vma| vma.end <= addr);
            vmas.get(at)
                .is_none_or(|vma| addr < vma.start || vma.kind == SnapKind::Stack)
        };
        self.faults
            .iter()
            .any(|fault| (since..=self.to).contains(&fault.t) && grows(fault.addr))
    }

    /// Returns the time that the snapshot shows, if no call changed the mappings since `changed`.
    ///
    /// Faults since then are replayed after the snapshot, which does no harm if it shows their
    /// effects already.
    fn shows(&self, changed: Nanos) -> Nanos {
        let earliest = self.from.saturating_sub(FAULTS_BEFORE);
        earliest.max(changed.saturating_add(1))
    }

    /// True if a fault that is not replayed after the snapshot may have had its effect after it.
    ///
    /// A thread that has entered a call or taken another fault since has completed its fault;
    /// `seen(tid)` is the time of its last call.
    fn awaits_fault(&self, changed: Nanos, seen: impl Fn(i32) -> Nanos) -> bool {
        let shows = self.shows(changed);
        let last = |fault: &&Fault| {
            let later =
                |other: &Fault| other.tid == fault.tid && fault.t < other.t && other.t <= self.from;
            seen(fault.tid) < fault.t && !self.faults.iter().any(later)
        };
        let has_anon_vma = |addr: u64| {
            let vmas = &self.snapshot.vmas;
            let at = vmas.partition_point(|vma| vma.end <= addr);
            let kernel = vmas.get(at).and_then(|vma| vma.kernel);
            kernel.is_some_and(|kernel| kernel.anon_vma != 0)
        };
        let before = self.faults.iter().filter(|fault| fault.t < shows);
        before.filter(last).any(|fault| !has_anon_vma(fault.addr))
    }

    /// Removes the anon_vmas of those mappings for which `is_unknown` returns true.
    fn forget_anon_vmas(&mut self, is_unknown: impl Fn(&SnapVma, &[Fault]) -> bool) {
        for vma in &mut self.snapshot.vmas {
            let unknown = is_unknown(vma, &self.faults);
            if let Some(kernel) = vma.kernel.as_mut().filter(|_| unknown) {
                kernel.anon_vma = KernelVma::UNKNOWN_ANON_VMA;
                kernel.root = KernelVma::UNKNOWN_ANON_VMA;
            }
        }
    }
}

impl Observer<'_> {
    /// Remembers a fault that may fall into a snapshot.
    pub(super) fn remember_fault(&mut self, fault: Fault) {
        let Some(task) = self.tasks.get_mut(&fault.tid) else {
            return;
        };
        task.fault = Some(fault);
        let space = self.spaces.get_mut(&task.mm);
        if let Some(trial) = space.and_then(|space| space.trial.as_mut()) {
            trial.faults.push(fault);
        }
    }

    /// Takes the snapshots that are due.
    pub(super) fn take_snapshots(&mut self) {
        let now = clock();
        let is_due = |space: &Space| match (space.recorded, self.ending) {
            _ if space.trial.is_some() || space.due > now => false,
            (true, true) => space.ending,
            (true, false) => true,
            (false, ending) => !ending,
        };
        let due: Vec<MmId> = self
            .spaces
            .iter()
            .filter_map(|(mm, space)| is_due(space).then_some(*mm))
            .collect();
        for mm in due {
            self.take_snapshot(mm);
        }
    }

    fn take_snapshot(&mut self, mm: MmId) {
        let Some(space) = self.spaces.get_mut(&mm) else {
            return;
        };
        let Some((&tid, task)) = space
            .users
            .iter()
            .find_map(|tid| self.tasks.get_key_value(tid))
        else {
            return;
        };
        let subject = Subject {
            tid,
            pid: task.pid,
            mm,
            reason: match space.recorded {
                true => SnapReason::Checkpoint,
                false => SnapReason::Attach,
            },
            all_stopped: AllStopped::Yes,
        };
        let busy = !space.recorded && space.attempts % UNDISTURBED == UNDISTURBED - 1;
        let (taken, stopped) = match busy {
            true => self.read_stopped(subject),
            false => (self.snapshotter.take(subject, 0, &mut self.files), false),
        };
        let Some(space) = self.spaces.get_mut(&mm) else {
            return;
        };
        let (from, to) = self.snapshotter.read_between();
        match taken {
            Ok(snapshot) => {
                // A thread that lost its CPU inside a fault has not completed it yet.
                let last = |tid| self.tasks.get(tid).and_then(|task| task.fault);
                let recent = |fault: &Fault| from.saturating_sub(fault.t) < LONGEST_FAULT;
                let faults = space.users.iter().filter_map(last).filter(recent).collect();
                space.trial = Some(Trial {
                    from,
                    to,
                    snapshot,
                    stopped,
                    faults,
                });
            }
            // The task is exiting, which its record will show.
            Err(_) => {
                space.due = to + SPACING;
                space.ending = false;
            }
        }
    }

    /// Reads the mappings of a process that was at rest during no earlier attempt. Returns whether
    /// the process was stopped meanwhile.
    fn read_stopped(&mut self, subject: Subject) -> (io::Result<Snapshot>, bool) {
        let users = self.spaces.get(&subject.mm).map(|space| &space.users);
        let tasks = users.into_iter().flatten();
        let tasks = tasks.filter_map(|tid| self.tasks.get(tid));
        let pids = tasks.map(|task| task.pid).collect();
        let (snapshotter, files) = (&mut self.snapshotter, &mut self.files);
        match pause::while_stopped(&pids, || snapshotter.take(subject, 0, files)) {
            Ok((taken, time)) => {
                self.note(format!(
                    "process {} was stopped for {} ms to read its list of mappings, because its \
                     threads are never all outside of memory calls",
                    subject.pid,
                    time.as_millis()
                ));
                (taken, true)
            }
            Err(error) => {
                self.note(format!(
                    "process {} cannot be stopped to read its list of mappings: {error}",
                    subject.pid
                ));
                (self.snapshotter.take(subject, 0, &mut self.files), false)
            }
        }
    }

    /// Judges the snapshots that were read before time `t`, which the stream has reached.
    pub(super) fn judge_snapshots(&mut self, t: Nanos) {
        let ready = |space: &Space| space.trial.as_ref().is_some_and(|trial| trial.to < t);
        let mms: Vec<MmId> = self
            .spaces
            .iter()
            .filter_map(|(mm, space)| ready(space).then_some(*mm))
            .collect();
        for mm in mms {
            self.judge_snapshot(mm);
        }
    }

    fn judge_snapshot(&mut self, mm: MmId) {
        let Some(space) = self.spaces.get_mut(&mm) else {
            return;
        };
        let Some(mut trial) = space.trial.take() else {
            return;
        };
        let idle_since = |tid| self.tasks.get(&tid).map_or(0, |task| task.seen);
        let quiet = space.judge(&trial)
            && (space.recorded || trial.stopped || !trial.awaits_fault(space.changed, idle_since));
        space.attempts += 1;
        if !space.recorded {
            if quiet {
                space.due = trial.to.saturating_add(CHECKPOINT);
                space.attempts = 0;
                // The replay applies faults from before the snapshot again, without effect on a
                // mapping that has an anon_vma.
                if space.hidden {
                    trial.forget_anon_vmas(|_, _| true);
                }
                return self.begin_space(mm, trial);
            }
            let spaced = space.attempts > EAGER;
            space.due = if spaced { trial.to + SPACING } else { 0 };
            return;
        }
        if !quiet && space.attempts < ATTEMPTS {
            return;
        }
        space.ending = false;
        space.attempts = 0;
        space.due = trial.to.saturating_add(CHECKPOINT);
        let (hidden, to) = (space.hidden, trial.to);
        trial.forget_anon_vmas(|vma, faults| {
            let inside = |fault: &Fault| (vma.start..vma.end).contains(&fault.addr);
            hidden || faults.iter().any(|fault| fault.t <= to && inside(fault))
        });
        trial.snapshot.exact = quiet;
        trial.snapshot.t = trial.to;
        self.push(trial.to, vec![Event::Snapshot(trial.snapshot)]);
    }

    /// Starts the recording of an address space with its first snapshot.
    fn begin_space(&mut self, mm: MmId, mut trial: Trial) {
        let Some(space) = self.spaces.get_mut(&mm) else {
            return;
        };
        let t = trial.shows(space.changed);
        trial.snapshot.t = t;
        space.recorded = true;
        if let Some(duration) = self.duration.take() {
            self.ends = Some(trial.to.saturating_add(duration));
        }
        let origin = Origin::Attach;
        let mut events = vec![Event::MmStart(MmStart { mm, origin, t })];
        let users: Vec<i32> = space.users.iter().copied().collect();
        for &tid in &users {
            self.timeline.residence.moves(tid, t, Place::In(mm));
            let pid = self.tasks.get(&tid).map_or(tid, |task| task.pid);
            events.push(task_start(tid, pid, mm, t));
        }
        events.push(Event::Snapshot(trial.snapshot));
        if users.len() > 1 {
            self.timeline.share(mm);
        }
        self.push(t, events);
    }

    /// Ends an address space in the trace and begins to record it anew, as another one.
    pub(super) fn restart(&mut self, mm: MmId, t: Nanos) {
        self.restart_after(mm, t, t);
    }

    /// As [`restart`](Self::restart), but the mappings may have changed unobserved until `until`.
    pub(super) fn restart_after(&mut self, mm: MmId, t: Nanos, until: Nanos) {
        let Some(mut space) = self.spaces.remove(&mm) else {
            return;
        };
        let was_recorded = space.recorded;
        space.forget(until);
        let new = self.new_mm();
        for &tid in &space.users {
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.mm = new;
                task.call = None;
            }
            self.timeline.call_discarded(tid);
            self.timeline.residence.moves(tid, t, Place::Nowhere);
        }
        self.spaces.insert(new, space);
        if was_recorded {
            self.end_mm(mm, t);
        }
    }

    /// Records that memory of an address space changes without being observed.
    pub(super) fn hide(&mut self, mm: MmId, t: Nanos, why: &str) {
        match self.spaces.get_mut(&mm) {
            Some(space) if !space.hidden => space.hidden = true,
            _ => return,
        }
        self.restart(mm, t);
        self.note(format!(
            "{why} changes memory in a way that cannot be observed: anon_vmas are not compared \
             from here on"
        ));
    }

    pub(super) fn end_mm(&mut self, mm: MmId, t: Nanos) {
        self.timeline.mm_ended(mm, t);
        self.push(t, vec![Event::MmEnd { mm, t }]);
    }

    pub(super) fn new_mm(&mut self) -> MmId {
        self.last_mm.0 += 1;
        self.last_mm
    }

    /// Notes how many address spaces were never recorded, because they were never at rest.
    pub(super) fn note_unrecorded(&mut self) {
        let busy = self.spaces.values().filter(|space| !space.recorded).count();
        if busy != 0 {
            let spaces = match busy {
                1 => "1 address space was".to_owned(),
                more => format!("{more} address spaces were"),
            };
            self.note(format!(
                "{spaces} never at rest long enough to start the recording: record by ptrace, or for \
                 longer"
            ));
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
