//! Prefaulting of pages: `MAP_POPULATE`, `mlock`, `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`.
//!
//! # Linux
//! `mm/gup.c` `__mm_populate`, `populate_vma_page_range`, `faultin_page_range`, 6.18: private
//! writable mappings are prefaulted by a write, all other mappings by a read.

use super::{Access, FaultContext};
use crate::Space;
use crate::mm::MmapGuard;
use crate::policy::Rules;
use crate::refused::Rule;
use crate::types::platform::Environment;
use crate::types::writers::Token;
use crate::types::{Errno, MmId, PAGE_SIZE, PkeyRights, VmFlags, VmRange};
use crate::vma::VmaView;

impl<E: Environment> Space<E> {
    /// Prefaults the pages of `range` as far as possible; failures are ignored.
    pub(crate) fn mm_populate(&self, mm: MmId, range: VmRange) {
        let Some(r) = self.mmap_read_lock(mm) else {
            return;
        };
        let mut at = range.start;
        while at < range.end
            && let Some(vma) = r.find_vma(at).filter(|v| v.range.start < range.end)
        {
            let part = vma.range.clip(range);
            at = vma.range.end;
            if !vma.body.flags.intersects(VmFlags::IO | VmFlags::PFNMAP) {
                // A VMA that cannot be accessed is skipped.
                let _ = r.populate_vma(&vma, part);
            }
        }
    }

    /// Prefaults the pages in a range that has just been locked.
    ///
    /// # Errors
    /// ENOMEM if a page cannot be prefaulted; EAGAIN if the failure may be temporary; ESRCH if the
    /// address space does not exist.
    #[doc(alias = "__mlock_posix_error_return")]
    pub(crate) fn populate_locked(&self, mm: MmId, range: VmRange) -> Result<(), Errno> {
        let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        let mut at = range.start;
        while at < range.end
            && let Some(vma) = r.find_vma(at).filter(|v| v.range.start < range.end)
        {
            let part = vma.range.clip(range);
            at = vma.range.end;
            if !vma.body.flags.intersects(VmFlags::IO | VmFlags::PFNMAP) {
                r.populate_vma(&vma, part).map_err(|error| match error {
                    Errno::ENOMEM | Errno::EAGAIN => self.refuse(Errno::EAGAIN, Rule::PagesLeft),
                    _ => self.refuse(Errno::ENOMEM, Rule::Accessible),
                })?;
            }
        }
        Ok(())
    }

    /// Prefaults the pages of `range` for `MADV_POPULATE_READ` or `MADV_POPULATE_WRITE`.
    pub(crate) fn populate_advised(
        &self,
        mm: MmId,
        range: VmRange,
        access: Access,
    ) -> Result<(), Errno> {
        let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        let mut at = range.start;
        let mut hole = Ok(());
        let skips = self.policy.rules.advice.populate_skips_holes;
        while at < range.end {
            let Some(vma) = r.find_vma(at) else {
                return Err(r.refuse_unmapped(Errno::ENOMEM, at));
            };
            if vma.range.start > at {
                hole = Err(r.refuse_unmapped(Errno::ENOMEM, at));
                if !skips {
                    return hole;
                }
                at = vma.range.start;
                continue;
            }
            let flags = vma.body.flags;
            let special = flags.intersects(VmFlags::IO | VmFlags::PFNMAP) || vma.body.is_secret();
            let allowed = if access == Access::Write {
                VmFlags::WRITE
            } else {
                VmFlags::READ
            };
            let permitted = key_permits(r.state().pkey_rights, flags, access);
            if special || !flags.contains(allowed) || !permitted {
                return Err(self.refuse(Errno::EINVAL, Rule::Populated));
            }
            let part = VmRange::new(at, vma.range.end.min(range.end));
            r.touch_pages(&vma, part, access)
                .map_err(|error| self.refuse(error, Rule::PagesLeft))?;
            at = part.end;
        }
        hole
    }
}

/// Returns the access type with which to prefault a mapping; `None` if it must not be prefaulted.
fn populate_touch(
    vma: &VmaView,
    rules: &Rules,
    rights: PkeyRights,
) -> Result<Option<Access>, Errno> {
    let flags = vma.body.flags;
    if rules.onfault_asks_access && !flags.is_accessible() {
        return Err(Errno::EFAULT);
    }
    if flags.contains(VmFlags::LOCKONFAULT) {
        return Ok(None);
    }
    if !flags.is_accessible() || vma.body.is_secret() {
        return Err(Errno::EFAULT);
    }
    let private_writable = flags & (VmFlags::WRITE | VmFlags::SHARED) == VmFlags::WRITE;
    let access = if private_writable {
        Access::Write
    } else {
        Access::Read
    };
    if !key_permits(rights, flags, access) {
        return Err(Errno::EFAULT);
    }
    Ok(Some(access))
}

/// True if the protection key lets the kernel access the page on behalf of the program.
#[doc(alias = "arch_vma_access_permitted")]
fn key_permits(rights: PkeyRights, flags: VmFlags, access: Access) -> bool {
    match access {
        Access::Read => rights.allows_read(flags.pkey()),
        Access::Write => rights.allows_write(flags.pkey()),
        Access::Exec => true,
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Prefaults the pages in part of one VMA.
    #[doc(alias = "populate_vma_page_range")]
    pub(crate) fn populate_vma(&self, vma: &VmaView, range: VmRange) -> Result<(), Errno> {
        match populate_touch(vma, &self.space.policy.rules, self.state().pkey_rights)? {
            Some(access) => self.touch_pages(vma, range, access),
            None => Ok(()),
        }
    }

    fn touch_pages(&self, vma: &VmaView, range: VmRange, access: Access) -> Result<(), Errno> {
        let context = FaultContext::of(self.space, &self.mm.pages, self);
        let mut at = range.start;
        while at < range.end {
            context.page(vma, at, access).result()?;
            at += PAGE_SIZE;
        }
        Ok(())
    }
}
