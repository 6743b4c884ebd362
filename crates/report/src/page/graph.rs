//! The page of a graph of VMAs and anon_vmas of related processes.

use super::data::{Names, pictures};
use super::parts::{count, remarks};
use super::{document, explorer};
use crate::graph::Graph;
use crate::timeline::still;
use maud::html;

impl Graph {
    /// Returns the page.
    pub fn page(&self) -> String {
        let vmas: usize = self
            .processes
            .iter()
            .map(|process| process.vmas.len())
            .sum();
        let timeline = still::of_graph(self);
        let body = html! {
            header {
                p.kind { "vmarea: VMAs and anon_vmas of related processes" }
                h1 { (self.title) }
                p.note {
                    (count(self.processes.len() as u64)) " processes, " (count(vmas as u64)) " VMAs, "
                    (count(self.anon_vmas.len() as u64)) " anon_vmas in " (count(self.families().len() as u64)) " families"
                }
            }
            (remarks("Remarks", &self.notes))
            (explorer::graph())
            (explorer::over_time(true))
            (explorer::mappings())
        };
        let pictures = pictures(&timeline, &Names::default(), None);
        document(&format!("vmarea: {}", self.title), &body, Some(&pictures))
    }
}
