//! The graph of a family of three, its text, and its parts.

use vmarea::policy::Policy;
use vmarea_report::graph::family::in_core;
use vmarea_report::graph::{Extent, Graph, LeftOut, Links, Unattached};

pub fn family() -> Graph {
    in_core(Policy::LINUX).expect("the core does every step")
}

fn text(write: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_family_has_the_graph_that_linux_makes() {
    assert_eq!(
        text(|out| family().write_text(out, &LeftOut::default())),
        include_str!("family.txt")
    );
    assert_eq!(
        text(|out| family().write_dot(out, &LeftOut::default())),
        include_str!("family.dot")
    );
}

#[test]
fn every_chain_begins_with_the_root_and_ends_with_its_own() {
    let graph = family();
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
fn what_is_left_out_is_counted() {
    let whole = family();
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
