//! Copies between the kernel and user memory, and access to futex words.
//!
//! The kernel accesses a program's page through the platform ([`PageBytes`]), while the page-table
//! entry is locked. If the entry does not permit the access, the page is first faulted in, as if
//! the program had accessed it.
//!
//! # Linux
//! `copy_from_user`, `copy_to_user`, `futex_cmpxchg_value_locked`, 6.18. Differences: the part of a
//! buffer that could not be filled keeps its old bytes; protection keys are not checked.

use super::{Access, Faulted, is_forbidden};
use crate::Space;
use crate::types::mmu::MappedPage;
use crate::types::page_bytes::PageBytes;
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, PAGE_MASK, PAGE_SIZE, VmFlags};
use core::ops::Range;

/// An access to user memory that stopped early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// Number of bytes that were not copied.
    pub not_copied: usize,
    /// The outcome of the fault on the first byte that was not copied; never
    /// [`Done`](Faulted::Done) or [`Spurious`](Faulted::Spurious).
    pub faulted: Faulted,
}

impl From<Stopped> for Errno {
    /// Returns ENOMEM or EAGAIN if [`Faulted::result`] does, otherwise EFAULT.
    fn from(stopped: Stopped) -> Errno {
        stopped.faulted.result().err().unwrap_or(Errno::EFAULT)
    }
}

impl<E: Environment> Space<E>
where
    E::Platform: PageBytes,
{
    /// Copies bytes from the program's memory, starting at address `from`.
    ///
    /// # Errors
    /// [`Stopped`] if the program could not read all the bytes; those that it could read are
    /// copied. No byte is copied from a range that ends above
    /// [`System::task_size`](crate::System::task_size).
    ///
    /// The trait [`PageBytes`] has an example.
    pub fn copy_from_user(&self, mm: MmId, from: u64, to: &mut [u8]) -> Result<(), Stopped> {
        let place = (mm, from, to.len());
        self.user_parts(place, Access::Read, |page, offset, part| {
            self.platform.read(page, offset, &mut to[part]);
        })
    }

    /// Copies bytes to the program's memory, starting at address `to`.
    ///
    /// # Errors
    /// [`Stopped`] if the program could not write all the bytes; those that it could write are
    /// copied. No byte is copied to a range that ends above
    /// [`System::task_size`](crate::System::task_size).
    ///
    /// The trait [`PageBytes`] has an example.
    pub fn copy_to_user(&self, mm: MmId, to: u64, from: &[u8]) -> Result<(), Stopped> {
        let place = (mm, to, from.len());
        self.user_parts(place, Access::Write, |page, offset, part| {
            self.platform.write(page, offset, &from[part]);
        })
    }

    /// Atomically reads the word at `addr` in a program's memory.
    ///
    /// # Errors
    /// The outcome of the fault if the program could not read the word; [`NoPage`](Faulted::NoPage)
    /// if `addr` is not a multiple of 4. Linux's `futex` rejects a misaligned address with EINVAL.
    ///
    /// The trait [`PageBytes`] has an example.
    #[doc(alias = "futex_get_value_locked")]
    pub fn load_user_word(&self, mm: MmId, addr: u64) -> Result<u32, Faulted> {
        self.user_word(mm, addr, Access::Read, |page, offset| {
            self.platform.load(page, offset)
        })
    }

    /// Atomically replaces the word at `addr` in a program's memory by `new` if the word equals
    /// `current`; returns the previous value.
    ///
    /// # Errors
    /// As [`load_user_word`](Self::load_user_word), if the program could not write the word.
    ///
    /// The trait [`PageBytes`] has an example.
    #[doc(alias = "futex_cmpxchg_value_locked")]
    pub fn compare_exchange_user_word(
        &self,
        mm: MmId,
        addr: u64,
        (current, new): (u32, u32),
    ) -> Result<u32, Faulted> {
        self.user_word(mm, addr, Access::Write, |page, offset| {
            self.platform.compare_exchange(page, offset, current, new)
        })
    }

    fn user_word(
        &self,
        mm: MmId,
        addr: u64,
        access: Access,
        f: impl FnOnce(MappedPage, usize) -> u32,
    ) -> Result<u32, Faulted> {
        if !addr.is_multiple_of(4) {
            return Err(Faulted::NoPage);
        }
        let offset = (addr & !PAGE_MASK) as usize;
        self.user_page(mm, addr, access, |page| f(page, offset))
    }

    /// Splits a range of user memory into parts, each within one page. Calls `f` for each part with
    /// the page, the offset in the page, and the part's position in the buffer.
    fn user_parts(
        &self,
        (mm, addr, len): (MmId, u64, usize),
        access: Access,
        mut f: impl FnMut(MappedPage, usize, Range<usize>),
    ) -> Result<(), Stopped> {
        let stopped = |done, faulted| Stopped {
            not_copied: len - done,
            faulted,
        };
        let end = addr.checked_add(len as u64);
        if end.is_none_or(|end| end > self.system.task_size) {
            return Err(stopped(0, Faulted::NoMapping));
        }
        let mut done = 0;
        while done < len {
            let at = addr + done as u64;
            let offset = (at & !PAGE_MASK) as usize;
            let end = len.min(done + PAGE_SIZE as usize - offset);
            self.user_page(mm, at, access, |page| f(page, offset, done..end))
                .map_err(|faulted| stopped(done, faulted))?;
            done = end;
        }
        Ok(())
    }

    /// Faults until the page at `addr` permits the access; then calls `f` with the page, while its
    /// page-table entry is locked.
    fn user_page<R>(
        &self,
        mm: MmId,
        addr: u64,
        access: Access,
        f: impl FnOnce(MappedPage) -> R,
    ) -> Result<R, Faulted> {
        let mut f = Some(f);
        loop {
            let accessed = self.with_mapped(mm, addr, |mapped| {
                if mapped.flags.intersects(VmFlags::PFNMAP | VmFlags::IO) {
                    // The memory of a device has no page.
                    return Err(Faulted::NoPage);
                }
                let permits = |writable| writable || access != Access::Write;
                let to = mapped.translation().filter(|to| permits(to.writable));
                Ok(to
                    .filter(|_| !is_forbidden(mapped.flags, access))
                    .and_then(|to| Some(f.take()?(to.page))))
            });
            if let Some(result) = accessed.unwrap_or(Err(Faulted::NoMapping))? {
                return Ok(result);
            }
            let faulted = self.fault(mm, addr, access).unwrap_or(Faulted::NoMapping);
            faulted.result().map_err(|_| faulted)?;
        }
    }
}
