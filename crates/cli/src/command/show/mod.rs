//! `vmarea show`: what an address space looks like.

mod anatomy;
mod graph;
mod maps;
mod whose;

use crate::console::Console;
use crate::exit::Result;
use clap::Subcommand;

/// What to show.
#[derive(Debug, Subcommand)]
pub enum Show {
    Maps(maps::Maps),
    Anatomy(anatomy::Anatomy),
    Graph(graph::Graph),
}

impl Show {
    pub(super) fn run(&self, console: &Console) -> Result {
        match self {
            Self::Maps(maps) => maps.run(console),
            Self::Anatomy(anatomy) => anatomy.run(console),
            Self::Graph(graph) => graph.run(console),
        }
    }
}
