//! NUMA memory policies: a mode, flags, and a set of nodes.
//!
//! # Linux
//! `mm/mempolicy.c` `mpol_new`, `sanitize_mpol_flags`, 6.18.

use super::Errno;
use crate::policy::Rules;

/// The mode and flags of a memory policy, encoded as in Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MpolMode(pub u32);

impl MpolMode {
    /// `MPOL_DEFAULT`: no policy.
    pub const DEFAULT: MpolMode = MpolMode(0);
    /// `MPOL_PREFERRED`: allocates from the first node in the set if that node has free memory.
    pub const PREFERRED: MpolMode = MpolMode(1);
    /// `MPOL_BIND`: allocates only from the nodes in the set.
    pub const BIND: MpolMode = MpolMode(2);
    /// `MPOL_LOCAL`: allocates from the node to which the processor belongs.
    pub const LOCAL: MpolMode = MpolMode(4);
    /// `MPOL_PREFERRED_MANY`: allocates from the nodes in the set if one of them has free memory.
    pub const PREFERRED_MANY: MpolMode = MpolMode(5);

    const STATIC_NODES: u32 = 1 << 15;
    const RELATIVE_NODES: u32 = 1 << 14;
    const NUMA_BALANCING: u32 = 1 << 13;
    const FLAGS: u32 = Self::STATIC_NODES | Self::RELATIVE_NODES | Self::NUMA_BALANCING;

    /// Splits the value into the mode and the flags.
    fn split(self) -> (MpolMode, u32) {
        (MpolMode(self.0 & !Self::FLAGS), self.0 & Self::FLAGS)
    }
}

/// A NUMA memory policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemPolicy {
    /// Mode without flags.
    mode: MpolMode,
    /// `MPOL_F_` flags.
    flags: u32,
    /// The requested nodes if STATIC_NODES or RELATIVE_NODES is set; 0 otherwise.
    asked: u64,
    /// The existing nodes to which the policy applies.
    nodes: u64,
}

impl MemPolicy {
    /// Creates a policy from the arguments of a call; returns `None` for the default policy.
    /// `online` is the set of nodes that exist.
    #[doc(alias = "mpol_new")]
    pub(crate) fn new(
        mode_and_flags: MpolMode,
        asked: u64,
        (rules, online): (&Rules, u64),
    ) -> Result<Option<MemPolicy>, Errno> {
        MemPolicy::check_mode(mode_and_flags, rules)?;
        let (mut mode, flags) = mode_and_flags.split();
        let fixed = flags & (MpolMode::STATIC_NODES | MpolMode::RELATIVE_NODES);
        match (mode, asked) {
            (MpolMode::DEFAULT, 0) => return Ok(None),
            (MpolMode::PREFERRED, 0) if fixed == 0 => mode = MpolMode::LOCAL,
            (MpolMode::LOCAL, 0) if fixed == 0 => {}
            (MpolMode::DEFAULT | MpolMode::LOCAL, _) | (_, 0) => return Err(Errno::EINVAL),
            _ => {}
        }
        let nodes = match fixed {
            _ if mode == MpolMode::LOCAL => 0,
            MpolMode::RELATIVE_NODES => relative(asked, online),
            _ => asked & online,
        };
        if mode != MpolMode::LOCAL && nodes == 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Some(MemPolicy {
            mode,
            flags,
            asked: if fixed != 0 { asked } else { 0 },
            nodes,
        }))
    }

    /// Returns EINVAL if the mode is unknown, or if flags conflict with the mode or with each
    /// other.
    #[doc(alias = "sanitize_mpol_flags")]
    pub(crate) fn check_mode(mode: MpolMode, rules: &Rules) -> Result<(), Errno> {
        let both = MpolMode::STATIC_NODES | MpolMode::RELATIVE_NODES;
        let (plain, flags) = mode.split();
        let balanced = matches!(plain, MpolMode::BIND | MpolMode::PREFERRED_MANY);
        let balancing = flags & MpolMode::NUMA_BALANCING != 0;
        let wrong = plain.0 >= rules.mempolicy_modes
            || flags & both == both
            || balancing && !(balanced && rules.numa_balancing);
        if wrong { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// Maps relative node numbers to existing nodes: bit n represents the n-th existing node, counting
/// from 0 and modulo the number of existing nodes.
#[doc(alias = "mpol_relative_nodemask")]
fn relative(asked: u64, online: u64) -> u64 {
    let count = online.count_ones().max(1);
    let nth = |n: u32| (0..64).filter(|b| online >> b & 1 == 1).nth(n as usize);
    (0..64)
        .filter(|b| asked >> b & 1 == 1)
        .filter_map(|b| nth(b % count))
        .fold(0, |nodes, b| nodes | 1 << b)
}
