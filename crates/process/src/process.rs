//! Model of a process at one point in time: mappings, mapping limit, and the kernel's merge rules.
//!
//! The model has one of four sources: a running process with or without the kernel view, a pasted
//! list of mappings, or a point in a replay (for which `explain` and `report` create the model).
//! Boundaries are explained in [`crate::boundary`], and remedies are chosen in [`crate::remedy`].

use crate::boundary::{Boundary, boundaries};
use crate::mapping::Mapping;
use crate::mappings::{Mappings, Smaps, Source};
use crate::pasted::{self, FailedCall, Format, Listed, Pasted};
use crate::rights::{self, Capability};
use crate::unseen::Unseen;
use crate::view::KernelView;
use crate::{kernel, maps, processes};
use std::fmt;
use std::io;
use vmarea_merge::policy::Policy;
use vmarea_merge::policy::kernel::KernelRules;
use vmarea_merge::types::VmRange;

/// A process, with all data that was read about it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Process ID; `None` for a pasted list or a recording.
    pub pid: Option<i32>,
    /// Name of the program or of the pasted file, or the command that was recorded.
    pub name: String,
    /// Source of the mappings.
    pub source: Source,
    /// Merge rules of the kernel on which the process runs.
    pub policy: Policy,
    /// What these rules rest on; `None` for a pasted list, which does not name its kernel.
    pub kernel: Option<KernelRules>,
    /// Maximum number of mappings per process (`vm.max_map_count`); `None` for a list that does not
    /// say what it was.
    pub limit: Option<u64>,
    /// Mappings by address, without `[vsyscall]`, which is not one of the process's VMAs.
    pub mappings: Vec<Mapping>,
    /// Number of mappings in the whole process, even after [`Process::narrow`].
    pub total: u64,
    /// Number of lines in the list that are not counted as mappings.
    pub not_counted: u64,
    /// Number of mappings that changed during the read; only their lines in the list are known.
    pub changed: u64,
    /// Private memory of the whole process in bytes, if known.
    pub anonymous_bytes: Option<u64>,
    /// Number of threads, if this is a running process or a recorded one.
    pub threads: Option<u64>,
    /// Reason why the kernel view was not read, although it was requested.
    pub without_view: Option<String>,
    /// Call that failed in the process, if the file with its list describes one.
    pub failed: Option<FailedCall>,
    /// What was left out of a file, as sentences without a full stop.
    pub notes: Vec<String>,
    /// True if mappings are, or may be, missing from the list, so that their number says nothing.
    pub incomplete: bool,
    /// Format of the file, if it shows less than a copy of `maps` does.
    pub format: Option<&'static Format>,
}

/// Whether to read the kernel view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AskKernel {
    /// Read the view if the kernel permits it.
    #[default]
    Try,
    /// Never read the view.
    Never,
}

/// Reason why a process cannot be read.
#[derive(Debug)]
pub enum ProcessError {
    /// There is no such process.
    NoProcess(i32),
    /// The caller has no permission to inspect the process.
    Forbidden(i32),
    /// The process exited during the read.
    Ended(i32),
    /// The process is a kernel thread, which has no mappings.
    KernelThread(i32),
    /// The list of mappings cannot be read.
    Unreadable(i32, io::Error),
    /// The text is not a list of mappings.
    Text(String),
    /// The file is known to have no list, or not one; a sentence that says what to send instead.
    Known(String),
    /// The text contains no mapping.
    Empty,
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessError::NoProcess(pid) => write!(
                f,
                "there is no process {pid} (inside of a container it has another number: see \
                 NSpid in /proc/*/status)"
            ),
            ProcessError::Forbidden(pid) => write!(
                f,
                "no permission to look into process {pid}: needs CAP_SYS_PTRACE ({}), or to run as its user",
                rights::remedy(&[Capability::SysPtrace])
            ),
            ProcessError::Ended(pid) => write!(f, "process {pid} has ended"),
            ProcessError::KernelThread(pid) => {
                write!(f, "process {pid} is a kernel thread: it has no mappings")
            }
            ProcessError::Unreadable(pid, cause) => {
                write!(f, "cannot read the mappings of process {pid}: {cause}")
            }
            ProcessError::Known(what) => f.write_str(what),
            ProcessError::Text(what) => write!(
                f,
                "{what}; a copy of /proc/PID/maps is needed, or one of the formats that \
                 docs/explain.md lists"
            ),
            ProcessError::Empty => write!(f, "there is no mapping in it"),
        }
    }
}

impl std::error::Error for ProcessError {}

impl Process {
    /// Reads process `pid`.
    ///
    /// # Errors
    /// Any error except [`ProcessError::Text`] and [`ProcessError::Empty`].
    pub fn live(pid: i32, kernel: AskKernel, smaps: Smaps) -> Result<Process, ProcessError> {
        let mut facts = processes::facts(pid).map_err(|_| ProcessError::NoProcess(pid))?;
        if facts.has_ended() {
            // Other threads may run on.
            let other = processes::other_thread(pid).ok_or(ProcessError::Ended(pid))?;
            facts.anonymous_bytes =
                processes::facts(other).map_or(None, |facts| facts.anonymous_bytes);
        }
        let view = match kernel {
            AskKernel::Never => Err(None),
            // The iterator would read another process, which has the same id in this process's pid
            // namespace.
            AskKernel::Try if !processes::numbers_are_ours() => {
                Err(Some("/proc is that of another pid namespace".to_owned()))
            }
            AskKernel::Try => KernelView::open().map_err(|error| Some(error.to_string())),
        };
        let mut mappings =
            Mappings::read(pid, view.as_ref().ok(), smaps).map_err(|error| of_io(pid, error))?;
        if mappings.list.is_empty() {
            return Err(without_mappings(pid));
        }
        if let Err(why) = view {
            mappings.without_view = why;
        }
        Ok(Process {
            pid: Some(pid),
            limit: Some(processes::max_map_count()),
            anonymous_bytes: facts.anonymous_bytes,
            threads: Some(facts.threads),
            ..Process::of(facts.name, mappings).under(kernel::rules())
        })
    }

    /// Parses a copy of `maps` or `smaps`, or a file that contains a list of mappings ([`pasted`]).
    ///
    /// # Errors
    /// [`ProcessError::Text`] and [`ProcessError::Empty`].
    pub fn from_text(name: String, text: &[u8]) -> Result<Process, ProcessError> {
        Process::from_pasted(name, pasted::find(text).map_err(ProcessError::Known)?)
    }

    /// Creates the model from a list that was found in a file.
    ///
    /// # Errors
    /// [`ProcessError::Text`] and [`ProcessError::Empty`].
    pub fn from_pasted(name: String, pasted: Pasted<'_>) -> Result<Process, ProcessError> {
        let entries = match pasted.list {
            Listed::Text(text) => {
                maps::parse_smaps(&text).map_err(|error| ProcessError::Text(error.to_string()))?
            }
            Listed::Entries(entries) => entries,
        };
        let smaps = entries.iter().any(|entry| !entry.flags.is_empty());
        let resident = smaps || entries.iter().any(|entry| entry.rss_kib > 0);
        let mut list: Vec<_> = entries.into_iter().map(Mapping::from).collect();
        let unseen = pasted
            .format
            .map_or(Unseen::empty(), |format| format.unseen);
        for mapping in &mut list {
            mapping.unseen = unseen;
            if !resident {
                mapping.resident = None;
            }
        }
        for (at, more) in pasted.marks {
            if let Some(mapping) = list.get_mut(at) {
                mapping.unseen |= more;
            }
        }
        let out_of_order = |pair: &[Mapping]| pair[0].entry.end > pair[1].entry.start;
        if let Some(at) = list.windows(2).position(out_of_order) {
            return Err(ProcessError::Known(format!(
                "mapping {} ({:x}) is not above the one before it: does the text contain two lists? \
                 Keep one of them",
                at + 2,
                list[at + 1].entry.start
            )));
        }
        let source = if smaps { Source::Smaps } else { Source::Maps };
        let process = Process {
            limit: pasted.limit,
            failed: pasted.failed,
            notes: pasted.notes,
            incomplete: pasted.incomplete,
            format: pasted.format,
            ..Process::of(name, Mappings::new(list, source))
        };
        if process.mappings.is_empty() {
            return Err(ProcessError::Empty);
        }
        Ok(process)
    }

    /// Returns the limit, or Linux's default if it is not known, for a picture that needs one.
    pub fn limit_or_default(&self) -> u64 {
        self.limit.unwrap_or(processes::DEFAULT_MAX_MAP_COUNT)
    }

    /// Creates a process model from `mappings` without reading further data.
    pub fn of(name: String, mappings: Mappings) -> Process {
        Process {
            pid: None,
            name,
            source: mappings.source,
            policy: Policy::LINUX,
            kernel: None,
            limit: None,
            total: mappings.list.len() as u64,
            mappings: mappings.list,
            not_counted: mappings.not_counted,
            changed: mappings.changed,
            anonymous_bytes: None,
            threads: None,
            without_view: mappings.without_view,
            failed: None,
            notes: Vec::new(),
            incomplete: false,
            format: None,
        }
    }

    /// Sets the rules to those of the kernel on which the process runs, or ran when it was recorded. If
    /// they are not verified, a note says so.
    pub fn under(mut self, kernel: &KernelRules) -> Process {
        self.policy = kernel.policy;
        self.notes.extend(kernel.remark());
        self.kernel = Some(kernel.clone());
        self
    }

    /// Returns all boundaries between the mappings, ordered by address. A reason that depends on a
    /// rule which is neither verified for the kernel nor probed is only likely.
    pub fn boundaries(&self) -> Vec<Boundary> {
        let mut all = boundaries(&self.policy, &self.mappings);
        if let Some(kernel) = self.kernel.as_ref().filter(|kernel| !kernel.are_verified()) {
            for boundary in &mut all {
                boundary.doubt(kernel);
            }
        }
        all
    }

    /// Keeps only the mappings that overlap `range`.
    pub fn narrow(&mut self, range: VmRange) {
        self.mappings
            .retain(|mapping| mapping.range().overlaps(range));
    }
}

fn of_io(pid: i32, error: io::Error) -> ProcessError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ProcessError::Forbidden(pid),
        // The process existed a moment ago.
        io::ErrorKind::NotFound => ProcessError::Ended(pid),
        _ if error.raw_os_error() == Some(libc::ESRCH) => ProcessError::Ended(pid),
        _ => ProcessError::Unreadable(pid, error),
    }
}

/// Returns the error for a process without mappings: a kernel thread, or a process that is exiting.
fn without_mappings(pid: i32) -> ProcessError {
    match processes::stat(pid) {
        Ok(stat) if stat.is_of_kernel() => ProcessError::KernelThread(pid),
        _ => ProcessError::Ended(pid),
    }
}
