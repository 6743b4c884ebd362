//! Section 3.3: page offsets without a merge, sharing on one side only, and neighbours that cannot
//! merge with each other.

use crate::world::{RW, World, at};
use crate::{POLICIES, ends_with};
use vmarea::types::MmId;
use vmarea::types::call_flags::{MremapFlags, Prot};

const NOTHING: MremapFlags = MremapFlags::empty();

/// ```text
/// AAAAA   munmap   A..AA   mprotect   A..rr   mremap   Arr..   mprotect   AAA..
/// ```
fn without_merge(w: &mut World, mm: MmId, shared: bool) {
    w.map(mm, 0, 5, RW);
    w.write(mm, 0, 5);
    w.unmap(mm, 1, 2);
    w.protect(mm, 3, 2, Prot::READ);
    if shared {
        w.fork(mm);
    }
    w.shift(mm, 3, 2, 1, NOTHING).unwrap();
    assert_eq!(w.vmas(mm).len(), 2, "the protection keeps them apart");
    let follows = w.machine.space().policy().merging.update_pgoff && !shared;
    let line = w.lines(mm)[1];
    assert_eq!(line, if follows { 0 } else { 2 });
    w.protect(mm, 1, 2, RW);
}

#[test]
fn t3_3_1_page_offset_update_without_merge() {
    ends_with([2, 2, 1, 1], |w, mm| without_merge(w, mm, false));
}

#[test]
fn t3_3_1_page_offset_update_without_merge_shared() {
    ends_with([2, 2, 2, 2], |w, mm| without_merge(w, mm, true));
}

/// ```text
/// SS (shared) ....BB   mremap   SSBB   with S's anon_vma: only the pages of B change
/// ```
#[test]
fn t3_3_2_partially_shared() {
    ends_with([2, 2, 1, 1], |w, mm| {
        w.map(mm, 0, 2, RW);
        w.write(mm, 0, 2);
        w.fork(mm);
        w.map(mm, 6, 2, RW);
        w.write(mm, 6, 2);
        w.shift(mm, 6, 2, 2, NOTHING).unwrap();
    });
}

/// The shared mapping is moved. The thesis refuses the merge; `vmarea` instead changes the anon_vma
/// and page offset of the other mapping, whose pages are not shared.
#[test]
fn t3_3_2_partially_shared_other_order() {
    ends_with([2, 2, 2, 1], |w, mm| {
        w.map(mm, 0, 2, RW);
        w.write(mm, 0, 2);
        w.fork(mm);
        w.map(mm, 6, 2, RW);
        w.write(mm, 6, 2);
        w.shift(mm, 0, 2, 8, NOTHING).unwrap();
    });
}

/// Both mappings are shared, so no page is allowed to change.
#[test]
fn t3_3_2_partially_shared_both() {
    ends_with([2, 2, 2, 2], |w, mm| {
        w.map(mm, 0, 2, RW);
        w.map(mm, 6, 2, RW);
        w.write(mm, 0, 2);
        w.write(mm, 6, 2);
        w.fork(mm);
        w.shift(mm, 6, 2, 2, NOTHING).unwrap();
    });
}

/// ```text
/// SS..TT   BB elsewhere   mremap   SSBBTT   S and T shared with a child: B merges with S only
/// ```
#[test]
fn t3_3_3_filling_a_gap() {
    for policy in POLICIES {
        let (mut w, mm) = World::new(policy);
        gap(&mut w, mm, true);
        let thesis = policy.merging.different_anon_vmas;
        let vmas: Vec<_> = w.vmas(mm).iter().map(|v| v.range).collect();
        let ends: Vec<u64> = vmas.iter().map(|r| r.end).collect();
        let want = if thesis {
            vec![at(4), at(6)]
        } else {
            vec![at(2), at(4), at(6)]
        };
        assert_eq!(ends, want, "{}", policy.name);
    }
}

/// Without a child, all three mappings merge.
#[test]
fn t3_3_3_filling_a_gap_unshared() {
    ends_with([3, 3, 1, 1], |w, mm| gap(w, mm, false));
}

fn gap(w: &mut World, mm: MmId, shared: bool) {
    w.map(mm, 0, 2, RW);
    w.map(mm, 4, 2, RW);
    w.write(mm, 0, 2);
    w.write(mm, 4, 2);
    if shared {
        w.fork(mm);
    }
    w.map(mm, 10, 2, RW);
    w.write(mm, 10, 2);
    w.shift(mm, 10, 2, 2, NOTHING).unwrap();
}

/// A merge may copy shared pages, up to a budget; the thesis has no such budget.
///
/// If the number of shared pages is within the budget, the mappings merge and the child still reads
/// its old bytes. Otherwise nothing changes.
#[test]
fn a_budget_of_copies() {
    for (budget, left) in [(0, 2), (1, 2), (2, 1), (100, 1)] {
        let mut policy = vmarea::policy::Policy::VMAREA;
        policy.merging.copy_budget = budget;
        for to_shared in [true, false] {
            let (mut w, mm) = World::new(policy);
            w.map(mm, 0, 2, RW);
            w.map(mm, 6, 2, RW);
            w.write(mm, 0, 2);
            w.write(mm, 6, 2);
            w.fork(mm);
            if to_shared {
                w.shift(mm, 6, 2, 2, NOTHING).unwrap();
            } else {
                w.shift(mm, 0, 2, 4, NOTHING).unwrap();
            }
            assert_eq!(w.vmas(mm).len(), left, "budget {budget}");
            w.write(mm, if to_shared { 0 } else { 4 }, 4);
        }
    }
}

/// The lower or upper half of a mapping is moved directly below or directly above the mapping.
///
/// The source VMA is then also a neighbour. It grows, and its pages get new page offsets before
/// they are moved.
#[test]
fn a_source_that_is_its_own_neighbour() {
    for policy in POLICIES {
        for (from, to) in [(6, 2), (4, 2), (6, 8), (4, 8)] {
            for more in [NOTHING, MremapFlags::DONTUNMAP] {
                let (mut w, mm) = World::new(policy);
                w.map(mm, 0, 2, RW);
                w.write(mm, 0, 2);
                w.map(mm, 104, 4, RW);
                w.write(mm, 104, 4);
                w.shift(mm, 104, 4, 4, NOTHING).unwrap();
                w.shift(mm, from, 2, to, more).unwrap();
                w.write(mm, to, 2);
            }
        }
    }
}
