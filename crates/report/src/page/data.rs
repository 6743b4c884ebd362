//! The data of a page's pictures: a timeline as JSON, with its long tables as columns.

use super::columns::column;
use super::{Pictures, controls};
use crate::timeline::{Kind, NONE, Timeline, reasons};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use vmarea_explain::stacks::Stacks;

/// Size of a page of memory, in which the columns give addresses.
const PAGE_SHIFT: u32 = 12;
/// Number of functions of a stack that are shown, from the innermost one.
const MOST_FRAMES: usize = 64;

/// Names of functions for the stacks of a timeline.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Names {
    /// The functions, each once.
    functions: Vec<String>,
    /// Functions of each stack, outermost first, as indexes.
    stacks: Vec<Vec<usize>>,
    /// The program's own function of each stack.
    #[serde(skip)]
    own: Vec<Option<String>>,
}

impl Names {
    /// Collects the functions of all stacks.
    pub fn of(stacks: &Stacks) -> Names {
        let mut names = Names::default();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for number in 0..stacks.stacks.len() {
            let mut stack = Vec::new();
            for frame in stacks.frames(Some(number as u32)) {
                let next = numbers.len();
                let known = *numbers.entry(frame.function.clone()).or_insert(next);
                if known == next {
                    names.functions.push(frame.function.clone());
                }
                stack.push(known);
            }
            stack.reverse();
            names.stacks.push(stack);
            let own = stacks.own_function(Some(number as u32));
            names.own.push(own.map(|frame| frame.function.clone()));
        }
        names
    }

    /// Returns the program's own function of a stack.
    pub(super) fn own(&self, stack: Option<u32>) -> Option<&str> {
        self.own.get(stack? as usize)?.as_deref()
    }

    /// True if there are no stacks.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }
}

#[derive(Serialize)]
struct Data<'a> {
    policies: &'a [String],
    limit: Option<u64>,
    last: u32,
    largest: u32,
    spaces: Vec<Space<'a>>,
    kinds: Vec<&'static str>,
    reasons: Vec<[&'static str; 2]>,
    looks: Vec<(usize, &'a str, &'a str)>,
    sites: Vec<(&'a str, Option<u32>)>,
    names: Names,
    labels: &'a [String],
    chains: &'a [Vec<u32>],
    anons: [String; 2],
    steps: [String; 4],
    bands: [String; 11],
    marks: [String; 6],
}

#[derive(Serialize)]
struct Space<'a> {
    mm: u32,
    pid: Option<i32>,
    name: &'a str,
    parent: Option<u32>,
    from: u32,
    to: u32,
    peak: u64,
    peak_step: u32,
    drawn: bool,
    counts: Vec<&'a [(u32, u64)]>,
}

/// Returns the data and the script that draws it.
///
/// `limit` is the largest number of mappings that a process may have.
pub fn pictures(timeline: &Timeline, names: &Names, limit: Option<u64>) -> Pictures {
    let tables = &timeline.tables;
    let (sites, names) = used_sites(timeline, names);
    let data = Data {
        policies: &timeline.policies,
        limit,
        last: timeline.last,
        largest: timeline.largest().unwrap_or(0),
        spaces: spaces(timeline),
        kinds: Kind::ALL.map(Kind::words).to_vec(),
        reasons: std::iter::once(["first", "the first mapping"])
            .chain(reasons().map(|reason| [reason.name(), reason.words()]))
            .collect(),
        looks: tables
            .looks
            .values()
            .iter()
            .map(|look| (look.kind as usize, look.perms.as_str(), look.name.as_str()))
            .collect(),
        sites,
        names,
        labels: tables.labels.values(),
        chains: tables.chains.values(),
        anons: [
            column(tables.anons.iter().map(|anon| anon.parent.into())),
            column(tables.anons.iter().map(|anon| anon.root.into())),
        ],
        steps: steps(timeline),
        bands: bands(timeline),
        marks: marks(timeline),
    };
    let text = serde_json::to_string(&data).unwrap_or_default();
    Pictures {
        // The data is inside of an element, which `</script` would end.
        data: controls::in_json(&text.replace('<', "\\u003c")),
    }
}

/// Returns the calls by number, with the stacks of those to which bands refer.
fn used_sites<'a>(timeline: &'a Timeline, names: &Names) -> (Vec<(&'a str, Option<u32>)>, Names) {
    let used: HashSet<u32> = timeline.bands.iter().map(|band| band.site).collect();
    let mut kept = Names::default();
    let mut numbers: HashMap<usize, usize> = HashMap::new();
    let mut stacks: HashMap<u32, u32> = HashMap::new();
    let sites = timeline.tables.sites.values().iter().zip(0..);
    let sites = sites.map(|(site, number)| {
        let known = site.stack.filter(|_| used.contains(&number));
        let stack = known.and_then(|stack| {
            let functions = names.stacks.get(stack as usize)?;
            Some(*stacks.entry(stack).or_insert_with(|| {
                let shown = functions.iter().rev().take(MOST_FRAMES).rev();
                let stack = shown.map(|function| {
                    let next = numbers.len();
                    let new = *numbers.entry(*function).or_insert(next);
                    if new == next {
                        kept.functions.push(names.functions[*function].clone());
                    }
                    new
                });
                let stack = stack.collect();
                kept.stacks.push(stack);
                kept.stacks.len() as u32 - 1
            }))
        });
        (site.call.as_str(), stack)
    });
    let sites = sites.collect();
    (sites, kept)
}

fn spaces(timeline: &Timeline) -> Vec<Space<'_>> {
    timeline.spaces.iter().map(space).collect()
}

fn space(space: &crate::timeline::Space) -> Space<'_> {
    let counts = space.counts.iter().map(|series| series.points());
    Space {
        mm: space.mm,
        pid: space.pid,
        name: &space.name,
        parent: space.parent,
        from: space.from,
        to: space.to,
        peak: space.peak,
        peak_step: space.peak_step,
        drawn: space.drawn,
        counts: counts.collect(),
    }
}

fn steps(timeline: &Timeline) -> [String; 4] {
    let steps = &timeline.steps;
    let first = steps.first().map_or(0, |step| step.t);
    [
        column(steps.iter().map(|step| step.step.into())),
        column(steps.iter().map(|step| step.event)),
        // Microseconds from the first step.
        column(steps.iter().map(|step| step.t.saturating_sub(first) / 1000)),
        column(steps.iter().map(|step| step.label.into())),
    ]
}

fn bands(timeline: &Timeline) -> [String; 11] {
    let bands = &timeline.bands;
    let some = |number: u32| {
        if number == NONE {
            0
        } else {
            u64::from(number) + 1
        }
    };
    [
        column(bands.iter().map(|band| band.space.into())),
        column(bands.iter().map(|band| band.start >> PAGE_SHIFT)),
        column(
            bands
                .iter()
                .map(|band| (band.end - band.start) >> PAGE_SHIFT),
        ),
        column(bands.iter().map(|band| band.from.into())),
        column(bands.iter().map(|band| band.to.into())),
        column(bands.iter().map(|band| band.look.into())),
        column(bands.iter().map(|band| band.site.into())),
        column(bands.iter().map(|band| band.reason.into())),
        column(bands.iter().map(|band| band.joinable.into())),
        column(bands.iter().map(|band| some(band.anon))),
        column(bands.iter().map(|band| some(band.chain))),
    ]
}

fn marks(timeline: &Timeline) -> [String; 6] {
    let marks = &timeline.marks;
    [
        column(marks.iter().map(|mark| mark.space.into())),
        column(marks.iter().map(|mark| mark.step.into())),
        column(marks.iter().map(|mark| mark.what as u64)),
        column(marks.iter().map(|mark| mark.detail.into())),
        column(marks.iter().map(|mark| mark.count)),
        column(marks.iter().map(|mark| mark.addr >> PAGE_SHIFT)),
    ]
}
