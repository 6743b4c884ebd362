//! Rules written in Rust, for what switches and rules cannot say: see [`MergePolicy`].

use super::Policy;
use crate::types::VmFlags;
use crate::view::VmaView;
use crate::{Proposal, Refusal};
use core::fmt;
use core::panic::RefUnwindSafe;

/// A rule of one's own, on top of a policy.
///
/// The rule can refuse merges that the policy below it allows, and let VMAs merge although they
/// differ in certain flags. Everything else, such as sharing of pages, stays with the policy below.
///
/// ```
/// use vmarea_merge::policy::{MergePolicy, Policy};
/// use vmarea_merge::types::VmFlags;
/// use vmarea_merge::view::VmaView;
/// use vmarea_merge::{Proposal, Refusal};
///
/// /// No merge makes a VMA larger than 1 GiB, and `MADV_DONTDUMP` keeps no VMAs apart.
/// struct Mine;
///
/// impl MergePolicy for Mine {
///     fn name(&self) -> &'static str {
///         "mine"
///     }
///     fn sticky(&self) -> VmFlags {
///         VmFlags::DONTDUMP
///     }
///     fn refuses(&self, range: &Proposal, neighbour: &VmaView) -> Option<Refusal> {
///         let pages = range.range.pages() + neighbour.range.pages();
///         (pages > 1 << 18).then_some(Refusal::Special)
///     }
/// }
///
/// let mine = Policy::of(&Mine);
/// assert_eq!((mine.name, mine.rules), ("mine", Policy::LINUX.rules));
///
/// // A user can select it by its name, with switches.
/// let named = Policy::parse_among("mine+collector", &[&Mine]).unwrap();
/// assert!(named.policy.merging.collector && named.policy.name == "mine");
/// ```
pub trait MergePolicy: Sync + RefUnwindSafe {
    /// Returns the name, which must differ from those of other policies.
    fn name(&self) -> &'static str;

    /// Returns the policy below this rule. A rule of one's own in it is ignored.
    fn base(&self) -> Policy {
        Policy::LINUX
    }

    /// Returns flags that keep no VMAs apart: a merged VMA has those that any part has.
    ///
    /// Only flags in [`Own::MAY_STICK`] count: nothing is charged, locked or protected by them.
    fn sticky(&self) -> VmFlags {
        VmFlags::empty()
    }

    /// Returns why `range` must not merge with `neighbour`, which the policy below lets merge.
    ///
    /// If `range` could merge with both of its neighbours, is asked once more about the range that the
    /// merge with the lower one makes, and the upper one. Is not asked if a VMA grows in place. The
    /// refusal is counted and shown like any other.
    fn refuses(&self, range: &Proposal, neighbour: &VmaView) -> Option<Refusal> {
        let _ = (range, neighbour);
        None
    }
}

/// The rule of a policy that was written in Rust, if it has one.
#[derive(Clone, Copy, Default)]
pub struct Own(Option<&'static dyn MergePolicy>);

impl Own {
    /// No rule.
    pub const NONE: Own = Own(None);

    /// Flags that a rule can make sticky: advice without an effect on accounts or access.
    pub const MAY_STICK: VmFlags = VmFlags::DONTDUMP
        .union(VmFlags::DONTCOPY)
        .union(VmFlags::SEQ_READ)
        .union(VmFlags::RAND_READ)
        .union(VmFlags::HUGEPAGE)
        .union(VmFlags::NOHUGEPAGE)
        .union(VmFlags::MERGEABLE);

    /// True if there is no rule.
    pub(crate) fn is_none(self) -> bool {
        self.0.is_none()
    }

    #[inline]
    fn sticky(self) -> VmFlags {
        self.0.map_or(VmFlags::empty(), |own| own.sticky()) & Own::MAY_STICK
    }

    pub(crate) fn refuses(self, range: &Proposal, neighbour: &VmaView) -> Option<Refusal> {
        self.0.and_then(|own| own.refuses(range, neighbour))
    }
}

impl Policy {
    /// Returns the policy that a rule of one's own and the policy below it make.
    pub fn of(own: &'static dyn MergePolicy) -> Policy {
        Policy {
            name: own.name(),
            own: Own(Some(own)),
            ..own.base()
        }
    }

    /// Returns the flags that keep no VMAs apart. A merged VMA gets those of all its parts.
    #[inline]
    pub fn sticky(&self) -> VmFlags {
        VmFlags::STICKY | self.own.sticky()
    }
}

/// Rules are equal if their names are.
impl PartialEq for Own {
    fn eq(&self, other: &Own) -> bool {
        let name = |own: &Own| own.0.map(|own| own.name());
        name(self) == name(other)
    }
}

impl Eq for Own {}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Own")
            .field(&self.0.map(|own| own.name()))
            .finish()
    }
}
