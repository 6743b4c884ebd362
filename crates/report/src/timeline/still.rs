//! A timeline of one moment, from a list of mappings or from a graph.

use super::tables::{FIRST, Look, Site, Tables, reason_number};
use super::{Anon, Band, NONE, Series, Space, Step, Timeline};
use crate::graph::Graph;
use vmarea_explain::origins::Origin;
use vmarea_process::Process;

/// Makes a timeline of a process's mappings, with the calls that made them where they are known.
pub fn of_process(process: &Process, origins: &[Option<Origin>]) -> Timeline {
    let mut tables = Tables::default();
    tables.sites.number(unknown());
    let boundaries = process.boundaries();
    let mut bands = Vec::with_capacity(process.mappings.len());
    for (n, mapping) in process.mappings.iter().enumerate() {
        let boundary = n.checked_sub(1).and_then(|below| boundaries.get(below));
        let origin = origins.get(n).and_then(Option::as_ref);
        let kernel = mapping.kernel.unwrap_or_default();
        let site = origin.map_or_else(unknown, |origin| Site {
            call: origin.call.clone(),
            stack: origin.stack,
        });
        bands.push(Band {
            space: 0,
            start: mapping.entry.start,
            end: mapping.entry.end,
            from: 0,
            to: 1,
            look: tables.looks.number(Look::of(mapping)),
            site: tables.sites.number(site),
            reason: boundary.map_or(FIRST, |boundary| reason_number(boundary.reason)),
            joinable: boundary.is_some_and(|boundary| boundary.remedy.is_some()),
            anon: anon(&mut tables, kernel.anon_vma, kernel.root),
            chain: NONE,
        });
    }
    let mut counts = Series::default();
    counts.push(0, process.total);
    let space = Space {
        mm: 1,
        pid: process.pid,
        name: process.name.clone(),
        to: 1,
        peak: process.total,
        counts: vec![counts],
        drawn: true,
        ..Space::default()
    };
    tables.labels.number("now".to_owned());
    super::select::drawn(Timeline {
        policies: vec!["linux".to_owned()],
        spaces: vec![space],
        bands,
        steps: vec![Step::default()],
        tables,
        ..Timeline::default()
    })
}

/// Makes a timeline of the processes of a graph, which does not say why mappings are apart.
pub fn of_graph(graph: &Graph) -> Timeline {
    let mut tables = Tables::default();
    tables.sites.number(unknown());
    tables.labels.number("now".to_owned());
    for anon in &graph.anon_vmas {
        tables.anons.push(Anon {
            parent: anon.parent.map_or(anon.root.0, |parent| parent.0) as u32,
            root: anon.root.0 as u32,
        });
    }
    let mut timeline = Timeline {
        policies: vec!["linux".to_owned()],
        steps: vec![Step::default()],
        ..Timeline::default()
    };
    for (number, process) in (0u32..).zip(&graph.processes) {
        let peak = process.vmas.len() as u64;
        let mut counts = Series::default();
        counts.push(0, peak);
        timeline.spaces.push(Space {
            mm: number + 1,
            name: process.name.clone(),
            parent: process.parent.map(|parent| parent as u32),
            to: 1,
            peak,
            counts: vec![counts],
            drawn: true,
            ..Space::default()
        });
        let bands = process.vmas.iter().map(|vma| Band {
            space: number,
            start: vma.start,
            end: vma.end,
            to: 1,
            look: tables.looks.number(Look::of_vma(vma)),
            reason: FIRST,
            anon: vma.own.map_or(NONE, |own| own.0 as u32),
            chain: match vma.chain.as_slice() {
                [] => NONE,
                chain => tables
                    .chains
                    .number(chain.iter().map(|av| av.0 as u32).collect()),
            },
            ..Band::default()
        });
        timeline.bands.extend(bands.collect::<Vec<_>>());
    }
    timeline.tables = tables;
    super::select::drawn(timeline)
}

fn unknown() -> Site {
    Site {
        call: "not known".to_owned(),
        stack: None,
    }
}

/// Returns the number of an anon_vma; its parent is not visible, so it hangs below its root.
fn anon(tables: &mut Tables, address: u64, root: u64) -> u32 {
    if address == 0 {
        return NONE;
    }
    let number = |tables: &mut Tables, address: u64| {
        let next = tables.anons.len() as u32;
        let known = *tables.anon_numbers.entry(address).or_insert(next);
        if known == next {
            tables.anons.push(Anon {
                parent: known,
                root: known,
            });
        }
        known
    };
    let own = number(tables, address);
    if root != 0 && root != address {
        let root = number(tables, root);
        tables.anons[own as usize] = Anon { parent: root, root };
    }
    own
}
