//! The page of a graph of VMAs and anon_vmas of related processes.

use super::data::{Names, pictures};
use super::parts::{count, remarks};
use super::{document, explorer};
use crate::graph::Graph;
use crate::timeline::still;
use maud::html;

/// What the page of a graph shows.
#[derive(Clone, Copy, Debug)]
pub struct Related<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// How the graph was compared, or why something is missing.
    pub remark: Option<&'a str>,
}

impl Related<'_> {
    /// Returns the page.
    pub fn page(&self) -> String {
        let graph = self.graph;
        let vmas: usize = graph
            .processes
            .iter()
            .map(|process| process.vmas.len())
            .sum();
        let notes: Vec<String> = graph
            .notes
            .iter()
            .cloned()
            .chain(self.remark.map(str::to_owned))
            .collect();
        let timeline = still::of_graph(graph);
        let body = html! {
            header {
                p.kind { "vmarea: VMAs and anon_vmas of related processes" }
                h1 { (graph.title) }
                p.note {
                    (count(graph.processes.len() as u64)) " processes, " (count(vmas as u64)) " VMAs, "
                    (count(graph.anon_vmas.len() as u64)) " anon_vmas in " (count(graph.families().len() as u64)) " families"
                }
            }
            (remarks("Remarks", &notes))
            (explorer::graph())
            (explorer::over_time(true))
            (explorer::mappings())
        };
        let pictures = pictures(&timeline, &Names::default(), None);
        document(&format!("vmarea: {}", graph.title), &body, Some(&pictures))
    }
}
