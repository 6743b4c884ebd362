//! A recorded program at the moment when one of its address spaces had the most mappings.
//!
//! The recording is replayed twice: first to find the moment with the most mappings, then up to
//! that moment to trace every boundary back to the call that created it. The replay follows the
//! rules of the recorded kernel, so the replay's mappings are the kernel's, with all attributes. If
//! faults were not recorded, the attributes that depend on faults are treated as unknown.

use super::origins::{Extent, Origin, Origins, Show, Sites, extent, label, replaced};
pub use super::recording::{CallStacks, RecordedError};

use super::places::Places;
use super::prevention::{self, Prevented};
use super::spaces::Spaces;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use vmarea::Space;
use vmarea::mm::Layout;
use vmarea::types::{MmId as OurMm, VmFlags};
use vmarea::vma::VmaView;
use vmarea_process::evidence::Evidence;
use vmarea_process::maps::{MapName, MapsEntry};
use vmarea_process::processes;
use vmarea_process::unseen::Unseen;
use vmarea_process::view::ViewVma;
use vmarea_process::{Mapping, Mappings, Process, Source};
use vmarea_replay::action::Files;
use vmarea_replay::machine;
use vmarea_replay::{Error, FailedCalls, Options, Replayer};
use vmarea_trace::event::{
    Event, FaultSource, Header, InodeId, MmId, Origin as Birth, Perms, SnapKind, Snapshot, Tid,
};
use vmarea_trace::{Error as TraceError, Reader};

/// Name of the origin of a mapping that existed before the recording of a running process.
pub(crate) const OLDER: &str = "older than the recording";

/// A recorded program at the moment when it had the most mappings.
#[derive(Debug)]
pub struct Recorded {
    /// The process, with its mappings at the moment when it had the most.
    pub process: Process,
    /// Origin of the boundary below each mapping.
    pub origins: Vec<Option<Origin>>,
    /// Recorded command with its arguments.
    pub command: Vec<String>,
    /// The address spaces in the recording.
    pub spaces: Spaces,
    /// Number of mappings that are older than the recording.
    pub older: u64,
    /// Number of differences between replay and kernel up to the moment with the most mappings.
    pub differences: u64,
    /// Changes to the program that would have prevented mappings.
    pub prevented: Vec<Prevented>,
    /// The memory calls that failed in the whole recording.
    pub failed_calls: Vec<FailedCalls>,
    /// Facts of the process, if it still runs.
    pub evidence: Evidence,
    /// The stacks of these calls.
    pub(crate) places: Places,
}

/// The moment when an address space has the most mappings.
#[derive(Clone, Copy, Debug)]
struct Peak {
    event: u64,
    mm: MmId,
    mappings: u32,
}

/// Replays a trace up to the moment when the program had the most mappings, and returns the process
/// at that moment.
///
/// `open` must return the trace from its beginning each time it is called.
///
/// # Errors
/// [`RecordedError`]. A truncated trace is used up to the point of truncation.
pub fn at_peak<R: Read>(
    mut open: impl FnMut() -> io::Result<R>,
    mut stacks: CallStacks,
) -> Result<Recorded, RecordedError> {
    let reader = Reader::new(open()?)?;
    let header = reader.header().clone();
    let mut spaces = Spaces::default();
    let mut places = Places::new(stacks.clone());
    let (peak, failed_calls) = find_peak(reader, &header, &mut spaces, &mut places)?;
    let peak = peak.ok_or(RecordedError::Empty)?;
    let prevented = prevention::replay(&header, whole(Reader::new(open()?)?), stacks.clone())?;
    let mut walk = Walk::new(&header)?;
    for event in whole(Reader::new(open()?)?).take(peak.event as usize) {
        let event = event?;
        walk.replayer.event(&event)?;
        walk.follow(&event, &mut stacks);
    }
    let mut recorded = walk.end(&header, peak, spaces)?;
    recorded.prevented = prevented;
    (recorded.failed_calls, recorded.places) = (failed_calls, places);
    Ok(recorded)
}

/// Returns the events up to the point at which the trace is truncated or damaged.
fn whole<R: Read>(reader: Reader<R>) -> impl Iterator<Item = Result<Event, TraceError>> {
    let cut = |e: &Result<Event, TraceError>| {
        matches!(
            e,
            Err(TraceError::CutOff { .. } | TraceError::Damaged { .. })
        )
    };
    reader.take_while(move |event| !cut(event))
}

fn find_peak<R: Read>(
    reader: Reader<R>,
    header: &Header,
    spaces: &mut Spaces,
    places: &mut Places,
) -> Result<(Option<Peak>, Vec<FailedCalls>), RecordedError> {
    let mut replayer = Replayer::new(header, &Options::default())?;
    let mut peak: Option<Peak> = None;
    for (n, event) in whole(reader).enumerate() {
        let event = event?;
        replayer.event(&event)?;
        spaces.follow(&event);
        places.follow(&event);
        let mm = match &event {
            Event::Call(call) => call.mm,
            Event::Snapshot(snapshot) => snapshot.mm,
            Event::MmStart(start) => start.mm,
            _ => continue,
        };
        let (world, _) = replayer.recorded();
        let Some(id) = world.mm(mm) else { continue };
        let guard = world.space.mmap_read_lock(id);
        let mappings = guard.map_or(0, |guard| guard.state().map_count);
        // If the maximum occurs several times, use the last moment, when more memory has been
        // touched.
        if mappings > 0 && peak.is_none_or(|peak| mappings >= peak.mappings) {
            let event = n as u64 + 1;
            peak = Some(Peak {
                event,
                mm,
                mappings,
            });
        }
    }
    Ok((peak, replayer.finish().failed_calls))
}

/// State of the second replay.
struct Walk {
    replayer: Replayer,
    sites: Sites,
    spaces: HashMap<MmId, Followed>,
    /// Address space of each thread.
    threads: HashMap<Tid, MmId>,
    faults_seen: bool,
}

/// State of one address space in the second replay.
#[derive(Clone, Debug, Default)]
struct Followed {
    origins: Origins,
    special: BTreeMap<u64, MapName>,
    /// True if the address space existed before it was recorded.
    is_older: bool,
}

impl Walk {
    fn new(header: &Header) -> Result<Walk, Error> {
        Ok(Walk {
            replayer: Replayer::new(header, &Options::default())?,
            sites: Sites::default(),
            spaces: HashMap::new(),
            threads: HashMap::new(),
            faults_seen: header.faults == FaultSource::Tracepoints,
        })
    }

    fn follow(&mut self, event: &Event, stacks: &mut CallStacks) {
        let (mm, what, origin) = match event {
            Event::MmStart(start) => {
                let inherited = match start.origin {
                    Birth::Fork { parent } => self.spaces.get(&parent).cloned(),
                    _ => None,
                };
                let mut followed = inherited.unwrap_or_default();
                followed.is_older |= start.origin == Birth::Attach;
                self.spaces.insert(start.mm, followed);
                return;
            }
            Event::MmEnd { mm, .. } => {
                self.spaces.remove(mm);
                return;
            }
            Event::TaskStart { tid, mm, .. } => {
                self.threads.insert(*tid, *mm);
                return;
            }
            Event::TaskEnd { tid, .. } => {
                self.threads.remove(tid);
                return;
            }
            Event::Snapshot(snapshot) => {
                let followed = self.spaces.entry(snapshot.mm).or_default();
                let call = match (followed.special.is_empty(), followed.is_older) {
                    (true, true) => OLDER,
                    (true, false) => "execve",
                    (false, _) => "not known",
                };
                followed.special = special(snapshot);
                let origin = Origin {
                    call: call.to_owned(),
                    stack: None,
                };
                (snapshot.mm, None, origin)
            }
            Event::Call(call) => {
                let origin = Origin {
                    call: label(call),
                    stack: stacks.next(call.tid),
                };
                (call.mm, Some(call), origin)
            }
            _ => return,
        };
        let (world, _) = self.replayer.recorded();
        let Some(id) = world.mm(mm) else { return };
        let Some(followed) = self.spaces.get_mut(&mm) else {
            return;
        };
        let heap = world.space.mmap_read_lock(id);
        let heap = heap.map_or(0, |guard| guard.state().layout.start_brk);
        let extent = what.map_or(Extent::All, |call| extent(call, heap));
        if extent == Extent::None {
            return;
        }
        let replaced = what.map_or([(0, 0); 2], replaced);
        let site = self.sites.number(origin);
        let space = (&world.space, id);
        followed.origins.follow(space, extent, replaced, site);
    }

    fn end(
        mut self,
        header: &Header,
        peak: Peak,
        spaces: Spaces,
    ) -> Result<Recorded, RecordedError> {
        let (world, files) = self.replayer.recorded();
        let id = world.mm(peak.mm).ok_or(RecordedError::Empty)?;
        let followed = self.spaces.remove(&peak.mm).unwrap_or_default();
        let threads = self.threads.values().filter(|mm| **mm == peak.mm).count() as u64;
        // The log of another tool has none, so that only what was seen to happen is known.
        let has_list = !followed.special.is_empty();
        let shown = Shown::new(&world.space, id, files, &followed.special, self.faults_seen);
        let guard = world.space.mmap_read_lock(id);
        let guard = guard.ok_or(RecordedError::Empty)?;
        let mappings: Vec<_> = guard.vmas().map(|view| shown.mapping(&view)).collect();
        drop(guard);
        let origin = |mapping: &Mapping| {
            let site = followed.origins.site(mapping.entry.start)?;
            self.sites.get(site).cloned()
        };
        let limit = header.settings.get("vm.max_map_count");
        let limit = limit.and_then(|text| text.trim().parse().ok());
        let origins: Vec<_> = mappings.iter().map(origin).collect();
        let is_older = |origin: &&Origin| origin.call == OLDER;
        let older = origins.iter().flatten().filter(is_older).count() as u64;
        let shown = Mappings {
            list: mappings,
            source: Source::Replay,
            ..Mappings::default()
        };
        let mut process = Process {
            limit: limit.or(Some(processes::DEFAULT_MAX_MAP_COUNT)),
            incomplete: !has_list,
            threads: has_list.then_some(threads),
            ..Process::of(name(header), shown).under(&machine::rules(header))
        };
        if !has_list {
            process.notes.push(
                "the recording begins without a list of mappings: older ones are missing"
                    .to_owned(),
            );
        }
        Ok(Recorded {
            process,
            origins,
            command: header.command.clone(),
            spaces,
            older,
            differences: self.replayer.finish().verify.differences,
            prevented: Vec::new(),
            failed_calls: Vec::new(),
            evidence: Evidence::default(),
            places: Places::default(),
        })
    }
}

/// Returns the command of a recording, or says that it is not known.
fn name(header: &Header) -> String {
    match header.command.is_empty() {
        true => "a program without a known name".to_owned(),
        false => header.command.join(" "),
    }
}

/// Returns the names of the kernel's own mappings by address, with an entry more.
pub fn special(snapshot: &Snapshot) -> BTreeMap<u64, MapName> {
    let named = snapshot.vmas.iter().filter_map(|vma| match &vma.kind {
        SnapKind::Special(name) => Some((vma.start, MapName::Special(name.clone()))),
        _ => None,
    });
    // Never empty: an empty map means that there was no snapshot yet.
    named.chain([(u64::MAX, MapName::None)]).collect()
}

fn path(text: &str) -> MapName {
    MapName::Path(std::ffi::OsStr::new(text).into())
}

/// Converts mappings of the core to the form in which `/proc` shows them.
#[derive(Debug)]
pub struct Shown<'a> {
    files: &'a Files,
    special: &'a BTreeMap<u64, MapName>,
    layout: Layout,
    faults_seen: bool,
}

impl<'a> Shown<'a> {
    /// Prepares the conversion for an address space of the core.
    ///
    /// `special` names the kernel's own mappings by address ([`special`]); without faults in the
    /// recording (`faults_seen`), attributes that depend on them are unknown.
    pub fn new(
        space: &Space,
        mm: OurMm,
        files: &'a Files,
        special: &'a BTreeMap<u64, MapName>,
        faults_seen: bool,
    ) -> Shown<'a> {
        let guard = space.mmap_read_lock(mm);
        Shown {
            files,
            special,
            layout: guard.map_or(Layout::default(), |guard| guard.state().layout),
            faults_seen,
        }
    }

    fn name(&self, view: &VmaView) -> MapName {
        if let Some(file) = view.body.file {
            if Files::is_nameless(file.inode) {
                return path("/dev/zero (deleted)");
            }
            let id = u32::try_from(file.inode).map(InodeId);
            let known = id.ok().and_then(|id| self.files.get(id));
            return path(known.map_or("a file", |inode| inode.path.as_str()));
        }
        if let Some(name) = self.special.get(&view.range.start) {
            return name.clone();
        }
        if view.body.name != 0 {
            return MapName::Named(format!("[anon:{}]", view.body.name));
        }
        if view.body.flags.contains(VmFlags::GROWSDOWN) {
            return MapName::Stack;
        }
        let heap = self.layout.start_brk..self.layout.brk;
        if view.range.start < heap.end && view.range.end > heap.start {
            return MapName::Heap;
        }
        MapName::None
    }
}

impl Show for Shown<'_> {
    fn mapping(&self, view: &VmaView) -> Mapping {
        let flags = view.body.flags;
        let file = view.body.file;
        let has = |flag| flags.contains(flag);
        let kernel = ViewVma {
            start: view.range.start,
            end: view.range.end,
            flags: flags.bits(),
            pgoff: view.pgoff().0,
            anon_pgoff: Some(view.offsets.anon_pgoff_at(view.range.start).0),
            anon_vma: view.anon_vma.map_or(0, |id| id.to_bits()),
            chain_singular: view.chain_singular,
            file: file.map_or(0, |file| file.id.0),
            policy: Some(view.body.policy.into()),
            policy_terms: [view.body.policy.into(), 0, 0, 0],
            uffd: Some(view.body.uffd.into()),
            ..ViewVma::default()
        };
        Mapping {
            entry: MapsEntry {
                start: view.range.start,
                end: view.range.end,
                perms: Perms {
                    read: has(VmFlags::READ),
                    write: has(VmFlags::WRITE),
                    exec: has(VmFlags::EXEC),
                    shared: has(VmFlags::MAYSHARE),
                },
                offset: file.map_or(0, |_| view.pgoff().0 << 12),
                dev: 0,
                ino: file.map_or(0, |file| file.inode),
                name: self.name(view),
            },
            flags: Some(flags),
            kernel: (self.faults_seen || file.is_some()).then_some(kernel),
            resident: None,
            unseen: Unseen::empty(),
        }
    }
}
