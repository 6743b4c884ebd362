//! `mremap`: resize in place, or move.
//!
//! # Picture
//! ```text
//! grow in place   VVVV....        VVVV++++      and joins what it then touches
//! move            VVVV     dst    ....     VVVV pages go along; an unfaulted VMA takes the page
//!                                               offset of its new place, a faulted one keeps it
//! DONTUNMAP       VVVV     dst    VVVV     VVVV the old one stays, empty
//! ```
//!
//! # Errors
//! EINVAL for bad flags, misalignment, a new length of 0, overlapping ranges, a private mapping to be
//! doubled; EFAULT for a hole, a range over several VMAs where that is not allowed, a mapping that must
//! not grow; ENOMEM for no room, limits, the map limit; EAGAIN beyond RLIMIT_MEMLOCK; EPERM for a
//! sealed VMA.
//!
//! # Linux
//! `mm/mremap.c` and `copy_vma` in `mm/vma.c`, 6.18. By halves: with FIXED the destination is unmapped,
//! and the tail of a shrinking source, before the move can still be refused; of several VMAs those
//! before the one that refuses have moved.

use super::mmap::Placement;
use super::unmapped_area::{Room, fits_fixed};
use crate::mm::MmapWriteGuard;
use crate::space::Space;
use crate::values::call_flags::{MapFlags, MremapFlags};
use crate::values::rules::{CloseHook, MremapChecks};
use crate::values::{
    Errno, FileKind, MmId, PAGE_MASK, PAGE_SHIFT, PMD_SIZE, VmFlags, VmRange, align_up, page_align,
};
use crate::vma::VmaView;
use crate::vma::merge::{CallKind, Proposal, Reach};
use vmarea_sync::VmaLockKind;

/// The arguments of `mremap`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MremapRequest {
    /// Start of the old range.
    pub addr: u64,
    /// Its length in bytes.
    pub old_len: u64,
    /// The new length in bytes.
    pub new_len: u64,
    /// MAYMOVE, FIXED, DONTUNMAP.
    pub flags: MremapFlags,
    /// Where to, for FIXED; a wish, for DONTUNMAP.
    pub new_addr: u64,
    /// See [`Placement`].
    pub placement: Placement,
}

/// What `do_mremap` carries along.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remap {
    pub(super) addr: u64,
    pub(super) old_len: u64,
    pub(super) new_len: u64,
    pub(super) flags: MremapFlags,
    pub(super) new_addr: u64,
    pub(super) placement: Placement,
}

impl Remap {
    pub(super) fn implies_new_addr(&self) -> bool {
        self.flags
            .intersects(MremapFlags::FIXED | MremapFlags::DONTUNMAP)
    }

    fn move_only(&self) -> bool {
        self.flags.contains(MremapFlags::FIXED) && self.old_len == self.new_len
    }

    fn check(&self, task_size: u64, overlapping: Overlapping) -> Result<(), Errno> {
        let known = MremapFlags::MAYMOVE | MremapFlags::FIXED | MremapFlags::DONTUNMAP;
        let silly = !(self.flags - known).is_empty()
            || self.addr & !PAGE_MASK != 0
            || self.new_len == 0
            || self.new_len > task_size;
        if silly {
            return Err(Errno::EINVAL);
        }
        if !self.implies_new_addr() {
            return Ok(());
        }
        let resized = self.flags.contains(MremapFlags::DONTUNMAP) && self.old_len != self.new_len;
        let bad = self.new_addr > task_size - self.new_len
            || self.new_addr & !PAGE_MASK != 0
            || !self.flags.contains(MremapFlags::MAYMOVE)
            || resized;
        let refused = overlapping == Overlapping::Refuse && self.overlaps();
        if bad || refused {
            Err(Errno::EINVAL)
        } else {
            Ok(())
        }
    }

    /// Whole huge pages, which may not become more.
    pub(super) fn align_hugetlb(&mut self) -> Result<(), Errno> {
        let up = |len: u64| align_up(len, PMD_SIZE).ok_or(Errno::EINVAL);
        (self.old_len, self.new_len) = (up(self.old_len)?, up(self.new_len)?);
        let odd = (self.addr | self.new_addr) & (PMD_SIZE - 1) != 0;
        if odd || self.new_len > self.old_len {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Old and new place share addresses.
    pub(super) fn overlaps(&self) -> bool {
        self.addr.wrapping_add(self.old_len) > self.new_addr
            && self.new_addr.wrapping_add(self.new_len) > self.addr
    }
}

/// Whether the new place may overlap the old one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlapping {
    Refuse,
    Allow,
}

/// A length in whole pages. One that wraps is 0 to Linux: no new length, or an old one that doubles.
fn whole_pages(len: u64) -> u64 {
    page_align(len).unwrap_or(0)
}

impl<K: VmaLockKind> Space<K> {
    /// Resizes or moves; gives the new address.
    #[doc(alias = "do_mremap")]
    pub fn mremap(&self, mm: MmId, request: &MremapRequest) -> Result<u64, Errno> {
        let MremapRequest {
            addr,
            old_len,
            new_len,
            flags,
            new_addr,
            placement,
        } = *request;
        let r = Remap {
            addr,
            old_len: whole_pages(old_len),
            new_len: whole_pages(new_len),
            flags,
            new_addr,
            placement,
        };
        let freely = self.policy.merging.remap_freely;
        let first = self.policy.rules.mremap_checks == MremapChecks::First;
        if first {
            r.check(
                self.system.task_size,
                if freely {
                    Overlapping::Allow
                } else {
                    Overlapping::Refuse
                },
            )?;
        } else {
            r.check_by_halves()?;
            // Compared before they are rounded to pages.
            if flags.contains(MremapFlags::DONTUNMAP) && old_len != new_len {
                return Err(Errno::EINVAL);
            }
        }
        let (addr, populate) = {
            let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
            let moved = if first {
                w.mremap(r)
            } else {
                w.mremap_by_halves(r)
            };
            let state = w.state_mut();
            state.peak_map_count = state.peak_map_count.max(state.map_count);
            moved?
        };
        if populate && r.new_len > r.old_len {
            self.mm_populate(mm, VmRange::new(addr + r.old_len, addr + r.new_len));
        }
        Ok(addr)
    }
}

impl<K: VmaLockKind> Space<K> {
    /// Where a move without FIXED would go now, without doing anything.
    pub fn predict_mremap(&self, mm: MmId, request: &MremapRequest) -> Result<u64, Errno> {
        let MremapRequest {
            addr,
            old_len,
            new_len,
            flags,
            new_addr,
            ..
        } = *request;
        let placement = Placement::Search;
        let r = Remap {
            addr,
            old_len: whole_pages(old_len),
            new_len: whole_pages(new_len),
            flags,
            new_addr,
            placement,
        };
        let w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        let vma = w.lookup(addr).ok_or(Errno::EFAULT)?;
        w.new_place(&r, &vma)
    }
}

impl<K: VmaLockKind> MmapWriteGuard<'_, K> {
    fn mremap(&mut self, r: Remap) -> Result<(u64, bool), Errno> {
        let limit = self.space.system.max_map_count;
        if r.implies_new_addr() && self.state().map_count + 2 >= limit.saturating_sub(3) {
            return Err(Errno::ENOMEM);
        }
        if r.implies_new_addr() && r.overlaps() {
            return self.remap_overlapping(r).map(|addr| (addr, false));
        }
        if r.move_only() && self.space.policy.rules.mremap_many {
            return self.remap_move(r).map(|addr| (addr, false));
        }
        let vma = self.lookup(r.addr).ok_or(Errno::EFAULT)?;
        if self.space.policy.merging.remap_freely && self.spans_several(&r, &vma) {
            return self.remap_spanning(r).map(|addr| (addr, false));
        }
        let mut r = r;
        let populate = self.check_remap(&mut r, &vma)?;
        let addr = if r.implies_new_addr() {
            self.mremap_to(r, &vma)?
        } else {
            self.mremap_at(r)?
        };
        Ok((addr, populate))
    }

    /// May this VMA be resized or moved so? True where new pages have to be faulted in.
    #[doc(alias = "check_prep_vma")]
    fn check_remap(&self, r: &mut Remap, vma: &VmaView) -> Result<bool, Errno> {
        let flags = vma.body.flags;
        if flags.contains(VmFlags::SEALED) {
            return Err(Errno::EPERM);
        }
        if flags.contains(VmFlags::HUGETLB) {
            r.align_hugetlb()?;
        }
        if r.new_len <= r.old_len && !r.implies_new_addr() {
            return Ok(false);
        }
        if r.old_len == 0 && !flags.intersects(VmFlags::SHARED | VmFlags::MAYSHARE) {
            return Err(Errno::EINVAL);
        }
        let rigid = flags.intersects(VmFlags::DONTEXPAND | VmFlags::PFNMAP);
        if r.flags.contains(MremapFlags::DONTUNMAP) && rigid {
            return Err(Errno::EINVAL);
        }
        let old_len = r.old_len.min(r.new_len);
        if old_len > vma.range.end - r.addr {
            return Err(Errno::EFAULT);
        }
        if r.new_len == old_len {
            return Ok(false);
        }
        let pgoff = vma.pgoff_at(r.addr);
        if pgoff.0.checked_add(r.new_len >> PAGE_SHIFT).is_none() {
            return Err(Errno::EINVAL);
        }
        if rigid {
            return Err(Errno::EFAULT);
        }
        let delta = r.new_len - r.old_len;
        if !self.mlock_future_ok(flags, delta) {
            return Err(Errno::EAGAIN);
        }
        if !self.may_expand(flags, delta >> PAGE_SHIFT) {
            return Err(Errno::ENOMEM);
        }
        Ok(flags.contains(VmFlags::LOCKED))
    }

    /// Several VMAs move at once, gaps between them kept.
    pub(super) fn remap_move(&mut self, r: Remap) -> Result<u64, Errno> {
        let end = r.addr.checked_add(r.old_len).ok_or(Errno::EFAULT)?;
        let mut result = Err(Errno::EFAULT);
        let mut at = r.addr;
        while at < end
            && let Some(vma) = self.find_vma(at).filter(|v| v.range.start < end)
        {
            let first = result.is_err();
            let part = vma.range.clip(VmRange::new(r.addr, end));
            if first && vma.range.start > r.addr {
                return Err(Errno::EFAULT);
            }
            let movable_with_others = !vma.body.flags.intersects(VmFlags::UFFD_ANY)
                && vma.body.file.is_none_or(|f| !places_itself(f.kind));
            if !movable_with_others && (!first || vma.range.end < end) {
                return Err(Errno::EFAULT);
            }
            let to = r.new_addr + (part.start - r.addr);
            let len = part.len_bytes();
            let mut one = Remap {
                addr: part.start,
                old_len: len,
                new_len: len,
                new_addr: to,
                ..r
            };
            self.check_remap(&mut one, &vma)?;
            let moved = self.mremap_to(one, &vma)?;
            if first {
                result = Ok(moved);
            }
            at = part.end;
        }
        result
    }

    /// `vma` is what lies at the old address.
    fn mremap_to(&mut self, mut r: Remap, vma: &VmaView) -> Result<u64, Errno> {
        let mut vma = *vma;
        if r.flags.contains(MremapFlags::FIXED) && self.munmap(r.new_addr, r.new_len)? {
            // An old length that wraps lets the destination lie upon the source.
            vma = self.lookup(r.addr).ok_or(Errno::EFAULT)?;
        }
        if r.old_len > r.new_len {
            self.munmap(r.addr + r.new_len, r.old_len - r.new_len)?;
            r.old_len = r.new_len;
            vma = self.lookup(r.addr).ok_or(Errno::EFAULT)?;
        }
        if r.flags.contains(MremapFlags::DONTUNMAP)
            && !self.may_expand(vma.body.flags, r.old_len >> PAGE_SHIFT)
        {
            return Err(Errno::ENOMEM);
        }
        r.new_addr = self.new_place(&r, &vma)?;
        self.move_vma(&r, &vma)
    }

    pub(super) fn mremap_at(&mut self, mut r: Remap) -> Result<u64, Errno> {
        if r.old_len == r.new_len {
            return Ok(r.addr);
        }
        if r.old_len > r.new_len {
            self.munmap(r.addr + r.new_len, r.old_len - r.new_len)?;
            return Ok(r.addr);
        }
        let vma = self.lookup(r.addr).ok_or(Errno::EFAULT)?;
        if vma.range.end - r.addr == r.old_len && self.is_expandable(&vma, r.new_len - r.old_len) {
            self.expand_in_place(&vma, r.new_len - r.old_len)?;
            return Ok(r.addr);
        }
        if !r.flags.contains(MremapFlags::MAYMOVE) {
            return Err(Errno::ENOMEM);
        }
        r.new_addr = self.new_place(&r, &vma)?;
        self.move_vma(&r, &vma)
    }

    #[doc(alias = "vma_expandable")]
    pub(super) fn is_expandable(&self, vma: &VmaView, delta: u64) -> bool {
        let Some(end) = vma.range.end.checked_add(delta) else {
            return false;
        };
        self.intersection(VmRange::new(vma.range.end, end))
            .is_none()
            && fits_fixed(self, VmRange::new(vma.range.start, end))
    }

    #[doc(alias = "vma_merge_extend")]
    pub(super) fn expand_in_place(&mut self, vma: &VmaView, delta: u64) -> Result<(), Errno> {
        let pages = delta >> PAGE_SHIFT;
        let accounted = vma.body.flags.contains(VmFlags::ACCOUNT);
        if accounted {
            self.charge(pages)?;
        }
        let proposal = Proposal {
            range: VmRange::new(vma.range.end, vma.range.end + delta),
            pgoff: vma.pgoff_end(),
            body: vma.body,
            anon_vma: vma.anon_vma,
            middle: None,
            copied_from: None,
        };
        self.call = CallKind::MremapExpand;
        let rules = &self.space.policy.rules;
        let hook = rules.close_hook == CloseHook::NeverMerges && vma.body.has_close();
        let reach = if rules.expand_joins_next && !hook {
            Reach::Both
        } else {
            Reach::Itself
        };
        if self.merge(&proposal, reach)?.is_none() {
            if accounted {
                self.uncharge(pages);
            }
            return Err(Errno::ENOMEM);
        }
        self.count_more(vma.body.flags, pages);
        Ok(())
    }

    #[doc(alias = "vrm_stat_account")]
    pub(super) fn count_more(&mut self, flags: VmFlags, pages: u64) {
        self.stat_account(flags, pages as i64);
        if flags.contains(VmFlags::LOCKED) {
            self.state_mut().locked_vm += pages;
        }
    }

    #[doc(alias = "vrm_set_new_addr")]
    pub(super) fn new_place(&self, r: &Remap, vma: &VmaView) -> Result<u64, Errno> {
        let fixed = r.flags.contains(MremapFlags::FIXED);
        if let (Placement::At(addr), false) = (r.placement, fixed) {
            return Ok(addr);
        }
        self.unmapped_area(&Room {
            file: vma.body.file.map(|f| f.kind),
            shared_anon: false,
            hint: if r.implies_new_addr() { r.new_addr } else { 0 },
            len: r.new_len,
            offset: vma.pgoff_at(r.addr).0 << PAGE_SHIFT,
            flags: if fixed {
                MapFlags::FIXED
            } else {
                MapFlags::empty()
            },
            vm_flags: vma.body.flags,
        })
    }
}

/// Has the file a say in where it is mapped, so that a fixed place might not be obeyed?
#[doc(alias = "vma_multi_allowed")]
fn places_itself(kind: FileKind) -> bool {
    matches!(
        kind,
        FileKind::Device | FileKind::DevZero | FileKind::SysvShm
    )
}
