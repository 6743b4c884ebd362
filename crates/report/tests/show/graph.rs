//! The graph of the demonstration, and the comparison of two graphs.

use vmarea::policy::Policy;
use vmarea_process::view::{KernelView, ViewError, ViewVma};
use vmarea_report::graph::demo::{in_core, in_kernel};
use vmarea_report::graph::isomorphism::compare;
use vmarea_report::graph::kernel::{self, NamedVma};
use vmarea_report::graph::{Av, Extent, Graph, LeftOut, Links, Unattached};

pub fn demo() -> Graph {
    in_core(Policy::LINUX).expect("the core does every step")
}

fn text(write: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
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
fn the_demonstration_is_the_graph_that_linux_makes() {
    assert_eq!(
        text(|out| demo().write_text(out, &LeftOut::default())),
        include_str!("demo.txt")
    );
    assert_eq!(
        text(|out| demo().write_dot(out, &LeftOut::default())),
        include_str!("demo.dot")
    );
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
    let (ours, theirs) = (demo(), in_kernel(&eye).unwrap());
    let verdict = compare(&ours, &theirs);
    assert_eq!(verdict.difference, None);
    assert_eq!(verdict.vmas, ours.vma_count());
    assert_eq!(verdict.anon_vmas, ours.anon_vmas.len());
    assert!(verdict.links > ours.vma_count(), "{verdict:?}");
}

#[test]
fn every_chain_begins_with_the_root_and_ends_with_its_own() {
    let graph = demo();
    for vma in graph.processes.iter().flat_map(|p| &p.vmas) {
        assert_eq!(vma.links, Links::All);
        let Some(own) = vma.own else {
            assert!(vma.chain.is_empty());
            continue;
        };
        assert_eq!(vma.chain.last(), Some(&own));
        assert_eq!(vma.chain.first(), Some(&graph.anon_vmas[own.0].root));
        for pair in vma.chain.windows(2) {
            assert_eq!(graph.anon_vmas[pair[1].0].parent, Some(pair[0]));
        }
    }
}

#[test]
fn names_do_not_matter_and_everything_else_does() {
    let whole = demo();
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

#[test]
fn what_is_left_out_is_counted() {
    let whole = demo();
    let everything = Extent {
        processes: usize::MAX,
        vmas: usize::MAX,
        unattached: Unattached::Show,
    };
    let (same, left) = whole.select(everything);
    assert_eq!(same, whole);
    assert_eq!(left.text(), None);

    let (part, left) = whole.select(Extent {
        unattached: Unattached::Hide,
        ..everything
    });
    assert_eq!(left.vmas_without, 2);
    assert_eq!(part.vma_count() + 2, whole.vma_count());

    for vmas in 1..8 {
        for processes in 1..4 {
            let extent = Extent {
                processes,
                vmas,
                ..everything
            };
            let (part, left) = whole.select(extent);
            assert!(part.processes.iter().all(|p| p.vmas.len() <= vmas));
            assert!(part.vma_count() > 0);
            let shown = &whole.processes[..processes];
            let all: usize = shown.iter().map(|p| p.vmas.len()).sum();
            assert_eq!(part.vma_count() + left.vmas + left.vmas_without, all);
            assert_eq!(left.processes, 3 - processes);
        }
    }
    // A family is included completely or not at all, unless the result would be empty.
    let (part, left) = whole.select(Extent {
        vmas: 2,
        ..everything
    });
    let names: Vec<_> = part.processes[1]
        .vmas
        .iter()
        .map(|v| v.name.as_str())
        .collect();
    assert_eq!(names, ["data", "gone"]);
    assert!(left.text().unwrap().starts_with("left out: "));
}
