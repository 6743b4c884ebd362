//! Checks whether two graphs of the same processes are equal up to the naming of anon_vmas.
//!
//! VMAs have addresses, so each VMA corresponds to the one at the same address in the other graph.
//! The comparison looks for a one-to-one map between anon_vmas that preserves every VMA's own
//! anon_vma and chain, and every anon_vma's root, parent and counters. Parts that are missing in
//! one of the graphs are counted but not compared.

use serde::Serialize;
use std::collections::BTreeMap;
use vmarea::types::VmFlags;
use vmarea_report::flags;
use vmarea_report::graph::{AnonVma, Av, Graph, Links, Vma};

/// Result of the comparison.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// True if all compared parts are equal.
    pub isomorphic: bool,
    /// Number of VMAs that were compared.
    pub vmas: usize,
    /// Number of matched pairs of anon_vmas.
    pub anon_vmas: usize,
    /// Number of chain links that were compared.
    pub links: usize,
    /// Number of links and counters that only one of the graphs shows.
    pub hidden: usize,
    /// Description of the first difference.
    pub difference: Option<String>,
}

impl Verdict {
    /// Returns the result in one line.
    pub fn text(&self) -> String {
        let Verdict {
            vmas,
            anon_vmas,
            links,
            hidden,
            ..
        } = self;
        match &self.difference {
            None => format!(
                "the two graphs are isomorphic: {vmas} VMAs, {anon_vmas} anon_vmas and {links} links \
                 correspond; {hidden} links and numbers are visible in only one of them"
            ),
            Some(difference) => format!("the two graphs are not isomorphic: {difference}"),
        }
    }
}

/// Compares the parts that both graphs show.
pub fn compare(a: &Graph, b: &Graph) -> Verdict {
    let mut pairs = Pairs::default();
    let difference = pairs.graphs(a, b).err();
    Verdict {
        isomorphic: difference.is_none(),
        vmas: pairs.vmas,
        anon_vmas: pairs.there.len(),
        links: pairs.links,
        hidden: pairs.hidden,
        difference,
    }
}

#[derive(Default)]
struct Pairs {
    there: BTreeMap<Av, Av>,
    back: BTreeMap<Av, Av>,
    vmas: usize,
    links: usize,
    hidden: usize,
}

impl Pairs {
    fn graphs(&mut self, a: &Graph, b: &Graph) -> Result<(), String> {
        if a.processes.len() != b.processes.len() {
            let (a, b) = (a.processes.len(), b.processes.len());
            return Err(format!("{a} processes against {b}"));
        }
        for (p, q) in a.processes.iter().zip(&b.processes) {
            if p.vmas.len() != q.vmas.len() {
                let (here, there) = (p.vmas.len(), q.vmas.len());
                return Err(format!("{}: {here} VMAs against {there}", p.name));
            }
            for (v, w) in p.vmas.iter().zip(&q.vmas) {
                self.vma(v, w)
                    .map_err(|what| format!("{}, VMA {}: {what}", p.name, v.range()))?;
            }
        }
        // The map is complete; the relations between the anon_vmas must match it.
        for (x, y) in self.there.clone() {
            self.anon_vma(&a.anon_vmas[x.0], &b.anon_vmas[y.0])
                .map_err(|what| format!("anon_vma {x} against {y}: {what}"))?;
        }
        Ok(())
    }

    fn vma(&mut self, v: &Vma, w: &Vma) -> Result<(), String> {
        self.vmas += 1;
        if (v.start, v.end) != (w.start, w.end) {
            return Err(format!("the other is {}", w.range()));
        }
        if v.pgoff != w.pgoff {
            return Err(format!("page offset {:#x} against {:#x}", v.pgoff, w.pgoff));
        }
        let ignored = VmFlags::SOFTDIRTY;
        if v.flags - ignored != w.flags - ignored {
            let (v, w) = (flags::names(v.flags), flags::names(w.flags));
            return Err(format!("flags {} against {}", v.join(" "), w.join(" ")));
        }
        match (v.own, w.own) {
            (None, None) => {}
            (Some(x), Some(y)) => self.pair(x, y)?,
            (Some(_), None) => return Err("only the first has an anon_vma".to_owned()),
            (None, Some(_)) => return Err("only the second has an anon_vma".to_owned()),
        }
        self.chain(v, w)
    }

    fn chain(&mut self, v: &Vma, w: &Vma) -> Result<(), String> {
        let whole = |vma: &Vma| vma.links == Links::All;
        let lengths = || format!("a chain of {} against {}", v.chain.len(), w.chain.len());
        match (whole(v), whole(w)) {
            (true, true) if v.chain.len() != w.chain.len() => return Err(lengths()),
            (true, true) => {
                for (&x, &y) in v.chain.iter().zip(&w.chain) {
                    self.pair(x, y)?;
                    self.links += 1;
                }
            }
            (false, false) => self.hidden += 1,
            (true, false) => {
                self.part(&v.chain, &w.chain, |pairs, all, some| pairs.pair(all, some))?
            }
            (false, true) => {
                self.part(&w.chain, &v.chain, |pairs, all, some| pairs.pair(some, all))?
            }
        }
        Ok(())
    }

    /// Compares a complete chain `all` with the visible part `some` of an incomplete one.
    ///
    /// `some` contains the root and the VMA's own anon_vma, or a single entry if both are the same.
    /// The incomplete chain is known to have more than one link.
    fn part(
        &mut self,
        all: &[Av],
        some: &[Av],
        pair: impl Fn(&mut Self, Av, Av) -> Result<(), String>,
    ) -> Result<(), String> {
        if all.len() < 2 {
            return Err("one chain has a single link, the other has more".to_owned());
        }
        if let ([first, ..], [root, _]) = (all, some) {
            pair(self, *first, *root)?;
        }
        self.links += some.len();
        self.hidden += all.len().saturating_sub(some.len());
        Ok(())
    }

    fn anon_vma(&mut self, x: &AnonVma, y: &AnonVma) -> Result<(), String> {
        self.pair(x.root, y.root)?;
        match (x.parent, y.parent) {
            (Some(p), Some(q)) => self.pair(p, q)?,
            (None, None) => {}
            _ => self.hidden += 1,
        }
        for (what, here, there) in [
            ("num_children", x.num_children, y.num_children),
            ("num_active_vmas", x.num_active_vmas, y.num_active_vmas),
        ] {
            match (here, there) {
                (Some(here), Some(there)) if here != there => {
                    return Err(format!("{what} {here} against {there}"));
                }
                (Some(_), Some(_)) | (None, None) => {}
                _ => self.hidden += 1,
            }
        }
        Ok(())
    }

    /// Maps `x` to `y`; fails if one of them is already mapped to another anon_vma.
    fn pair(&mut self, x: Av, y: Av) -> Result<(), String> {
        let there = *self.there.entry(x).or_insert(y);
        let back = *self.back.entry(y).or_insert(x);
        if (there, back) == (y, x) {
            return Ok(());
        }
        Err(if there == y {
            format!("{y} stands for {back} and for {x}")
        } else {
            format!("{x} stands for {there} and for {y}")
        })
    }
}
