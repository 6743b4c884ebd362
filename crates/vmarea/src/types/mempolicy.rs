//! NUMA memory policies: a mode, flags, and a set of nodes.
//!
//! # Linux
//! `mm/mempolicy.c` `mpol_new`, `sanitize_mpol_flags`, 6.18.

use super::Errno;
use crate::policy::Rules;

/// Linux's numbers of modes and flags.
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

/// A NUMA memory policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemPolicy {
    /// `MPOL_` mode, without flags.
    mode: u32,
    /// `MPOL_F_` flags.
    flags: u32,
    /// Requested nodes if STATIC_NODES or RELATIVE_NODES is set; 0 otherwise.
    asked: u64,
    /// Existing nodes to which the policy applies.
    nodes: u64,
}

impl MemPolicy {
    /// Makes a policy from the arguments of a call; `None` for the default policy. `online` is the
    /// set of nodes that exist.
    #[doc(alias = "mpol_new")]
    pub(crate) fn new(
        mode_and_flags: u32,
        asked: u64,
        (rules, online): (&Rules, u64),
    ) -> Result<Option<MemPolicy>, Errno> {
        MemPolicy::check_mode(mode_and_flags, rules)?;
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

    /// Checks the mode and the flags: EINVAL if the mode is unknown, or if flags conflict with the
    /// mode or with each other.
    #[doc(alias = "sanitize_mpol_flags")]
    pub(crate) fn check_mode(mode: u32, rules: &Rules) -> Result<(), Errno> {
        let both = mode::STATIC_NODES | mode::RELATIVE_NODES;
        let plain = mode & !mode::FLAGS;
        let balanced = matches!(plain, mode::BIND | mode::PREFERRED_MANY);
        let balancing = mode & mode::NUMA_BALANCING != 0;
        let wrong = plain >= rules.mempolicy_modes
            || mode & both == both
            || balancing && !(balanced && rules.numa_balancing);
        if wrong { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// Maps relative node numbers to existing nodes: bit n means the n-th existing node, modulo their
/// number.
#[doc(alias = "mpol_relative_nodemask")]
fn relative(asked: u64, online: u64) -> u64 {
    let count = online.count_ones().max(1);
    let nth = |n: u32| (0..64).filter(|b| online >> b & 1 == 1).nth(n as usize);
    (0..64)
        .filter(|b| asked >> b & 1 == 1)
        .filter_map(|b| nth(b % count))
        .fold(0, |nodes, b| nodes | 1 << b)
}
