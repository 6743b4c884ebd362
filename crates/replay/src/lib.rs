//! Replays a trace under one or more policies, the first of which is compared with the recorded
//! kernel.
//!
//! The replayer decodes each call once ([`action`], `decode`) and applies it in
//! every world ([`world`]); there is one world per policy, each with its own core.
//!
//! # Picture
//! ```text
//! Event ─▶ Replayer ─┬─▶ World "linux"   ─▶ results and VMAs compared with the trace
//!                    ├─▶ World "thesis"  ─▶ counted only; mappings have the kernel's addresses
//!                    └─▶ …
//! ```
//! [`verify`] compares, [`import`] loads the mappings that the kernel shows after `execve`. If the
//! trace does not determine a result, it counts as *undecided*.
#![forbid(unsafe_code)]

pub mod action;
pub mod apply;
pub mod attempts;
mod changed;
pub mod compare;
pub mod counterfactual;
mod decode;
mod doubt;
pub mod failed;
mod failures;
pub mod files;
pub mod import;
mod known;
pub mod lifetimes;
pub mod log;
pub mod machine;
mod overlapping;
mod own_policies;
mod policy_file;
mod policy_name;
pub mod prevention;
pub mod report;
mod rights;
mod settings;
pub mod standard;
mod tasks;
mod uncertain;
pub mod verify;
pub mod world;

pub use failed::{FailedCall, FailedCalls};
pub use own_policies::register;
pub use policy_name::PolicyName;
pub use report::{Difference, Group, MostShown, PolicyReport, Report, Unsettled, Verify};

use action::{Action, Files};
use doubt::Doubt;
use failures::Failures;
use known::Known;
use prevention::{Changed, Prevention};
use rights::Rights;
use settings::Held;
use std::collections::HashMap;
use tasks::Tasks;
use vmarea::syscall::Syscall;
use vmarea_trace::event::{Call, Event, FaultSource, Header, MmId, Order, Origin, Snapshot, Tid};
use vmarea_trace::setting::SettingWritten;
use world::World;

/// Options of a replay.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Policies to replay under, in addition to the recorded kernel's policy, which always comes
    /// first.
    pub policies: Vec<PolicyName>,
    /// Changes to the program, each of which is replayed under the recorded kernel's policy.
    pub preventions: Vec<Prevention>,
    /// If true, every invariant of the core is checked after each event, which is slow.
    pub validate: bool,
    /// Maximum number of differences per cause in the report.
    pub shown: MostShown,
    /// If true, the replay keeps a log, which the caller empties by [`Replayer::take_log`].
    pub log: bool,
}

/// Reason why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace was recorded with an unsupported page size.
    #[error("the trace has pages of {0} bytes: only pages of 4096 bytes are supported")]
    PageSize(u32),
    /// The trace was recorded on another architecture, whose system call numbers are not known.
    #[error("the trace was recorded on {0}: only x86_64 is supported")]
    Machine(String),
    /// An event contradicts the events before it.
    #[error("event {number}: {what}: the trace contradicts itself; record it again")]
    Broken {
        /// Position of the event in the trace, counted from 1.
        number: u64,
        /// Description of the error.
        what: String,
    },
    /// An invariant of the core was violated.
    #[error("event {number}: {what}; please report this with the trace")]
    Invalid {
        /// Position of the event in the trace, counted from 1.
        number: u64,
        /// Description of the violated invariant.
        what: String,
    },
}

/// Replays a trace event by event.
pub struct Replayer {
    worlds: Vec<World>,
    files: Files,
    known: HashMap<MmId, Known>,
    tasks: Tasks,
    header: Header,
    report: Report,
    failures: Failures,
    held: Held,
    validate: bool,
    shown: MostShown,
    /// True if samples were lost during the recording.
    lossy: bool,
    counterfactual: counterfactual::Shared,
    attempts: attempts::Attempts,
    /// Number of deferred calls in all address spaces together.
    waiting: usize,
    rights: Rights,
    watch: Option<Box<compare::Watch>>,
}

impl Replayer {
    /// Prepares the replay of a trace with this header.
    ///
    /// # Errors
    /// Fails if the trace was recorded with another page size or on another architecture.
    pub fn new(header: &Header, options: &Options) -> Result<Self, Error> {
        if header.page_size != 4096 {
            return Err(Error::PageSize(header.page_size));
        }
        if !["x86_64", ""].contains(&header.machine.as_str()) {
            return Err(Error::Machine(header.machine.clone()));
        }
        let (mut worlds, remarks) = worlds(header, options);
        let counterfactual = counterfactual::Shared::default();
        let attempts = attempts::Attempts::default();
        let others = worlds
            .iter()
            .skip(1)
            .filter(|world| world.changed.is_none());
        let others = others.map(|world| *world.space.policy()).collect();
        let logged = options.log.then(|| attempts.clone());
        worlds[0]
            .space
            .set_observer(counterfactual.observer(others, logged));
        let failures = Failures::default();
        worlds[0].space.set_refused_observer(failures.observer());
        let report = Report {
            notes: remarks,
            log: options.log.then(Vec::new),
            ..Report::default()
        };
        Ok(Replayer {
            worlds,
            files: Files::default(),
            known: HashMap::new(),
            tasks: Tasks::default(),
            header: header.clone(),
            report,
            failures,
            held: Held::default(),
            validate: options.validate,
            shown: options.shown,
            lossy: false,
            counterfactual,
            attempts,
            waiting: 0,
            rights: Rights::default(),
            watch: None,
        })
    }

    /// Replays the next event.
    ///
    /// # Errors
    /// Fails if the event is impossible after those before it, or if validation is on and an
    /// invariant does not hold.
    pub fn event(&mut self, event: &Event) -> Result<(), Error> {
        self.report.events += 1;
        self.failures.follow(event);
        match event {
            Event::Fault(fault) => {
                self.report.faults += 1;
                self.doubt(fault.mm, fault.order);
                self.settle(fault.mm, Some(fault.tid));
                self.give_rights(fault.tid, fault.mm);
                self.fault(fault);
            }
            Event::Call(call) => self.ordered_call(call),
            Event::Touch(touch) => {
                self.doubt(touch.mm, touch.order);
                for world in &mut self.worlds {
                    world.touch(touch);
                }
            }
            Event::Snapshot(snapshot) => {
                self.settle(snapshot.mm, None);
                self.snapshot(snapshot);
            }
            Event::MmStart(start) => self.mm_start(start.mm, start.origin)?,
            Event::MmEnd { mm, .. } => {
                self.settle(*mm, None);
                self.known.remove(mm);
                self.tasks.mm_ends(*mm, self.worlds[0].layout(*mm));
                for world in &mut self.worlds {
                    world.mm_end(*mm);
                }
            }
            Event::Inode(inode) => self.files.inode(inode),
            Event::Lost { count, .. } => {
                self.report.lost += count;
                self.lossy = true;
            }
            Event::Note(note) => {
                self.report.notes.push(note.clone());
                if let Some(written) = SettingWritten::from_note(note) {
                    self.setting_written(written);
                }
            }
            Event::TaskStart { tid, pid, mm, .. } => {
                self.files.task(*tid, *mm);
                self.task_start(*tid, *mm);
                self.rights.starts(*tid, *pid, *mm);
            }
            Event::TaskEnd { tid, .. } => {
                self.tasks.ends(*tid);
                self.rights.ends(*tid);
            }
            Event::End { .. } => {}
        }
        if self.validate {
            self.check()?;
        }
        Ok(())
    }

    /// Replays a call, after replaying the calls of the same thread that are still deferred.
    fn ordered_call(&mut self, call: &Call) {
        self.rights.is_born(call);
        self.rights.has_shown(call);
        if call.order == Order::Overlapping
            && let Some(known) = self.known.get_mut(&call.mm)
        {
            known.unordered.get_or_insert(Doubt::Order);
        }
        self.settle(call.mm, Some(call.tid));
        self.call(call);
    }

    /// Returns the world under the recorded kernel's rules, and the files mapped in it.
    pub fn recorded(&mut self) -> (&mut World, &Files) {
        (&mut self.worlds[0], &self.files)
    }

    /// Returns the world under the recorded kernel's rules.
    pub fn recorded_kernel(&self) -> &World {
        &self.worlds[0]
    }

    /// Returns all worlds; that of the recorded kernel's rules is the first.
    pub fn worlds(&self) -> &[World] {
        &self.worlds
    }

    /// Replays events without options.
    #[cfg(test)]
    fn report<'e>(header: &Header, events: impl IntoIterator<Item = &'e Event>) -> Report {
        let mut replayer = Replayer::new(header, &Options::default()).unwrap();
        for event in events {
            replayer.event(event).unwrap();
        }
        replayer.finish()
    }

    /// Ends all remaining address spaces and returns the report.
    pub fn finish(mut self) -> Report {
        self.held.release(&mut self.report, self.shown);
        let of_policies = |world: &&mut World| world.changed.is_none();
        for world in self.worlds.iter_mut().filter(of_policies) {
            world.finish();
            self.report
                .policies
                .insert(world.name.to_owned(), world.report.clone());
        }
        self.report.counterfactual = self.counterfactual.get();
        self.report.failed_calls = self.failures.take();
        self.report
    }

    fn check(&self) -> Result<(), Error> {
        for world in &self.worlds {
            world.space.validate_all().map_err(|v| Error::Invalid {
                number: self.report.events,
                what: format!("{}: {}", world.name, v.0),
            })?;
        }
        Ok(())
    }

    fn doubt(&mut self, mm: MmId, order: Order) {
        if order == Order::Overlapping
            && let Some(known) = self.known.get_mut(&mm)
        {
            known.doubtful.get_or_insert(Doubt::Order);
        }
    }

    /// Copies the limits and capabilities of thread `tid` to the address space on which the thread
    /// acts.
    fn give_rights(&mut self, tid: Tid, mm: MmId) {
        if let Some(limits) = self.rights.before(tid, mm) {
            for world in &mut self.worlds {
                world.set_limits(mm, limits);
            }
        }
    }

    fn mm_start(&mut self, mm: MmId, origin: Origin) -> Result<(), Error> {
        let mut known = Known::default();
        match origin {
            Origin::Exec | Origin::Attach => {
                for world in &mut self.worlds {
                    world.mm_empty(mm);
                }
            }
            Origin::Fork { parent } => {
                let Some(from) = self.known.get(&parent) else {
                    let what = format!(
                        "mm {} is a copy of mm {}, which does not exist",
                        mm.0, parent.0
                    );
                    return Err(Error::Broken {
                        number: self.report.events,
                        what,
                    });
                };
                known = from.inherited();
                self.files.fork(parent, mm);
                for world in &mut self.worlds {
                    world.mm_fork(mm, parent);
                }
            }
        }
        self.known.insert(mm, known);
        self.report.verify.processes += 1;
        Ok(())
    }

    /// Transfers settings across `execve`: a thread whose address space changes has called
    /// `execve`.
    fn task_start(&mut self, tid: Tid, mm: MmId) {
        let world = &self.worlds[0];
        let Some(old) = self.tasks.starts(tid, mm, |mm| world.layout(mm)) else {
            return;
        };
        for world in &mut self.worlds {
            world.inherit(mm, &old);
        }
    }

    fn call(&mut self, call: &Call) {
        self.report.calls += 1;
        self.doubt(call.mm, call.order);
        let Some(known) = self.known.get_mut(&call.mm) else {
            return;
        };
        known.call_before = known.last_call.replace(call.clone());
        let action = self.files.action(call);
        if let Action::Opaque(_) | Action::Userfault { .. } = action {
            self.failures.after(&action, call, None);
            return self.unseen(&action, call.mm);
        }
        match action {
            Action::Limit {
                resource,
                soft,
                hard,
                of,
            } => self.rights.limit(call.tid, of, resource, (soft, hard)),
            Action::Capabilities { mask } => self.rights.capabilities(call.tid, mask),
            _ => {}
        }
        match call.order {
            Order::Exact => self.settle_unmaps(call.mm),
            Order::Overlapping if self.waits(&action, call) => return,
            Order::Overlapping => {}
        }
        self.act(&action, call);
        self.retry(call.mm);
    }

    /// Applies a call in every world and compares the result of the first world with the trace.
    fn act(&mut self, action: &Action, call: &Call) {
        self.give_rights(call.tid, call.mm);
        let Some(known) = self.known.get_mut(&call.mm) else {
            return;
        };
        let compare = verify::comparable(action, call, known);
        let uncertain = known.uncertain.affects(action);
        debug_assert!(
            self.worlds.iter_mut().all(|w| w.is_valid(call.mm)),
            "{call:?}"
        );
        if let Some(watch) = &mut self.watch {
            watch.before(call, &self.worlds);
        }
        let mut ours = None;
        let mut result = None;
        self.failures.before();
        let base_known = known.mmap_base;
        for (nr, world) in self.worlds.iter_mut().enumerate() {
            let done = world.act(action, call, base_known);
            if nr > 0 {
                if let Some(watch) = &mut self.watch {
                    watch.results[nr - 1] = done.result;
                }
                continue;
            }
            result = done.result;
            if done.learnt_base {
                known.mmap_base = true;
                self.report.verify.undecided(Doubt::Base);
                continue;
            }
            ours = done.result.filter(|_| compare);
        }
        self.failures.after(action, call, result);
        if let Some(watch) = &mut self.watch {
            let numbers = (self.report.calls, self.report.events);
            watch.after((action, call), numbers, &self.worlds);
        }
        if call.ret >= 0 {
            self.follow_uncertain(action, call);
        }
        let (Some(ours), Some(known)) = (ours, self.known.get_mut(&call.mm)) else {
            return;
        };
        self.report.verify.results_compared += 1;
        if ours == call.ret {
            return;
        }
        // `mremap` refuses a range that spans a VMA boundary, and the boundaries may not be known.
        let boundary = match action {
            Action::Call(Syscall::Mremap(_)) => missing(self.header.faults, self.lossy, known),
            _ => None,
        };
        let key = || self.worlds[0].advises_key(call.mm, action);
        if let Some(doubt) = known.unordered.or(boundary).or(uncertain).or_else(key) {
            known.unordered = Some(doubt);
            self.report.verify.undecided(doubt);
        } else {
            let difference = Difference {
                event: self.report.events,
                ..verify::of_result(call, ours, known)
            };
            let report = (&mut self.report, self.shown);
            self.held.add((call.t, call.mm), difference, report);
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        let Some(known) = self.known.get_mut(&snapshot.mm) else {
            return;
        };
        if !known.seen {
            known.seen = true;
            let mut kernel = snapshot.vmas.iter().filter_map(|v| v.kernel);
            known.kernel_view = kernel.any(|k| k.knows_anon_vma());
            known.mmap_base = snapshot
                .info
                .as_ref()
                .is_some_and(|i| i.mmap_base.is_some());
            for world in &mut self.worlds {
                import::import(world, &mut self.files, snapshot);
            }
            let info = snapshot.info.clone().unwrap_or_default();
            self.rights.taken_over(snapshot.mm, import::limits(&info));
            return;
        }
        let in_motion = (!snapshot.exact).then_some(Doubt::ListInMotion);
        let missing = missing(self.header.faults, self.lossy, known);
        let doubts = verify::Doubts {
            hidden: missing.or(known.doubtful).or(in_motion),
            ranges: in_motion.or(known.unordered),
        };
        let world = &mut self.worlds[0];
        let outcome = verify::compare(world, &mut self.files, snapshot, known, doubts);
        self.report.verify.vmas_compared += outcome.compared;
        let disagreed = match outcome.differences.is_empty() {
            true => outcome.undecided.iter().max().copied(),
            false => Some(Doubt::Difference),
        };
        for doubt in outcome.undecided {
            self.report.verify.undecided(doubt);
        }
        for difference in outcome.differences {
            let event = self.report.events;
            let difference = Difference {
                event,
                ..difference
            };
            let report = (&mut self.report, self.shown);
            self.held.add((snapshot.t, snapshot.mm), difference, report);
        }
        match disagreed {
            None => (known.doubtful, known.unordered) = (None, None),
            Some(doubt) if snapshot.exact => {
                self.report.verify.resync(doubt);
                import::import(world, &mut self.files, snapshot);
                self.rights.is_set(snapshot.mm);
            }
            Some(_) => {}
        }
    }
}

/// Returns why boundaries and anon_vmas may have changed unseen: the recording does not contain every
/// fault, or not the kernel's own view.
fn missing(faults: FaultSource, lossy: bool, known: &Known) -> Option<Doubt> {
    [
        (faults != FaultSource::Tracepoints, Doubt::Faults),
        (lossy, Doubt::Lost),
        (!known.kernel_view, Doubt::KernelView),
    ]
    .into_iter()
    .find_map(|(is_missing, doubt)| is_missing.then_some(doubt))
}

/// Returns one world for each policy, then one for each prevention, with remarks about the policies.
fn worlds(header: &Header, options: &Options) -> (Vec<World>, Vec<String>) {
    let system = machine::system(header);
    let kernel = machine::rules(header);
    let linux = kernel.policy;
    let mut worlds = vec![World::new("linux", linux, system)];
    let mut remarks: Vec<_> = kernel.remark().into_iter().collect();
    for named in &options.policies {
        let policy = named.policy();
        if worlds.iter().all(|world| world.name != policy.name) {
            worlds.push(World::new(policy.name, policy, system));
        }
        remarks.extend(named.note().map(str::to_owned));
    }
    worlds.extend(options.preventions.iter().map(|&prevention| {
        let mut world = World::new("linux", linux, system);
        world.changed = Some(Changed::new(prevention));
        world
    }));
    (worlds, remarks)
}
