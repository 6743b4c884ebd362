//! Conspicuous patterns in a list of mappings: leaks, and designs that need many mappings.
//!
//! Thousands of mappings of deleted files are a leak: such a file can no longer be mapped by name,
//! so the program has probably forgotten to unmap it. A file that never had a name (memfd, shared
//! anonymous memory) also appears as deleted; for such files, only thousands of different files are
//! a leak.

use serde::Serialize;
use std::collections::{HashMap, HashSet};
use vmarea_process::maps::MapName;
use vmarea_process::{Boundary, Mapping, Process, Reason};

/// Minimum number of mappings or files in a conspicuous pattern.
const MANY: u64 = 1_000;

/// Kind of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Mappings that the program apparently no longer needs.
    Leak,
    /// Thousands of mapped files that still exist, either because of a leak or by design.
    ManyFiles,
    /// One file mapped in thousands of pieces.
    OneFileInPieces,
    /// Most mappings have free space before them.
    Gaps,
}

/// A conspicuous pattern in a list of mappings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Kind of the finding.
    pub kind: Kind,
    /// Number of mappings that belong to the pattern.
    pub mappings: u64,
    /// Finding as a sentence.
    pub text: String,
}

/// Returns all findings, largest first.
pub fn findings(process: &Process, boundaries: &[Boundary]) -> Vec<Finding> {
    let mut found: Vec<_> = leaks(&process.mappings).into_iter().collect();
    if found.is_empty() {
        found.extend(many_files(&process.mappings));
        found.extend(one_file_in_pieces(&process.mappings));
    }
    found.extend(gaps(boundaries));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.mappings));
    found
}

/// True for a file that never had a name, so that its suffix ` (deleted)` means nothing.
fn is_nameless(name: &str) -> bool {
    const NAMELESS: [&str; 5] = ["/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]"];
    NAMELESS.iter().any(|prefix| name.starts_with(prefix))
}

#[derive(Default)]
struct Files {
    mappings: u64,
    inodes: HashSet<(u64, u64)>,
    folders: HashMap<String, u64>,
}

impl Files {
    fn add(&mut self, mapping: &Mapping) {
        self.mappings += 1;
        self.inodes.insert((mapping.entry.dev, mapping.entry.ino));
        let name = mapping.entry.name.text();
        let folder = match name.rfind('/') {
            Some(at) if !is_nameless(&name) => format!("{}/", &name[..at]),
            _ => name.trim_end_matches(" (deleted)").to_owned(),
        };
        *self.folders.entry(folder).or_default() += 1;
    }

    fn main_folder(&self) -> (&str, u64) {
        let most = self.folders.iter().max_by_key(|(name, n)| (**n, *name));
        most.map_or(("", 0), |(name, n)| (name.as_str(), *n))
    }
}

fn leaks(mappings: &[Mapping]) -> Option<Finding> {
    let (mut deleted, mut nameless) = (Files::default(), Files::default());
    for one in mappings
        .iter()
        .filter(|mapping| mapping.entry.name.is_deleted())
    {
        if is_nameless(&one.entry.name.text()) {
            nameless.add(one);
        } else {
            deleted.add(one);
        }
    }
    let (files, what) = if deleted.mappings >= MANY {
        (deleted, "deleted files")
    } else if nameless.inodes.len() as u64 >= MANY {
        (nameless, "different nameless shared memory files")
    } else {
        return None;
    };
    let (folder, there) = files.main_folder();
    Some(Finding {
        kind: Kind::Leak,
        mappings: files.mappings,
        text: format!(
            "a leak: {} mappings of {} {what}, {there} of them {}{folder}; the code that maps them \
             does not unmap them",
            files.mappings,
            files.inodes.len(),
            if folder.ends_with('/') { "in " } else { "" },
        ),
    })
}

fn many_files(mappings: &[Mapping]) -> Option<Finding> {
    let mut files = Files::default();
    let on_disk = mappings.iter().filter(|mapping| match &mapping.entry.name {
        MapName::Path(path) => !is_nameless(&path.to_string_lossy()),
        _ => false,
    });
    on_disk.for_each(|mapping| files.add(mapping));
    let (folder, there) = files.main_folder();
    (files.inodes.len() as u64 >= MANY).then(|| Finding {
        kind: Kind::ManyFiles,
        mappings: files.mappings,
        text: format!(
            "{} different files are mapped, {there} mappings in {folder}: mappings of different files \
             never merge (a design, or files that are not unmapped)",
            files.inodes.len(),
        ),
    })
}

fn one_file_in_pieces(mappings: &[Mapping]) -> Option<Finding> {
    let mut by_inode: HashMap<(u64, u64), (u64, &Mapping)> = HashMap::new();
    let files = mappings.iter().filter(|mapping| mapping.entry.ino != 0);
    for one in files {
        let key = (one.entry.dev, one.entry.ino);
        by_inode.entry(key).or_insert((0, one)).0 += 1;
    }
    let (mappings, one) = by_inode
        .into_values()
        .max_by_key(|(n, one)| (*n, one.entry.ino))?;
    (mappings >= MANY).then(|| Finding {
        kind: Kind::OneFileInPieces,
        mappings,
        text: format!(
            "one file is mapped in {mappings} pieces, {}: pieces that are not contiguous in the \
             file never merge (normal for a heap on a memfd)",
            one.entry.name.text(),
        ),
    })
}

fn gaps(boundaries: &[Boundary]) -> Option<Finding> {
    let gaps = boundaries
        .iter()
        .filter(|b| b.reason == Reason::Gap)
        .count() as u64;
    (gaps >= MANY && gaps * 2 > boundaries.len() as u64).then(|| Finding {
        kind: Kind::Gaps,
        mappings: gaps,
        text: format!(
            "{gaps} mappings have free space before them and so cannot be merged; only the program \
             can place them next to each other, or unmap them"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: impl Iterator<Item = String>) -> Vec<Kind> {
        let text: String = lines.collect();
        let process = Process::from_text("text".to_owned(), text.as_bytes()).unwrap();
        let boundaries = process.boundaries();
        let found = findings(&process, &boundaries);
        found.iter().map(|finding| finding.kind).collect()
    }

    fn line(n: u64, ino: u64, offset: u64, name: &str) -> String {
        let start = 0x1000_0000 + n * 0x1000;
        format!(
            "{start:x}-{:x} r--s {offset:08x} 08:01 {ino} {name}\n",
            start + 0x1000
        )
    }

    #[test]
    fn deleted_files_are_a_leak_and_a_memfd_heap_is_none() {
        let deleted = |n| line(n, n + 1, 0, &format!("/tmp/x{n} (deleted)"));
        assert_eq!(found((0..1_500).map(deleted)), [Kind::Leak]);
        assert_eq!(found((0..900).map(deleted)), []);
        let heap = |n: u64| line(n, 7, (5_000 - n) << 12, "/memfd:java_heap (deleted)");
        assert_eq!(found((0..1_500).map(heap)), [Kind::OneFileInPieces]);
        let shared = |n| line(n, n + 1, 0, "/dev/zero (deleted)");
        assert_eq!(found((0..1_500).map(shared)), [Kind::Leak]);
    }

    #[test]
    fn files_that_are_there_may_be_a_design_and_gaps_are_named() {
        let files = |n| line(n, n + 1, 0, &format!("/var/index/{n}.idx"));
        assert_eq!(found((0..1_500).map(files)), [Kind::ManyFiles]);
        let alone = |n: u64| line(2 * n, 0, 0, "");
        assert_eq!(found((0..1_500).map(alone)), [Kind::Gaps]);
    }
}
