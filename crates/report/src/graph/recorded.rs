//! The graph of a recording at a chosen moment.
//!
//! The recording is replayed in the core under the rules of the recorded kernel, up to the chosen
//! moment. The graph is built from the core, so it includes chains and parents. `vmarea replay`
//! reports how closely the core matches the recorded kernel.

use super::Graph;
use super::core::{self, Member};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use vmarea::mm::Layout;
use vmarea::types::{VmFlags, VmRange};
use vmarea::vma::VmaView;
use vmarea_replay::{Error, Options, Replayer};
use vmarea_trace::event::{Event, FaultSource, Header, InodeId, MmId, Origin, Tid};

/// A moment of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Moment {
    /// Moment at which one fork lineage has the most live address spaces; the last if several.
    #[default]
    Widest,
    /// The end: the moment before the last address space ends.
    End,
    /// After the event with this number, counted from 1.
    Event(u64),
}

/// Fork lineages.
///
/// A lineage consists of address spaces forked from each other without an `execve` in between.
#[derive(Debug, Default)]
struct Lines {
    /// The first address space in the lineage of each live address space.
    first: BTreeMap<MmId, MmId>,
    /// Number of live address spaces per lineage.
    alive: BTreeMap<MmId, usize>,
}

impl Lines {
    fn event(&mut self, event: &Event) {
        match event {
            Event::MmStart(start) => {
                let first = match start.origin {
                    Origin::Fork { parent } => self.first.get(&parent).copied(),
                    Origin::Exec | Origin::Attach => None,
                };
                let first = first.unwrap_or(start.mm);
                self.first.insert(start.mm, first);
                *self.alive.entry(first).or_default() += 1;
            }
            Event::MmEnd { mm, .. } => {
                if let Some(first) = self.first.remove(mm)
                    && let Some(alive) = self.alive.get_mut(&first)
                {
                    *alive -= 1;
                    if *alive == 0 {
                        self.alive.remove(&first);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the number of live address spaces in the lineage of `mm`.
    fn width(&self, mm: MmId) -> usize {
        let first = self.first.get(&mm);
        first
            .and_then(|first| self.alive.get(first))
            .copied()
            .unwrap_or(0)
    }
}

/// Counter of the events up to a moment.
#[derive(Debug, Default)]
pub struct Survey {
    events: u64,
    lines: Lines,
    widest: (usize, u64),
    /// Number of events before the last address space ended.
    end: u64,
}

impl Survey {
    /// Processes the next event.
    pub fn event(&mut self, event: &Event) {
        if let Event::MmEnd { mm, .. } = event {
            self.look(*mm);
            self.end = self.events;
        }
        self.lines.event(event);
        self.events += 1;
    }

    fn look(&mut self, mm: MmId) {
        let width = self.lines.width(mm);
        if width >= self.widest.0 {
            self.widest = (width, self.events);
        }
    }

    /// Returns the number of events up to and including a moment.
    pub fn events_until(mut self, moment: Moment) -> u64 {
        let alive: Vec<MmId> = self.lines.first.keys().copied().collect();
        match moment {
            Moment::Event(n) => n.min(self.events),
            // Address spaces are still alive: the recording was truncated.
            Moment::End if !alive.is_empty() => self.events,
            Moment::End => self.end,
            Moment::Widest => {
                alive.into_iter().for_each(|mm| self.look(mm));
                self.widest.1
            }
        }
    }
}

/// Replays a recording up to a moment.
pub struct Recorded {
    replayer: Replayer,
    header: Header,
    events: u64,
    members: BTreeMap<MmId, Known>,
    lines: Lines,
    paths: HashMap<u64, String>,
    lost: u64,
}

#[derive(Clone, Debug, Default)]
struct Known {
    parent: Option<MmId>,
    pid: Option<Tid>,
}

impl Recorded {
    /// Creates a replay for a trace with this header.
    ///
    /// # Errors
    /// Same as [`Replayer::new`].
    pub fn new(header: &Header) -> Result<Recorded, Error> {
        Ok(Recorded {
            replayer: Replayer::new(header, &Options::default())?,
            header: header.clone(),
            events: 0,
            members: BTreeMap::new(),
            lines: Lines::default(),
            paths: HashMap::new(),
            lost: 0,
        })
    }

    /// Replays the next event.
    ///
    /// # Errors
    /// Same as [`Replayer::event`].
    pub fn event(&mut self, event: &Event) -> Result<(), Error> {
        self.events += 1;
        self.lines.event(event);
        match event {
            Event::MmStart(start) => {
                let parent = match start.origin {
                    Origin::Fork { parent } => Some(parent),
                    Origin::Exec | Origin::Attach => None,
                };
                self.members.insert(start.mm, Known { parent, pid: None });
            }
            Event::MmEnd { mm, .. } => {
                self.members.remove(mm);
            }
            Event::TaskStart { pid, mm, .. } => {
                if let Some(known) = self.members.get_mut(mm) {
                    known.pid = Some(*pid);
                }
            }
            Event::Inode(inode) => {
                let InodeId(id) = inode.id;
                self.paths.insert(id.into(), inode.path.clone());
            }
            Event::Lost { count, .. } => self.lost += count,
            _ => {}
        }
        self.replayer.event(event)
    }

    /// Returns the graph of all live address spaces, largest lineage first.
    pub fn graph(&self) -> Graph {
        let world = self.replayer.recorded_kernel();
        let mut alive: Vec<_> = self
            .members
            .iter()
            .filter_map(|(mm, known)| Some((*mm, known, world.existing(*mm)?)))
            .collect();
        // A parent precedes its children because it has a lower number.
        alive.sort_by_key(|(mm, ..)| {
            let first = self.lines.first.get(mm).copied();
            (Reverse(self.lines.width(*mm)), first, *mm)
        });
        let place = |mm: MmId| alive.iter().position(|(other, ..)| *other == mm);
        let members = alive.iter().map(|&(mm, known, ours)| {
            let pid = known
                .pid
                .map_or(String::new(), |pid| format!(" (process {})", pid.0));
            Member {
                name: format!("mm{}{pid}", mm.0),
                mm: ours,
                parent: known.parent.and_then(place),
            }
        });
        let members: Vec<_> = members.collect();
        let everything = VmRange::new(0, u64::MAX);
        let title = format!(
            "{}, after event {}",
            self.header.command.join(" "),
            self.events
        );
        let name_of = |layout: &Layout, view: &VmaView| self.name_of(layout, view);
        let mut graph = core::graph(&world.space, &title, &members, everything, &name_of);
        graph.notes = self.notes();
        graph
    }

    fn name_of(&self, layout: &Layout, view: &VmaView) -> String {
        let in_heap = view.range.start < layout.brk && view.range.end > layout.start_brk;
        match view.body.file {
            Some(file) => {
                let path = self.paths.get(&{ file.inode }).map_or("", String::as_str);
                path.rsplit('/').next().unwrap_or(path).to_owned()
            }
            None if view.body.flags.contains(VmFlags::GROWSDOWN) => "[stack]".to_owned(),
            None if in_heap => "[heap]".to_owned(),
            None => String::new(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "the graph is that of our core, which replayed the recording under the rules of its \
             kernel"
                .to_owned(),
        ];
        if !self.header.kernel_view {
            let what =
                "the recording has no kernel's view: what had an anon_vma at execve is not known";
            notes.push(what.to_owned());
        }
        if self.header.faults != FaultSource::Tracepoints {
            let what =
                "page faults are missing in the recording: some anon_vmas were never made here";
            notes.push(what.to_owned());
        }
        if self.lost > 0 {
            notes.push(format!("the recording lost {} samples", self.lost));
        }
        notes
    }
}
