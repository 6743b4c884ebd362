//! Theme of a sequence.
//!
//! Some behaviour is rare in ordinary sequences: huge pages need large areas, and pages must first
//! be made equal before they can be merged. A theme makes such behaviour frequent. Sequences with a
//! theme take longer, so most sequences have none.

use super::super::rng::Rng;

/// Theme of a sequence: determines which calls are generated in addition to the usual ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Theme {
    /// No theme.
    Plain,
    /// Swap, KSM, migration.
    ///
    /// `MADV_FREE` and `MAP_DROPPABLE` are not used, because Linux may discard their pages at any
    /// time.
    Pages,
    /// Huge pages.
    Huge,
    /// Huge pages, some from the machine's pool; no userfaultfd.
    ///
    /// With a userfaultfd, one fault in the pool's pages maps 512 pages in the kernel, but one page
    /// in the core.
    Pool,
    /// Private file mappings that are written, moved, and given neighbours.
    Files,
    /// Memory that a userfaultfd watches.
    Userfault,
    /// An address space that is a few VMAs below the VMA limit.
    Limit,
}

impl Theme {
    /// Chooses a theme; expensive themes are rare.
    pub(super) fn choose(rng: &mut Rng) -> Theme {
        match rng.below(256) {
            0..=47 => Theme::Pages,
            48..=63 => Theme::Huge,
            64..=71 => Theme::Pool,
            72 | 73 => Theme::Limit,
            74..=93 => Theme::Files,
            94..=105 => Theme::Userfault,
            _ => Theme::Plain,
        }
    }

    /// Returns true for the themes with huge pages.
    pub(super) fn is_huge(self) -> bool {
        matches!(self, Theme::Huge | Theme::Pool)
    }

    /// Returns the number of steps in a sequence.
    pub(super) fn steps(self) -> usize {
        match self {
            Theme::Limit => 60,
            _ => 300,
        }
    }
}
