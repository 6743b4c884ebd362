//! A timeline of one moment, from a list of mappings.

use super::tables::{FIRST, Look, Site, Tables, reason_number};
use super::{Anon, Band, NONE, Series, Space, Step, Timeline};
use vmarea_explain::origins::Origin;
use vmarea_process::{Process, boundaries};

/// Makes a timeline of a process's mappings, with the calls that made them where they are known.
pub fn of_process(process: &Process, origins: &[Option<Origin>]) -> Timeline {
    let mut tables = Tables::default();
    tables.sites.number(unknown());
    let boundaries = boundaries(&process.policy, &process.mappings);
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
