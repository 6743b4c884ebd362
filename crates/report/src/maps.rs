//! The mappings of a process: what `/proc` lists and, where it can be read, what the kernel knows
//! besides.
//!
//! Page offsets, flags by name, and anon_vmas by numbers: two mappings with the same number can
//! become one, if all else is equal.

use super::flags;
use super::shown::Shown;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use vmarea_explain::detail;
use vmarea_explain::rows::{Table, printable};
use vmarea_process::view::ViewVma;
use vmarea_process::{Mapping, Source};

/// Every mapping of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Maps {
    /// Version of this structure.
    pub schema: u32,
    /// The process, where there is one.
    pub pid: Option<i32>,
    /// What people call it.
    pub name: String,
    /// Which moment this is.
    pub when: String,
    /// How it was seen.
    pub source: Source,
    /// Why the kernel's own view is not there.
    pub without_view: Option<String>,
    /// How many mappings it may have.
    pub limit: u64,
    /// Mappings that changed while they were read, and of which the kernel's part is missing.
    pub changed: u64,
    /// By address.
    pub mappings: Vec<MapsRow>,
}

/// A mapping.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MapsRow {
    /// First byte, hexadecimal.
    pub start: String,
    /// First byte after it, hexadecimal.
    pub end: String,
    /// Bytes.
    pub size: u64,
    /// Bytes in memory, where that was asked for.
    pub rss: Option<u64>,
    /// `rwxp` as in `/proc/PID/maps`.
    pub perm: String,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// The last column of `/proc/PID/maps`.
    pub mapping: String,
    /// Flags by name, where they are known.
    pub flags: Option<Vec<String>>,
    /// What only the kernel knows.
    pub kernel: Option<Kernel>,
    #[serde(skip)]
    brief: Option<String>,
}

/// What only the kernel knows of a mapping.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Kernel {
    /// `vm_pgoff`, pages, hexadecimal.
    pub pgoff: String,
    /// Its own anon_vma: numbers from 1 in the order of addresses.
    pub anon_vma: Option<u64>,
    /// The number of the root of that.
    pub root: Option<u64>,
    /// It hangs on one anon_vma at the most.
    pub chain_singular: bool,
    /// `num_children` of its anon_vma.
    pub num_children: Option<u64>,
    /// `num_active_vmas` of its anon_vma.
    pub num_active_vmas: Option<u64>,
}

impl Maps {
    /// Of a process.
    pub fn new(shown: &Shown) -> Maps {
        let process = &shown.process;
        let mut numbers = Numbers::default();
        Maps {
            schema: 1,
            pid: process.pid,
            name: process.name.clone(),
            when: shown.when.clone(),
            source: process.source,
            without_view: process.without_view.clone(),
            limit: process.limit,
            changed: process.changed,
            mappings: process
                .mappings
                .iter()
                .map(|mapping| row(mapping, &mut numbers))
                .collect(),
        }
    }

    /// Writes a table; `size` prints a number of bytes.
    ///
    /// # Errors
    /// Where `out` takes no more.
    pub fn write_text(&self, out: &mut dyn Write, size: &dyn Fn(u64) -> String) -> io::Result<()> {
        let whose = match self.pid {
            Some(pid) => format!("process {pid} ({}), {}", self.name, self.when),
            None => format!("{}, {}", self.name, self.when),
        };
        let (mappings, limit) = (self.mappings.len(), self.limit);
        writeln!(
            out,
            "{}: {mappings} mappings of at most {limit}",
            printable(&whose)
        )?;
        self.table(size).write_text(out)?;
        if let Some(why) = &self.without_view {
            writeln!(
                out,
                "page offsets, flags and anon_vmas are not visible: {why}"
            )?;
        }
        if self.changed > 0 {
            writeln!(
                out,
                "{} mappings changed while they were read",
                self.changed
            )?;
        }
        Ok(())
    }

    fn table(&self, size: &dyn Fn(u64) -> String) -> Table {
        let rss = self.mappings.iter().any(|row| row.rss.is_some());
        let mut headings = vec![
            "START", "END", "SIZE", "PERM", "PGOFF", "ANON_VMA", "FLAGS", "MAPPING",
        ];
        if rss {
            headings.insert(3, "RSS");
        }
        let rows = self.mappings.iter().map(|row| {
            let kernel = row.kernel.as_ref();
            let mut cells = vec![
                row.start.clone(),
                row.end.clone(),
                size(row.size),
                row.perm.clone(),
                kernel.map_or("?".to_owned(), |kernel| kernel.pgoff.clone()),
                kernel.map_or("?".to_owned(), anon_vma),
                row.brief.clone().unwrap_or("?".to_owned()),
                row.mapping.clone(),
            ];
            if rss {
                cells.insert(3, size(row.rss.unwrap_or(0)));
            }
            cells
        });
        Table {
            rows: rows.collect(),
            headings,
        }
    }
}

/// `A3`, with the root where that is another, and `+` where the chain has more.
fn anon_vma(kernel: &Kernel) -> String {
    let more = if kernel.chain_singular { "" } else { "+" };
    match (kernel.anon_vma, kernel.root) {
        (None, _) => "-".to_owned(),
        (Some(own), Some(root)) if root != own => format!("A{own} of A{root}{more}"),
        (Some(own), _) => format!("A{own}{more}"),
    }
}

#[derive(Default)]
struct Numbers(BTreeMap<u64, u64>);

impl Numbers {
    fn number(&mut self, id: u64) -> Option<u64> {
        let next = self.0.len() as u64 + 1;
        (id != 0).then(|| *self.0.entry(id).or_insert(next))
    }
}

fn row(mapping: &Mapping, numbers: &mut Numbers) -> MapsRow {
    let entry = &mapping.entry;
    MapsRow {
        start: format!("{:012x}", entry.start),
        end: format!("{:012x}", entry.end),
        size: mapping.range().len_bytes(),
        rss: mapping.resident.map(|resident| resident.rss),
        perm: detail::letters(entry.perms),
        offset: entry.offset,
        mapping: entry.name.text(),
        flags: mapping.flags.map(flags::names),
        kernel: mapping.kernel.as_ref().map(|vma| kernel(vma, numbers)),
        brief: mapping.flags.map(flags::brief),
    }
}

fn kernel(vma: &ViewVma, numbers: &mut Numbers) -> Kernel {
    Kernel {
        pgoff: format!("{:x}", vma.pgoff),
        anon_vma: numbers.number(vma.anon_vma),
        root: numbers.number(vma.root),
        chain_singular: vma.chain_singular,
        num_children: vma.num_children,
        num_active_vmas: vma.num_active_vmas,
    }
}
