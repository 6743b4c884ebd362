//! The graph in the Graphviz language.
//!
//! Each process is a cluster that contains its VMAs; the anon_vmas are outside the clusters. An
//! `anon_vma_chain` is a point between a VMA and an anon_vma; the point is filled if the anon_vma
//! is the VMA's own. Solid arrows between anon_vmas point to the parent, dashed ones to the root.
//! The output is plain text and does not require Graphviz.

use super::{AnonVma, Av, Graph, Links, Vma};
use std::io::{self, Write};
use vmarea_explain::rows::printable;

impl Graph {
    /// Writes the graph as a `digraph`.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_dot(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "digraph vmarea {{")?;
        writeln!(out, "  rankdir=LR;")?;
        writeln!(out, "  label={};", quoted(&self.title))?;
        writeln!(
            out,
            "  node [shape=box, fontname=\"monospace\", fontsize=10];"
        )?;
        writeln!(
            out,
            "  edge [fontname=\"monospace\", fontsize=9, arrowsize=0.6];"
        )?;
        for (at, process) in self.processes.iter().enumerate() {
            writeln!(out, "  subgraph cluster_{at} {{")?;
            writeln!(out, "    label={};", quoted(&process.name))?;
            for (index, vma) in process.vmas.iter().enumerate() {
                writeln!(out, "    v{at}_{index} [label={}];", quoted(&label(vma)))?;
            }
            writeln!(out, "  }}")?;
        }
        let reached = self.reached();
        for anon_vma in self.anon_vmas.iter().filter(|a| reached.contains(&a.id)) {
            write_anon_vma(out, anon_vma)?;
        }
        for (at, process) in self.processes.iter().enumerate() {
            for (index, vma) in process.vmas.iter().enumerate() {
                write_chain(out, &format!("{at}_{index}"), vma)?;
            }
        }
        for note in &self.notes {
            writeln!(out, "  // {}", printable(note))?;
        }
        writeln!(out, "}}")
    }
}

fn label(vma: &Vma) -> String {
    let mut text = format!(
        "{} {}\n{} pages, pgoff {:#x}",
        vma.range(),
        vma.letters(),
        vma.pages(),
        vma.pgoff
    );
    if !vma.name.is_empty() {
        text += "\n";
        text += &vma.name;
    }
    text
}

fn write_anon_vma(out: &mut dyn Write, anon_vma: &AnonVma) -> io::Result<()> {
    let id = anon_vma.id;
    let number = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    let parent = match anon_vma.parent {
        _ if anon_vma.root == id => "a root".to_owned(),
        Some(parent) => format!("parent {parent}, root {}", anon_vma.root),
        None => format!("parent ?, root {}", anon_vma.root),
    };
    let label = format!(
        "{id}\n{parent}\nnum_children {}\nnum_active_vmas {}",
        number(anon_vma.num_children),
        number(anon_vma.num_active_vmas)
    );
    writeln!(
        out,
        "  {id} [shape=ellipse, style=filled, fillcolor=\"#dbe9f6\", label={}];",
        quoted(&label)
    )?;
    let mut arrow =
        |to: Av, style: &str| writeln!(out, "  {id} -> {to} [style={style}, constraint=false];");
    if let Some(parent) = anon_vma.parent.filter(|&parent| parent != id) {
        arrow(parent, "solid")?;
    }
    if anon_vma.root != id {
        arrow(anon_vma.root, "dashed")?;
    }
    Ok(())
}

fn write_chain(out: &mut dyn Write, vma: &str, of: &Vma) -> io::Result<()> {
    for (n, anon_vma) in of.chain.iter().enumerate() {
        let own = of.own == Some(*anon_vma);
        let fill = if own { "black" } else { "white" };
        writeln!(
            out,
            "  c{vma}_{n} [shape=circle, label=\"\", width=0.12, style=filled, fillcolor={fill}];"
        )?;
        writeln!(out, "  v{vma} -> c{vma}_{n} [dir=none, color=\"#c0392b\"];")?;
        let weight = if own { "bold" } else { "solid" };
        writeln!(
            out,
            "  c{vma}_{n} -> {anon_vma} [color=\"#2471a3\", style={weight}];"
        )?;
    }
    if of.links == Links::Some {
        writeln!(out, "  c{vma}_more [shape=plaintext, label=\"?\"];")?;
        writeln!(out, "  v{vma} -> c{vma}_more [dir=none, style=dotted];")?;
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
