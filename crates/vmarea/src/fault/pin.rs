//! Pinning a page of a process: it is brought and made the process's own first, as a write would do.
//!
//! # Linux
//! `mm/gup.c`: `pin_user_pages` with `FOLL_WRITE | FOLL_LONGTERM`, 6.18.

use super::{Access, Faulted};
use crate::page::PagePin;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{Errno, MmId};

/// Faults that may come between before a page is pinned.
const ATTEMPTS: usize = 64;

impl<E: Environment> Space<E> {
    /// Pins the anonymous page at `addr`.
    ///
    /// # Errors
    /// ESRCH if the address space is gone; EFAULT where a write would not succeed, or goes to a page of a
    /// file; ENOMEM; EAGAIN where the page migrates, or was taken away again and again.
    #[doc(alias = "pin_user_pages")]
    pub fn pin_page(&self, mm: MmId, addr: u64) -> Result<PagePin, Errno> {
        for _ in 0..ATTEMPTS {
            match self.fault(mm, addr, Access::Write)? {
                Faulted::Done | Faulted::Spurious => {}
                Faulted::OutOfMemory => return Err(Errno::ENOMEM),
                Faulted::MustWait => continue,
                Faulted::NoMapping | Faulted::NoAccess | Faulted::NoPage | Faulted::Userfault => {
                    return Err(Errno::EFAULT);
                }
            }
            let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
            if let Some(pin) = self.pin_present(r.pages(), addr)? {
                return Ok(pin);
            }
        }
        Err(Errno::EAGAIN)
    }
}
