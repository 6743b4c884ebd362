//! `mlock`, `mlock2`, `munlock`, `mlockall`, `munlockall`.
//!
//! # Errors
//! EPERM without the right to lock memory; ENOMEM for a hole, RLIMIT_MEMLOCK, the map limit, or
//! pages that cannot be faulted in; EINVAL for unknown flags or an end that wraps; EAGAIN if pages
//! temporarily cannot be faulted in.
//!
//! # Linux
//! `mm/mlock.c` 6.18. Partial effects: VMAs before a hole are changed; `mlockall` ignores the
//! errors of single VMAs.

use crate::Space;
use crate::mm::MmapWriteGuard;
use crate::refused::Rule;
use crate::types::call_flags::{MclFlags, MlockFlags};
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, PAGE_MASK, PAGE_SHIFT, PAGE_SIZE, VmFlags, VmRange, page_align};
use crate::vma::merge::CallKind;
use crate::vma::{VmaBody, VmaView};

impl<E: Environment> Space<E> {
    /// Locks `[addr, addr + len)`, as `mlock2` does; without flags, this is `mlock`.
    ///
    /// # Errors
    /// See the [module](crate::syscall::mlock).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::types::call_flags::MlockFlags;
    ///
    /// let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
    /// // The call faults in the pages that it locks.
    /// space.mlock(mm, at, PAGE_SIZE, MlockFlags::empty())?;
    /// assert_eq!(space.frames_in_use(), 1);
    /// space.mlock(mm, at + PAGE_SIZE, PAGE_SIZE, MlockFlags::ONFAULT)?;
    /// assert_eq!(space.frames_in_use(), 1);
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "do_mlock")]
    pub fn mlock(&self, mm: MmId, addr: u64, len: u64, how: MlockFlags) -> Result<(), Errno> {
        if !(how - MlockFlags::ONFAULT).is_empty() {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownFlags));
        }
        let mut flags = VmFlags::LOCKED;
        if how.contains(MlockFlags::ONFAULT) {
            flags |= VmFlags::LOCKONFAULT;
        }
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if !w.can_mlock() {
            return Err(self.refuse(Errno::EPERM, Rule::MayLock));
        }
        let (start, len) = whole_pages(addr, len);
        let limits = w.state().limits;
        if !limits.ipc_lock {
            let limit = limits.memlock >> PAGE_SHIFT;
            let mut locked = (len >> PAGE_SHIFT) + w.state().locked_vm;
            if locked > limit {
                let end = start.checked_add(len).unwrap_or(PAGE_MASK);
                // Like Linux: the range can hold more locked pages than are accounted, so this may
                // wrap.
                locked = locked.wrapping_sub(w.locked_pages_in(VmRange::new(start, end)));
            }
            if locked > limit {
                return Err(w.refuse_memlock(Errno::ENOMEM, len));
            }
        }
        let range = w.apply_lock_flags(start, len, flags)?;
        drop(w);
        self.populate_locked(mm, range)
    }

    /// Unlocks `[addr, addr + len)`.
    ///
    /// # Errors
    /// See the [module](crate::syscall::mlock).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::types::call_flags::MlockFlags;
    ///
    /// let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
    /// space.mlock(mm, at, 4 * PAGE_SIZE, MlockFlags::empty())?;
    /// space.munlock(mm, at, PAGE_SIZE)?;
    /// let locked = |vma: VmaView| vma.body.flags.contains(VmFlags::LOCKED);
    /// assert!(space.maps(mm).map(locked).eq([false, true]));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn munlock(&self, mm: MmId, addr: u64, len: u64) -> Result<(), Errno> {
        let (start, len) = whole_pages(addr, len);
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        w.apply_lock_flags(start, len, VmFlags::empty()).map(drop)
    }

    /// Locks all current mappings, all future mappings, or both.
    ///
    /// # Errors
    /// See the [module](crate::syscall::mlock).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::types::call_flags::MclFlags;
    ///
    /// space.mlockall(mm, MclFlags::FUTURE)?;
    /// space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// assert_eq!(space.frames_in_use(), 2, "the new mapping is locked, and so faulted in");
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn mlockall(&self, mm: MmId, flags: MclFlags) -> Result<(), Errno> {
        let known = MclFlags::CURRENT | MclFlags::FUTURE | MclFlags::ONFAULT;
        if flags.is_empty() || !(flags - known).is_empty() || flags == MclFlags::ONFAULT {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownFlags));
        }
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if !w.can_mlock() {
            return Err(self.refuse(Errno::EPERM, Rule::MayLock));
        }
        let state = w.state();
        let fits = state.total_vm <= state.limits.memlock >> PAGE_SHIFT || state.limits.ipc_lock;
        if flags.contains(MclFlags::CURRENT) && !fits {
            let all = w.state().total_vm << PAGE_SHIFT;
            return Err(w.refuse_memlock(Errno::ENOMEM, all));
        }
        w.apply_mlockall(flags);
        drop(w);
        if flags.contains(MclFlags::CURRENT) {
            self.mm_populate(mm, VmRange::new(0, self.system.task_size));
        }
        Ok(())
    }

    /// Unlocks all mappings.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::types::call_flags::MclFlags;
    ///
    /// space.mlockall(mm, MclFlags::CURRENT | MclFlags::FUTURE)?;
    /// space.munlockall(mm)?;
    /// space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// assert_eq!(space.frames_in_use(), 0, "later mappings are not locked either");
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn munlockall(&self, mm: MmId) -> Result<(), Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        w.apply_mlockall(MclFlags::empty());
        Ok(())
    }
}

/// Returns the start of `addr`'s page, and the length of the whole pages up to `addr + len`.
///
/// Adding the offset in the page to `len`, and rounding up the sum, may both wrap. As in Linux,
/// callers use the wrapped result as the length.
fn whole_pages(addr: u64, len: u64) -> (u64, u64) {
    let from_page = len.wrapping_add(addr & (PAGE_SIZE - 1));
    (addr & PAGE_MASK, page_align(from_page).unwrap_or(0))
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Returns the number of pages in a range that are already locked.
    #[doc(alias = "count_mm_mlocked_page_nr")]
    fn locked_pages_in(&self, range: VmRange) -> u64 {
        self.vmas_in(range)
            .filter(|v| v.body.flags.contains(VmFlags::LOCKED))
            .map(|v| v.range.clip(range).pages())
            .sum()
    }

    /// Sets the lock flags of the VMAs in a range, and returns the range.
    #[doc(alias = "apply_vma_lock_flags")]
    fn apply_lock_flags(&mut self, start: u64, len: u64, flags: VmFlags) -> Result<VmRange, Errno> {
        let range = VmRange::of_len(start, len)
            .ok_or_else(|| self.space.refuse(Errno::EINVAL, Rule::EndFits))?;
        if range.is_empty() {
            return Ok(range);
        }
        let end = range.end;
        if self.vma_lookup(start).is_none() {
            return Err(self.refuse_unmapped(Errno::ENOMEM, start));
        }
        let mut at = start;
        while at < end {
            let Some(vma) = self.find(at).filter(|v| v.range.start <= at) else {
                return Err(self.refuse_unmapped(Errno::ENOMEM, at));
            };
            let upto = vma.range.end.min(end);
            self.mlock_fixup(
                &vma,
                VmRange::new(at, upto),
                (vma.body.flags - VmFlags::LOCKED_MASK) | flags,
            )?;
            at = self.find(upto - 1).map_or(upto, |v| v.range.end);
        }
        Ok(range)
    }

    fn apply_mlockall(&mut self, flags: MclFlags) {
        let mut add = VmFlags::empty();
        if flags.intersects(MclFlags::CURRENT | MclFlags::FUTURE) {
            add |= VmFlags::LOCKED;
            if flags.contains(MclFlags::ONFAULT) {
                add |= VmFlags::LOCKONFAULT;
            }
        }
        let state = self.state_mut();
        state.def_flags -= VmFlags::LOCKED_MASK;
        if flags.contains(MclFlags::FUTURE) {
            state.def_flags |= add;
            if !flags.contains(MclFlags::CURRENT) {
                return;
            }
        }
        if !flags.contains(MclFlags::CURRENT) {
            add = VmFlags::empty();
        }
        let mut at = 0;
        while let Some(vma) = self.find(at) {
            let wanted = (vma.body.flags - VmFlags::LOCKED_MASK) | add;
            // Linux continues if one VMA fails.
            let _ = self.mlock_fixup(&vma, vma.range, wanted);
            at = self
                .find(vma.range.end - 1)
                .map_or(vma.range.end, |v| v.range.end);
        }
    }

    fn mlock_fixup(&mut self, vma: &VmaView, range: VmRange, flags: VmFlags) -> Result<(), Errno> {
        let old = vma.body.flags;
        let never = VmFlags::SPECIAL | VmFlags::HUGETLB | VmFlags::DROPPABLE;
        if flags == old || old.intersects(never) || vma.body.is_secret() {
            return Ok(());
        }
        self.call = CallKind::Mlock;
        self.modify(vma, range, VmaBody { flags, ..vma.body })?;
        let pages = range.pages();
        let state = self.state_mut();
        match (
            old.contains(VmFlags::LOCKED),
            flags.contains(VmFlags::LOCKED),
        ) {
            (false, true) => state.locked_vm += pages,
            (true, false) => state.locked_vm -= pages,
            _ => {}
        }
        self.note_peak();
        Ok(())
    }
}
