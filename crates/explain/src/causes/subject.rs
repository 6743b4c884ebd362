//! The process that is being diagnosed: its rows, and what is known about it besides.

use super::folder;
use crate::rows::MappingRow;
use std::collections::HashSet;
use std::sync::OnceLock;
use vmarea_process::evidence::{Evidence, FileKey};
use vmarea_process::{Mapping, Process};

/// A process with the evidence on which a diagnosis rests.
pub struct Subject<'a> {
    /// Rows that describe the mappings, ordered by address.
    pub rows: &'a [MappingRow],
    /// The mappings of these rows.
    pub mappings: &'a [Mapping],
    /// Number of threads, if known.
    pub threads: Option<u64>,
    /// Facts that are read when they are first needed.
    pub evidence: &'a Evidence,
    programs: OnceLock<HashSet<FileKey>>,
}

impl<'a> Subject<'a> {
    /// Creates a subject; `rows` are those of the process.
    pub fn new(process: &'a Process, rows: &'a [MappingRow], evidence: &'a Evidence) -> Self {
        Subject {
            rows,
            mappings: &process.mappings,
            threads: process.threads,
            evidence,
            programs: OnceLock::new(),
        }
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
        programs.contains(&(entry.dev, entry.ino)) || is_library(&self.rows[n].mapping)
    }

    /// True if the mapping is one of a data file on a disk.
    pub fn is_of_data_file(&self, n: usize) -> bool {
        const ELSEWHERE: [&str; 5] = ["/dev/", "/run/shm/", "/sys/", "/proc/", "/drm"];
        let name = &self.rows[n].mapping;
        self.rows[n].inode != 0
            && folder::is_path(name)
            && !ELSEWHERE.iter().any(|prefix| name.starts_with(prefix))
            && !self.is_of_program(n)
    }

    /// Returns the number of threads whose stack pointers are in mapping `n`.
    pub fn stack_pointers_in(&self, n: usize) -> usize {
        let entry = &self.mappings[n].entry;
        let pointers = self.evidence.stack_pointers();
        pointers.map_or(0, |pointers| pointers.within(entry.start, entry.end))
    }

    /// Returns the number of threads whose stack pointers are known.
    pub fn stack_pointers(&self) -> u64 {
        let pointers = self.evidence.stack_pointers();
        pointers.map_or(0, |pointers| pointers.all.len() as u64)
    }

    /// Returns true if a descriptor of the process leads to the file of mapping `n`; `None` if the
    /// descriptors are not known.
    pub fn is_held(&self, n: usize) -> Option<bool> {
        let entry = &self.mappings[n].entry;
        let open = self.evidence.open_files()?;
        Some(open.contains(&(entry.dev, entry.ino)))
    }

    /// Returns the name of the first mapping that has one of the forms.
    pub fn first_named(&self, globs: &[String]) -> Option<&'a str> {
        let is_one = |row: &&MappingRow| {
            globs
                .iter()
                .any(|glob| super::glob::fits(glob, &row.mapping))
        };
        let row = self.rows.iter().find(is_one)?;
        Some(&row.mapping)
    }
}

/// True for the path of a shared library: `.so` at the end, or followed by a version.
fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.trim_end_matches(" (deleted)").ends_with(".so") || name.contains(".so.")
}
