//! What is looked at: the mappings of one process, and what else of each is known.
//!
//! The list comes from `/proc/PID/maps`; the kernel's own view, where it may be read, adds what
//! `/proc` hides. A process that runs changes between the two readings: they are read again until
//! they agree, and what still differs counts as hidden. Deliberately absent: stopping the process,
//! and any judgement.

use std::fmt;
use std::io;
use vmarea::policy::Policy;
use vmarea::types::{VmFlags, VmRange};
use vmarea_process::maps::{self, MapName, Mapping, SmapsEntry};
use vmarea_process::processes;
use vmarea_process::view::{KernelView, View, ViewError, ViewVma};

/// How often list and view are read until they agree.
const ATTEMPTS: usize = 4;

/// What the kernel itself says of a VMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Inside {
    /// `vm_pgoff`, pages.
    pub pgoff: u64,
    /// Identity of the anon_vma, 0 for none.
    pub anon_vma: u64,
    /// Identity of the root of its family, 0 for none.
    pub root: u64,
    /// `num_children` of its anon_vma, where this kernel has it.
    pub num_children: Option<u64>,
    /// `num_active_vmas` of its anon_vma, where this kernel has it.
    pub num_active_vmas: Option<u64>,
    /// It hangs on one anon_vma at the most.
    pub chain_singular: bool,
    /// Other processes may share its pages since a fork.
    pub forked: bool,
    /// Identity of the open file, 0 for none.
    pub file: u64,
    /// Identity of the memory policy, 0 for none.
    pub policy: u64,
    /// What the policy says, as far as it was read: those that differ in it are different.
    pub policy_terms: [u64; 4],
    /// Identity of the userfaultfd context, 0 for none.
    pub uffd: u64,
}

impl From<&ViewVma> for Inside {
    fn from(vma: &ViewVma) -> Inside {
        // A root counts itself among its children.
        let own = u64::from(vma.root == vma.anon_vma);
        let children = vma.num_children.unwrap_or(own).saturating_sub(own);
        Inside {
            pgoff: vma.pgoff,
            anon_vma: vma.anon_vma,
            root: vma.root,
            num_children: vma.num_children.filter(|_| vma.anon_vma != 0),
            num_active_vmas: vma.num_active_vmas.filter(|_| vma.anon_vma != 0),
            chain_singular: vma.chain_singular,
            forked: vma.anon_vma != 0 && (children > 0 || !vma.chain_singular),
            file: vma.file,
            policy: vma.policy.unwrap_or(0),
            policy_terms: vma.policy_terms,
            uffd: vma.uffd.unwrap_or(0),
        }
    }
}

/// What of a mapping is in memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// All of it.
    pub rss: u64,
    /// What belongs to the process alone, swap included.
    pub anonymous: u64,
}

/// One mapping and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// As `/proc` lists it.
    pub mapping: Mapping,
    /// `vm_flags`, where they are known.
    pub flags: Option<VmFlags>,
    /// What the kernel says, where it was asked.
    pub inside: Option<Inside>,
    /// What of it is in memory, where that was asked for.
    pub resident: Option<Resident>,
}

impl Seen {
    /// A mapping of which nothing else is known.
    pub fn plain(mapping: Mapping) -> Seen {
        Seen {
            mapping,
            flags: None,
            inside: None,
            resident: None,
        }
    }

    /// A mapping of `smaps`.
    fn of_smaps(entry: SmapsEntry) -> Seen {
        let anonymous = entry.anonymous_kib.saturating_add(entry.swap_kib);
        let flags = maps::flags_of(&entry.flags) | VmFlags::from_pkey(entry.protection_key);
        Seen {
            flags: (!entry.flags.is_empty()).then_some(flags),
            inside: None,
            resident: Some(Resident {
                rss: entry.rss_kib.saturating_mul(1024),
                anonymous: anonymous.saturating_mul(1024),
            }),
            mapping: entry.mapping,
        }
    }
}

/// Where the mappings were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel's own view.
    Kernel,
    /// `/proc/PID/maps`, or a copy of it.
    Maps,
    /// `/proc/PID/smaps`, or a copy of it.
    Smaps,
    /// A recording, replayed.
    Replay,
}

/// All that is looked at.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The process, where there is one.
    pub pid: Option<i32>,
    /// What people call it.
    pub name: String,
    /// How it was seen.
    pub source: Source,
    /// The rules of the kernel that it runs on.
    pub policy: Policy,
    /// How many mappings it may have.
    pub limit: u64,
    /// Its mappings by address, `[vsyscall]` left out: it is none that counts.
    pub seen: Vec<Seen>,
    /// How many there are, also where only a part is looked at.
    pub total: u64,
    /// Lines of the list that were left out for that.
    pub not_counted: u64,
    /// Mappings that changed while they were read.
    pub changed: u64,
    /// Private bytes of the whole process, where they are known.
    pub anonymous_bytes: Option<u64>,
    /// Why the kernel was not asked, where it was to be.
    pub without_view: Option<String>,
}

/// Whether the kernel is asked for its own view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AskKernel {
    /// Where it is permitted.
    #[default]
    Try,
    /// Not at all.
    Never,
}

/// Whether `smaps` is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AskResident {
    /// No: it takes seconds for a big process, and holds its lock.
    #[default]
    Never,
    /// Yes.
    Read,
}

/// Why nothing can be said.
#[derive(Debug)]
pub enum SubjectError {
    /// There is no such process.
    NoProcess(i32),
    /// It may not be looked into.
    Forbidden(i32),
    /// It ended while it was looked at.
    Ended(i32),
    /// It has no mappings.
    KernelThread(i32),
    /// The list cannot be read.
    Unreadable(i32, io::Error),
    /// The text is no list of mappings.
    Text(String),
    /// The text holds none.
    Empty,
}

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubjectError::NoProcess(pid) => write!(
                f,
                "there is no process {pid} (inside of a container it has another number: see \
                 NSpid in /proc/*/status)"
            ),
            SubjectError::Forbidden(pid) => write!(
                f,
                "no permission to look into process {pid}: run as its user, or with CAP_SYS_PTRACE"
            ),
            SubjectError::Ended(pid) => write!(f, "process {pid} has ended"),
            SubjectError::KernelThread(pid) => {
                write!(f, "process {pid} is a kernel thread: it has no mappings")
            }
            SubjectError::Unreadable(pid, cause) => {
                write!(f, "reading the mappings of process {pid}: {cause}")
            }
            SubjectError::Text(what) => write!(
                f,
                "{what}; a copy of /proc/PID/maps or /proc/PID/smaps is needed"
            ),
            SubjectError::Empty => write!(f, "there is no mapping in it"),
        }
    }
}

impl std::error::Error for SubjectError {}

impl Subject {
    /// Looks at process `pid`.
    ///
    /// # Errors
    /// All but [`SubjectError::Text`] and [`SubjectError::Empty`].
    pub fn of_process(
        pid: i32,
        kernel: AskKernel,
        resident: AskResident,
    ) -> Result<Subject, SubjectError> {
        let facts = processes::facts(pid).map_err(|_| SubjectError::NoProcess(pid))?;
        if facts.has_ended() {
            return Err(SubjectError::Ended(pid));
        }
        let view = match kernel {
            AskKernel::Never => Err(None),
            // The kernel would be asked about another process.
            AskKernel::Try if !processes::numbers_are_ours() => {
                Err(Some("/proc is that of another pid namespace".to_owned()))
            }
            AskKernel::Try => KernelView::open().map_err(|error| Some(error.to_string())),
        };
        let mut subject = Subject {
            pid: Some(pid),
            name: facts.name.clone(),
            source: match resident {
                AskResident::Never => Source::Maps,
                AskResident::Read => Source::Smaps,
            },
            policy: processes::kernel_version().map_or(Policy::LINUX, Policy::for_kernel),
            limit: processes::max_map_count(),
            seen: Vec::new(),
            total: 0,
            not_counted: 0,
            changed: 0,
            anonymous_bytes: facts.anonymous_bytes,
            without_view: None,
        };
        match view {
            Ok(view) => subject.read_both(pid, &view, resident)?,
            Err(why) => {
                subject.without_view = why;
                subject.read_list(pid, resident)?;
            }
        }
        if subject.seen.is_empty() {
            return Err(without_mappings(pid));
        }
        Ok(subject)
    }

    /// Reads the list alone.
    fn read_list(&mut self, pid: i32, resident: AskResident) -> Result<(), SubjectError> {
        let seen = match resident {
            AskResident::Never => {
                let list = maps::read(pid).map_err(|error| of_io(pid, error))?;
                list.into_iter().map(Seen::plain).collect()
            }
            AskResident::Read => {
                let text = std::fs::read(format!("/proc/{pid}/smaps"));
                let text = text.map_err(|error| of_io(pid, error))?;
                let parsed = maps::parse_smaps(&text);
                let entries = parsed.map_err(|error| of_io(pid, error.into()))?;
                entries.into_iter().map(Seen::of_smaps).collect()
            }
        };
        self.take(seen);
        Ok(())
    }

    /// Reads list and view until they agree.
    fn read_both(
        &mut self,
        pid: i32,
        kernel: &KernelView,
        resident: AskResident,
    ) -> Result<(), SubjectError> {
        let mut view = View::default();
        for _ in 0..ATTEMPTS {
            self.read_list(pid, resident)?;
            match kernel.read(pid, &mut view) {
                Ok(()) => {}
                Err(ViewError::NoAddressSpace(_)) => {
                    return Err(without_mappings(pid));
                }
                Err(error) => {
                    self.without_view = Some(error.to_string());
                    return Ok(());
                }
            }
            self.changed = add_view(&mut self.seen, &view.vmas);
            if self.changed == 0 && self.seen.len() == view.vmas.len() {
                break;
            }
        }
        self.source = Source::Kernel;
        Ok(())
    }

    /// Looks at a copy of `maps` or `smaps`.
    ///
    /// # Errors
    /// [`SubjectError::Text`] and [`SubjectError::Empty`].
    pub fn of_text(name: String, text: &[u8]) -> Result<Subject, SubjectError> {
        let entries = maps::parse_smaps(&without_carriage_returns(text))
            .map_err(|error| SubjectError::Text(error.to_string()))?;
        let smaps = entries.iter().any(|entry| !entry.flags.is_empty());
        let resident = smaps || entries.iter().any(|entry| entry.rss_kib > 0);
        let mut seen: Vec<_> = entries.into_iter().map(Seen::of_smaps).collect();
        if !resident {
            seen.iter_mut().for_each(|seen| seen.resident = None);
        }
        let out_of_order = |pair: &[Seen]| pair[0].mapping.end > pair[1].mapping.start;
        if let Some(at) = seen.windows(2).position(out_of_order) {
            return Err(SubjectError::Text(format!(
                "mapping {} does not lie above the one before it: is this two lists in one?",
                at + 2
            )));
        }
        let mut subject = Subject {
            pid: None,
            name,
            source: if smaps { Source::Smaps } else { Source::Maps },
            policy: Policy::LINUX,
            limit: processes::DEFAULT_MAX_MAP_COUNT,
            seen: Vec::new(),
            total: 0,
            not_counted: 0,
            changed: 0,
            anonymous_bytes: None,
            without_view: None,
        };
        subject.take(seen);
        if subject.seen.is_empty() {
            return Err(SubjectError::Empty);
        }
        Ok(subject)
    }

    /// Takes over a list, without what does not count.
    fn take(&mut self, mut seen: Vec<Seen>) {
        let all = seen.len();
        seen.retain(|seen| !is_vsyscall(&seen.mapping));
        self.not_counted = (all - seen.len()) as u64;
        self.total = seen.len() as u64;
        self.seen = seen;
    }

    /// Leaves only mappings that have a byte in `range`.
    pub fn narrow(&mut self, range: VmRange) {
        self.seen
            .retain(|seen| VmRange::new(seen.mapping.start, seen.mapping.end).overlaps(range));
    }
}

fn is_vsyscall(mapping: &Mapping) -> bool {
    matches!(&mapping.name, MapName::Special(name) if name == "[vsyscall]")
}

/// Adds to each mapping what the view says of the same range; gives how many it says nothing of.
fn add_view(seen: &mut [Seen], view: &[ViewVma]) -> u64 {
    let mut view = view.iter().peekable();
    let mut unknown = 0;
    for seen in seen {
        let range = (seen.mapping.start, seen.mapping.end);
        while view.next_if(|vma| vma.start < range.0).is_some() {}
        match view.next_if(|vma| (vma.start, vma.end) == range) {
            Some(vma) => {
                seen.flags = Some(VmFlags::from_bits_retain(vma.flags));
                seen.inside = Some(Inside::from(vma));
            }
            None => unknown += 1,
        }
    }
    unknown
}

fn of_io(pid: i32, error: io::Error) -> SubjectError {
    const ESRCH: i32 = 3;
    match error.kind() {
        io::ErrorKind::PermissionDenied => SubjectError::Forbidden(pid),
        // It was there a moment ago.
        io::ErrorKind::NotFound => SubjectError::Ended(pid),
        _ if error.raw_os_error() == Some(ESRCH) => SubjectError::Ended(pid),
        _ => SubjectError::Unreadable(pid, error),
    }
}

/// A thread of the kernel never had mappings; whoever else has none is on its way out.
fn without_mappings(pid: i32) -> SubjectError {
    match processes::stat(pid) {
        Ok(stat) if stat.of_kernel => SubjectError::KernelThread(pid),
        _ => SubjectError::Ended(pid),
    }
}

/// A copy may have come through another system's editor.
fn without_carriage_returns(text: &[u8]) -> Vec<u8> {
    let text = text.trim_ascii();
    let mut plain = Vec::with_capacity(text.len() + 1);
    for line in text.split(|&byte| byte == b'\n') {
        plain.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        plain.push(b'\n');
    }
    if text.is_empty() { Vec::new() } else { plain }
}
