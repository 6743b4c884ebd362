//! Page accounting of an address space, and checks against its limits.
//!
//! # Linux
//! `mm/mmap.c` `may_expand_vm`, `vm_stat_account`, `mlock_future_ok`; `mm/util.c`
//! `__vm_enough_memory`; 6.18. Limits are soft limits in bytes; `u64::MAX` means no limit.

use super::MmapGuard;
use crate::refused::Refused;
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{Errno, Overcommit, PAGE_SHIFT, PAGE_SIZE, VmFlags};

/// Resource limits and capabilities of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `RLIMIT_AS`.
    pub address_space: u64,
    /// `RLIMIT_DATA`.
    pub data: u64,
    /// `RLIMIT_STACK`.
    pub stack: u64,
    /// `RLIMIT_MEMLOCK`.
    pub memlock: u64,
    /// `CAP_IPC_LOCK`: the limit on locked memory does not apply.
    pub ipc_lock: bool,
    /// `CAP_SYS_RAWIO`: addresses below `mmap_min_addr` may be mapped.
    pub raw_io: bool,
    /// `CAP_SYS_RESOURCE`: the program's segment addresses may be changed (`PR_SET_MM`).
    pub sys_resource: bool,
    /// `CAP_SYS_NICE`: pages that other processes also map may be migrated (`MPOL_MF_MOVE_ALL`).
    pub sys_nice: bool,
    /// Hard limit of `RLIMIT_DATA`; applies if the soft limit is 0.
    pub data_hard: u64,
}

impl Limits {
    /// Returns the limit of `RLIMIT_DATA` that applies.
    fn data_in_force(&self) -> u64 {
        match self.data {
            0 => self.data_hard,
            soft => soft,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            address_space: u64::MAX,
            data: u64::MAX,
            stack: 8 << 20,
            memlock: 8 << 20,
            ipc_lock: false,
            raw_io: false,
            sys_resource: false,
            sys_nice: false,
            data_hard: u64::MAX,
        }
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// True if `pages` more pages may be mapped with these flags.
    #[doc(alias = "may_expand_vm")]
    pub(crate) fn may_expand(&self, flags: VmFlags, pages: u64) -> bool {
        let state = self.state();
        if state.total_vm.saturating_add(pages) > state.limits.address_space >> PAGE_SHIFT {
            return false;
        }
        let limit = state.limits.data_in_force();
        !flags.is_data() || state.data_vm.saturating_add(pages) <= limit >> PAGE_SHIFT
    }

    /// Names the limit because of which [`may_expand`](Self::may_expand) is false.
    #[cold]
    pub(crate) fn refuse_expansion(&self, flags: VmFlags, pages: u64) -> Errno {
        self.space.refuse_with(Errno::ENOMEM, || {
            let state = self.state();
            let asked = pages.saturating_mul(PAGE_SIZE);
            match self.may_expand(flags - VmFlags::WRITE, pages) {
                true => Refused::Data {
                    asked,
                    used: state.data_vm << PAGE_SHIFT,
                    limit: state.limits.data_in_force(),
                },
                false => Refused::AddressSpace {
                    asked,
                    used: state.total_vm << PAGE_SHIFT,
                    limit: state.limits.address_space,
                },
            }
        })
    }

    /// Adds `pages`, which may be negative, to the counters selected by `flags`.
    #[doc(alias = "vm_stat_account")]
    pub(crate) fn stat_account(&mut self, flags: VmFlags, pages: i64) {
        let state = self.state_mut();
        let add = |counter: &mut u64| *counter = counter.wrapping_add_signed(pages);
        add(&mut state.total_vm);
        if flags.is_exec() {
            add(&mut state.exec_vm);
        } else if flags.is_stack() {
            add(&mut state.stack_vm);
        } else if flags.is_data() {
            add(&mut state.data_vm);
        }
    }

    /// Updates the highest number of VMAs.
    #[inline]
    pub(crate) fn note_peak(&mut self) {
        let state = self.state_mut();
        state.peak_map_count = state.peak_map_count.max(state.map_count);
    }

    /// Moves `pages` from the counters selected by `old` to those selected by `new`.
    pub(crate) fn stat_change(&mut self, old: VmFlags, new: VmFlags, pages: u64) {
        let kind = |flags: VmFlags| (flags.is_exec(), flags.is_stack(), flags.is_data());
        if kind(old) != kind(new) {
            self.stat_account(old, -(pages as i64));
            self.stat_account(new, pages as i64);
        }
    }

    /// True if mapping `bytes` more with these flags would not exceed the limit on locked memory.
    pub(crate) fn mlock_future_ok(&self, flags: VmFlags, bytes: u64) -> bool {
        let state = self.state();
        if !flags.contains(VmFlags::LOCKED) || state.limits.ipc_lock {
            return true;
        }
        (bytes >> PAGE_SHIFT).saturating_add(state.locked_vm) <= state.limits.memlock >> PAGE_SHIFT
    }

    /// True if the process may lock memory at all.
    #[doc(alias = "can_do_mlock")]
    pub(crate) fn can_mlock(&self) -> bool {
        self.state().limits.memlock != 0 || self.state().limits.ipc_lock
    }

    /// Charges `pages` against the commit limit; returns ENOMEM if that would exceed the limit.
    #[doc(alias = "security_vm_enough_memory_mm")]
    pub(crate) fn charge(&mut self, pages: u64) -> Result<(), Errno> {
        let fits = match self.space.system.overcommit {
            Overcommit::Always => true,
            Overcommit::Guess(all) => pages <= all,
            Overcommit::Never(all) => self.state().committed.saturating_add(pages) <= all,
        };
        if !fits {
            return Err(self.refuse_charge(pages));
        }
        self.state_mut().committed += pages;
        Ok(())
    }

    #[cold]
    fn refuse_charge(&self, pages: u64) -> Errno {
        self.space.refuse_with(Errno::ENOMEM, || {
            let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE);
            let asked = bytes(pages);
            match self.space.system.overcommit {
                Overcommit::Never(all) => Refused::Commit {
                    asked,
                    used: bytes(self.state().committed),
                    limit: bytes(all),
                },
                Overcommit::Guess(all) => Refused::Overcommit {
                    asked,
                    limit: bytes(all),
                },
                Overcommit::Always => Refused::Overcommit {
                    asked,
                    limit: u64::MAX,
                },
            }
        })
    }

    /// Charges `pages` if given, runs `work`, and releases the charge if `work` fails.
    pub(crate) fn charged<R>(
        &mut self,
        pages: Option<u64>,
        work: impl FnOnce(&mut Self) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if let Some(pages) = pages {
            self.charge(pages)?;
        }
        let done = work(self);
        if done.is_err() {
            self.uncharge(pages.unwrap_or(0));
        }
        done
    }

    /// Releases the charge for `pages` against the commit limit.
    #[doc(alias = "vm_unacct_memory")]
    pub(crate) fn uncharge(&mut self, pages: u64) {
        let state = self.state_mut();
        state.committed = state.committed.saturating_sub(pages);
    }
}
