//! What a sequence is about.
//!
//! Some things only happen where there is much of something: huge pages need room, equal pages must
//! be made equal. Such sequences cost more, so that most are plain.

use super::super::rng::Rng;
use super::{Kind, kind, pages};

/// What a sequence is about, beside calls of all kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Theme {
    /// Nothing in particular.
    Plain,
    /// Swap, KSM, migration. Nothing in it may be thrown away by Linux when it likes: no
    /// `MADV_FREE`, no `MAP_DROPPABLE`.
    Pages,
    /// Huge pages.
    Huge,
    /// Huge pages, some from the machine's pool, and no userfaultfd: there one fault brings 512 pages,
    /// and here one.
    Pool,
    /// The limit of mappings, which lies a few away.
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
    /// One of them, the costly ones seldom.
    pub(super) fn choose(rng: &mut Rng) -> Theme {
        match rng.below(256) {
            0..=47 => Theme::Pages,
            48..=63 => Theme::Huge,
            64..=71 => Theme::Pool,
            72 => Theme::Limit,
            _ => Theme::Plain,
        }
    }

    /// It is about huge pages.
    pub(super) fn is_huge(self) -> bool {
        matches!(self, Theme::Huge | Theme::Pool)
    }

    /// Steps of a sequence.
    pub(super) fn steps(self) -> usize {
        match self {
            Theme::Limit => 60,
            _ => 300,
        }
    }

    /// Kinds of step that it adds.
    pub(super) fn kinds(self) -> &'static [Kind] {
        match self {
            Theme::Plain | Theme::Limit => &[],
            Theme::Pages => PAGES,
            Theme::Huge | Theme::Pool => HUGE,
        }
    }
}
