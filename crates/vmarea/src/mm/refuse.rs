//! The reasons to refuse a call whose numbers are in the state of the address space.
//!
//! Each function belongs to a check that has failed and is out of the way of calls that succeed.

use super::{MmState, MmapGuard};
use crate::refused::{Growing, Refused};
use crate::types::platform::Environment;
use crate::types::writers::Token;
use crate::types::{Errno, PAGE_SHIFT, VmRange};

impl<'s, E: Environment, T: Token<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// The limit on the number of mappings is reached.
    #[cold]
    pub(crate) fn refuse_mappings(&self, errno: Errno, for_what: Growing) -> Errno {
        self.space.refuse_with(errno, || Refused::Mappings {
            for_what,
            used: self.state().map_count,
            limit: self.space.system.max_map_count,
        })
    }

    /// `bytes` more would exceed the limit on locked memory.
    #[cold]
    pub(crate) fn refuse_memlock(&self, errno: Errno, bytes: u64) -> Errno {
        self.space
            .refuse_with(errno, || memlock(self.state(), bytes))
    }

    /// Nothing is mapped at `at`, or at the first unmapped address after it.
    #[cold]
    pub(crate) fn refuse_unmapped(&self, errno: Errno, at: u64) -> Errno {
        self.space.refuse_with(errno, || {
            let mut at = at;
            while let Some(vma) = self.find(at).filter(|v| v.range.contains(at)) {
                at = vma.range.end;
            }
            Refused::Unmapped { at }
        })
    }

    /// Something is mapped in `range`, which the call must not replace.
    #[cold]
    pub(crate) fn refuse_occupied(&self, errno: Errno, range: VmRange) -> Errno {
        self.space.refuse_with(errno, || {
            let there = self.find(range.start).map_or(range, |vma| vma.range);
            Refused::Occupied {
                start: there.start,
                end: there.end,
            }
        })
    }

    /// The VMA with this range is sealed.
    ///
    /// The range is passed by value, because a reference to the VMA's view would keep the view in
    /// memory in the callers.
    #[cold]
    pub(crate) fn refuse_sealed(&self, sealed: VmRange) -> Errno {
        let why = Refused::Sealed {
            start: sealed.start,
            end: sealed.end,
        };
        self.space.refuse(Errno::EPERM, why)
    }

    /// The range ends at `end`, above the end of `first`, the range of the VMA in which it starts.
    #[cold]
    pub(crate) fn refuse_several(&self, first: VmRange, end: u64) -> Errno {
        self.space.refuse_with(Errno::EFAULT, || {
            let mut mappings = 1;
            let mut at = first.end;
            while let Some(next) = self.find(at).filter(|next| next.range.start < end) {
                mappings += 1;
                at = next.range.end;
            }
            Refused::Several {
                mappings,
                end: first.end,
                asked: end,
            }
        })
    }

    /// `bytes` of a mapping that must not move do not fit between its end and the next mapping.
    #[cold]
    pub(crate) fn refuse_growth(&self, end: u64, bytes: u64) -> Errno {
        self.space.refuse_with(Errno::ENOMEM, || {
            let gap = self.space.system.stack_guard_gap;
            let last = self.space.system.task_size;
            let next = self.find(end).map_or(last, |next| next.start_gap(gap));
            Refused::NoRoomAbove {
                asked: bytes,
                free: next.min(last).saturating_sub(end),
            }
        })
    }
}

/// Returns the reason if `bytes` more would exceed the limit on locked memory.
fn memlock(state: &MmState, bytes: u64) -> Refused {
    Refused::Memlock {
        asked: bytes,
        used: state.locked_vm << PAGE_SHIFT,
        limit: state.limits.memlock,
    }
}
