//! `mbind` and `set_mempolicy`: the memory nodes from which pages are to be allocated.
//!
//! The crate does not assign pages to nodes; policies matter because mappings with different
//! policies do not merge. Each distinct policy is stored once, so equal policies have the same
//! number.
//!
//! # Errors
//! EINVAL for unknown modes and flags, contradictory nodes, misalignment or an end that wraps;
//! EFAULT for a hole (except with the default policy); EPERM for MOVE_ALL without `CAP_SYS_NICE`;
//! ENOMEM at the map limit.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//! use vmarea::types::call_flags::MbindFlags;
//! use vmarea::types::mempolicy::MpolMode;
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
//! space.set_mempolicy(MpolMode::BIND, 1)?;
//! space.mbind(mm, at, PAGE_SIZE, (MpolMode::BIND, 1), MbindFlags::empty())?;
//! assert_eq!(space.maps(mm).count(), 2, "mappings with different policies do not merge");
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Linux
//! `mm/mempolicy.c` 6.18: `kernel_mbind`, `do_mbind`, `mpol_new`, `mpol_set_nodemask`. Partial
//! effects: the VMAs before the failing VMA have the new policy.

use crate::Space;
use crate::mm::MmapWriteGuard;
use crate::refused::Rule;
use crate::types::call_flags::MbindFlags;
use crate::types::mempolicy::{MemPolicy, MpolMode};
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, PAGE_MASK, VmRange, page_align};
use crate::vma::VmaBody;
use crate::vma::merge::CallKind;

impl<E: Environment> Space<E> {
    /// Sets the memory policy of `[addr, addr + len)`.
    ///
    /// `mode` includes the mode flags; `nodes` has one bit for each node.
    ///
    /// # Errors
    /// See the [module](crate::syscall::mempolicy), which also has an example.
    pub fn mbind(
        &self,
        mm: MmId,
        addr: u64,
        len: u64,
        (mode, nodes): (MpolMode, u64),
        flags: MbindFlags,
    ) -> Result<(), Errno> {
        MemPolicy::check_mode(mode, &self.policy.rules)
            .map_err(|errno| self.refuse(errno, Rule::MemoryPolicy))?;
        let known = MbindFlags::STRICT | MbindFlags::MOVE | MbindFlags::MOVE_ALL;
        if !(flags - known).is_empty() {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownFlags));
        }
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if flags.contains(MbindFlags::MOVE_ALL) && !w.state().limits.sys_nice {
            return Err(self.refuse(Errno::EPERM, Rule::SysNice));
        }
        if addr & !PAGE_MASK != 0 {
            return Err(self.refuse(Errno::EINVAL, Rule::AlignedAddress));
        }
        // Linux treats a length that wraps as 0, which is no error.
        let range = VmRange::of_len(addr, page_align(len).unwrap_or(0))
            .ok_or_else(|| self.refuse(Errno::EINVAL, Rule::EndFits))?;
        if range.is_empty() {
            return Ok(());
        }
        let policy = MemPolicy::new(mode, nodes, (&self.policy.rules, self.system.nodes))
            .map_err(|errno| self.refuse(errno, Rule::MemoryPolicy))?;
        let policy = policy.map_or(Ok(0), |p| self.intern(p))?;
        w.mbind(range, policy)
    }

    /// Checks whether a memory policy for the calling task would be accepted, without storing it.
    ///
    /// # Errors
    /// See the [module](crate::syscall::mempolicy), which also has an example.
    pub fn set_mempolicy(&self, mode: MpolMode, nodes: u64) -> Result<(), Errno> {
        MemPolicy::new(mode, nodes, (&self.policy.rules, self.system.nodes))
            .map_err(|errno| self.refuse(errno, Rule::MemoryPolicy))
            .map(drop)
    }

    /// Returns the number of a policy, which is the same for equal policies.
    fn intern(&self, policy: MemPolicy) -> Result<u32, Errno> {
        let mut known = self.policies.lock();
        if let Some(at) = known.iter().position(|p| *p == policy) {
            return Ok(at as u32 + 1);
        }
        known.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        known.push(policy);
        Ok(known.len() as u32)
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    fn mbind(&mut self, range: VmRange, policy: u32) -> Result<(), Errno> {
        self.call = CallKind::Mbind;
        let Some(first) = self.intersection(range) else {
            return Err(self.refuse_unmapped(Errno::EFAULT, range.start));
        };
        if policy != 0 && (first.range.start > range.start || !self.is_covered(range)) {
            return Err(self.refuse_unmapped(Errno::EFAULT, range.start));
        }
        let mut at = range.start;
        while at < range.end
            && let Some(vma) = self.find(at).filter(|v| v.range.start < range.end)
        {
            let part = vma.range.clip(range);
            let mut end = part.end;
            if vma.body.policy != policy {
                let body = VmaBody { policy, ..vma.body };
                let id = self.modify(&vma, part, body)?;
                end = self.view(id).range.end.max(end);
            }
            at = end;
        }
        self.note_peak();
        Ok(())
    }
}
