//! The page of one list of mappings: a running process, or a recorded one at one moment.

use super::data::{Names, pictures};
use super::facts::Peak;
use super::parts::remarks;
use super::{document, explorer};
use crate::timeline::Timeline;
use maud::html;

/// What the page of one moment shows.
#[derive(Clone, Copy, Debug)]
pub struct Still<'a> {
    /// Name of the program, or of the file with its list.
    pub name: &'a str,
    /// Kind and source of the list, as a short phrase.
    pub source: &'a str,
    /// The mappings, from [`crate::timeline::still`].
    pub timeline: &'a Timeline,
    /// Functions of the call stacks, if they were recorded.
    pub names: &'a Names,
    /// Largest number of mappings that the process may have.
    pub limit: Option<u64>,
    /// What the page cannot show, and why.
    pub missing: &'a [String],
    /// The report as text, with its advice.
    pub text: Option<&'a str>,
}

impl Still<'_> {
    /// Returns the page.
    pub fn page(&self) -> String {
        let peak = Peak::of(self.timeline, self.names, self.limit);
        let body = html! {
            header {
                p.kind { "vmarea: mappings of a process" }
                h1 { (self.name) }
                p.note { (self.source) }
            }
            @if let Some(peak) = &peak {
                (peak.tiles())
                (remarks("What is missing", self.missing))
                @if let Some(text) = self.text {
                    section #report {
                        h2 { "The report" }
                        pre.scroll tabindex="0" { (text) }
                    }
                }
                (explorer::over_time(true))
                (explorer::apart(peak))
                (explorer::who(peak, !self.names.is_empty(), true))
                (explorer::graph())
                (explorer::mappings())
            }
        };
        let pictures = peak.map(|_| pictures(self.timeline, self.names, self.limit));
        document(&format!("vmarea: {}", self.name), &body, pictures.as_ref())
    }
}
