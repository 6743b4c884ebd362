//! The output of tools that write one line for each mapping: what their formats share.
//!
//! A tool's line can stand behind the prefix of a log, in quotes or in colours. Each tool says what
//! one line is; this module finds the lines, and notices cuts, missing ends and a second list.

use super::cuts::{Cuts, WHOLE, left_out};
use super::junk::without_colours;
use super::tool::{Counted, Line, Tool};
use super::{Listed, Pasted};
use super::{android, gdb, lldb, pmap, sanitizer, system_map, vmmap};
use crate::maps::{MapName, SmapsEntry};
use crate::unseen::Unseen;

/// Number of words of a line at which a mapping can begin.
const WORDS: usize = 16;

/// All tools, the most frequent first.
const TOOLS: [fn() -> Box<dyn Tool>; 7] = [
    || Box::<pmap::Pmap>::default(),
    || Box::<gdb::Gdb>::default(),
    || Box::<vmmap::Vmmap>::default(),
    || Box::<lldb::Lldb>::default(),
    || Box::<android::Tombstone>::default(),
    || Box::<sanitizer::Sanitizer>::default(),
    || Box::<system_map::SystemMap>::default(),
];

/// Finds the list of a tool; `None` if there is none.
pub(super) fn read(file: &[u8]) -> Option<Result<Pasted<'static>, String>> {
    let text = without_colours(file);
    let text = String::from_utf8_lossy(&text);
    TOOLS.iter().find_map(|tool| {
        let mut found = Found::default();
        let mut tool = tool();
        found.search(&text, tool.as_mut());
        (!found.entries.is_empty()).then(|| found.finish(&text, tool.as_ref()))
    })
}

/// What was found of a tool's list.
#[derive(Default)]
struct Found {
    entries: Vec<SmapsEntry>,
    marks: Vec<(usize, Unseen)>,
    cuts: Cuts,
    other: usize,
    /// Words for each process of which there are mappings.
    lists: Vec<String>,
    /// The process whose list began last.
    begun: Option<String>,
    end: Option<Counted>,
    last_is_mapping: bool,
}

impl Found {
    fn search(&mut self, text: &str, tool: &mut dyn Tool) {
        for (n, line) in text.lines().enumerate() {
            let line = line.trim_end().trim_end_matches(['"', '\'', '`', ',']);
            let found = starts(line)
                .map(|at| tool.line(&line[at..]))
                .find(|found| !matches!(found, Line::Other));
            self.last_is_mapping = false;
            match found {
                Some(Line::Mapping(entry, unseen)) => {
                    self.last_is_mapping = true;
                    self.mapping(*entry, unseen);
                }
                Some(Line::Damaged(what)) => self.cuts.damaged(n + 1, what),
                Some(Line::Begin(whose)) => {
                    self.begun = Some(whose);
                    self.end = None;
                }
                Some(Line::End(counted)) if !self.entries.is_empty() => self.end = Some(counted),
                Some(Line::End(_) | Line::Part) => {}
                Some(Line::Other) | None if line.trim().is_empty() => {}
                Some(Line::Other) | None => {
                    self.other += usize::from(!self.cuts.other(line));
                }
            }
        }
    }

    fn mapping(&mut self, entry: SmapsEntry, unseen: Unseen) {
        if let Some(whose) = self.begun.take() {
            self.lists.push(whose);
        }
        if !unseen.is_empty() {
            self.marks.push((self.entries.len(), unseen));
        }
        self.cuts.mapping(entry.mapping.start, entry.mapping.end);
        self.entries.push(entry);
    }

    fn finish(self, text: &str, tool: &dyn Tool) -> Result<Pasted<'static>, String> {
        let format = tool.format();
        if let [first, second, ..] = &self.lists[..] {
            return Err(format!(
                "it has the lists of {} processes ({first}, {second}{}): keep one of them",
                self.lists.len(),
                if self.lists.len() > 2 { ", ..." } else { "" }
            ));
        }
        let was_cut = self.cuts.any();
        let mut missing = self.missing_end(text, was_cut, format.name);
        if missing.is_none() {
            missing = tool.leaves_out(&self.entries).map(str::to_owned);
        }
        let (more, mut notes) = self.cuts.into_parts();
        let mut marks = self.marks;
        marks.extend(more);
        let incomplete = was_cut || missing.is_some();
        notes.extend(missing);
        notes.extend(left_out(self.other));
        Ok(Pasted {
            list: Listed::Entries(self.entries),
            format: Some(format),
            marks,
            incomplete,
            notes,
            ..Pasted::default()
        })
    }

    /// Returns a note if the end of the list is missing.
    fn missing_end(&self, text: &str, was_cut: bool, name: &str) -> Option<String> {
        let sizes = self
            .entries
            .iter()
            .map(|e| (e.mapping.end - e.mapping.start) >> 10);
        let (kib, mappings) = (
            sizes.fold(0, u64::saturating_add),
            self.entries.len() as u64,
        );
        match self.end {
            _ if was_cut => return None,
            Some(Counted::Kib(of_tool)) if of_tool != kib => {
                return Some(format!(
                    "the sizes add up to {kib} KiB, but {name} counted {of_tool} KiB: lines are missing"
                ));
            }
            Some(Counted::Mappings(of_tool)) if of_tool != mappings => {
                return Some(format!(
                    "there are {mappings} mappings, but {name} counted {of_tool}: lines are missing"
                ));
            }
            Some(_) => return None,
            None => {}
        }
        let is_stack = |e: &SmapsEntry| e.mapping.name == MapName::Stack;
        if self.entries.iter().rev().take(8).any(is_stack) {
            return None;
        }
        if self.last_is_mapping && !text.ends_with('\n') {
            return Some("the last line has no line end: the list may be cut off there".to_owned());
        }
        let has_files = self
            .entries
            .iter()
            .any(|e| matches!(e.mapping.name, MapName::Path(_)));
        (mappings as usize >= WHOLE && has_files)
            .then(|| "the list has no [stack]: its end may be missing".to_owned())
    }
}

/// Returns the places at which a mapping can begin: the words of a line.
fn starts(line: &str) -> impl Iterator<Item = usize> {
    let mut before = ' ';
    line.char_indices()
        .filter(move |(_, c)| {
            let begins =
                !c.is_whitespace() && (before.is_whitespace() || "\"'`>|".contains(before));
            before = *c;
            begins
        })
        .map(|(at, _)| at)
        .take(WORDS)
}
