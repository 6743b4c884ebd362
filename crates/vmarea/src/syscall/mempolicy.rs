//! `mbind` and `set_mempolicy`: on which memory nodes pages come.
//!
//! Pages have no node here; what counts is that mappings with different policies do not merge. A
//! policy is kept by its content, so that equal ones are the same number.
//!
//! # Errors
//! EINVAL for unknown modes and flags, contradictory nodes, misalignment or an end that wraps;
//! EFAULT for a hole (but not for the default policy); EPERM for MOVE_ALL without the right to;
//! ENOMEM at the map limit.
//!
//! # Linux
//! `mm/mempolicy.c` 6.18: `kernel_mbind`, `do_mbind`, `mpol_new`, `mpol_set_nodemask`. By halves: VMAs
//! before the one that fails have the new policy.

use crate::mm::MmapWriteGuard;
use crate::space::Space;
use crate::values::call_flags::MbindFlags;
use crate::values::platform::Environment;
use crate::values::{Errno, MmId, PAGE_MASK, Rules, VmRange, page_align};
use crate::vma::VmaBody;

/// Modes and flags by Linux's numbers.
mod mode {
    pub(super) const DEFAULT: u32 = 0;
    pub(super) const PREFERRED: u32 = 1;
    pub(super) const BIND: u32 = 2;
    pub(super) const LOCAL: u32 = 4;
    pub(super) const PREFERRED_MANY: u32 = 5;
    pub(super) const STATIC_NODES: u32 = 1 << 15;
    pub(super) const RELATIVE_NODES: u32 = 1 << 14;
    pub(super) const NUMA_BALANCING: u32 = 1 << 13;
    pub(super) const FLAGS: u32 = STATIC_NODES | RELATIVE_NODES | NUMA_BALANCING;
}

/// A memory policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemPolicy {
    /// `MPOL_` mode, without flags.
    mode: u32,
    /// `MPOL_F_` flags.
    flags: u32,
    /// Nodes as they were asked for, where that is remembered.
    asked: u64,
    /// Nodes that there are.
    nodes: u64,
}

impl MemPolicy {
    /// A policy as a caller describes it; none for the default. `online` are the nodes that exist.
    #[doc(alias = "mpol_new")]
    fn new(
        mode_and_flags: u32,
        asked: u64,
        (rules, online): (&Rules, u64),
    ) -> Result<Option<MemPolicy>, Errno> {
        sane(mode_and_flags, rules)?;
        let (flags, mut mode) = (mode_and_flags & mode::FLAGS, mode_and_flags & !mode::FLAGS);
        let fixed = flags & (mode::STATIC_NODES | mode::RELATIVE_NODES);
        match (mode, asked) {
            (mode::DEFAULT, 0) => return Ok(None),
            (mode::PREFERRED, 0) if fixed == 0 => mode = mode::LOCAL,
            (mode::LOCAL, 0) if fixed == 0 => {}
            (mode::DEFAULT | mode::LOCAL, _) | (_, 0) => return Err(Errno::EINVAL),
            _ => {}
        }
        let nodes = match fixed {
            _ if mode == mode::LOCAL => 0,
            mode::RELATIVE_NODES => relative(asked, online),
            _ => asked & online,
        };
        if mode != mode::LOCAL && nodes == 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Some(MemPolicy {
            mode,
            flags,
            asked: if fixed != 0 { asked } else { 0 },
            nodes,
        }))
    }
}

/// The n-th nodes of those that exist, counted around.
#[doc(alias = "mpol_relative_nodemask")]
fn relative(asked: u64, online: u64) -> u64 {
    let count = online.count_ones().max(1);
    let nth = |n: u32| (0..64).filter(|b| online >> b & 1 == 1).nth(n as usize);
    (0..64)
        .filter(|b| asked >> b & 1 == 1)
        .filter_map(|b| nth(b % count))
        .fold(0, |nodes, b| nodes | 1 << b)
}

impl<E: Environment> Space<E> {
    /// Gives `[addr, addr + len)` a policy. `mode` holds its flags as well, `nodes` a bit for each
    /// node.
    pub fn mbind(
        &self,
        mm: MmId,
        addr: u64,
        len: u64,
        (mode, nodes): (u32, u64),
        flags: MbindFlags,
    ) -> Result<(), Errno> {
        sane(mode, &self.policy.rules)?;
        let known = MbindFlags::STRICT | MbindFlags::MOVE | MbindFlags::MOVE_ALL;
        if !(flags - known).is_empty() {
            return Err(Errno::EINVAL);
        }
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if flags.contains(MbindFlags::MOVE_ALL) && !w.state().limits.sys_nice {
            return Err(Errno::EPERM);
        }
        if addr & !PAGE_MASK != 0 {
            return Err(Errno::EINVAL);
        }
        // A length that wraps is none to Linux, and that is no error.
        let range = VmRange::of_len(addr, page_align(len).unwrap_or(0)).ok_or(Errno::EINVAL)?;
        if range.is_empty() {
            return Ok(());
        }
        let policy = MemPolicy::new(mode, nodes, (&self.policy.rules, self.system.nodes))?;
        let policy = policy.map_or(Ok(0), |p| self.intern(p))?;
        w.mbind(range, policy)
    }

    /// The policy of the task: says whether it would be accepted, and shapes nothing.
    pub fn set_mempolicy(&self, mode: u32, nodes: u64) -> Result<(), Errno> {
        MemPolicy::new(mode, nodes, (&self.policy.rules, self.system.nodes)).map(|_| ())
    }

    /// The number of a policy; the same for equal ones.
    fn intern(&self, policy: MemPolicy) -> Result<u32, Errno> {
        let mut known = self.policies.lock();
        if let Some(at) = known.iter().position(|p| *p == policy) {
            return Ok(at as u32 + 1);
        }
        crate::mutant::allocate()?;
        known.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        known.push(policy);
        Ok(known.len() as u32)
    }
}

/// Flags that cannot go with the mode, or with each other.
#[doc(alias = "sanitize_mpol_flags")]
fn sane(mode: u32, rules: &Rules) -> Result<(), Errno> {
    let both = mode::STATIC_NODES | mode::RELATIVE_NODES;
    let plain = mode & !mode::FLAGS;
    let balanced = matches!(plain, mode::BIND | mode::PREFERRED_MANY);
    let balancing = mode & mode::NUMA_BALANCING != 0;
    let wrong = plain >= rules.mempolicy_modes
        || mode & both == both
        || balancing && !(balanced && rules.numa_balancing);
    if wrong { Err(Errno::EINVAL) } else { Ok(()) }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    fn mbind(&mut self, range: VmRange, policy: u32) -> Result<(), Errno> {
        let Some(first) = self.intersection(range) else {
            return Err(Errno::EFAULT);
        };
        if policy != 0 && (first.range.start > range.start || !self.is_covered(range)) {
            return Err(Errno::EFAULT);
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
        let state = self.state_mut();
        state.peak_map_count = state.peak_map_count.max(state.map_count);
        Ok(())
    }
}
