//! The merge decision for two neighbours when some of their attributes are unknown.
//!
//! An outside observer knows only some attributes of a VMA. This module first runs the merge
//! decision with all hidden attributes assumed equal: a refusal is then due to the known attributes
//! alone. It then runs the decision once for each hidden attribute, with that attribute assumed
//! different, to find the refusal that this difference would cause. The module does not guess which
//! hidden attribute is the probable cause.

use crate::policy::Policy;
use crate::types::{AnonVmaId, FileId, PageOffsets, Pgoff, VmFlags};
use crate::view::VmaView;
use crate::{AssumeShared, Decision, Refusal};
use bitflags::bitflags;

bitflags! {
    /// Attributes whose values in two neighbours the observer cannot compare.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Hidden: u8 {
        /// Memory policies.
        const POLICY = 1;
        /// Flags other than [`Hidden::SEEN_FLAGS`].
        const FLAGS = 2;
        /// Identity of the open file.
        const FILE = 4;
        /// userfaultfd contexts.
        const USERFAULTFD = 8;
        /// Names.
        const NAME = 0x10;
        /// anon_vmas and chains.
        const ANON_VMA = 0x20;
        /// Page offsets.
        const PAGE_OFFSET = 0x40;
    }
}

impl Hidden {
    /// Flags that the observer can compare even if the others are hidden.
    pub const SEEN_FLAGS: VmFlags = VmFlags::ACCESS
        .union(VmFlags::MAYSHARE)
        .union(VmFlags::SHARED);
}

/// Why two neighbours are separate, as far as the known attributes show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Explanation {
    /// The refusal that keeps the neighbours apart, whatever the hidden attributes are.
    Apart(Refusal),
    /// The known attributes match, so either one of these refusals applies or none does. The
    /// refusals are in the order of the checks, without duplicates.
    OneOf(Candidates),
    /// Nothing keeps the neighbours apart: the next call that affects their border merges them.
    Together,
}

/// Refusals that the hidden attributes could cause.
pub type Candidates = smallvec::SmallVec<[Refusal; 7]>;

/// Explains why two adjacent VMAs are separate when some attributes are hidden. The values of the
/// `hidden` attributes in `a` and `b` are ignored.
///
/// The VMAs are kept apart only if [both directions](Decision::refusal) are refused.
///
/// ```
/// use vmarea_merge::partial_view::{Explanation, Hidden, explain};
/// use vmarea_merge::policy::Policy;
/// use vmarea_merge::types::{PageOffsets, VmFlags, VmRange, VmaId};
/// use vmarea_merge::view::{VmaBody, VmaView};
/// use vmarea_merge::Refusal;
///
/// let body = VmaBody { flags: VmFlags::READ, ..VmaBody::default() };
/// let vma = |id, start, end| VmaView {
///     id: VmaId::from_bits(id).expect("not 0"),
///     range: VmRange::new(start, end),
///     offsets: PageOffsets::ADDRESS,
///     anon_vma: None,
///     chain_singular: true,
///     body,
/// };
/// let (low, high) = (vma(1, 0x1000, 0x3000), vma(2, 0x3000, 0x4000));
/// // If everything is known, nothing keeps them apart.
/// let all = explain(&Policy::LINUX, &low, &high, Hidden::empty());
/// assert!(matches!(all, Explanation::Together));
/// // `/proc/PID/maps` hides the anon_vmas, so these may differ.
/// let some = explain(&Policy::LINUX, &low, &high, Hidden::ANON_VMA);
/// let Explanation::OneOf(candidates) = some else { panic!("{some:?}") };
/// assert!(candidates.contains(&Refusal::AnonVma));
/// ```
pub fn explain(policy: &Policy, a: &VmaView, b: &VmaView, hidden: Hidden) -> Explanation {
    let (a, b) = equalised(a, b, hidden);
    let decision = Decision {
        policy,
        evidence: &AssumeShared,
    };
    if let Some(refusal) = decision.refusal(&a, &b) {
        return Explanation::Apart(refusal);
    }
    let mut candidates = Candidates::new();
    for part in hidden.iter() {
        let refusal = decision.refusal(&a, &altered(&b, part));
        candidates.extend(refusal);
        if part == Hidden::ANON_VMA {
            // The refusal can depend on whether both VMAs have an anon_vma or only one has.
            let own = |view: &VmaView, number| VmaView {
                anon_vma: anon_vma(number),
                ..*view
            };
            candidates.extend(decision.refusal(&own(&a, 1), &own(&b, 2)));
        }
    }
    candidates.sort_unstable();
    candidates.dedup();
    if candidates.is_empty() {
        Explanation::Together
    } else {
        Explanation::OneOf(candidates)
    }
}

/// Makes an anon_vma id from a number; such ids are only compared with each other.
fn anon_vma(number: u64) -> Option<AnonVmaId> {
    AnonVmaId::from_bits(number)
}

/// Gives the first page of the view the page offset `pgoff`.
fn set_pgoff(view: &mut VmaView, pgoff: Pgoff) {
    view.offsets = PageOffsets::starting_at(pgoff, view.range.start);
}

/// Returns both views with the hidden attributes made equal.
fn equalised(a: &VmaView, b: &VmaView, hidden: Hidden) -> (VmaView, VmaView) {
    let (mut a, mut b) = (*a, *b);
    if hidden.contains(Hidden::POLICY) {
        b.body.policy = a.body.policy;
    }
    if hidden.contains(Hidden::FLAGS) {
        for flags in [&mut a.body.flags, &mut b.body.flags] {
            *flags &= Hidden::SEEN_FLAGS;
        }
    }
    if hidden.contains(Hidden::FILE)
        && let (Some(file), Some(same)) = (&mut b.body.file, a.body.file)
    {
        file.id = same.id;
    }
    if hidden.contains(Hidden::USERFAULTFD) {
        b.body.uffd = a.body.uffd;
    }
    if hidden.contains(Hidden::NAME) {
        b.body.name = a.body.name;
    }
    if hidden.contains(Hidden::ANON_VMA) {
        for view in [&mut a, &mut b] {
            view.anon_vma = None;
            view.chain_singular = true;
        }
    }
    if hidden.contains(Hidden::PAGE_OFFSET) {
        b.offsets = a.offsets;
    }
    (a, b)
}

/// Returns the view with one attribute changed to a different value.
fn altered(view: &VmaView, part: Hidden) -> VmaView {
    let mut view = *view;
    match part {
        Hidden::POLICY => view.body.policy = !view.body.policy,
        // Any hidden flag would do; this one does not make the VMA special.
        Hidden::FLAGS => view.body.flags ^= VmFlags::DONTCOPY,
        Hidden::FILE => {
            if let Some(file) = &mut view.body.file {
                file.id = FileId(!file.id.0);
            }
        }
        Hidden::USERFAULTFD => view.body.uffd = !view.body.uffd,
        Hidden::NAME => view.body.name = !view.body.name,
        Hidden::ANON_VMA => {
            view.anon_vma = anon_vma(1);
            view.chain_singular = false;
        }
        Hidden::PAGE_OFFSET => {
            let other = Pgoff(!view.pgoff().0);
            set_pgoff(&mut view, other);
        }
        _ => {}
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FileKind, PAGE_SIZE, VmRange, VmaId};
    use crate::view::{MappedFile, VmaBody};

    fn view(start: u64, pages: u64) -> VmaView {
        VmaView {
            id: VmaId::from_bits(start).unwrap(),
            range: VmRange::new(start, start + pages * PAGE_SIZE),
            offsets: PageOffsets::ADDRESS,
            anon_vma: None,
            chain_singular: true,
            body: VmaBody {
                flags: VmFlags::READ | VmFlags::WRITE,
                ..VmaBody::default()
            },
        }
    }

    fn pair() -> (VmaView, VmaView) {
        (view(0x10_0000, 2), view(0x10_0000 + 2 * PAGE_SIZE, 3))
    }

    fn why(a: &VmaView, b: &VmaView, hidden: Hidden) -> Explanation {
        explain(&Policy::LINUX, a, b, hidden)
    }

    #[test]
    fn with_nothing_hidden_it_is_the_decision() {
        let (mut a, mut b) = pair();
        assert_eq!(why(&a, &b, Hidden::empty()), Explanation::Together);
        (a.anon_vma, b.anon_vma) = (anon_vma(1), anon_vma(2));
        let apart = |refusal| Explanation::Apart(refusal);
        assert_eq!(why(&a, &b, Hidden::empty()), apart(Refusal::AnonVma));
        b.anon_vma = anon_vma(1);
        set_pgoff(&mut b, Pgoff(7));
        assert_eq!(why(&a, &b, Hidden::empty()), apart(Refusal::PageOffset));
        b.body.flags |= VmFlags::DONTCOPY;
        assert_eq!(why(&a, &b, Hidden::empty()), apart(Refusal::Flags));
    }

    #[test]
    fn what_is_seen_decides_alone_where_it_can() {
        let (a, mut b) = pair();
        b.body.flags -= VmFlags::WRITE;
        let apart = Explanation::Apart(Refusal::Protection);
        assert_eq!(why(&a, &b, Hidden::all()), apart);
    }

    #[test]
    fn what_is_hidden_is_not_looked_at_and_gives_the_candidates() {
        let (mut a, mut b) = pair();
        let hidden = Hidden::FLAGS | Hidden::ANON_VMA | Hidden::PAGE_OFFSET;
        let expected = [Refusal::Flags, Refusal::AnonVma, Refusal::PageOffset];
        let one_of = Explanation::OneOf(Candidates::from_slice(&expected));
        assert_eq!(why(&a, &b, hidden), one_of);
        set_pgoff(&mut a, Pgoff(99));
        b.anon_vma = anon_vma(4);
        b.body.flags |= VmFlags::IO | VmFlags::HUGEPAGE;
        assert_eq!(why(&a, &b, hidden), one_of);
        assert_eq!(
            why(&b, &a, Hidden::all()),
            Explanation::Together,
            "they do not touch"
        );
    }

    #[test]
    fn a_hidden_file_is_a_candidate_only_where_both_have_one() {
        let (mut a, mut b) = pair();
        let file = MappedFile {
            id: FileId(1),
            inode: 1,
            kind: FileKind::Regular,
        };
        a.body.file = Some(file);
        assert_eq!(
            why(&a, &b, Hidden::FILE),
            Explanation::Apart(Refusal::File),
            "a file and none"
        );
        b.body.file = Some(file);
        set_pgoff(&mut a, Pgoff(0));
        set_pgoff(&mut b, Pgoff(2));
        let one_of = Explanation::OneOf(Candidates::from_slice(&[Refusal::File]));
        assert_eq!(why(&a, &b, Hidden::FILE), one_of);
        set_pgoff(&mut b, Pgoff(3));
        let apart = Explanation::Apart(Refusal::FileOffset);
        assert_eq!(why(&a, &b, Hidden::FILE), apart);
    }

    #[test]
    fn older_kernels_join_in_one_direction_only() {
        let (a, mut b) = pair();
        b.anon_vma = anon_vma(1);
        let old = explain(&Policy::LINUX_6_12, &a, &b, Hidden::empty());
        assert_eq!(
            old,
            Explanation::Together,
            "a call on the first joins the faulted second"
        );
        b.chain_singular = false;
        let old = explain(&Policy::LINUX_6_12, &a, &b, Hidden::empty());
        assert_eq!(old, Explanation::Apart(Refusal::AnonVma));
    }
}
