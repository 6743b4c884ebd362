//! Collects a timeline while a recording is replayed.
//!
//! After each event, the mappings that it may have changed are compared with those before. A
//! page fault changes a mapping only if it gives it an anon_vma. If the number of mappings shows
//! that something was missed, such as a call that the replay deferred, all mappings are compared;
//! this is done so rarely that its cost stays in proportion to the number of events.

use super::follow::{Bands, Cause, Core, end};
use super::tables::{Site, Tables};
use super::{Band, LeftOut, Mark, NONE, Series, Space, Step, Timeline, What, select, thin};
use std::collections::{BTreeMap, HashMap};
use vmarea::mm::Stats;
use vmarea_explain::origins::{Extent, extent, label};
use vmarea_explain::recorded::{CallStacks, Shown, special};
use vmarea_process::maps::MapName;
use vmarea_replay::Replayer;
use vmarea_replay::action::Files;
use vmarea_trace::event::{
    Call, Event, Fault, FaultSource, Header, MmId, MmStart, Origin, Snapshot, Tid,
};
use vmarea_trace::names;

/// Number of marks and of steps that are kept while the recording is replayed.
const MOST_MARKS: usize = 8 * thin::MOST_MARKS;
const MOST_STEPS: usize = 2 * thin::MOST_COLLECTED;

/// Collects a timeline.
#[derive(Debug)]
pub struct Collector {
    spaces: Vec<Tracked>,
    numbers: HashMap<MmId, u32>,
    tables: Tables,
    bands: Vec<Band>,
    marks: Vec<Mark>,
    steps: Vec<Step>,
    stacks: CallStacks,
    faults_seen: bool,
    event: u64,
    step: u32,
    left_out: LeftOut,
}

/// An address space that is being followed.
#[derive(Debug, Default)]
struct Tracked {
    space: Space,
    live: Bands,
    special: BTreeMap<u64, MapName>,
    stats: Stats,
    /// Mappings that a comparison of all may still cost.
    paid: u64,
}

impl Collector {
    /// Creates an empty collector; `stacks` are those of the recording's calls.
    pub fn new(header: &Header, stacks: CallStacks) -> Collector {
        let mut tables = Tables::default();
        // Number 0 stands for what no call made.
        tables.sites.number(Site {
            call: "not known".to_owned(),
            stack: None,
        });
        Collector {
            spaces: Vec::new(),
            numbers: HashMap::new(),
            tables,
            bands: Vec::new(),
            marks: Vec::new(),
            steps: Vec::new(),
            stacks,
            faults_seen: header.faults == FaultSource::Tracepoints,
            event: 0,
            step: 0,
            left_out: LeftOut::default(),
        }
    }

    /// Adds what an event changed; `replayer` must already have replayed it.
    pub fn event(&mut self, event: &Event, replayer: &mut Replayer) {
        self.event += 1;
        match event {
            Event::Fault(fault) => return self.fault(fault, replayer),
            Event::MmStart(start) => self.start(start),
            Event::TaskStart { pid, mm, .. } => self.process(*mm, *pid),
            Event::Snapshot(snapshot) => self.snapshot(snapshot, replayer),
            Event::Call(call) => self.call(call, replayer),
            Event::MmEnd { mm, t } => self.end(*mm, *t),
            _ => return,
        }
        self.stay_small();
    }

    /// Begins a step.
    fn next(&mut self, t: u64, label: &str) -> u32 {
        self.step += 1;
        let label = self.tables.labels.number(label.to_owned());
        self.steps.push(Step {
            step: self.step,
            event: self.event,
            t,
            label,
        });
        self.step
    }

    /// Removes the last step if nothing refers to it.
    fn forget_step(&mut self, used: bool) {
        if !used {
            self.steps.pop();
        }
    }

    fn start(&mut self, start: &MmStart) {
        let what = match start.origin {
            Origin::Exec => "execve",
            Origin::Attach => "attach",
            Origin::Fork { .. } => "fork",
        };
        let step = self.next(start.t, what);
        let number = self.spaces.len() as u32;
        let mut new = Tracked {
            space: Space {
                mm: start.mm.0,
                from: step,
                to: NONE,
                ..Space::default()
            },
            ..Tracked::default()
        };
        let parent = match start.origin {
            Origin::Fork { parent } => self.numbers.get(&parent).copied(),
            Origin::Exec | Origin::Attach => None,
        };
        if let Some(parent) = parent {
            let from = &self.spaces[parent as usize];
            new.space.parent = Some(parent);
            new.space.name = from.space.name.clone();
            new.special = from.special.clone();
            new.live = from.live.clone();
            for live in new.live.values_mut() {
                (live.band.space, live.band.from) = (number, step);
            }
        }
        self.numbers.insert(start.mm, number);
        self.spaces.push(new);
    }

    fn process(&mut self, mm: MmId, pid: Tid) {
        if let Some(&number) = self.numbers.get(&mm) {
            self.spaces[number as usize].space.pid.get_or_insert(pid.0);
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot, replayer: &mut Replayer) {
        let step = self.next(snapshot.t, "list of mappings");
        let Some(&number) = self.numbers.get(&snapshot.mm) else {
            return self.forget_step(false);
        };
        let tracked = &mut self.spaces[number as usize];
        let first = tracked.special.is_empty();
        tracked.special = special(snapshot);
        // Later lists show what no recorded call did; what was known before stays attributed.
        let site = first.then(|| {
            tracked.space.name = program(snapshot, replayer.recorded().1);
            self.tables.sites.number(Site {
                call: "execve".to_owned(),
                stack: None,
            })
        });
        let cause = Cause {
            step,
            site,
            space: number,
        };
        let changed = self.compare(replayer, snapshot.mm, Extent::All, cause);
        self.count(replayer, snapshot.mm, number);
        self.forget_step(changed);
    }

    fn call(&mut self, call: &Call, replayer: &mut Replayer) {
        let stack = self.stacks.next(call.tid);
        let Some(&number) = self.numbers.get(&call.mm) else {
            return;
        };
        let what = label(call);
        let step = self.next(call.t, &what);
        let site = self.tables.sites.number(Site { call: what, stack });
        self.spaces[number as usize].space.calls += 1;
        let heap = replayer.recorded_kernel().layout(call.mm).start_brk;
        let cause = Cause {
            step,
            site: Some(site),
            space: number,
        };
        let mut used = self.compare(replayer, call.mm, extent(call, heap), cause);
        used |= self.compare_all_if_needed(replayer, call.mm, cause);
        used |= self.mark(call, replayer, number, step);
        self.count(replayer, call.mm, number);
        self.forget_step(used);
    }

    fn fault(&mut self, fault: &Fault, replayer: &mut Replayer) {
        let Some(&number) = self.numbers.get(&fault.mm) else {
            return;
        };
        let tracked = &mut self.spaces[number as usize];
        tracked.space.faults += 1;
        let Some((_, live)) = tracked.live.range(..=fault.addr).next_back() else {
            return;
        };
        let band = live.band;
        if band.anon != NONE || fault.addr >= band.end {
            return;
        }
        let (world, _) = replayer.recorded();
        let Some(mm) = world.mm(fault.mm) else { return };
        let guard = world.space.mmap_read_lock(mm);
        let view = guard.and_then(|guard| guard.vma_lookup(fault.addr));
        if view.is_none_or(|view| view.anon_vma.is_none()) {
            return;
        }
        let step = self.next(fault.t, "page fault");
        let cause = Cause {
            step,
            site: None,
            space: number,
        };
        let extent = Extent::Ranges([(band.start, band.end), (0, 0)]);
        let changed = self.compare(replayer, fault.mm, extent, cause);
        self.forget_step(changed);
        self.stay_small();
    }

    fn end(&mut self, mm: MmId, t: u64) {
        let step = self.next(t, "exit");
        let Some(number) = self.numbers.remove(&mm) else {
            return self.forget_step(false);
        };
        let tracked = &mut self.spaces[number as usize];
        tracked.space.to = step;
        for live in std::mem::take(&mut tracked.live).into_values() {
            end(live.band, step, &mut |band| self.bands.push(band));
        }
        for series in &mut tracked.space.counts {
            series.push(step, 0);
        }
    }

    /// Compares the mappings in `extent`; returns true if anything changed.
    fn compare(&mut self, replayer: &mut Replayer, mm: MmId, extent: Extent, cause: Cause) -> bool {
        let ranges = match extent {
            Extent::None => return false,
            Extent::All => [(0, u64::MAX), (0, 0)],
            Extent::Ranges(ranges) => ranges,
        };
        let (world, files) = replayer.recorded();
        let Some(id) = world.mm(mm) else { return false };
        let tracked = &mut self.spaces[cause.space as usize];
        let show = Shown::new(&world.space, id, files, &tracked.special, self.faults_seen);
        let core = Core {
            space: &world.space,
            mm: id,
            policy: world.space.policy(),
            show: &show,
        };
        let (live, tables, bands) = (&mut tracked.live, &mut self.tables, &mut self.bands);
        let mut changed = false;
        for range in ranges.into_iter().filter(|(low, high)| low < high) {
            let mut ended = |band| bands.push(band);
            changed |= core.compare(live, tables, range, cause, &mut ended);
        }
        changed
    }

    /// Compares all mappings if their number differs from the core's.
    fn compare_all_if_needed(&mut self, replayer: &mut Replayer, mm: MmId, cause: Cause) -> bool {
        let ours = replayer.recorded_kernel().vmas(mm);
        let tracked = &mut self.spaces[cause.space as usize];
        tracked.paid += 64;
        if tracked.live.len() as u64 == ours || tracked.paid < ours {
            return false;
        }
        tracked.paid = 0;
        self.compare(replayer, mm, Extent::All, cause)
    }

    /// Adds marks for what the core counted since the last call; returns true if there are any.
    fn mark(&mut self, call: &Call, replayer: &mut Replayer, space: u32, step: u32) -> bool {
        let (world, _) = replayer.recorded();
        let Some(guard) = world
            .mm(call.mm)
            .and_then(|id| world.space.mmap_read_lock(id))
        else {
            return false;
        };
        let now = &guard.state().stats;
        let before = &self.spaces[space as usize].stats;
        let mut happened: Vec<(What, &str, u64)> = Vec::new();
        let merges = now.merges().zip(before.merges());
        happened.extend(merges.map(|((kind, n), (_, was))| (What::Merge, kind.name(), n - was)));
        let refusals = now.refusals().zip(before.refusals());
        let refused = |((why, n), (_, was)): ((vmarea::vma::merge::Refusal, u64), (_, u64))| {
            (What::Refusal, why.name(), n - was)
        };
        happened.extend(refusals.map(refused));
        happened.push((What::Split, "split", now.splits - before.splits));
        let error = names::errno_name(call.ret.saturating_neg()).unwrap_or("an error");
        happened.push((What::Failure, error, u64::from(is_failure(call))));
        let found = happened.into_iter().filter(|(.., count)| *count > 0);
        let found: Vec<_> = found
            .map(|(what, detail, count)| Mark {
                space,
                step,
                what,
                detail: self.tables.labels.number(detail.to_owned()),
                count,
                addr: address(call),
            })
            .collect();
        if *now != *before {
            self.spaces[space as usize].stats = now.clone();
        }
        self.marks.extend(&found);
        !found.is_empty()
    }

    /// Adds the numbers of mappings under each policy.
    fn count(&mut self, replayer: &Replayer, mm: MmId, number: u32) {
        let space = &mut self.spaces[number as usize].space;
        let worlds = replayer.worlds();
        space.counts.resize_with(worlds.len(), Series::default);
        for (series, world) in space.counts.iter_mut().zip(worlds) {
            series.push(self.step, world.vmas(mm));
        }
        let now = replayer.recorded_kernel().vmas(mm);
        if now >= space.peak {
            (space.peak, space.peak_step) = (now, self.step);
        }
    }

    /// Thins what has been collected if there is too much of it.
    fn stay_small(&mut self) {
        if self.bands.len() > thin::MOST_COLLECTED {
            let spaces = &self.spaces;
            let at_peak = |band: &Band| {
                let peak = spaces[band.space as usize].space.peak_step;
                (band.from..band.to).contains(&peak)
            };
            let (gone, steps) = thin::bands(&mut self.bands, thin::MOST_COLLECTED / 2, at_peak);
            self.left_out.bands += gone;
            self.left_out.steps = self.left_out.steps.max(steps);
        }
        if self.marks.len() > MOST_MARKS {
            self.left_out.marks += thin::marks(&mut self.marks, MOST_MARKS / 2);
        }
        if self.steps.len() > MOST_STEPS {
            let live = self.spaces.iter().flat_map(|tracked| tracked.live.values());
            let live = live.map(|live| live.band.from);
            select::used_steps(&mut self.steps, &self.bands, &self.marks, live);
        }
    }

    /// Ends the collection. Bands that exist at the end last one step longer than the recording.
    pub fn finish(mut self, replayer: &Replayer) -> Timeline {
        let last = self.step;
        let mut spaces = Vec::with_capacity(self.spaces.len());
        for mut tracked in self.spaces {
            for live in tracked.live.into_values() {
                end(live.band, last + 1, &mut |band| self.bands.push(band));
            }
            tracked.space.to = tracked.space.to.min(last + 1);
            spaces.push(tracked.space);
        }
        let policies = replayer.worlds().iter().map(|world| world.name.to_owned());
        let timeline = Timeline {
            policies: policies.collect(),
            spaces,
            bands: self.bands,
            marks: self.marks,
            steps: self.steps,
            last,
            tables: self.tables,
            left_out: self.left_out,
        };
        select::drawn(timeline)
    }
}

/// Returns the file name of the program whose mappings a snapshot shows.
fn program(snapshot: &Snapshot, files: &Files) -> String {
    let data = snapshot.info.as_ref().and_then(|info| info.start_data);
    let of_data = snapshot
        .vmas
        .iter()
        .find(|vma| data.is_some_and(|data| (vma.start..vma.end).contains(&data)));
    let file = of_data.or(snapshot.vmas.first()).and_then(|vma| vma.inode);
    let path = file.and_then(|id| files.get(id)).map(|inode| &inode.path);
    let name = path.and_then(|path| path.rsplit('/').next());
    name.unwrap_or_default().to_owned()
}

/// True if a call failed although a program would expect it to succeed.
fn is_failure(call: &Call) -> bool {
    use vmarea_trace::sysno;
    let maps = [
        sysno::MMAP,
        sysno::MPROTECT,
        sysno::MREMAP,
        sysno::MUNMAP,
        sysno::SHMAT,
    ];
    maps.contains(&call.nr) && (-4095..0).contains(&call.ret)
}

/// Returns the address at which a call worked.
fn address(call: &Call) -> u64 {
    use vmarea_trace::sysno;
    let new = matches!(
        call.nr,
        sysno::MMAP | sysno::MREMAP | sysno::SHMAT | sysno::BRK
    );
    if new && call.ret > 0 {
        call.ret as u64
    } else {
        call.args[0]
    }
}
