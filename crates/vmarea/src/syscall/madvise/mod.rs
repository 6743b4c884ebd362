//! `madvise`: advice that changes VMA flags, and advice that changes pages.
//!
//! # Errors
//! EINVAL for unknown advice, misalignment, a length that wraps, or a mapping for which the advice
//! is invalid; ENOMEM if part of the range is not mapped (the rest is processed); EAGAIN at the map
//! limit; EPERM for discarding pages of a sealed mapping; EFAULT for populating pages that cannot
//! be faulted in.
//!
//! # Linux
//! `mm/madvise.c` 6.18. Partial effects: each VMA is processed separately; a hole is reported at
//! the end, any other error at once.

mod flags;

use super::file_change::Copies;
use crate::Space;
use crate::changes::Change;
use crate::fault::huge::may_collapse;
use crate::fault::{Access, FaultContext};
use crate::mm::{Growth, MmapGuard};
use crate::page::Pte;
use crate::page::range::Zap;
use crate::policy::rules::AdviceRules;
use crate::refused::Rule;
use crate::types::platform::{Environment, Platform};
use crate::types::writers::WriteToken;
use crate::types::{Errno, MmId, PAGE_MASK, PAGE_SHIFT, PMD_SIZE, VmFlags, VmRange};
use crate::vma::merge::CallKind;
use crate::vma::{VmaBody, VmaView};
use flags::advised_flags;
use smallvec::SmallVec;

/// The advice values, named as in `madvise(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are those of madvise(2)")]
pub enum Advice {
    Normal,
    Random,
    Sequential,
    WillNeed,
    DontNeed,
    Free,
    Remove,
    DontFork,
    DoFork,
    Mergeable,
    Unmergeable,
    HugePage,
    NoHugePage,
    DontDump,
    DoDump,
    WipeOnFork,
    KeepOnFork,
    Cold,
    PageOut,
    PopulateRead,
    PopulateWrite,
    DontNeedLocked,
    Collapse,
    GuardInstall,
    GuardRemove,
    /// An advice number that no kernel supports.
    Unknown(i32),
}

impl Advice {
    /// Returns the advice for a Linux advice number.
    pub fn from_number(number: i32) -> Advice {
        use Advice::*;
        match number {
            0 => Normal,
            1 => Random,
            2 => Sequential,
            3 => WillNeed,
            4 => DontNeed,
            8 => Free,
            9 => Remove,
            10 => DontFork,
            11 => DoFork,
            12 => Mergeable,
            13 => Unmergeable,
            14 => HugePage,
            15 => NoHugePage,
            16 => DontDump,
            17 => DoDump,
            18 => WipeOnFork,
            19 => KeepOnFork,
            20 => Cold,
            21 => PageOut,
            22 => PopulateRead,
            23 => PopulateWrite,
            24 => DontNeedLocked,
            25 => Collapse,
            102 => GuardInstall,
            103 => GuardRemove,
            _ => Unknown(number),
        }
    }

    /// True if a kernel with these rules supports the advice.
    #[doc(alias = "madvise_behavior_valid")]
    pub(super) fn is_known(self, rules: &AdviceRules) -> bool {
        use Advice::*;
        match self {
            PopulateRead | PopulateWrite => rules.populate,
            DontNeedLocked => rules.dontneed_locked,
            Collapse => rules.collapse,
            GuardInstall | GuardRemove => rules.guard_regions,
            Unknown(_) => false,
            _ => true,
        }
    }

    /// True if the advice concerns only the VMAs in its range and their page tables.
    fn is_local(self) -> bool {
        use Advice::*;
        let flags = matches!(self.kind(), Kind::Flags) && self != Unmergeable;
        flags || matches!(self, DontNeed | DontNeedLocked | Free | Cold | WillNeed)
    }

    /// Returns whether the advice changes VMA flags, changes pages or populates pages.
    fn kind(self) -> Kind {
        use Advice::*;
        match self {
            Normal | Random | Sequential | DontFork | DoFork | Mergeable | Unmergeable
            | HugePage | NoHugePage | DontDump | DoDump | WipeOnFork | KeepOnFork => Kind::Flags,
            PopulateRead => Kind::Populate(Access::Read),
            PopulateWrite => Kind::Populate(Access::Write),
            WillNeed | DontNeed | DontNeedLocked | Free | Remove | Cold | PageOut | Collapse
            | GuardInstall | GuardRemove | Unknown(_) => Kind::Pages,
        }
    }
}

/// A range of pages to be removed from a file.
struct Hole {
    inode: u64,
    first: u64,
    end: u64,
}

enum Kind {
    Flags,
    Pages,
    Populate(Access),
}

impl<E: Environment> Space<E> {
    /// Applies advice to `[addr, addr + len)`.
    ///
    /// # Errors
    /// See the [module](crate::syscall::madvise).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::syscall::madvise::Advice;
    ///
    /// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    /// // 4 is `MADV_DONTNEED`: the page is gone, the mapping stays.
    /// space.madvise(mm, at, PAGE_SIZE, Advice::from_number(4))?;
    /// assert_eq!((space.frames_in_use(), space.maps(mm).count()), (0, 1));
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "do_madvise")]
    pub fn madvise(&self, mm: MmId, addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        if !advice.is_known(&self.policy.rules.advice) {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownAdvice));
        }
        if addr & !PAGE_MASK != 0 {
            return Err(self.refuse(Errno::EINVAL, Rule::AlignedAddress));
        }
        let range = VmRange::of_pages(addr, len)
            .ok_or_else(|| self.refuse(Errno::EINVAL, Rule::EndFits))?;
        if range.is_empty() {
            return Ok(());
        }
        if let Kind::Populate(access) = advice.kind() {
            return self.populate_advised(mm, range, access);
        }
        let mut holes = SmallVec::new();
        let growth = Growth { vmas: 2, pages: 0 };
        let part = advice
            .is_local()
            .then(|| self.write_part_around(mm, range, growth));
        let result = match part.flatten() {
            Some(mut w) => w.madvise_walk(range, advice, &mut holes),
            None => {
                let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
                w.madvise_walk(range, advice, &mut holes)
            }
        };
        for hole in holes {
            self.platform
                .punch_hole(hole.inode, hole.first, hole.end)
                .map_err(|errno| self.refuse(errno, Rule::HolesInFile))?;
            self.unmap_mapping(hole.inode, hole.first, hole.end, Copies::Stay);
        }
        result
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    #[doc(alias = "madvise_walk_vmas")]
    fn madvise_walk(
        &mut self,
        range: VmRange,
        advice: Advice,
        holes: &mut SmallVec<[Hole; 1]>,
    ) -> Result<(), Errno> {
        let mut hole = Ok(());
        let mut at = range.start;
        while at < range.end {
            let Some(vma) = self.find_vma(at) else {
                return Err(self.refuse_unmapped(Errno::ENOMEM, at));
            };
            if vma.range.start > at {
                hole = Err(self.refuse_unmapped(Errno::ENOMEM, at));
                at = vma.range.start;
                continue;
            }
            let part = VmRange::new(at, vma.range.end.min(range.end));
            if self.is_sealed_against(&vma, advice) {
                return Err(self.refuse_sealed(vma.range));
            }
            match advice.kind() {
                Kind::Flags => self.advise_flags(&vma, part, advice)?,
                Kind::Pages | Kind::Populate(_) => {
                    holes.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                    holes.extend(self.advise_pages(&vma, part, advice)?);
                }
            }
            // If the part merged with the next VMA, that VMA already has the advised flags.
            at = self
                .find(part.end - 1)
                .map_or(part.end, |v| v.range.end.max(part.end));
            if !matches!(advice.kind(), Kind::Flags) {
                at = part.end;
            }
        }
        hole
    }

    fn advise_flags(&mut self, vma: &VmaView, range: VmRange, advice: Advice) -> Result<(), Errno> {
        let flags = advised_flags(vma, advice, &self.space.policy.rules.advice)
            .ok_or_else(|| self.space.refuse(Errno::EINVAL, Rule::TakesAdvice))?;
        if flags == vma.body.flags {
            return Ok(());
        }
        if advice == Advice::Unmergeable {
            self.unmerge_range(vma, range)?;
        }
        self.call = CallKind::Madvise;
        let modified = self.modify(vma, range, VmaBody { flags, ..vma.body });
        self.note_peak();
        modified.map_err(|e| if e == Errno::ENOMEM { Errno::EAGAIN } else { e })?;
        Ok(())
    }

    fn advise_pages(
        &mut self,
        vma: &VmaView,
        range: VmRange,
        advice: Advice,
    ) -> Result<Option<Hole>, Errno> {
        let flags = vma.body.flags;
        let pinned = VmFlags::PFNMAP | VmFlags::HUGETLB;
        match advice {
            Advice::DontNeed | Advice::DontNeedLocked => {
                // Since DONTNEED_LOCKED (5.18), whole huge pages of hugetlb mappings are dropped as
                // well.
                let rules = &self.space.policy.rules.advice;
                if flags.contains(VmFlags::HUGETLB) && rules.dontneed_locked {
                    return self.drop_hugetlb(range).map(|()| None);
                }
                let refused = if advice == Advice::DontNeed {
                    pinned | VmFlags::LOCKED
                } else {
                    pinned
                };
                if flags.intersects(refused) {
                    return Err(self.refuse_pages(flags));
                }
                self.page_tables().zap(range, Zap::KeepGuards);
                if rules.dontneed_frees_tables {
                    self.mm.pages.free_tables(range);
                }
                self.changed(|| Change::Emptied { range });
            }
            Advice::Free => {
                if !vma.is_anonymous() || flags.intersects(pinned | VmFlags::LOCKED) {
                    return Err(self.refuse_pages(flags));
                }
            }
            Advice::Remove => return self.advise_remove(vma, range),
            Advice::Cold | Advice::PageOut => {
                if flags.intersects(pinned | VmFlags::LOCKED) {
                    return Err(self.refuse_pages(flags));
                }
                if advice == Advice::PageOut {
                    self.page_out(range);
                }
            }
            Advice::GuardInstall | Advice::GuardRemove => {
                self.advise_guard(vma, range, advice)?;
            }
            Advice::Collapse => self.advise_collapse(vma, range)?,
            Advice::WillNeed => {}
            _ => return Err(self.space.refuse(Errno::EINVAL, Rule::KnownAdvice)),
        }
        Ok(None)
    }

    /// Names what forbids advice about the pages of a VMA with these flags.
    #[cold]
    fn refuse_pages(&self, flags: VmFlags) -> Errno {
        let rule = match flags.contains(VmFlags::LOCKED) {
            true => Rule::NotLocked,
            false => Rule::PlainPages,
        };
        self.space.refuse(Errno::EINVAL, rule)
    }

    /// Discards the huge pages in a hugetlb range; keeps the last one if it is only partly covered.
    #[doc(alias = "madvise_dontneed_free_valid_vma")]
    fn drop_hugetlb(&mut self, range: VmRange) -> Result<(), Errno> {
        if !range.start.is_multiple_of(PMD_SIZE) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::AddressOfHugePage));
        }
        let whole = VmRange::new(range.start, range.end & !(PMD_SIZE - 1));
        self.page_tables().zap(whole, Zap::All);
        self.changed(|| Change::Emptied { range: whole });
        Ok(())
    }

    /// Swaps out the pages in a range, as far as possible, unless another process maps them.
    #[doc(alias = "madvise_pageout")]
    fn page_out(&mut self, range: VmRange) {
        if !self.space.system.swap {
            return;
        }
        let mut pages = alloc::vec::Vec::new();
        self.mm.pages.for_each_ordered(range, |_, entry| {
            if let Pte::Anon { frame, .. } = entry
                && self.space.frame(frame).mapcount() == 1
                && pages.try_reserve(1).is_ok()
            {
                pages.push(frame);
            }
        });
        for frame in pages {
            // A page that is in use is kept.
            let _ = self.space.swap_out_frame(frame);
        }
    }

    /// Collapses each aligned 2 MiB block in the range, even if the system disables huge pages.
    #[doc(alias = "madvise_collapse")]
    fn advise_collapse(&mut self, vma: &VmaView, range: VmRange) -> Result<(), Errno> {
        if !may_collapse(vma, self.state().layout.thp_disabled) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::HugePagesAllowed));
        }
        let first = range.start.next_multiple_of(PMD_SIZE);
        let end = range.end & !(PMD_SIZE - 1);
        if first > end {
            return match self.space.policy.rules.advice.collapse_of_none {
                true => Ok(()),
                false => Err(self.space.refuse(Errno::EINVAL, Rule::WholeHugePages)),
            };
        }
        self.start_write(vma.id);
        let context = FaultContext::of(self.space, &self.mm.pages, self);
        let mut result = Ok(());
        for start in (first..end).step_by(PMD_SIZE as usize) {
            match context.collapse(vma, start) {
                Err(error @ (Errno::ENOMEM | Errno::EBUSY)) => {
                    return Err(self.space.refuse(error, Rule::Collapses));
                }
                Err(error) => result = Err(self.space.refuse(error, Rule::Collapses)),
                Ok(()) => {}
            }
        }
        result
    }

    /// Checks an `MADV_REMOVE` request; returns the hole, to be punched without `mmap_lock`.
    ///
    /// The hole is punched in the file, so it affects every mapping of the file.
    fn advise_remove(&mut self, vma: &VmaView, range: VmRange) -> Result<Option<Hole>, Errno> {
        if vma.body.flags.contains(VmFlags::LOCKED) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::NotLocked));
        }
        let Some(file) = vma.body.file else {
            return Err(self.space.refuse(Errno::EINVAL, Rule::HasFile));
        };
        let asked = match self.space.policy.rules.advice.remove_asks_write {
            true => VmFlags::WRITE,
            false => VmFlags::MAYWRITE,
        };
        if !vma.body.flags.contains(VmFlags::SHARED | asked) {
            return Err(self.space.refuse(Errno::EACCES, Rule::SharedWritable));
        }
        // In bytes, the offset of a file is signed (`vfs_fallocate`).
        if (vma.pgoff_at(range.start).0 << PAGE_SHIFT).cast_signed() < 0 {
            return Err(self.space.refuse(Errno::EINVAL, Rule::OffsetFits));
        }
        // The file system of secret memory cannot punch holes.
        if vma.body.is_secret() {
            return Err(self.space.refuse(Errno::EOPNOTSUPP, Rule::HolesInFile));
        }
        Ok(Some(Hole {
            inode: file.inode,
            first: vma.pgoff_at(range.start).0,
            end: vma.pgoff_at(range.end).0,
        }))
    }

    /// Installs or removes guard pages.
    ///
    /// A VMA with guard pages needs an anon_vma or a flag, so that a fork copies the guard pages.
    fn advise_guard(&mut self, vma: &VmaView, range: VmRange, advice: Advice) -> Result<(), Errno> {
        let mut refused = VmFlags::SPECIAL | VmFlags::HUGETLB;
        if advice == Advice::GuardInstall {
            refused |= VmFlags::LOCKED;
        }
        if vma.body.flags.intersects(refused) {
            return Err(self.refuse_pages(vma.body.flags));
        }
        self.start_write(vma.id);
        if advice == Advice::GuardRemove {
            self.page_tables().zap(range, Zap::GuardsOnly);
            self.changed(|| Change::Unguarded { range });
            return Ok(());
        }
        let flagged = self.space.policy.rules.advice.guard_flag;
        if vma.is_anonymous() || !flagged {
            self.anon_vma_prepare(vma)?;
        }
        if flagged {
            let flags = vma.body.flags | VmFlags::MAYBE_GUARD;
            self.set_body(vma.id, VmaBody { flags, ..vma.body });
        }
        self.page_tables().zap(range, Zap::All);
        let mut at = range.start;
        while at < range.end {
            let put = self.mm.pages.install(at, |entry| *entry = Pte::Guard);
            put.map_err(|_| Errno::ENOMEM)?;
            at += crate::types::PAGE_SIZE;
        }
        self.changed(|| Change::Guarded { range });
        Ok(())
    }

    /// True if a seal forbids the advice, which would discard pages that the program cannot
    /// overwrite.
    #[doc(alias = "can_madvise_modify")]
    fn is_sealed_against(&self, vma: &VmaView, advice: Advice) -> bool {
        let flags = vma.body.flags;
        if vma.body.file.is_some() && !self.space.policy.rules.seal_guards_dev_zero {
            return false;
        }
        let writable =
            flags.contains(VmFlags::WRITE) && self.state().pkey_rights.allows_write(flags.pkey());
        flags.contains(VmFlags::SEALED) && discards(advice) && vma.is_anonymous() && !writable
    }
}

#[doc(alias = "is_discard")]
fn discards(advice: Advice) -> bool {
    matches!(
        advice,
        Advice::DontNeed
            | Advice::Free
            | Advice::DontNeedLocked
            | Advice::Remove
            | Advice::DontFork
            | Advice::WipeOnFork
            | Advice::GuardInstall
    )
}
