//! Mappings of a running process, from `/proc` and the kernel view, read until the two agree.
//!
//! A running process may change between the read of `/proc` and that of the kernel view. Both reads
//! are repeated up to a limit; a mapping that still differs after the last attempt has only the
//! data from `/proc`. The process is deliberately not stopped.

use crate::mapping::Mapping;
use crate::maps;
use crate::processes;
use crate::view::{KernelView, View, ViewError, ViewVma};
use std::io;

/// Maximum number of attempts to read a list and a kernel view that agree.
const ATTEMPTS: usize = 4;

/// Source of the mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel view ([`crate::view`]).
    Kernel,
    /// `/proc/PID/maps`, or a copy of it.
    #[default]
    Maps,
    /// `/proc/PID/smaps`, or a copy of it.
    Smaps,
    /// A replayed recording.
    Replay,
}

impl Source {
    /// True if anon_vmas are hidden, which decide what merges.
    pub fn hides_anon_vmas(self) -> bool {
        matches!(self, Source::Maps | Source::Smaps)
    }
}

/// When to read `smaps` instead of `maps`.
///
/// Reading `smaps` takes seconds for a large process and holds its `mmap_lock` during the whole
/// read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Smaps {
    /// Never read `smaps`.
    Never,
    /// Read `smaps` if the kernel view cannot be read, because the flags are needed.
    WithoutView,
    /// Always read `smaps`, because resident memory is needed.
    Always,
}

/// Mappings of a process, ordered by address, without `[vsyscall]`, which is not one of its VMAs.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    /// The mappings.
    pub list: Vec<Mapping>,
    /// Source of the mappings.
    pub source: Source,
    /// Number of lines removed from the list because they are not VMAs of the process.
    pub not_counted: u64,
    /// Number of mappings that changed during the read; only their lines in the list are known.
    pub changed: u64,
    /// Reason why the kernel view was not read, although it was requested.
    pub without_view: Option<String>,
}

impl Mappings {
    /// Reads the mappings of process `pid`, including the kernel view if `kernel` is `Some`.
    ///
    /// The list is empty for a process that has no address space.
    ///
    /// # Errors
    /// Same as [`maps::read`].
    pub fn read(pid: i32, kernel: Option<&KernelView>, smaps: Smaps) -> io::Result<Mappings> {
        let mappings = Mappings::read_by(pid, KernelView::read, kernel, smaps)?;
        if !mappings.list.is_empty() {
            return Ok(mappings);
        }
        match processes::other_thread(pid) {
            Some(thread) => Mappings::read_by(thread, KernelView::read_thread, kernel, smaps),
            None => Ok(mappings),
        }
    }

    /// Reads the mappings of a process or thread, and the kernel view by `read`.
    fn read_by(
        pid: i32,
        read: fn(&KernelView, i32, &mut View) -> Result<(), ViewError>,
        kernel: Option<&KernelView>,
        smaps: Smaps,
    ) -> io::Result<Mappings> {
        let Some(kernel) = kernel else {
            return match smaps {
                Smaps::Never => Mappings::of_maps(pid),
                Smaps::WithoutView | Smaps::Always => Mappings::of_smaps(pid),
            };
        };
        let mut view = View::default();
        let mut attempt = 1;
        loop {
            let mut mappings = match smaps {
                Smaps::Always => Mappings::of_smaps(pid)?,
                Smaps::Never | Smaps::WithoutView => Mappings::of_maps(pid)?,
            };
            match read(kernel, pid, &mut view) {
                Ok(()) => {}
                Err(ViewError::NoAddressSpace(_)) => return Ok(Mappings::default()),
                Err(error) => {
                    if smaps == Smaps::WithoutView {
                        mappings = Mappings::of_smaps(pid)?;
                    }
                    mappings.without_view = Some(error.to_string());
                    return Ok(mappings);
                }
            }
            mappings.source = Source::Kernel;
            mappings.changed = add_view(&mut mappings.list, &view.vmas);
            let agree = mappings.changed == 0 && mappings.list.len() == view.vmas.len();
            if agree || attempt == ATTEMPTS {
                return Ok(mappings);
            }
            attempt += 1;
        }
    }

    /// Reads only `/proc/PID/maps`, and assumes that every mapping has its default flags.
    ///
    /// The caller guarantees that no `madvise` or similar call has set a flag on any of the
    /// mappings.
    ///
    /// # Errors
    /// Same as [`maps::read`].
    pub fn without_advice(pid: i32) -> io::Result<Mappings> {
        let list = maps::read(pid)?.into_iter().map(Mapping::without_advice);
        Ok(Mappings::new(list.collect(), Source::Maps))
    }

    fn of_maps(pid: i32) -> io::Result<Mappings> {
        let list = maps::read(pid)?.into_iter().map(Mapping::from);
        Ok(Mappings::new(list.collect(), Source::Maps))
    }

    fn of_smaps(pid: i32) -> io::Result<Mappings> {
        let text = std::fs::read(format!("/proc/{pid}/smaps"))?;
        let list = maps::parse_smaps(&text)?.into_iter().map(Mapping::from);
        Ok(Mappings::new(list.collect(), Source::Smaps))
    }

    /// Creates `Mappings` from a list, without `[vsyscall]`.
    pub(crate) fn new(mut list: Vec<Mapping>, source: Source) -> Mappings {
        let all = list.len();
        list.retain(|mapping| !mapping.entry.is_vsyscall());
        Mappings {
            not_counted: (all - list.len()) as u64,
            list,
            source,
            ..Mappings::default()
        }
    }
}

/// Adds to each mapping the VMA with the same range; returns how many mappings have no such VMA.
fn add_view(list: &mut [Mapping], view: &[ViewVma]) -> u64 {
    let mut view = view.iter().peekable();
    let mut missing = 0;
    for mapping in list {
        let (start, end) = (mapping.entry.start, mapping.entry.end);
        while view.next_if(|vma| vma.start < start).is_some() {}
        match view.next_if(|vma| (vma.start, vma.end) == (start, end)) {
            Some(vma) => {
                mapping.flags = Some(maps::flags_of_kernel(vma.flags));
                mapping.kernel = Some(*vma);
            }
            None => missing += 1,
        }
    }
    missing
}
