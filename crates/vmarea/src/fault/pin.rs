//! Pins a process's page after a simulated write, which maps the page and makes it exclusive.
//!
//! # Linux
//! `mm/gup.c`: `pin_user_pages` with `FOLL_WRITE | FOLL_LONGTERM`, 6.18.

use super::{Access, Faulted};
use crate::Space;
use crate::page::PagePin;
use crate::types::platform::Environment;
use crate::types::{Errno, MmId};

/// Maximum number of attempts to fault in and pin a page that other threads keep changing.
const ATTEMPTS: usize = 64;

impl<E: Environment> Space<E> {
    /// Pins the anonymous page at `addr`.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist; EFAULT if a write to `addr` would fail, or would
    /// go to a page of a file; ENOMEM; EAGAIN if the page is being migrated, has to be read
    /// ([`NeedPage`](Faulted::NeedPage)), or was changed by other threads in every attempt.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let system = System { swap: true, ..System::default() };
    /// # let space = Space::new(Policy::LINUX, system);
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// // A device is going to write to the page, which therefore must stay in its frame.
    /// let pin = space.pin_page(mm, at)?;
    /// assert_eq!(space.swap_out(mm, at), Err(Errno::EBUSY));
    /// space.munmap(mm, at, PAGE_SIZE)?;
    /// assert_eq!(space.frame_at(pin.frame().index()), Some(pin.frame()));
    /// space.unpin_page(pin);
    /// assert_eq!(space.frames_in_use(), 0);
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "pin_user_pages")]
    pub fn pin_page(&self, mm: MmId, addr: u64) -> Result<PagePin, Errno> {
        for _ in 0..ATTEMPTS {
            match self.fault(mm, addr, Access::Write)? {
                Faulted::Retry => continue,
                faulted => faulted.result()?,
            }
            let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
            if let Some(pin) = self.pin_present(r.pages(), addr)? {
                return Ok(pin);
            }
        }
        Err(Errno::EAGAIN)
    }
}
