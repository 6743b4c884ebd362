//! Rows that describe the mappings, and tables as text, CSV and Markdown.

use serde::Serialize;
use std::io::{self, Write};
use vmarea::vma::merge::Refusal;
use vmarea_process::mapping::Resident;
use vmarea_process::maps::letters_of;
use vmarea_process::{Boundary, Certainty, Mapping, Process};

/// A mapping, and the reason why it is separate from the mapping below it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MappingRow {
    /// Address of the first byte, hexadecimal.
    pub address: String,
    /// Size in bytes.
    pub size: u64,
    /// Resident bytes, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<u64>,
    /// Permissions as in `/proc/PID/maps`, for example `rwxp`; `?` for what the list does not show.
    pub perm: String,
    /// File offset in bytes; for anonymous mappings the page offset in bytes, if known.
    pub offset: u64,
    /// Inode number, or 0 if no file is mapped.
    pub inode: u64,
    /// Flags as the two-letter codes of `smaps`, if known.
    pub flags: Option<String>,
    /// The last column of `/proc/PID/maps`.
    pub mapping: String,
    /// Reason why the mapping is separate from the one below; `None` for the first mapping.
    pub reason: Option<&'static str>,
    /// Certainty of the reason.
    pub certainty: Option<Certainty>,
    /// All rules that may be the reason, by name, if the reason is only likely.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<&'static str>,
    /// Name of the remedy that would merge the mapping with the one below it.
    pub fix: Option<&'static str>,
}

/// Returns all rows of a process, ordered by address.
pub fn rows(process: &Process, boundaries: &[Boundary]) -> Vec<MappingRow> {
    let first = std::iter::once(None);
    let before = first.chain(boundaries.iter().map(Some));
    let all = process.mappings.iter().zip(before);
    all.map(|(mapping, before)| row(mapping, before)).collect()
}

fn row(mapping: &Mapping, before: Option<&Boundary>) -> MappingRow {
    let entry = &mapping.entry;
    let offset = mapping.kernel.map(|vma| vma.pgoff << 12);
    MappingRow {
        address: format!("{:012x}", entry.start),
        size: mapping.range().len_bytes(),
        rss: mapping.resident.map(|Resident { rss, .. }| rss),
        perm: mapping.perms(),
        offset: offset.unwrap_or(entry.offset),
        inode: entry.ino,
        flags: mapping.flags.map(letters_of),
        mapping: entry.name.text(),
        reason: before.map(|b| b.reason.name()),
        certainty: before.map(|b| b.certainty),
        candidates: before.map_or_else(Vec::new, |b| {
            b.candidates.iter().copied().map(Refusal::name).collect()
        }),
        fix: before.and_then(|b| b.remedy).map(|remedy| remedy.name()),
    }
}

/// Columns that are right-aligned.
const NUMBERS: [&str; 8] = [
    "SIZE",
    "RSS",
    "OFFSET",
    "INODE",
    "PID",
    "MAPPINGS",
    "OF LIMIT",
    "MERGEABLE",
];

/// A table to be written as text, CSV or Markdown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Column names.
    pub headings: Vec<&'static str>,
    /// Rows of cells. Each row has one cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Builds a table of the rows; `size` formats a number of bytes.
    pub fn of_rows(rows: &[MappingRow], size: &dyn Fn(u64) -> String) -> Table {
        let rss = rows.iter().any(|row| row.rss.is_some());
        let mut headings = vec![
            "ADDRESS", "SIZE", "PERM", "OFFSET", "INODE", "FLAGS", "MAPPING", "REASON", "FIX",
        ];
        if rss {
            headings.insert(2, "RSS");
        }
        let dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let cells = rows.iter().map(|row| {
            let likely = row.certainty == Some(Certainty::Likely);
            let mut reason = dash(row.reason);
            if likely {
                reason.push('?');
            }
            let mut cells = vec![
                row.address.clone(),
                size(row.size),
                row.perm.clone(),
                format!("{:08x}", row.offset),
                row.inode.to_string(),
                dash(row.flags.as_deref()),
                row.mapping.clone(),
                reason,
                dash(row.fix),
            ];
            if rss {
                cells.insert(2, size(row.rss.unwrap_or(0)));
            }
            cells
        });
        Table {
            rows: cells.collect(),
            headings,
        }
    }

    /// Writes the table in aligned columns, for a terminal.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut widths: Vec<_> = self.headings.iter().map(|h| h.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let headings = self.headings.iter().map(|h| (*h).to_owned()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, heading), width) in row.iter().zip(&self.headings).zip(&widths) {
                let cell = printable(cell);
                if NUMBERS.contains(heading) {
                    line += &format!("{cell:>width$} ");
                } else {
                    line += &format!("{cell:<width$} ");
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes the table as comma-separated values (RFC 4180), with a header line.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let headings: Vec<_> = self.headings.iter().map(|h| (*h).to_owned()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let cells: Vec<_> = row.iter().map(|cell| csv(cell)).collect();
            write!(out, "{}\r\n", cells.join(","))?;
        }
        Ok(())
    }

    /// Writes the table in Markdown.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "| {} |", self.headings.join(" | "))?;
        writeln!(out, "|{}", " --- |".repeat(self.headings.len()))?;
        for row in &self.rows {
            let cells: Vec<_> = row.iter().map(|cell| markdown(cell)).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

/// Replaces control characters with `?`.
///
/// Any user can choose the names of mappings, so escape sequences in them must not reach a
/// terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn csv(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

fn markdown(cell: &str) -> String {
    printable(cell).replace('\\', "\\\\").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_a_table() {
        let table = Table {
            headings: vec!["ADDRESS", "MAPPING"],
            rows: vec![vec!["1".to_owned(), "a,\"b|\x1b[31m".to_owned()]],
        };
        let write = |how: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            how(&mut out);
            String::from_utf8(out).unwrap()
        };
        let csv = write(&|out| table.write_csv(out).unwrap());
        assert_eq!(csv, "ADDRESS,MAPPING\r\n1,\"a,\"\"b|\x1b[31m\"\r\n");
        let markdown = write(&|out| table.write_markdown(out).unwrap());
        assert!(markdown.ends_with("| 1 | a,\"b\\|?[31m |\n"), "{markdown}");
        let text = write(&|out| table.write_text(out).unwrap());
        assert_eq!(text, "ADDRESS MAPPING\n1       a,\"b|?[31m\n");
    }
}
