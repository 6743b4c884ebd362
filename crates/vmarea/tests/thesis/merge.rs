//! Section 3.1: merges that the thesis adds to mainline, and similar merges that it must refuse.

use crate::ends_with;
use crate::world::{RW, World};
use vmarea::types::MmId;
use vmarea::types::call_flags::{MremapFlags, Prot};

const NOTHING: MremapFlags = MremapFlags::empty();

/// The state of the pages during the call under test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Own,
    Shared,
    /// A child has shared the pages, but has exited.
    ChildGone,
}

impl World {
    /// Brings the pages of `mm` into the given state.
    fn make(&mut self, mm: MmId, pages: Pages) {
        match pages {
            Pages::Own => {}
            Pages::Shared => drop(self.fork(mm)),
            Pages::ChildGone => {
                let child = self.fork(mm);
                self.exit(child);
            }
        }
    }
}

/// ```text
/// AAA   munmap   A.A   grow the first   AAA
/// ```
fn expand(pages: Pages) -> impl Fn(&mut World, MmId) {
    move |w, mm| {
        w.map(mm, 0, 3, RW);
        w.write(mm, 0, 3);
        w.unmap(mm, 1, 1);
        w.make(mm, pages);
        w.grow(mm, 0, 1, 2);
    }
}

/// Since Linux 5.19, when `mremap` grows a mapping, it tries to merge the mapping with the next
/// VMA. The page offsets are already contiguous and the anon_vmas equal, so sharing does not
/// matter.
#[test]
fn t3_1_1_expand_merge() {
    ends_with([1, 2, 1, 1], expand(Pages::Own));
    ends_with([1, 2, 1, 1], |w, mm| {
        w.map(mm, 0, 3, RW);
        w.unmap(mm, 1, 1);
        w.grow(mm, 0, 1, 2);
    });
}

#[test]
fn t3_1_1_expand_merge_shared() {
    ends_with([1, 2, 1, 1], expand(Pages::Shared));
}

/// ```text
/// AAAAA   munmap   A..AA   mremap   AAA..   page offsets 0, 3 4  ->  0, 1 2
/// ```
fn page_offset(pages: Pages) -> impl Fn(&mut World, MmId) {
    move |w, mm| {
        w.map(mm, 0, 5, RW);
        w.write(mm, 0, 5);
        w.unmap(mm, 1, 2);
        w.make(mm, pages);
        w.shift(mm, 3, 2, 1, NOTHING).unwrap();
    }
}

/// Mainline never changes the page offset of faulted pages.
#[test]
fn t3_1_2_page_offset_update() {
    ends_with([2, 2, 1, 1], page_offset(Pages::Own));
    ends_with([2, 2, 1, 1], page_offset(Pages::ChildGone));
}

/// The index of a page that the child also maps must not change.
#[test]
fn t3_1_2_page_offset_update_shared() {
    ends_with([2, 2, 2, 2], page_offset(Pages::Shared));
}

/// Unfaulted memory gets the page offset of its new address under every policy.
#[test]
fn t3_1_2_page_offset_update_unfaulted() {
    ends_with([1, 1, 1, 1], |w, mm| {
        w.map(mm, 0, 5, RW);
        w.unmap(mm, 1, 2);
        w.shift(mm, 3, 2, 1, NOTHING).unwrap();
    });
}

/// ```text
/// A..B   grow the first   AAAB   one VMA with A's anon_vma
/// ```
fn different_av(pages: Pages) -> impl Fn(&mut World, MmId) {
    move |w, mm| {
        w.map(mm, 0, 1, RW);
        w.map(mm, 3, 1, RW);
        w.write(mm, 0, 1);
        w.write(mm, 3, 1);
        w.make(mm, pages);
        w.grow(mm, 0, 1, 3);
    }
}

/// Mainline never merges VMAs that have different anon_vmas.
#[test]
fn t3_1_3_different_av() {
    ends_with([2, 2, 1, 1], different_av(Pages::Own));
    ends_with([2, 2, 1, 1], different_av(Pages::ChildGone));
}

#[test]
fn t3_1_3_different_av_shared() {
    ends_with([2, 2, 2, 2], different_av(Pages::Shared));
}

/// A new, unfaulted mapping fills the hole between two faulted neighbours.
#[test]
fn t3_1_3_different_av_filled_by_mmap() {
    ends_with([2, 2, 1, 1], |w, mm| {
        w.map(mm, 0, 1, RW);
        w.map(mm, 3, 1, RW);
        w.write(mm, 0, 1);
        w.write(mm, 3, 1);
        w.map(mm, 1, 2, RW);
    });
}

/// ```text
/// AA....BB   mremap   AABB....   or   ....AABB
/// ```
fn different_av_and_page_offset(second: bool, pages: Pages) -> impl Fn(&mut World, MmId) {
    move |w, mm| {
        w.map(mm, 0, 2, RW);
        w.map(mm, 6, 2, RW);
        w.write(mm, 0, 2);
        w.write(mm, 6, 2);
        w.make(mm, pages);
        if second {
            w.shift(mm, 6, 2, 2, NOTHING).unwrap();
        } else {
            w.shift(mm, 0, 2, 4, NOTHING).unwrap();
        }
    }
}

#[test]
fn t3_1_4_different_av_and_page_offset() {
    for second in [true, false] {
        ends_with(
            [2, 2, 1, 1],
            different_av_and_page_offset(second, Pages::Own),
        );
        let gone = different_av_and_page_offset(second, Pages::ChildGone);
        ends_with([2, 2, 1, 1], gone);
    }
}

#[test]
fn t3_1_4_different_av_and_page_offset_shared() {
    for second in [true, false] {
        let shared = different_av_and_page_offset(second, Pages::Shared);
        ends_with([2, 2, 2, 2], shared);
    }
}

/// ```text
/// A.B.C.D.   mremap each   ABCD....
/// ```
/// With `same`, one mapping is cut into pieces after its first fault, so the anon_vmas are equal.
fn spacing(same: bool, pages: Pages) -> impl Fn(&mut World, MmId) {
    const N: u64 = 8;
    move |w, mm| {
        if same {
            w.map(mm, 0, 2 * N, RW);
            w.write(mm, 0, 2 * N);
            (0..N).for_each(|n| w.unmap(mm, 2 * n + 1, 1));
        } else {
            (0..N).for_each(|n| w.map(mm, 2 * n, 1, RW));
            (0..N).for_each(|n| w.write(mm, 2 * n, 1));
        }
        w.make(mm, pages);
        (1..N).for_each(|n| w.shift(mm, 2 * n, 1, n, NOTHING).unwrap());
    }
}

#[test]
fn t3_1_5_spacing() {
    ends_with([8, 8, 1, 1], spacing(true, Pages::Own));
    ends_with([8, 8, 1, 1], spacing(false, Pages::Own));
}

#[test]
fn t3_1_5_spacing_shared() {
    ends_with([8, 8, 8, 8], spacing(true, Pages::Shared));
    ends_with([8, 8, 8, 8], spacing(false, Pages::Shared));
}

/// Two mappings are merged, separated and merged again. In each merge, the mapping that is not
/// moved keeps its page offset.
fn regroup(pages: Pages) -> impl Fn(&mut World, MmId) {
    move |w, mm| {
        w.map(mm, 0, 2, RW);
        w.map(mm, 8, 2, RW);
        w.write(mm, 0, 2);
        w.write(mm, 8, 2);
        w.make(mm, pages);
        w.shift(mm, 8, 2, 2, NOTHING).unwrap();
        w.shift(mm, 0, 2, 20, NOTHING).unwrap();
        w.shift(mm, 2, 2, 18, NOTHING).unwrap();
    }
}

#[test]
fn t3_1_6_regroup() {
    ends_with([2, 2, 1, 1], regroup(Pages::Own));
}

#[test]
fn t3_1_6_regroup_shared() {
    ends_with([2, 2, 2, 2], regroup(Pages::Shared));
}

/// The thesis considers a child's pages shared even after the parent has exited; policy `vmarea`
/// checks the individual pages.
#[test]
fn a_child_whose_parent_has_gone() {
    let left = crate::POLICIES.map(|policy| {
        let (mut w, mm) = World::new(policy);
        w.map(mm, 0, 2, RW);
        w.map(mm, 6, 2, RW);
        w.write(mm, 0, 2);
        w.write(mm, 6, 2);
        let child = w.fork(mm);
        w.exit(mm);
        w.shift(child, 6, 2, 2, NOTHING).unwrap();
        w.vmas(child).len()
    });
    assert_eq!(left, [2, 2, 2, 1]);
}

/// A merged mapping can still be written to, split, forked and unmapped.
#[test]
fn a_merged_mapping_goes_on() {
    for policy in crate::POLICIES {
        let (mut w, mm) = World::new(policy);
        different_av_and_page_offset(true, Pages::Own)(&mut w, mm);
        let child = w.fork(mm);
        w.write(child, 0, 4);
        w.write(mm, 1, 2);
        w.protect(mm, 1, 2, Prot::READ);
        w.exit(mm);
        w.write(child, 0, 4);
        w.unmap(child, 1, 2);
        assert_eq!(w.vmas(child).len(), 2);
    }
}
