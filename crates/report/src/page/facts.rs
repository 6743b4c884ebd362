//! The facts that a reader must find first: how many mappings, who made them, what merged.

use super::data::Names;
use super::parts::{Align, Cell, count, percent, table};
use crate::timeline::{FIRST, Mark, Timeline, What, reasons};
use maud::{Markup, html};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of rows in a static table; the script shows all.
const ROWS: usize = 20;

/// The largest address space at the moment when it had the most mappings.
pub(super) struct Peak<'a> {
    timeline: &'a Timeline,
    names: &'a Names,
    limit: Option<u64>,
    space: u32,
}

/// Number of mappings of a call, and of those that could be merged.
#[derive(Clone, Copy, Default)]
struct Tally {
    mappings: u64,
    joinable: u64,
}

impl<'a> Peak<'a> {
    /// Returns `None` if there is no address space.
    pub(super) fn of(
        timeline: &'a Timeline,
        names: &'a Names,
        limit: Option<u64>,
    ) -> Option<Peak<'a>> {
        let space = timeline.largest()?;
        Some(Peak {
            timeline,
            names,
            limit,
            space,
        })
    }

    fn space(&self) -> &crate::timeline::Space {
        &self.timeline.spaces[self.space as usize]
    }

    fn bands(&self) -> impl Iterator<Item = &crate::timeline::Band> {
        self.timeline.at(self.space, self.space().peak_step)
    }

    /// Returns the calls by the number of mappings that they made, with the program's function.
    fn calls(&self) -> Vec<(String, Option<String>, Tally)> {
        let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
        for band in self.bands() {
            let tally = tallies.entry(band.site).or_default();
            tally.mappings += 1;
            tally.joinable += u64::from(band.joinable);
        }
        let mut calls: BTreeMap<(String, Option<String>), Tally> = BTreeMap::new();
        for (number, tally) in tallies {
            let site = self.timeline.tables.sites.get(number);
            let call = site.map_or("not known", |site| site.call.as_str());
            let function = self.names.own(site.and_then(|site| site.stack));
            let entry = calls
                .entry((call.to_owned(), function.map(str::to_owned)))
                .or_default();
            entry.mappings += tally.mappings;
            entry.joinable += tally.joinable;
        }
        let calls = calls
            .into_iter()
            .map(|((call, function), tally)| (call, function, tally));
        let mut calls: Vec<_> = calls.collect();
        calls.sort_by_key(|(.., tally)| Reverse(tally.mappings));
        calls
    }

    /// Returns the tiles at the top of a page.
    pub(super) fn tiles(&self) -> Markup {
        let calls = self.calls();
        let shown: u64 = calls.iter().map(|(.., tally)| tally.mappings).sum();
        let joinable: u64 = calls.iter().map(|(.., tally)| tally.joinable).sum();
        let space = self.space();
        let what = if self.timeline.last > 0 {
            "mappings at the peak"
        } else {
            "mappings"
        };
        html! {
            dl.tiles {
                div {
                    dt { (what) }
                    dd { (count(space.peak)) }
                    dd.note {
                        @if let Some(limit) = self.limit {
                            (percent(space.peak, limit)) " of the limit of " (count(limit)) ", in " (self.process())
                        } @else { "in " (self.process()) }
                    }
                }
                @if let Some((call, function, tally)) = calls.first().filter(|(call, ..)| call != "not known") {
                    div.wide {
                        dt { "the call that made most of them" }
                        dd { code { (call) } }
                        dd.note {
                            (count(tally.mappings)) " of " (count(shown)) ", " (percent(tally.mappings, shown))
                            @if let Some(function) = function { ", most often from " code { (function) } }
                        }
                    }
                }
                div {
                    dt { "could be merged" }
                    dd { (count(joinable)) }
                    dd.note {
                        (percent(joinable, shown)) " of the mappings"
                        @if joinable > 0 { ", by " code { "vmarea merge" } ", some only with " code { "--fix" } }
                    }
                }
                @if self.timeline.last > 0 { (self.events()) }
            }
        }
    }

    fn process(&self) -> String {
        process(self.space())
    }

    /// Returns the seconds from the beginning of the recording to a mark.
    fn time(&self, mark: &Mark) -> String {
        let begun = self.timeline.steps.first().map_or(0, |step| step.t);
        let step = self.timeline.step(mark.step);
        step.map_or_else(String::new, |step| {
            format!("{:.3} s", step.t.saturating_sub(begun) as f64 / 1e9)
        })
    }

    fn events(&self) -> Markup {
        let sum = |what: What| {
            let marks = self
                .timeline
                .marks
                .iter()
                .filter(move |mark| mark.what == what);
            marks.map(|mark| mark.count).sum::<u64>()
        };
        let first = self
            .timeline
            .marks
            .iter()
            .find(|mark| mark.what == What::Merge);
        html! {
            div.wide {
                dt { "merges, in all processes shown" }
                dd { (count(sum(What::Merge))) }
                dd.note {
                    (count(sum(What::Split))) " splits, " (count(sum(What::Refusal))) " refusals"
                    @if let Some(first) = first {
                        "; the first merge: " (self.place(first))
                    }
                }
            }
        }
    }

    /// Says where and by which call something happened.
    fn place(&self, mark: &Mark) -> Markup {
        let step = self.timeline.step(mark.step);
        let label = step.and_then(|step| self.timeline.tables.labels.get(step.label));
        html! {
            code { (format!("{:x}", mark.addr)) } " by " code { (label.map_or("a call", String::as_str)) }
            @if let Some(step) = step {
                " " button.go type="button" data-space=(mark.space) data-step=(step.step) data-addr=(mark.addr >> 12) hidden { "show" }
            }
        }
    }

    /// Returns the table of the calls that made the mappings.
    pub(super) fn who(&self) -> Markup {
        let calls = self.calls();
        let total: u64 = calls.iter().map(|(.., tally)| tally.mappings).sum();
        let stacks = calls.iter().any(|(_, function, _)| function.is_some());
        let row = |(call, function, tally): &(String, Option<String>, Tally)| {
            let mut cells = vec![Cell::Code(call.clone())];
            if stacks {
                cells.push(Cell::Code(function.clone().unwrap_or_default()));
            }
            cells.extend([
                Cell::Count(tally.mappings),
                Cell::Figure(percent(tally.mappings, total)),
                Cell::Count(tally.joinable),
            ]);
            cells
        };
        let rows: Vec<_> = calls.iter().take(ROWS).map(row).collect();
        let mut headings = vec![("call", Align::Left)];
        if stacks {
            headings.push(("function of the program", Align::Left));
        }
        headings.extend([
            ("mappings", Align::Right),
            ("share", Align::Right),
            ("could be merged", Align::Right),
        ]);
        let caption = self.at_peak("Calls that made the mappings");
        html! {
            (table(&caption, &headings, &rows))
            @if calls.len() > ROWS { p.note { (count((calls.len() - ROWS) as u64)) " more calls" } }
        }
    }

    /// Returns the table of the reasons why neighbours are apart.
    pub(super) fn apart(&self) -> Markup {
        let mut tallies: BTreeMap<u8, Tally> = BTreeMap::new();
        for band in self.bands().filter(|band| band.reason != FIRST) {
            let tally = tallies.entry(band.reason).or_default();
            tally.mappings += 1;
            tally.joinable += u64::from(band.joinable);
        }
        let mut tallies: Vec<_> = tallies.into_iter().collect();
        tallies.sort_by_key(|(_, tally)| Reverse(tally.mappings));
        let total: u64 = tallies.iter().map(|(_, tally)| tally.mappings).sum();
        let rows = tallies.iter().filter_map(|(number, tally)| {
            let reason = reasons().nth(usize::from(*number) - 1)?;
            Some(vec![
                Cell::Code(reason.name().to_owned()),
                Cell::Text(reason.words().to_owned()),
                Cell::Count(tally.mappings),
                Cell::Figure(percent(tally.mappings, total)),
                Cell::Count(tally.joinable),
            ])
        });
        let headings = [
            ("reason", Align::Left),
            ("meaning", Align::Left),
            ("boundaries", Align::Right),
            ("share", Align::Right),
            ("could be removed", Align::Right),
        ];
        let caption = self.at_peak("Reasons why neighbouring mappings are apart");
        table(&caption, &headings, &rows.collect::<Vec<_>>())
    }

    fn at_peak(&self, what: &str) -> String {
        if self.timeline.last > 0 {
            format!("{what}, at the peak of {}", self.process())
        } else {
            what.to_owned()
        }
    }

    /// Returns the table of the first merges, splits, refusals and failed calls.
    pub(super) fn happened(&self) -> Markup {
        let marks = &self.timeline.marks;
        let mut chosen: Vec<&Mark> = Vec::new();
        for what in [What::Merge, What::Failure, What::Refusal, What::Split] {
            chosen.extend(marks.iter().filter(|mark| mark.what == what).take(ROWS));
        }
        chosen.sort_by_key(|mark| mark.step);
        html! {
            div.scroll tabindex="0" role="region" aria-label="Merges, splits, refusals and failed calls" {
                table.sortable {
                    caption { "The first merges, splits, refusals and failed calls, at most " (ROWS) " of each" }
                    thead { tr {
                        th.text scope="col" { "what" } th.text scope="col" { "how" } th scope="col" { "number" }
                        th.text scope="col" { "process" } th scope="col" { "time" } th.text scope="col" { "where" }
                    } }
                    tbody {
                        @for mark in chosen {
                            tr {
                                td.text { (mark.what.name()) }
                                td.text { (self.timeline.tables.labels.get(mark.detail).map_or("", String::as_str)) }
                                td { (count(mark.count)) }
                                td.text { (process(&self.timeline.spaces[mark.space as usize])) }
                                td { (self.time(mark)) }
                                td.text { (self.place(mark)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the name of an address space's process.
fn process(space: &crate::timeline::Space) -> String {
    let name = if space.name.is_empty() {
        "a process"
    } else {
        &space.name
    };
    match space.pid {
        Some(pid) => format!("{name} ({pid})"),
        None => name.to_owned(),
    }
}
