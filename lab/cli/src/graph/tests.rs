//! The comparison of two graphs: with the running kernel's, and with graphs that differ.

use super::in_kernel::in_kernel;
use super::isomorphism::compare;
use vmarea::policy::Policy;
use vmarea_process::view::{KernelView, ViewError, ViewVma};
use vmarea_report::graph::family::in_core;
use vmarea_report::graph::kernel::{self, NamedVma};
use vmarea_report::graph::{Av, Graph, Links};

fn family() -> Graph {
    in_core(Policy::LINUX).expect("the core does every step")
}

/// Returns the parts of a graph that a kernel would show, with different anon_vma numbers.
fn as_seen(graph: &Graph) -> Graph {
    let id = |av: Av| 0xffff_8880_0000_0000 + (97 - av.0 as u64) * 104;
    let processes = graph.processes.iter().map(|process| {
        let vmas = process.vmas.iter().map(|vma| {
            let own = vma.own.map(|own| &graph.anon_vmas[own.0]);
            let shown = ViewVma {
                start: vma.start,
                end: vma.end,
                pgoff: vma.pgoff,
                flags: vma.flags.bits(),
                anon_vma: own.map_or(0, |own| id(own.id)),
                root: own.map_or(0, |own| id(own.root)),
                chain_singular: vma.chain.len() <= 1,
                num_children: own.and_then(|own| own.num_children),
                num_active_vmas: own.and_then(|own| own.num_active_vmas),
                ..ViewVma::default()
            };
            NamedVma {
                name: vma.name.clone(),
                vma: shown,
            }
        });
        (process.name.clone(), process.parent, vmas.collect())
    });
    kernel::graph("as the kernel shows it", processes.collect())
}

#[test]
fn the_running_kernel_makes_the_same_graph() {
    let eye = match KernelView::open() {
        Ok(eye) => eye,
        Err(error @ (ViewError::Permission | ViewError::NoBtf(_) | ViewError::TooOld(_))) => {
            eprintln!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let (ours, theirs) = (family(), in_kernel(&eye).unwrap());
    let verdict = compare(&ours, &theirs);
    assert_eq!(verdict.difference, None);
    assert_eq!(verdict.vmas, ours.vma_count());
    assert_eq!(verdict.anon_vmas, ours.anon_vmas.len());
    assert!(verdict.links > ours.vma_count(), "{verdict:?}");
}

#[test]
fn names_do_not_matter_and_everything_else_does() {
    let whole = family();
    let seen = as_seen(&whole);
    assert!(compare(&whole, &whole).isomorphic);
    assert_eq!(compare(&whole, &whole).hidden, 0);
    let verdict = compare(&whole, &seen);
    assert_eq!(verdict.difference, None);
    assert!(verdict.hidden > 0);
    assert!(compare(&seen, &whole).isomorphic);

    let differs = |change: &dyn Fn(&mut Graph)| {
        for mut other in [whole.clone(), seen.clone()] {
            change(&mut other);
            let verdict = compare(&whole, &other);
            assert!(!verdict.isomorphic, "{verdict:?}");
            assert!(verdict.text().contains("not isomorphic"));
            assert!(!compare(&other, &whole).isomorphic);
        }
    };
    differs(&|graph| graph.processes[1].vmas[0].pgoff += 1);
    differs(&|graph| graph.processes[1].vmas[0].end += 4096);
    differs(&|graph| graph.processes[2].vmas.truncate(3));
    differs(&|graph| graph.processes.truncate(2));
    // Two VMAs of the child with the same anon_vma, as if a fork had not separated them.
    differs(&|graph| graph.processes[1].vmas[2].own = graph.processes[1].vmas[1].own);
    differs(&|graph| graph.processes[0].vmas[0].own = None);
    differs(&|graph| {
        let own = graph.processes[2].vmas[0].own.unwrap();
        graph.anon_vmas[own.0].root = own;
    });
    differs(&|graph| {
        let own = graph.processes[0].vmas[0].own.unwrap();
        graph.anon_vmas[own.0].num_children = Some(7);
    });
    // A chain without its ancestors.
    differs(&|graph| {
        let vma = &mut graph.processes[2].vmas[0];
        vma.chain = vec![vma.own.unwrap()];
        vma.links = Links::All;
    });
}
