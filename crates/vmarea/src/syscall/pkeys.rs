//! Protection keys: `pkey_alloc`, `pkey_free`, and the key for execute-only mappings.
//!
//! The allocated keys belong to the address space. Access rights to keys belong to threads, which
//! the core does not model. For kernel accesses on behalf of the process, such as prefaulting, the
//! core remembers the rights that calls have set, as if the process had only one thread. The
//! embedder checks whether the processor may make an access
//! ([`PkeyRights`](crate::types::PkeyRights)); the core never refuses a fault because of a key.
//!
//! # Errors
//! EINVAL for unknown flags or rights, and for a key that is not allocated; ENOSPC if no key is
//! free. If the processor has no keys: EINVAL on the first call in an address space, which uses up
//! the only key there is, and ENOSPC afterwards.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//! use vmarea::types::call_flags::Pkey;
//!
//! let system = System { protection_keys: true, ..System::default() };
//! let space = Space::new(Policy::LINUX, system);
//! let mm = space.mm_create(Layout::default(), Limits::default())?;
//! let key: Pkey = space.pkey_alloc(mm, 0, 0)?;
//! space.pkey_free(mm, key)?;
//! assert_eq!(space.pkey_free(mm, key), Err(Errno::EINVAL));
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Linux
//! `mm/mprotect.c`, `arch/x86/mm/pkeys.c`, `arch/x86/include/asm/pkeys.h`, 6.18. A key can be freed
//! while mappings still use it.

use crate::Space;
use crate::mm::{MmState, MmapGuard};
use crate::refused::Rule;
use crate::types::call_flags::{Pkey, Prot};
use crate::types::pkeys::{PKEY_DISABLE_ACCESS, PKEY_DISABLE_WRITE, PKEYS};
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{Errno, MmId, VmFlags};
use crate::vma::VmaView;

impl<E: Environment> Space<E> {
    /// Allocates the lowest free key, with all access rights except those in `denied`.
    ///
    /// # Errors
    /// See the [module](crate::syscall::pkeys), which also has an example.
    pub fn pkey_alloc(&self, mm: MmId, flags: u64, denied: u64) -> Result<Pkey, Errno> {
        let known = PKEY_DISABLE_ACCESS | PKEY_DISABLE_WRITE;
        if flags != 0 || denied & !u64::from(known) != 0 {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownFlags));
        }
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if !self.system.protection_keys
            && !self.policy.rules.no_keys_is_none_left
            && w.state().pkeys == 0
        {
            // Key 0 is allocated, the call fails, and the key is not freed, because the program
            // cannot own it.
            w.state_mut().pkeys = 1;
            return Err(self.refuse(Errno::EINVAL, Rule::KeysLeft));
        }
        let key = w
            .take_pkey()
            .ok_or_else(|| self.refuse(Errno::ENOSPC, Rule::KeysLeft))?;
        let state = w.state_mut();
        state.pkey_rights = state.pkey_rights.with(key, denied as u32);
        Ok(Pkey(key as i32))
    }

    /// Frees a key.
    ///
    /// # Errors
    /// See the [module](crate::syscall::pkeys), which also has an example.
    pub fn pkey_free(&self, mm: MmId, key: Pkey) -> Result<(), Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if !w.state().pkey_is_allocated(key) {
            return Err(self.refuse(Errno::EINVAL, Rule::AllocatedKey));
        }
        w.state_mut().pkeys &= !(1 << key.0);
        Ok(())
    }
}

impl MmState {
    /// True if the program has allocated the key.
    #[doc(alias = "mm_pkey_is_allocated")]
    pub(crate) fn pkey_is_allocated(&self, key: Pkey) -> bool {
        let Ok(key) = u32::try_from(key.0) else {
            return false;
        };
        key < PKEYS && Some(key) != self.execute_only_pkey && self.pkeys >> key & 1 == 1
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    #[doc(alias = "mm_pkey_alloc")]
    fn take_pkey(&mut self) -> Option<u32> {
        let free = (!self.state().pkeys).trailing_zeros();
        if !self.space.system.protection_keys || free >= PKEYS {
            return None;
        }
        self.state_mut().pkeys |= 1 << free;
        Some(free)
    }

    /// Returns the key for execute-only mappings, allocated if necessary; 0 if none is available.
    pub(crate) fn execute_only_pkey(&mut self) -> u32 {
        if !self.space.system.protection_keys {
            return 0;
        }
        let had = self.state().execute_only_pkey;
        let Some(key) = had.or_else(|| self.take_pkey()) else {
            return 0;
        };
        let state = self.state_mut();
        if had.is_none() || state.pkey_rights.allows_read(key) {
            state.pkey_rights = state.pkey_rights.with(key, PKEY_DISABLE_ACCESS);
        }
        state.execute_only_pkey = Some(key);
        key
    }

    /// Returns the protection key that a VMA gets when `mprotect` changes its protection to `prot`.
    #[doc(alias = "arch_override_mprotect_pkey")]
    pub(crate) fn override_pkey(&mut self, vma: &VmaView, prot: Prot, asked: Option<Pkey>) -> u32 {
        if let Some(Pkey(key)) = asked {
            return key as u32;
        }
        let old = vma.body.flags;
        if prot == Prot::EXEC {
            let key = self.execute_only_pkey();
            if key > 0 {
                return key;
            }
        } else if old & VmFlags::ACCESS == VmFlags::EXEC
            && Some(old.pkey()) == self.state().execute_only_pkey
        {
            return 0;
        }
        old.pkey()
    }
}
