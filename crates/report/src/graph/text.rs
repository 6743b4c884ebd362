//! The graph as text: one table per family of anon_vmas, VMAs as rows, anon_vmas as columns.
//!
//! # Picture
//! ```text
//! family of A1                                   A1  A2
//!   parent  1000000000-1000008000 rw-p  ...      ●          its own
//!   child   1000000000-1000008000 rw-p  ...      ○   ●      an ancestor's, its own
//!   parent of it                                 -   A1
//! ```

use super::{AnonVma, Av, Graph, LeftOut, Links, Vma, counted, pages};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use vmarea_explain::rows::printable;

/// Symbol in a table cell for the VMA's own anon_vma.
const OWN: &str = "●";
const LINK: &str = "○";
const HIDDEN: &str = "?";
const NONE: &str = "·";

impl Graph {
    /// Writes the graph, with the numbers of elements that were left out.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_text(&self, out: &mut dyn Write, left_out: &LeftOut) -> io::Result<()> {
        let reached = self.reached();
        writeln!(
            out,
            "{}: {}, {}, {}",
            printable(&self.title),
            counted(self.processes.len(), "process", "processes"),
            counted(self.vma_count(), "VMA", "VMAs"),
            counted(reached.len(), "anon_vma", "anon_vmas"),
        )?;
        for (at, process) in self.processes.iter().enumerate() {
            let from = process.parent.map_or(String::new(), |parent| {
                format!(", forked from {}", printable(&self.processes[parent].name))
            });
            let name = printable(&process.name);
            writeln!(
                out,
                "  {}. {name}{from}: {}",
                at + 1,
                left_out.vmas_of(at, process.vmas.len())
            )?;
        }
        if let Some(text) = left_out.text() {
            writeln!(out, "{text}")?;
        }
        writeln!(out)?;
        self.write_legend(out)?;
        let lines = Lines::new(self);
        let mut vmas: BTreeMap<Option<Av>, Vec<(usize, &Vma)>> = BTreeMap::new();
        for (process, vma) in self.vmas() {
            vmas.entry(self.family(vma))
                .or_default()
                .push((process, vma));
        }
        for (root, anon_vmas) in self.families() {
            let of_family = vmas.get(&Some(root)).map_or(&[][..], Vec::as_slice);
            let shown: Vec<_> = anon_vmas
                .into_iter()
                .filter(|a| reached.contains(&a.id))
                .collect();
            if !shown.is_empty() {
                self.write_family(out, of_family, &shown, &lines)?;
            }
        }
        if let Some(without) = vmas.get(&None) {
            writeln!(out, "without an anon_vma")?;
            for (process, vma) in without {
                writeln!(out, "{}", lines.line(self, *process, vma).trim_end())?;
            }
            writeln!(out)?;
        }
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        Ok(())
    }

    /// Explains those signs that appear.
    fn write_legend(&self, out: &mut dyn Write) -> io::Result<()> {
        let has = self.signs();
        write!(out, "{OWN} its own anon_vma")?;
        if has.links {
            write!(out, "   {LINK} another in its chain")?;
        }
        write!(out, "   {NONE} none")?;
        if has.hidden {
            write!(out, "   {HIDDEN} not visible")?;
        }
        writeln!(out, "\n")
    }

    fn write_family(
        &self,
        out: &mut dyn Write,
        vmas: &[(usize, &Vma)],
        anon_vmas: &[&AnonVma],
        lines: &Lines,
    ) -> io::Result<()> {
        let width = lines.width;
        let longest = anon_vmas.iter().map(|a| a.id.to_string().len()).max();
        let column = longest.unwrap_or(0).max(3) + 2;
        let mut heading = format!("{:<width$}", format!("family of {}", anon_vmas[0].root));
        for anon_vma in anon_vmas {
            write!(heading, "{:<column$}", anon_vma.id).unwrap_or_default();
        }
        writeln!(out, "{}", heading.trim_end())?;
        for (process, vma) in vmas {
            let mut line = format!("{:<width$}", lines.line(self, *process, vma));
            for anon_vma in anon_vmas {
                line += &format!("{:<column$}", crossing(vma, anon_vma));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        let number = |n: Option<u64>| n.map_or(HIDDEN.to_owned(), |n| n.to_string());
        let parent = |a: &AnonVma| match a.parent {
            None => HIDDEN.to_owned(),
            Some(parent) if parent == a.id => "-".to_owned(),
            Some(parent) => parent.to_string(),
        };
        type Row<'a> = (&'a str, &'a dyn Fn(&AnonVma) -> String);
        let rows: [Row<'_>; 4] = [
            ("  parent", &parent),
            ("  root", &|a| a.root.to_string()),
            ("  num_children", &|a| number(a.num_children)),
            ("  num_active_vmas", &|a| number(a.num_active_vmas)),
        ];
        for (name, of) in rows {
            let mut line = format!("{name:<width$}");
            for anon_vma in anon_vmas {
                line += &format!("{:<column$}", of(anon_vma));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out)
    }

    /// Iterates over all VMAs, each with the index of its process.
    pub(super) fn vmas(&self) -> impl Iterator<Item = (usize, &Vma)> {
        let processes = self.processes.iter().enumerate();
        processes.flat_map(|(at, process)| process.vmas.iter().map(move |vma| (at, vma)))
    }
}

fn crossing(vma: &Vma, anon_vma: &AnonVma) -> &'static str {
    if vma.own == Some(anon_vma.id) {
        OWN
    } else if vma.chain.contains(&anon_vma.id) {
        LINK
    } else if vma.links == Links::Some {
        HIDDEN
    } else {
        NONE
    }
}

/// Column widths of the left part of the table.
struct Lines {
    process: usize,
    range: usize,
    pages: usize,
    pgoff: usize,
    width: usize,
}

impl Lines {
    fn new(graph: &Graph) -> Lines {
        let longest = |of: &dyn Fn(usize, &Vma) -> usize| {
            graph
                .vmas()
                .map(|(process, vma)| of(process, vma))
                .max()
                .unwrap_or(0)
        };
        let mut lines = Lines {
            process: longest(&|at, _| printable(&graph.processes[at].name).chars().count()),
            range: longest(&|_, vma| vma.range().len()),
            pages: longest(&|_, vma| pages(vma.pages()).len()),
            pgoff: longest(&|_, vma| format!("{:#x}", vma.pgoff).len()),
            width: 0,
        };
        lines.width = 2 + longest(&|at, vma| lines.line(graph, at, vma).chars().count());
        lines.width = lines.width.max("  num_active_vmas  ".len());
        lines
    }

    fn line(&self, graph: &Graph, process: usize, vma: &Vma) -> String {
        let name = printable(&graph.processes[process].name);
        format!(
            "  {name:<process$}  {:<range$} {}  {:>pages$}  pgoff {:<pgoff$}  {}",
            vma.range(),
            vma.letters(),
            pages(vma.pages()),
            format!("{:#x}", vma.pgoff),
            printable(&vma.name),
            process = self.process,
            range = self.range,
            pages = self.pages,
            pgoff = self.pgoff,
        )
    }
}
