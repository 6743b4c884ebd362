//! Locks one VMA for reading without `mmap_lock`: finds it, read-locks it and revalidates it.
//!
//! Readers need neither RCU-style critical sections nor registration: the memory of tree nodes and
//! of VMA and address-space slots is type-stable, so any stale reference can be read safely, and
//! the checks after locking detect whether the slot has been reused.
//!
//! # Picture
//! ```text
//! tree ─▶ slot of the VMA ─▶ its lock, for reading ─▶ same VMA, same mm, has the address? ─▶ done
//!  │    ┌──▶│                  │                        │ no
//!  │   hint │ gone             │ gone                   │
//!  │ busy   │                  │                        ▼
//!  └────────┴──────────────────┴──▶ search again, up to `TRIES` times
//! ```
//!
//! # Locking
//! A thread that holds a VMA lock must not wait for `mmap_lock`. A VMA cannot be removed from its
//! mm while it is read-locked, and an mm is freed only after its VMAs are removed. An mm that
//! exists after the VMA was locked therefore exists until the VMA is unlocked.
//!
//! # Linux
//! `mm/mmap_lock.c` `lock_vma_under_rcu`, 6.18.

use super::{FellBack, Mm};
use crate::Space;
use crate::types::platform::{Environment, Standard};
use crate::types::{MmId, VmRange, VmaId};
use crate::vma::{Vma, VmaBody, VmaView};
use vmarea_sync::{Found, Refused, VmaReadGuard};

/// Maximum number of attempts to find and lock the VMA.
const TRIES: u32 = 4;

/// A VMA that is locked for reading without `mmap_lock`, until this value is dropped.
#[derive(Debug)]
pub struct LockedVma<'s, E: Environment = Standard> {
    view: VmaView,
    _lock: VmaReadGuard<'s, VmaBody, E::VmaLock, E::Wait>,
}

impl<E: Environment> LockedVma<'_, E> {
    /// Returns the VMA, which does not change while it is locked. The view never reports the
    /// anon_vma chain as singular, whatever the chain's length.
    pub fn view(&self) -> &VmaView {
        &self.view
    }
}

/// A VMA that is locked for reading, before its fields are read.
pub(crate) struct HeldVma<'s, E: Environment> {
    id: VmaId,
    vma: &'s Vma<E>,
    lock: VmaReadGuard<'s, VmaBody, E::VmaLock, E::Wait>,
}

impl<'s, E: Environment> HeldVma<'s, E> {
    /// Returns the VMA, as [`LockedVma::view`] does.
    #[inline]
    pub(crate) fn view(&self) -> VmaView {
        self.vma.view_without_chain(self.id, &self.lock)
    }

    fn viewed(self) -> LockedVma<'s, E> {
        LockedVma {
            view: self.view(),
            _lock: self.lock,
        }
    }
}

/// Why an attempt to lock a VMA failed.
pub(crate) enum Missed {
    /// The tree or the VMA changed during the search: search again.
    Again,
    /// The VMA can be accessed only under `mmap_lock`, for this reason.
    FallBack(FellBack),
}

impl From<Refused> for Missed {
    fn from(refused: Refused) -> Missed {
        match refused {
            Refused::Gone => Missed::Again,
            Refused::WriteLocked => Missed::FallBack(FellBack::WriteLocked),
            Refused::TooMany => Missed::FallBack(FellBack::TooManyReaders),
            Refused::NoLock => Missed::FallBack(FellBack::NoLock),
        }
    }
}

impl<E: Environment> Space<E> {
    /// Locks the VMA at `addr` for reading, without `mmap_lock`. The lookup is not counted.
    ///
    /// # Errors
    /// The reason why the caller has to take `mmap_lock`; [`FellBack::NoVma`] also if the address
    /// space does not exist.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::mm::FellBack;
    ///
    /// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// // Calls on other VMAs go on while this one is locked.
    /// let locked = space.lock_vma(mm, at).expect("mapped");
    /// assert_eq!(locked.view().range.start, at);
    /// assert_eq!(space.lock_vma(mm, 0).err(), Some(FellBack::NoVma));
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "lock_vma_under_rcu")]
    pub fn lock_vma(&self, mm: MmId, addr: u64) -> Result<LockedVma<'_, E>, FellBack> {
        let there = self.mms.find(mm.0).ok_or(FellBack::NoVma)?;
        self.lock_vma_of(there, addr).map(HeldVma::viewed)
    }

    #[inline]
    pub(crate) fn lock_vma_of<'s>(
        &'s self,
        there: Found<'s, Mm<E>>,
        addr: u64,
    ) -> Result<HeldVma<'s, E>, FellBack> {
        let mm = there.value();
        let near = mm.pages.near(addr);
        let hint = near.and_then(|near| near.at(addr));
        // A stale hint does not count as a retry: the tree has not been searched yet.
        if let Some(hint) = hint {
            match self.try_lock_vma(there, hint, addr) {
                Ok(locked) => return Ok(locked),
                Err(Missed::Again) => {}
                Err(Missed::FallBack(why)) => return Err(why),
            }
        }
        for _ in 0..TRIES {
            match self.find_and_lock(there, addr) {
                Ok(locked) => {
                    if let Some(near) = near {
                        let range = VmRange::new(locked.vma.start(), locked.vma.end());
                        near.remember(locked.id, range);
                    }
                    return Ok(locked);
                }
                Err(Missed::Again) => mm.fault_counters.retried(),
                Err(Missed::FallBack(why)) => return Err(why),
            }
        }
        Err(FellBack::Changing)
    }

    fn find_and_lock<'s>(
        &'s self,
        there: Found<'s, Mm<E>>,
        addr: u64,
    ) -> Result<HeldVma<'s, E>, Missed> {
        let found = there.value().try_find(addr).map_err(|_| Missed::Again)?;
        let vma = found
            .filter(|entry| entry.start <= addr)
            .and_then(|entry| VmaId::from_bits(entry.value))
            .ok_or(Missed::FallBack(FellBack::NoVma))?;
        self.try_lock_vma(there, vma, addr)
    }

    /// Locks the VMA that was found, if it still contains the address.
    #[inline]
    pub(crate) fn try_lock_vma<'s>(
        &'s self,
        there: Found<'s, Mm<E>>,
        id: VmaId,
        addr: u64,
    ) -> Result<HeldVma<'s, E>, Missed> {
        let found = self.vmas.find(id.0).ok_or(Missed::Again)?;
        let vma = found.value();
        let lock = vma.body.start_read(there.value().owner(vma.start()))?;
        let same = found.is_current() && there.is_current();
        if !same || addr < vma.start() || vma.end() <= addr {
            return Err(Missed::Again);
        }
        Ok(HeldVma { id, vma, lock })
    }
}
