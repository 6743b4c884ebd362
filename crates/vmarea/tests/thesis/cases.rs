//! The eight cases of figure 2.16: which VMA grows, which shrinks and which is removed.
//!
//! `P` is the previous VMA, `N` the VMA that contains or follows the range, and `X` the VMA after
//! `N`; `*` is the range that is moved or changed. Every VMA has pages under an anon_vma of its
//! own. Therefore mainline merges nothing here, and policies that do merge have to change pages.

use crate::POLICIES;
use crate::world::{PAGE, RW, World, at};
use vmarea::types::call_flags::{MremapFlags, Prot};
use vmarea::types::{AnonVmaId, MmId};

/// The end and the anon_vma of each VMA after the call, and the kind of merge.
struct Came {
    ends: Vec<u64>,
    anon_vmas: Vec<AnonVmaId>,
    kind: Option<&'static str>,
}

/// Creates `mappings` (page, pages, protection), each faulted with an anon_vma of its own.
fn before(w: &mut World, mm: MmId, mappings: &[(u64, u64, Prot)]) -> Vec<AnonVmaId> {
    for &(page, pages, _) in mappings {
        // Far from its neighbours, because it would otherwise reuse the anon_vma of one of them.
        w.map(mm, 1000 + 10 * page, pages, RW);
        w.write(mm, 1000 + 10 * page, pages);
    }
    for &(page, pages, prot) in mappings {
        if prot != RW {
            w.protect(mm, 1000 + 10 * page, pages, prot);
        }
    }
    for &(page, pages, _) in mappings {
        let none = MremapFlags::empty();
        w.shift(mm, 1000 + 10 * page, pages, page, none).unwrap();
    }
    w.vmas(mm).iter().filter_map(|v| v.anon_vma).collect()
}

fn came(w: &World, mm: MmId) -> Came {
    let vmas = w.vmas(mm);
    let r = w.machine.space().mmap_read_lock(mm).unwrap();
    let merges = r.state().stats.merges().filter(|(_, n)| *n > 0);
    let kinds: Vec<_> = merges.map(|(kind, _)| kind.name()).collect();
    assert!(kinds.len() <= 1, "one merge at the most: {kinds:?}");
    Came {
        ends: vmas.iter().map(|v| (v.range.end - at(0)) / PAGE).collect(),
        anon_vmas: vmas.iter().filter_map(|v| v.anon_vma).collect(),
        kind: kinds.first().copied(),
    }
}

/// One case of the figure.
struct Case<'a> {
    /// First page, number of pages and protection of each mapping, in address order.
    mappings: &'a [(u64, u64, Prot)],
    /// The end of each VMA after the call, under a policy that does not merge them.
    apart: &'a [u64],
    kind: &'a str,
    /// The end of each VMA after the call, under a policy that merges them.
    together: &'a [u64],
    /// For each VMA after the merge, the index in `mappings` of the mapping whose anon_vma it has.
    survives: &'a [usize],
}

impl Case<'_> {
    #[track_caller]
    fn check(&self, call: impl Fn(&mut World, MmId)) {
        for policy in POLICIES {
            let name = policy.name;
            let (mut w, mm) = World::new(policy);
            let own = before(&mut w, mm, self.mappings);
            assert_eq!(own.len(), self.mappings.len(), "{name}: apart at first");
            call(&mut w, mm);
            let came = came(&w, mm);
            if policy.merging.different_anon_vmas {
                assert_eq!(came.ends, self.together, "{name}");
                assert_eq!(came.kind, Some(self.kind), "{name}");
                let whose: Vec<AnonVmaId> = self.survives.iter().map(|n| own[*n]).collect();
                assert_eq!(came.anon_vmas, whose, "{name}");
            } else {
                assert_eq!(came.ends, self.apart, "{name}");
                assert_eq!(came.kind, None, "{name}");
            }
        }
    }
}

const RO: Prot = Prot::READ;
const RX: Prot = Prot::READ.union(Prot::EXEC);

fn move_in(w: &mut World, mm: MmId) {
    w.shift(mm, 50, 2, 2, MremapFlags::empty()).unwrap();
}

/// ```text
/// PPPP****NNNN  ->  PPPPPPPPPPPP
/// ```
#[test]
fn case_1_a_new_range_joins_both() {
    Case {
        mappings: &[(0, 2, RW), (4, 2, RW), (50, 2, RW)],
        apart: &[2, 4, 6],
        kind: "join_across",
        together: &[6],
        survives: &[0],
    }
    .check(move_in);
}

/// ```text
/// PPPP****NNNN  ->  PPPPPPPPNNNN
/// ```
#[test]
fn case_2_a_new_range_joins_the_one_before() {
    Case {
        mappings: &[(0, 2, RW), (4, 2, RO), (50, 2, RW)],
        apart: &[2, 4, 6],
        kind: "extend_prev",
        together: &[4, 6],
        survives: &[0, 1],
    }
    .check(move_in);
}

/// ```text
/// PPPP****NNNN  ->  PPPPNNNNNNNN
/// ```
#[test]
fn case_3_a_new_range_joins_the_one_after() {
    Case {
        mappings: &[(0, 2, RO), (4, 2, RW), (50, 2, RW)],
        apart: &[2, 4, 6],
        kind: "extend_next",
        together: &[2, 6],
        survives: &[0, 1],
    }
    .check(move_in);
}

/// ```text
/// PPPP****NNNN  ->  PPPPNNNNNNNN    if **** was the end of P
/// ```
#[test]
fn case_4_the_end_of_one_goes_to_the_next() {
    Case {
        mappings: &[(0, 4, RO), (4, 2, RW)],
        apart: &[2, 4, 6],
        kind: "next_takes_part",
        together: &[2, 6],
        survives: &[0, 1],
    }
    .check(|w, mm| w.protect(mm, 2, 2, RW));
}

/// ```text
/// PPPP****NNNN  ->  PPPPPPPPNNNN    if **** was the beginning of N
/// ```
#[test]
fn case_5_the_beginning_of_one_goes_to_the_one_before() {
    Case {
        mappings: &[(0, 2, RW), (2, 4, RO)],
        apart: &[2, 4, 6],
        kind: "prev_takes_part",
        together: &[4, 6],
        survives: &[0, 1],
    }
    .check(|w, mm| w.protect(mm, 2, 2, RW));
}

/// ```text
/// PPPP****XXXX  ->  PPPPPPPPPPPP    if **** was all of N
/// ```
#[test]
fn case_6_three_become_one() {
    Case {
        mappings: &[(0, 2, RW), (2, 2, RO), (4, 2, RW)],
        apart: &[2, 4, 6],
        kind: "join_three",
        together: &[6],
        survives: &[0],
    }
    .check(|w, mm| w.protect(mm, 2, 2, RW));
}

/// ```text
/// PPPP****XXXX  ->  PPPPPPPPXXXX    if **** was all of N
/// ```
#[test]
fn case_7_one_goes_to_the_one_before() {
    Case {
        mappings: &[(0, 2, RW), (2, 2, RO), (4, 2, RX)],
        apart: &[2, 4, 6],
        kind: "prev_takes_all",
        together: &[4, 6],
        survives: &[0, 2],
    }
    .check(|w, mm| w.protect(mm, 2, 2, RW));
}

/// ```text
/// PPPP****XXXX  ->  PPPPXXXXXXXX    if **** was all of N: X grows over N, never N over X
/// ```
#[test]
fn case_8_one_goes_to_the_one_after() {
    Case {
        mappings: &[(0, 2, RX), (2, 2, RO), (4, 2, RW)],
        apart: &[2, 4, 6],
        kind: "next_takes_all",
        together: &[2, 6],
        survives: &[0, 2],
    }
    .check(|w, mm| w.protect(mm, 2, 2, RW));
}
