//! Process settings that affect later calls (limits, layout and default flags); also `mseal`.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let mm = space.mm_create(Layout::default(), Limits::default())?;
//! space.set_layout(mm, |layout| layout.mmap_base = 0x7fff_0000_0000)?;
//! space.set_limits(mm, |limits| limits.address_space = PAGE_SIZE)?;
//! space.set_def_flags(mm, VmFlags::NOHUGEPAGE)?;
//! space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
//! let more = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE));
//! assert_eq!(more, Err(Errno::ENOMEM));
//! # Ok::<(), Errno>(())
//! ```

use crate::Space;
use crate::mm::{Layout, Limits, MmapGuard, MmapWriteGuard};
use crate::refused::Rule;
use crate::types::platform::Environment;
use crate::types::writers::Token;
use crate::types::{Errno, MmId, PAGE_MASK, VmFlags, VmRange};
use crate::vma::VmaBody;

impl<E: Environment> Space<E> {
    /// Changes the limits and capabilities of a process.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist. The [module](crate::syscall::limits) has an example.
    pub fn set_limits(&self, mm: MmId, change: impl FnOnce(&mut Limits)) -> Result<(), Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        change(&mut w.state_mut().limits);
        Ok(())
    }

    /// Changes the segment addresses and memory settings of a process.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist. The [module](crate::syscall::limits) has an example.
    pub fn set_layout(&self, mm: MmId, change: impl FnOnce(&mut Layout)) -> Result<(), Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        change(&mut w.state_mut().layout);
        Ok(())
    }

    /// Sets the VMA flags that are added to every new mapping.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist. The [module](crate::syscall::limits) has an example.
    pub fn set_def_flags(&self, mm: MmId, flags: VmFlags) -> Result<(), Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        w.state_mut().def_flags = flags;
        Ok(())
    }

    /// Seals `[addr, addr + len)` against changes; seals nothing if there is a hole.
    ///
    /// # Errors
    /// ENOSYS under the rules of a kernel without `mseal`; EINVAL for nonzero flags, a misaligned
    /// `addr` or an end that wraps; ESRCH if the address space does not exist; ENOMEM for a hole,
    /// or at the map limit.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.mseal(mm, at, PAGE_SIZE, 0)?;
    /// assert_eq!(space.munmap(mm, at, PAGE_SIZE), Err(Errno::EPERM));
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "do_mseal")]
    pub fn mseal(&self, mm: MmId, addr: u64, len: u64, flags: u64) -> Result<(), Errno> {
        if !self.policy.rules.mseal {
            return Err(self.refuse(Errno::ENOSYS, Rule::KernelHasCall));
        }
        if flags != 0 {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownFlags));
        }
        if addr & !PAGE_MASK != 0 {
            return Err(self.refuse(Errno::EINVAL, Rule::AlignedAddress));
        }
        let range = VmRange::of_pages(addr, len)
            .ok_or_else(|| self.refuse(Errno::EINVAL, Rule::EndFits))?;
        if range.is_empty() {
            return Ok(());
        }
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        w.mseal(range)
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// True if `range` is mapped without a hole.
    pub fn is_covered(&self, range: VmRange) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.vma_lookup(at) {
                Some(v) => at = v.range.end,
                None => return false,
            }
        }
        true
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    fn mseal(&mut self, range: VmRange) -> Result<(), Errno> {
        if !self.is_covered(range) {
            return Err(self.refuse_unmapped(Errno::ENOMEM, range.start));
        }
        let mut at = range.start;
        while let Some(vma) = self.find(at).filter(|v| v.range.start < range.end) {
            let part = vma.range.clip(range);
            if !vma.body.flags.contains(VmFlags::SEALED) {
                let flags = vma.body.flags | VmFlags::SEALED;
                self.modify(&vma, part, VmaBody { flags, ..vma.body })?;
            }
            at = self.find(part.end - 1).map_or(part.end, |v| v.range.end);
        }
        Ok(())
    }
}
