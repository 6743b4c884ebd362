//! The state of one `mremap` call, passed from stage to stage.

use crate::refused::{Refused, Rule};
use crate::syscall::mmap::Placement;
use crate::syscall::mremap::MremapRequest;
use crate::types::call_flags::MremapFlags;
use crate::types::{PAGE_MASK, PMD_SIZE, align_up, page_align};

/// The arguments of an `mremap` call, with the lengths rounded up to whole pages.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "vma_remap_struct")]
pub(super) struct Remap {
    /// Start of the old range.
    pub(super) addr: u64,
    /// Length of the old range in bytes; 0 duplicates a shared mapping.
    ///
    /// After the tail of a shrinking range has been unmapped, `old_len` equals `new_len`.
    pub(super) old_len: u64,
    /// New length in bytes.
    pub(super) new_len: u64,
    pub(super) flags: MremapFlags,
    /// The address that the caller requests with FIXED or DONTUNMAP; later, the address chosen.
    pub(super) new_addr: u64,
    /// How the new address is chosen; a replay can prescribe it.
    pub(super) placement: Placement,
}

/// Change of the length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "mremap_type")]
pub(super) enum Resize {
    Keep,
    Shrink,
    Grow,
}

impl Remap {
    /// Rounds up the lengths in a request to whole pages.
    ///
    /// As in Linux, a length that wraps becomes 0: a new length of 0 is invalid, and an old length
    /// of 0 duplicates the mapping.
    pub(super) fn new(request: &MremapRequest) -> Remap {
        let whole_pages = |len| page_align(len).unwrap_or(0);
        Remap {
            addr: request.addr,
            old_len: whole_pages(request.old_len),
            new_len: whole_pages(request.new_len),
            flags: request.flags,
            new_addr: request.new_addr,
            placement: request.placement,
        }
    }

    pub(super) fn resize(&self) -> Resize {
        match self.old_len.cmp(&self.new_len) {
            core::cmp::Ordering::Equal => Resize::Keep,
            core::cmp::Ordering::Greater => Resize::Shrink,
            core::cmp::Ordering::Less => Resize::Grow,
        }
    }

    /// True if the mapping must move even if it could be resized in place.
    #[doc(alias = "vrm_implies_new_addr")]
    pub(super) fn implies_new_addr(&self) -> bool {
        self.flags
            .intersects(MremapFlags::FIXED | MremapFlags::DONTUNMAP)
    }

    /// True if the request moves the mapping to a fixed address and keeps its length.
    ///
    /// Only a move to a fixed address with an unchanged length may move several VMAs at once.
    #[doc(alias = "vrm_move_only")]
    pub(super) fn move_only(&self) -> bool {
        self.flags.contains(MremapFlags::FIXED) && self.resize() == Resize::Keep
    }

    /// True if the old and the new range overlap.
    #[doc(alias = "vrm_overlaps")]
    pub(super) fn overlaps(&self) -> bool {
        self.addr.wrapping_add(self.old_len) > self.new_addr
            && self.new_addr.wrapping_add(self.new_len) > self.addr
    }

    /// Returns EINVAL for arguments that every kernel rejects, regardless of the mappings.
    pub(super) fn check_arguments(&self) -> Result<(), Rule> {
        let known = MremapFlags::MAYMOVE | MremapFlags::FIXED | MremapFlags::DONTUNMAP;
        let silly = !(self.flags - known).is_empty()
            || self.addr & !PAGE_MASK != 0
            || self.new_len == 0
            || self.implies_new_addr() && !self.flags.contains(MremapFlags::MAYMOVE);
        if silly { Err(self.silly()) } else { Ok(()) }
    }

    /// Returns EINVAL unless the new range is page-aligned and inside the address space.
    pub(super) fn check_new_addr(&self, task_size: u64) -> Result<(), Refused> {
        let bad = self.new_addr & !PAGE_MASK != 0
            || self.new_len > task_size
            || self.new_addr > task_size - self.new_len;
        if bad {
            Err(self.bad(task_size))
        } else {
            Ok(())
        }
    }

    /// Rounds up the lengths to huge pages; returns EINVAL if an address is misaligned or the range
    /// grows.
    pub(super) fn align_hugetlb(&mut self) -> Result<(), Rule> {
        let up = |len: u64| align_up(len, PMD_SIZE).ok_or(Rule::EndFits);
        (self.old_len, self.new_len) = (up(self.old_len)?, up(self.new_len)?);
        let odd = (self.addr | self.new_addr) & (PMD_SIZE - 1) != 0;
        if odd {
            return Err(Rule::AddressOfHugePage);
        }
        if self.resize() == Resize::Grow {
            return Err(Rule::HugetlbGrows);
        }
        Ok(())
    }

    /// Returns the rule that the arguments break.
    #[cold]
    fn silly(&self) -> Rule {
        let known = MremapFlags::MAYMOVE | MremapFlags::FIXED | MremapFlags::DONTUNMAP;
        if !(self.flags - known).is_empty() {
            Rule::KnownFlags
        } else if self.addr & !PAGE_MASK != 0 {
            Rule::AlignedAddress
        } else if self.new_len == 0 {
            Rule::SomeLength
        } else {
            Rule::MayMove
        }
    }

    /// Returns why the new address is not allowed.
    #[cold]
    fn bad(&self, task_size: u64) -> Refused {
        match self.new_addr & !PAGE_MASK {
            0 => Refused::Outside {
                start: self.new_addr,
                len: self.new_len,
                end: task_size,
            },
            _ => Rule::AlignedAddress.into(),
        }
    }
}
