//! The graph in the Graphviz language.
//!
//! Each family of anon_vmas is a cluster, in which the VMAs of each process are a cluster of their
//! own. `pack` makes Graphviz place the families one by one instead of all in one column. An
//! `anon_vma_chain` is an arrow from a VMA to an anon_vma, with a filled dot if the anon_vma is the
//! VMA's own. Arrows between anon_vmas point to the parent, and dashed ones to the root, unless it
//! is the parent. The output is plain text and does not require Graphviz.
//!
//! # Picture
//! ```text
//! ┌ family of A1 ────────────────────┐  ┌ family of A2 ─────┐
//! │ ┌ parent ─┐                      │  │ ┌ parent ─┐       │
//! │ │ VMA     │──● A1 ◀─┐            │  │ │ VMA     │──● A2 │
//! │ └─────────┘  ○      │ parent     │  │ └─────────┘       │
//! │ ┌ child ──┐  │      │            │  └───────────────────┘
//! │ │ VMA     │──┴───● A3            │
//! │ └─────────┘                      │
//! └──────────────────────────────────┘
//! ```

use super::{AnonVma, Av, Graph, LeftOut, Links, Vma, pages};
use std::collections::BTreeMap;
use std::io::{self, Write};
use vmarea_explain::rows::printable;

const STYLE: &str = r##"  rankdir=LR;
  labelloc=t;
  pack=16;
  packmode="array_ic";
  nodesep=0.12;
  ranksep=0.9;
  fontname="monospace";
  node [shape=box, style=filled, fillcolor="#fdf3e7", color="#b9770e", fontname="monospace", fontsize=10, margin="0.08,0.04"];
  edge [arrowsize=0.6];"##;
const FAMILY: &str = r##"labeljust=l; style=rounded; color="#b2babb";"##;
const PROCESS: &str =
    r##"fontsize=10; style="rounded,filled"; fillcolor="#f8f9fb"; color="#e3e6ea";"##;
const ANON_VMA: &str = r##"style="rounded,filled", fillcolor="#dbe9f6", color="#2471a3""##;
const OWN: &str = r##"arrowhead=dot, color="#c0392b", penwidth=1.4"##;
const LINK: &str = r##"arrowhead=odot, color="#d98880""##;
const WITHOUT: &str = r##"fillcolor="#f4f4f4", color="#999999""##;

/// The VMAs of a family by process, each with its index in the process.
type Members<'g> = BTreeMap<usize, Vec<(usize, &'g Vma)>>;

impl Graph {
    /// Writes the graph as a `digraph`, with a note about what was left out.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_dot(&self, out: &mut dyn Write, left_out: &LeftOut) -> io::Result<()> {
        writeln!(out, "digraph vmarea {{\n{STYLE}")?;
        let mut label = vec![self.title.clone()];
        label.extend(self.dot_legend());
        label.extend(left_out.text());
        label.extend(self.notes.iter().cloned());
        writeln!(out, "  label={};", quoted(&label.join("\n")))?;
        let mut families: BTreeMap<Option<Av>, Members<'_>> = BTreeMap::new();
        for (at, process) in self.processes.iter().enumerate() {
            for (index, vma) in process.vmas.iter().enumerate() {
                let members = families.entry(self.family(vma)).or_default();
                members.entry(at).or_default().push((index, vma));
            }
        }
        let reached = self.reached();
        for (root, mut anon_vmas) in self.families() {
            anon_vmas.retain(|anon_vma| reached.contains(&anon_vma.id));
            if !anon_vmas.is_empty() {
                let members = families.remove(&Some(root)).unwrap_or_default();
                self.write_family_cluster(out, root, &anon_vmas, &members)?;
            }
        }
        if let Some(without) = families.remove(&None) {
            writeln!(out, "  subgraph cluster_without {{")?;
            writeln!(out, "    label=\"without an anon_vma\"; {FAMILY}")?;
            self.write_members(out, "without", &without)?;
            writeln!(out, "  }}")?;
        }
        writeln!(out, "}}")
    }

    fn write_family_cluster(
        &self,
        out: &mut dyn Write,
        root: Av,
        anon_vmas: &[&AnonVma],
        members: &Members<'_>,
    ) -> io::Result<()> {
        writeln!(out, "  subgraph cluster_{root} {{")?;
        writeln!(out, "    label=\"family of {root}\"; {FAMILY}")?;
        self.write_members(out, &root.to_string(), members)?;
        for anon_vma in anon_vmas {
            write_anon_vma(out, anon_vma)?;
        }
        for (at, vmas) in members {
            for (index, vma) in vmas {
                for anon_vma in &vma.chain {
                    let style = if vma.own == Some(*anon_vma) {
                        OWN
                    } else {
                        LINK
                    };
                    writeln!(out, "    v{at}_{index} -> {anon_vma} [{style}];")?;
                }
            }
        }
        writeln!(out, "  }}")
    }

    fn write_members(
        &self,
        out: &mut dyn Write,
        family: &str,
        members: &Members<'_>,
    ) -> io::Result<()> {
        for (at, vmas) in members {
            writeln!(out, "    subgraph cluster_{family}_{at} {{")?;
            let name = quoted(&self.processes[*at].name);
            writeln!(out, "      label={name}; {PROCESS}")?;
            for (index, vma) in vmas {
                let label = quoted(&label(vma));
                let style = if vma.own.is_none() { WITHOUT } else { "" };
                let comma = if style.is_empty() { "" } else { ", " };
                writeln!(out, "      v{at}_{index} [label={label}{comma}{style}];")?;
            }
            writeln!(out, "    }}")?;
        }
        Ok(())
    }

    /// Explains those signs that the graph contains.
    fn dot_legend(&self) -> Option<String> {
        let has = self.signs();
        let signs = [
            (has.own, "● its own anon_vma"),
            (has.links, "○ another in its chain"),
            (has.hidden, "? more links, not visible"),
            (has.parents, "solid: to its parent"),
            (has.roots, "dashed: to its root"),
        ];
        let signs: Vec<_> = signs.iter().filter(|(has, _)| *has).map(|s| s.1).collect();
        (!signs.is_empty()).then(|| signs.join("   "))
    }
}

fn label(vma: &Vma) -> String {
    let mut text = format!(
        "{} {}\n{}, pgoff {:#x}",
        vma.range(),
        vma.letters(),
        pages(vma.pages()),
        vma.pgoff
    );
    if !vma.name.is_empty() {
        text += "\n";
        text += &vma.name;
    }
    if vma.links == Links::Some {
        text += " ?";
    }
    text
}

fn write_anon_vma(out: &mut dyn Write, anon_vma: &AnonVma) -> io::Result<()> {
    let id = anon_vma.id;
    let number = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    let label = format!(
        "{id}\n{}\nnum_children {}\nnum_active_vmas {}",
        anon_vma.ancestry(),
        number(anon_vma.num_children),
        number(anon_vma.num_active_vmas)
    );
    writeln!(out, "    {id} [{ANON_VMA}, label={}];", quoted(&label))?;
    let mut arrow = |to: Av, style: &str| {
        writeln!(
            out,
            "    {id} -> {to} [style={style}, color=\"#444444\", constraint=false];"
        )
    };
    if let Some(parent) = anon_vma.parent.filter(|&parent| parent != id) {
        arrow(parent, "solid")?;
    }
    if anon_vma.has_root_arrow() {
        arrow(anon_vma.root, "dashed")?;
    }
    Ok(())
}

/// Quotes a string for Graphviz: line feeds become `\n`, and other backslashes are escaped.
fn quoted(text: &str) -> String {
    let lines: Vec<_> = text
        .split('\n')
        .map(|line| printable(line).replace('\\', "\\\\").replace('"', "\\\""))
        .collect();
    format!("\"{}\"", lines.join("\\n"))
}
