//! A process to be shown: a running process, or a recorded process at some point in its recording.
//!
//! A [`Shown`] covers both cases: it contains the process with all known attributes of its
//! mappings, and the addresses in its `mm_struct`. The process is deliberately not stopped, and the
//! contents of its memory are not read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use vmarea::types::VmFlags;
use vmarea_process::maps::{MapName, MapsEntry};
use vmarea_process::system;
use vmarea_process::unseen::Unseen;
use vmarea_process::view::{KernelView, View, ViewVma};
use vmarea_process::{AskKernel, Mapping, Mappings, Process, ProcessError, Smaps, Source};
use vmarea_replay::machine;
use vmarea_trace::event::{
    Event, Header, Inode, InodeId, MmId, MmInfo, SnapKind, SnapVma, Snapshot, Tid,
};

/// State of a process at the point in time being shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The process with its mappings.
    pub process: Process,
    /// Addresses and limits of the address space.
    pub info: MmInfo,
    /// The moment that is shown.
    pub when: String,
    /// File of the program, if it can be read.
    pub program: Option<PathBuf>,
}

/// A moment of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Moment {
    /// The first list of mappings, after `execve`.
    Exec,
    /// The last list of mappings.
    #[default]
    End,
    /// The last list of mappings at or before the event with this number, counted from 1.
    Event(u64),
}

/// Selection of a part of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// The moment to show.
    pub moment: Moment,
    /// The address space to show; `None` selects the recorded command's address space.
    pub mm: Option<MmId>,
}

impl Shown {
    /// Reads process `pid`.
    ///
    /// # Errors
    /// Same as [`Process::live`].
    pub fn live(pid: i32, kernel: AskKernel, smaps: Smaps) -> Result<Shown, ProcessError> {
        let process = Process::live(pid, kernel, smaps)?;
        let mut info = system::mm_info(pid);
        let mut view = View::default();
        if kernel == AskKernel::Try
            && let Ok(eye) = KernelView::open()
            && eye.read(pid, &mut view).is_ok()
        {
            view.mm.fill(&mut info);
        }
        if info.brk.is_none() {
            let mut mappings = process.mappings.iter();
            let heap = mappings.rfind(|mapping| mapping.entry.name == MapName::Heap);
            info.brk = heap.map(|heap| heap.entry.end);
        }
        Ok(Shown {
            process,
            info,
            when: "now".to_owned(),
            program: Some(PathBuf::from(format!("/proc/{pid}/exe"))),
        })
    }

    /// Returns a title for the process.
    pub fn title(&self) -> String {
        match self.process.pid {
            Some(pid) => format!("process {pid} ({}), {}", self.process.name, self.when),
            None => format!("{}, {}", self.process.name, self.when),
        }
    }
}

/// Finds a process in the events of a recording.
#[derive(Debug)]
pub struct Finder {
    choice: Choice,
    header: Header,
    events: u64,
    inodes: HashMap<InodeId, Inode>,
    /// Thread and address space of the recorded command.
    command: Option<(Tid, MmId)>,
    found: Option<(Snapshot, u64)>,
}

impl Finder {
    /// Creates a finder for a trace with this header.
    pub fn new(header: &Header, choice: Choice) -> Finder {
        Finder {
            choice,
            header: header.clone(),
            events: 0,
            inodes: HashMap::new(),
            command: None,
            found: None,
        }
    }

    /// Processes the next event.
    pub fn event(&mut self, event: &Event) {
        self.events += 1;
        match event {
            Event::Inode(inode) => {
                self.inodes.insert(inode.id, inode.clone());
            }
            Event::TaskStart { tid, mm, .. } => match &mut self.command {
                None => self.command = Some((*tid, *mm)),
                Some((command, its)) if command == tid => *its = *mm,
                Some(_) => {}
            },
            Event::Snapshot(snapshot) => self.snapshot(snapshot),
            _ => {}
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        let own = self.command.map(|(_, mm)| mm);
        let wanted = self.choice.mm.or(own);
        if wanted.is_some_and(|mm| mm != snapshot.mm) {
            return;
        }
        let takes = match self.choice.moment {
            Moment::Exec => self.found.is_none(),
            Moment::End => true,
            Moment::Event(n) => self.events <= n,
        };
        if takes {
            self.found = Some((snapshot.clone(), self.events));
        }
    }

    /// Returns the process at the chosen moment, if the recording contains it.
    pub fn finish(self) -> Option<Shown> {
        let (snapshot, event) = self.found?;
        let vmas = snapshot.vmas.iter().filter(|vma| vma.start < vma.end);
        let mappings = Mappings {
            list: vmas.map(|vma| mapping(vma, &self.inodes)).collect(),
            source: Source::Replay,
            without_view: (!self.header.kernel_view)
                .then(|| "the recording has no kernel's view".to_owned()),
            ..Mappings::default()
        };
        let mut name = self.header.command.join(" ");
        if name.is_empty() {
            name = "a recording".to_owned();
        }
        let settings = &self.header.settings;
        let limit = settings
            .get("vm.max_map_count")
            .and_then(|n| n.parse().ok());
        let program = program_of(&snapshot, &self.inodes);
        Some(Shown {
            process: Process {
                limit: limit.or(Some(vmarea_process::processes::DEFAULT_MAX_MAP_COUNT)),
                ..Process::of(name, mappings).under(&machine::rules(&self.header))
            },
            info: snapshot.info.clone().unwrap_or_default(),
            when: format!("mm{} at event {event}", snapshot.mm.0),
            program,
        })
    }
}

fn mapping(vma: &SnapVma, inodes: &HashMap<InodeId, Inode>) -> Mapping {
    let inode = vma.inode.and_then(|id| inodes.get(&id));
    let name = match (&vma.kind, inode) {
        (SnapKind::Heap, _) => MapName::Heap,
        (SnapKind::Stack, _) => MapName::Stack,
        (SnapKind::Named(name), _) => MapName::Named(name.clone()),
        (SnapKind::Special(name), _) => MapName::Special(name.clone()),
        (SnapKind::Plain, Some(inode)) => MapName::Path(OsStr::new(&inode.path).into()),
        (SnapKind::Plain, None) => MapName::None,
    };
    let kernel = vma.kernel.as_ref();
    Mapping {
        entry: MapsEntry {
            start: vma.start,
            end: vma.end,
            perms: vma.perms,
            offset: vma.offset,
            dev: inode.map_or(0, |inode| inode.dev),
            ino: inode.map_or(0, |inode| inode.ino),
            name,
        },
        flags: kernel.map(|kernel| VmFlags::from_bits_retain(kernel.flags)),
        kernel: kernel.map(|kernel| ViewVma {
            start: vma.start,
            end: vma.end,
            pgoff: kernel.pgoff,
            flags: kernel.flags,
            anon_vma: kernel.anon_vma,
            root: kernel.root,
            chain_singular: kernel.chain_singular,
            file: kernel.file,
            policy: Some(kernel.policy.into()),
            ..ViewVma::default()
        }),
        resident: None,
        unseen: Unseen::empty(),
    }
}

/// Returns the program, which is the file mapped at `start_data`, unless that file has changed.
fn program_of(snapshot: &Snapshot, inodes: &HashMap<InodeId, Inode>) -> Option<PathBuf> {
    let data = snapshot.info.as_ref()?.start_data?;
    let vma = snapshot
        .vmas
        .iter()
        .find(|v| (v.start..v.end).contains(&data))?;
    let inode = inodes.get(&vma.inode?)?;
    let path = PathBuf::from(&inode.path);
    is_same_file(&path, inode).ok()?.then_some(path)
}

fn is_same_file(path: &std::path::Path, inode: &Inode) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let data = path.metadata()?;
    let same_size = inode.size == 0 || inode.size == data.len();
    Ok(data.is_file() && data.ino() == inode.ino && same_size)
}
