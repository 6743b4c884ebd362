//! The neighbours that a range merges with.

use crate::Proposal;
use crate::types::VmRange;
use crate::view::VmaView;

/// The neighbours that a range merges with.
#[derive(Clone, Copy)]
pub(super) enum Sides<'a> {
    /// The previous VMA.
    Prev(&'a VmaView),
    /// The next VMA.
    Next(&'a VmaView),
    /// Both neighbours: the previous VMA, then the next VMA.
    Both(&'a VmaView, &'a VmaView),
}

impl<'a> Sides<'a> {
    /// Returns the VMA that remains.
    pub(super) fn target(self) -> &'a VmaView {
        match self {
            Sides::Prev(vma) | Sides::Next(vma) | Sides::Both(vma, _) => vma,
        }
    }

    /// Returns the previous and the next VMA; `None` for a neighbour that does not merge.
    pub(super) fn both(self) -> [Option<&'a VmaView>; 2] {
        match self {
            Sides::Prev(prev) => [Some(prev), None],
            Sides::Next(next) => [None, Some(next)],
            Sides::Both(prev, next) => [Some(prev), Some(next)],
        }
    }

    /// Returns the address range of the merged VMA.
    pub(super) fn range(self, p: &Proposal) -> VmRange {
        match self {
            Sides::Prev(prev) => VmRange::new(prev.range.start, p.range.end),
            Sides::Next(next) => VmRange::new(p.range.start, next.range.end),
            Sides::Both(prev, next) => VmRange::new(prev.range.start, next.range.end),
        }
    }
}
