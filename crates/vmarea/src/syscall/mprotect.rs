//! `mprotect` and `pkey_mprotect`: change the protection of a range.
//!
//! # Errors
//! EINVAL for misaligned addresses, contradictory or unknown bits, or a key that is not allocated;
//! ENOMEM for a hole, an end that wraps, the map limit or the commit limit; EACCES for access that
//! the mapping or `PR_SET_MDWE` does not allow; EPERM for a sealed VMA.
//!
//! # Linux
//! `mm/mprotect.c` 6.18: `do_mprotect_pkey`, `mprotect_fixup`. Partial effects: the part of the
//! range before a hole, or before the VMA that fails, is changed.

use crate::Space;
use crate::mm::{Growth, MmapGuard};
use crate::refused::Rule;
use crate::types::call_flags::{Pkey, Prot};
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{Errno, MmId, PAGE_MASK, VmFlags, VmRange};
use crate::vma::merge::CallKind;
use crate::vma::{VmaBody, VmaView};

const NEW_WRITE_CHARGE: VmFlags = VmFlags::ACCOUNT
    .union(VmFlags::WRITE)
    .union(VmFlags::HUGETLB)
    .union(VmFlags::SHARED)
    .union(VmFlags::NORESERVE);

impl<E: Environment> Space<E> {
    /// Changes the protection of `[addr, addr + len)`; without `pkey`, each VMA keeps its key.
    ///
    /// # Errors
    /// See the [module](crate::syscall::mprotect).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
    /// space.mprotect(mm, at, PAGE_SIZE, Prot::READ, None)?;
    /// assert_eq!(space.maps(mm).count(), 2);
    /// assert_eq!(space.fault(mm, at, Access::Write)?, Faulted::NoAccess);
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "do_mprotect_pkey")]
    pub fn mprotect(
        &self,
        mm: MmId,
        addr: u64,
        len: u64,
        prot: Prot,
        pkey: Option<Pkey>,
    ) -> Result<(), Errno> {
        let both = Prot::GROWSDOWN | Prot::GROWSUP;
        let (grows, prot) = (prot & both, prot - both);
        if grows == both {
            return Err(self.refuse(Errno::EINVAL, Rule::OneDirection));
        }
        if addr & !PAGE_MASK != 0 {
            return Err(self.refuse(Errno::EINVAL, Rule::AlignedAddress));
        }
        if len == 0 {
            return Ok(());
        }
        let range = VmRange::of_pages(addr, len)
            .ok_or_else(|| self.refuse(Errno::ENOMEM, Rule::EndFits))?;
        if !(prot - (Prot::READ | Prot::WRITE | Prot::EXEC | Prot::SEM)).is_empty() {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownProtection));
        }
        // These protections read a stack's start, or change the state of the protection keys.
        let needs_all = !grows.is_empty() || prot == Prot::EXEC || pkey.is_some();
        let growth = Growth {
            vmas: 2,
            pages: range.pages(),
        };
        if !needs_all && let Some(mut w) = self.write_part_around(mm, range, growth) {
            return w.mprotect(range, prot, grows, pkey);
        }
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if pkey.is_some_and(|key| !w.state().pkey_is_allocated(key)) {
            return Err(self.refuse(Errno::EINVAL, Rule::AllocatedKey));
        }
        w.mprotect(range, prot, grows, pkey)
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    fn mprotect(
        &mut self,
        mut range: VmRange,
        prot: Prot,
        grows: Prot,
        pkey: Option<Pkey>,
    ) -> Result<(), Errno> {
        let Some(first) = self.intersection(range) else {
            return Err(self.refuse_unmapped(Errno::ENOMEM, range.start));
        };
        if grows == Prot::GROWSDOWN {
            if first.range.start >= range.end {
                return Err(self.refuse_unmapped(Errno::ENOMEM, range.start));
            }
            range.start = first.range.start;
            if !first.body.flags.contains(VmFlags::GROWSDOWN) {
                return Err(self.space.refuse(Errno::EINVAL, Rule::GrowsDown));
            }
        } else if first.range.start > range.start {
            return Err(self.refuse_unmapped(Errno::ENOMEM, range.start));
        } else if grows == Prot::GROWSUP {
            return Err(self.space.refuse(Errno::EINVAL, Rule::GrowsUp));
        }
        let rier = self.state().layout.read_implies_exec && prot.contains(Prot::READ);
        let mut at = range.start;
        let mut vma = first;
        loop {
            if at < vma.range.start {
                return Err(self.refuse_unmapped(Errno::ENOMEM, at));
            }
            let mut wanted = prot;
            if rier && vma.body.flags.contains(VmFlags::MAYEXEC) {
                wanted |= Prot::EXEC;
            }
            let key = self.override_pkey(&vma, wanted, pkey);
            let flags = VmFlags::from_prot(wanted, key)
                | (vma.body.flags - VmFlags::ACCESS - VmFlags::PKEY);
            let may = VmFlags::from_bits_retain(flags.bits() >> 4);
            if (flags - may).intersects(VmFlags::ACCESS) {
                return Err(self.space.refuse(Errno::EACCES, Rule::FileAllowsAccess));
            }
            if self.state().layout.mdwe.denies(vma.body.flags, flags) {
                return Err(self.space.refuse(Errno::EACCES, Rule::WriteOrExecute));
            }
            let end = vma.range.end.min(range.end);
            // The changed part may have merged with the next VMA: continue after the resulting VMA.
            at = self.mprotect_fixup(&vma, VmRange::new(at, end), flags)?;
            if at >= range.end {
                return Ok(());
            }
            match self.find(at) {
                Some(next) => vma = next,
                None => return Err(self.refuse_unmapped(Errno::ENOMEM, at)),
            }
        }
    }

    /// Changes the flags of `range`, which is part of `vma`; returns the end of the VMA that
    /// contains the range afterwards.
    fn mprotect_fixup(
        &mut self,
        vma: &VmaView,
        range: VmRange,
        mut flags: VmFlags,
    ) -> Result<u64, Errno> {
        let old = vma.body.flags;
        if old.contains(VmFlags::SEALED) {
            return Err(self.refuse_sealed(vma.range));
        }
        if flags == old {
            return Ok(vma.range.end);
        }
        let pages = range.pages();
        let mut charge = None;
        if flags.contains(VmFlags::WRITE) {
            if !self.may_expand(flags, pages) && self.may_expand(old, pages) {
                return Err(self.refuse_expansion(flags, pages));
            }
            if !old.intersects(NEW_WRITE_CHARGE) {
                charge = Some(pages);
                flags |= VmFlags::ACCOUNT;
            }
        } else if self.space.policy.rules.mprotect_uncharges
            && old.contains(VmFlags::ACCOUNT)
            && vma.is_anonymous()
            && vma.anon_vma.is_none()
        {
            flags -= VmFlags::ACCOUNT;
        }
        let body = VmaBody { flags, ..vma.body };
        self.call = CallKind::Mprotect;
        let id = self.charged(charge, |w| w.modify(vma, range, body))?;
        let anon_vma = self.space.vma(id).anon_vma();
        self.page_tables()
            .change_protection(range, (old, flags), anon_vma);
        self.protected(range, (old, flags));
        if old.contains(VmFlags::ACCOUNT) && !flags.contains(VmFlags::ACCOUNT) {
            self.uncharge(pages);
        }
        let locked_private =
            old & (VmFlags::WRITE | VmFlags::SHARED | VmFlags::LOCKED) == VmFlags::LOCKED;
        if locked_private && flags.contains(VmFlags::WRITE) {
            let vma = self.view(id);
            // A page that cannot be prefaulted is faulted in at its first access.
            let _ = self.populate_vma(&vma, range);
        }
        self.stat_change(old, flags, pages);
        self.note_peak();
        Ok(self.space.vma(id).end())
    }
}
