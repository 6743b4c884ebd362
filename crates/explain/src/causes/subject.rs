//! The process that is being diagnosed: its mappings, and what is known about it besides.

use super::{folder, glob};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::OnceLock;
use vmarea_process::evidence::{Evidence, FileKey};
use vmarea_process::{Boundary, Mapping, Process, Reason};
use vmarea_trace::event::Perms;

/// A process with the evidence on which a diagnosis rests.
pub struct Subject<'a> {
    /// Mappings, ordered by address.
    pub mappings: &'a [Mapping],
    boundaries: &'a [Boundary],
    /// Number of threads, if known.
    pub threads: Option<u64>,
    /// Facts that are read when they are first needed.
    pub evidence: &'a Evidence,
    programs: OnceLock<HashSet<FileKey>>,
    names: OnceLock<BTreeSet<Cow<'a, str>>>,
    counts: HashMap<Perms, usize>,
}

impl<'a> Subject<'a> {
    /// Creates a subject; `boundaries` are those of the process.
    pub fn new(process: &'a Process, boundaries: &'a [Boundary], evidence: &'a Evidence) -> Self {
        let mut counts = HashMap::new();
        for mapping in &process.mappings {
            *counts.entry(mapping.entry.perms).or_default() += 1;
        }
        Subject {
            counts,
            mappings: &process.mappings,
            boundaries,
            threads: process.threads,
            evidence,
            programs: OnceLock::new(),
            names: OnceLock::new(),
        }
    }

    /// Returns the number of mappings with any of these permissions.
    pub fn count(&self, perms: &[Perms]) -> usize {
        perms
            .iter()
            .filter_map(|perms| self.counts.get(perms))
            .sum()
    }

    /// Returns the last column of the list for mapping `n`; empty for anonymous memory.
    pub fn name(&self, n: usize) -> Cow<'a, str> {
        self.mappings[n].entry.name.as_text()
    }

    /// Returns the size of mapping `n` in bytes.
    pub fn size(&self, n: usize) -> u64 {
        self.mappings[n].range().len_bytes()
    }

    /// Returns the reason why mapping `n` is apart from the one below; `None` for the first one.
    pub fn reason(&self, n: usize) -> Option<Reason> {
        // Boundary n is between the mappings n and n + 1.
        Some(self.boundaries[n.checked_sub(1)?].reason)
    }

    /// True if the mapping is one of a program or a shared library, not of a data file.
    pub fn is_of_program(&self, n: usize) -> bool {
        let programs = self.programs.get_or_init(|| {
            let executable = self.mappings.iter().filter(|one| one.entry.perms.exec);
            executable
                .map(|one| (one.entry.dev, one.entry.ino))
                .collect()
        });
        let entry = &self.mappings[n].entry;
        programs.contains(&(entry.dev, entry.ino)) || is_library(&self.name(n))
    }

    /// True if the mapping is one of a data file on a disk.
    pub fn is_of_data_file(&self, n: usize) -> bool {
        const ELSEWHERE: [&str; 5] = ["/dev/", "/run/shm/", "/sys/", "/proc/", "/drm"];
        let name = self.name(n);
        self.mappings[n].entry.ino != 0
            && folder::is_path(&name)
            && !ELSEWHERE.iter().any(|prefix| name.starts_with(prefix))
            && !self.is_of_program(n)
    }

    /// Returns the number of threads whose stack pointers are in mapping `n`.
    pub fn stack_pointers_in(&self, n: usize) -> usize {
        let entry = &self.mappings[n].entry;
        let pointers = self.evidence.stack_pointers();
        pointers.map_or(0, |pointers| pointers.within(entry.start, entry.end))
    }

    /// Returns the first name, in alphabetical order, that has one of the forms.
    pub fn named(&self, globs: &[String]) -> Option<&str> {
        let names = self.names.get_or_init(|| {
            let all = self.mappings.iter().map(|one| one.entry.name.as_text());
            all.filter(|name| !name.is_empty()).collect()
        });
        let is_one = |name: &&Cow<'_, str>| globs.iter().any(|glob| glob::fits(glob, name));
        names.iter().find(is_one).map(AsRef::as_ref)
    }
}

/// True for the path of a shared library: `.so` at the end, or followed by a version.
fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.trim_end_matches(" (deleted)").ends_with(".so") || name.contains(".so.")
}
