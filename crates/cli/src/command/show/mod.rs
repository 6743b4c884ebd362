//! `vmarea show`: shows an address space.

mod anatomy;
pub(super) mod diff;
pub(super) mod graph;
mod maps;
mod page;
mod target;

pub(super) use target::Source;

use clap::Subcommand;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;

/// What to show.
#[derive(Debug, Subcommand)]
pub enum Show {
    Maps(maps::Maps),
    Anatomy(anatomy::Anatomy),
    Graph(graph::Graph),
    Diff(diff::Diff),
}

impl Show {
    /// True if the command shows a trace, which needs no running process.
    pub(super) fn reads_a_file(&self) -> bool {
        match self {
            Self::Maps(maps) => maps.target.reads_a_file(),
            Self::Anatomy(anatomy) => anatomy.target.reads_a_file(),
            Self::Graph(graph) => graph.reads_a_file(),
            Self::Diff(_) => true,
        }
    }

    pub(super) fn run(&self, console: &Console) -> Result {
        match self {
            Self::Maps(maps) => maps.run(console),
            Self::Anatomy(anatomy) => anatomy.run(console),
            Self::Graph(graph) => graph.run(console),
            Self::Diff(diff) => diff.run(console),
        }
    }
}
