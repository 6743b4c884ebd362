//! The address space as text, from high addresses to low ones.

use super::{Anatomy, Kind, Part};
use crate::apart::Apart;
use std::io::{self, Write};
use vmarea_explain::rows::printable;
use vmarea_explain::text::count;

/// Width of the label column in characters.
const WORDS: usize = 43;
/// A part with more mappings than this says why they are apart; a shared library has up to five.
pub(super) const FEW: usize = 5;
/// Number of reasons that a part names.
const REASONS: usize = 2;

impl Anatomy {
    /// Writes the drawing; `size` formats a number of bytes.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_text(&self, out: &mut dyn Write, size: &dyn Fn(u64) -> String) -> io::Result<()> {
        writeln!(out, "{}\n", printable(&self.title))?;
        let mut above = Kind::Gap;
        for part in &self.parts {
            if part.kind == Kind::Gap {
                if above != Kind::Gap {
                    writeln!(out, "{:>16x} ┴", part.end)?;
                }
                writeln!(out, "{:>16} ┊ {} unmapped", "", size(part.size))?;
            } else {
                let corner = if above == Kind::Gap { '┬' } else { '┼' };
                writeln!(out, "{:>16x} {corner}", part.end)?;
                write_part(out, part, size)?;
            }
            above = part.kind;
        }
        let corner = if above == Kind::Gap { ' ' } else { '┴' };
        writeln!(out, "{:>16x} {corner}", 0)?;
        self.write_summary(out, size)?;
        for note in &self.notes {
            writeln!(out, "{}", printable(note))?;
        }
        Ok(())
    }
}

fn write_part(out: &mut dyn Write, part: &Part, size: &dyn Fn(u64) -> String) -> io::Result<()> {
    let what = part.label();
    let mappings = part.contents();
    let size = match part.kind {
        Kind::KernelSpace => String::new(),
        _ => size(part.size),
    };
    let line = format!("│ {what:<WORDS$} {size:>11}  {mappings}");
    writeln!(out, "{:>16} {}", "", line.trim_end())?;
    if !part.flags.is_empty() {
        let flags: Vec<_> = part.flags.iter().copied().collect();
        writeln!(out, "{:>16} │   flags: {}", "", flags.join(" "))?;
    }
    if part.mappings > FEW {
        writeln!(out, "{:>16} │   apart: {}", "", why(&part.apart))?;
    }
    for mark in &part.marks {
        let name = printable(&mark.name);
        writeln!(
            out,
            "{:>16} │ {:>14x} {name}: {}",
            "", mark.address, mark.what
        )?;
    }
    Ok(())
}

/// Lists the most frequent reasons with their counts.
pub(super) fn why(apart: &[Apart]) -> String {
    let named = apart.iter().take(REASONS);
    let mut all: Vec<_> = named
        .map(|apart| format!("{} {}", apart.reason, count(apart.boundaries)))
        .collect();
    if apart.len() > REASONS {
        all.push("...".to_owned());
    }
    all.join(", ")
}

impl Part {
    /// Returns the number of mappings, unless it is one, and their permissions.
    pub(super) fn contents(&self) -> String {
        let perms: Vec<_> = self.perms.iter().map(String::as_str).collect();
        match self.mappings {
            0 => String::new(),
            1 => perms.join(" "),
            n => format!("{} mappings: {}", count(n as u64), perms.join(" ")),
        }
    }

    /// Returns a label for the part: its description, its name, or both.
    pub(super) fn label(&self) -> String {
        let name = printable(&self.name);
        match self.kind {
            Kind::File | Kind::Shared if !name.is_empty() => name,
            Kind::Anonymous if !name.is_empty() => format!("anonymous memory {name}"),
            Kind::Anonymous if self.perms.iter().all(|perms| perms.starts_with("---")) => {
                "reserved: nothing may touch it".to_owned()
            }
            kind => kind.words().to_owned(),
        }
    }
}
