//! The mappings of a process as it runs: `/proc` and the kernel's own view, read until they agree.
//!
//! A process that runs changes between the two readings. They are read again a few times; what
//! still differs then keeps only what `/proc` says. Deliberately absent: stopping the process.

use crate::mapping::Mapping;
use crate::maps;
use crate::view::{KernelView, View, ViewError, ViewVma};
use std::io;
use vmarea::types::VmFlags;

/// How often the list and the view are read until they agree.
const ATTEMPTS: usize = 4;

/// Where mappings were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel's own view.
    Kernel,
    /// `/proc/PID/maps`, or a copy of it.
    #[default]
    Maps,
    /// `/proc/PID/smaps`, or a copy of it.
    Smaps,
    /// A recording, replayed.
    Replay,
}

/// When `smaps` is read instead of `maps`: it takes seconds for a big process, and holds its
/// `mmap_lock` meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Smaps {
    /// Never.
    Never,
    /// Where the kernel's own view cannot be read: the flags are needed.
    WithoutView,
    /// Always: what is in memory is needed.
    Always,
}

/// The mappings of a process, by address, without `[vsyscall]`, which does not count as one.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    /// The mappings.
    pub list: Vec<Mapping>,
    /// Where they were seen.
    pub source: Source,
    /// Lines of the list that were left out.
    pub not_counted: u64,
    /// Mappings that changed while they were read, of which only the list is known.
    pub changed: u64,
    /// Why the kernel's own view was not read, where it was to be.
    pub without_view: Option<String>,
}

impl Mappings {
    /// Reads the mappings of process `pid`, with the kernel's own view where `kernel` is given.
    /// The list is empty for a process that has no address space.
    ///
    /// # Errors
    /// As [`maps::read`].
    pub fn read(pid: i32, kernel: Option<&KernelView>, smaps: Smaps) -> io::Result<Mappings> {
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
            match kernel.read(pid, &mut view) {
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

    /// Reads the list of process `pid` alone, whose owner knows that `madvise` and its kin gave none
    /// of its mappings a flag.
    ///
    /// # Errors
    /// As [`maps::read`].
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

    /// Takes a list, without what does not count.
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

/// Adds to each mapping what the view says of the same range; returns how many it does not have.
fn add_view(list: &mut [Mapping], view: &[ViewVma]) -> u64 {
    let mut view = view.iter().peekable();
    let mut missing = 0;
    for mapping in list {
        let (start, end) = (mapping.entry.start, mapping.entry.end);
        while view.next_if(|vma| vma.start < start).is_some() {}
        match view.next_if(|vma| (vma.start, vma.end) == (start, end)) {
            Some(vma) => {
                mapping.flags = Some(VmFlags::from_bits_retain(vma.flags));
                mapping.kernel = Some(*vma);
            }
            None => missing += 1,
        }
    }
    missing
}
