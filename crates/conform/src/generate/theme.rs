//! Theme of a sequence.
//!
//! Some behaviour occurs only with enough of a resource: huge pages need large areas, and equal
//! pages must be created. Such sequences take longer, so most sequences have no theme.

use super::super::rng::Rng;
use super::{Kind, kind, pages};

/// Theme of a sequence, in addition to calls of all kinds.
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
    /// With a userfaultfd one fault in the pool's pages maps 512 pages on the kernel, but one page
    /// in the core.
    Pool,
    /// An address space that is a few VMAs below the VMA limit.
    Limit,
}

const PAGES: &[Kind] = &[
    kind(120, pages::background),
    kind(40, pages::mergeable),
    kind(120, pages::write_equal),
    kind(30, pages::page_out),
];

const HUGE: &[Kind] = &[
    kind(150, pages::mmap_huge),
    kind(30, pages::mmap_pool),
    kind(150, pages::advise_huge),
    kind(60, pages::madvise_huge),
    kind(60, pages::collapse),
    kind(250, pages::touch_huge),
    kind(150, pages::cut_huge),
    kind(25, pages::thp_disable),
    kind(10, pages::background),
];

impl Theme {
    /// Chooses a theme; expensive themes are rare.
    pub(super) fn choose(rng: &mut Rng) -> Theme {
        match rng.below(256) {
            0..=47 => Theme::Pages,
            48..=63 => Theme::Huge,
            64..=71 => Theme::Pool,
            72 => Theme::Limit,
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

    /// Returns the additional kinds of step.
    pub(super) fn kinds(self) -> &'static [Kind] {
        match self {
            Theme::Plain | Theme::Limit => &[],
            Theme::Pages => PAGES,
            Theme::Huge | Theme::Pool => HUGE,
        }
    }
}
