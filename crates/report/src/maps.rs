//! Mappings of a process: the `/proc` list, plus the kernel's own data if it can be read.
//!
//! The table shows page offsets, flag names and numbered anon_vmas. Two neighbouring mappings with
//! the same anon_vma number can merge if all other attributes match.

use super::flags;
use super::shown::Shown;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use vmarea_explain::rows::{Table, printable};
use vmarea_explain::text::count;
use vmarea_process::view::ViewVma;
use vmarea_process::{Mapping, Source};

/// Every mapping of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Maps {
    /// Version of this structure.
    pub schema: u32,
    /// Process ID, if there is one.
    pub pid: Option<i32>,
    /// Name of the program or the recorded command.
    pub name: String,
    /// The moment that is shown.
    pub when: String,
    /// Source of the mappings.
    pub source: Source,
    /// Reason why the kernel's own data is missing.
    pub without_view: Option<String>,
    /// Maximum number of mappings that the process may have.
    pub limit: u64,
    /// Number of mappings that changed during the read and lack the kernel's data.
    pub changed: u64,
    /// Mappings by address.
    pub mappings: Vec<MapsRow>,
}

/// A mapping.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MapsRow {
    /// Address of the first byte, hexadecimal.
    pub start: String,
    /// Address after the last byte, hexadecimal.
    pub end: String,
    /// Size in bytes.
    pub size: u64,
    /// Resident bytes, if requested.
    pub rss: Option<u64>,
    /// `rwxp` as in `/proc/PID/maps`.
    pub perm: String,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// The last column of `/proc/PID/maps`.
    pub mapping: String,
    /// Flags by name, if known.
    pub flags: Option<Vec<String>>,
    /// Fields from the kernel's own data.
    pub kernel: Option<Kernel>,
    #[serde(skip)]
    brief: Option<String>,
}

/// Fields of a mapping that only the kernel's own data contains.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kernel {
    /// `vm_pgoff`, pages, hexadecimal.
    pub pgoff: String,
    /// Number of the mapping's own anon_vma, counted from 1 in address order.
    pub anon_vma: Option<u64>,
    /// Number of the root of the mapping's own anon_vma.
    pub root: Option<u64>,
    /// True if the chain has at most one anon_vma.
    pub chain_singular: bool,
    /// `num_children` of the mapping's own anon_vma.
    pub num_children: Option<u64>,
    /// `num_active_vmas` of the mapping's own anon_vma.
    pub num_active_vmas: Option<u64>,
}

impl Maps {
    /// Creates the report for a process.
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
            limit: process.limit_or_default(),
            changed: process.changed,
            mappings: process
                .mappings
                .iter()
                .map(|mapping| row(mapping, &mut numbers))
                .collect(),
        }
    }

    /// Writes a table; `size` formats a number of bytes.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_text(&self, out: &mut dyn Write, size: &dyn Fn(u64) -> String) -> io::Result<()> {
        let whose = match self.pid {
            Some(pid) => format!("process {pid} ({}), {}", self.name, self.when),
            None => format!("{}, {}", self.name, self.when),
        };
        let (mappings, limit) = (count(self.mappings.len() as u64), count(self.limit));
        writeln!(
            out,
            "{}: {mappings} mappings, at most {limit}",
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

/// Formats an anon_vma as `A3`, or `A3 of A1` with another root; adds `+` if there are more links.
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
        perm: entry.perms.to_string(),
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
