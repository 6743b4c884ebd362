//! `prctl` and `personality`, as far as they affect an address space.
//!
//! # Errors
//! EINVAL for an unsupported option, nonzero arguments that must be 0, or addresses out of order or
//! out of range; EPERM for changing segment addresses without `CAP_SYS_RESOURCE`, and for revoking
//! `PR_SET_MDWE`; ENOMEM if KSM pages cannot be copied to unmerge them.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//! use vmarea::mm::Mdwe;
//! use vmarea::types::prctl::PrctlOption;
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! space.prctl(mm, PrctlOption::SET_MDWE, [1, 0, 0, 0])?;
//! let request = MmapRequest {
//!     prot: Prot::WRITE | Prot::EXEC,
//!     ..MmapRequest::anonymous(PAGE_SIZE)
//! };
//! assert_eq!(space.mmap(mm, &request), Err(Errno::EACCES));
//! let layout = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?.state().layout;
//! assert_eq!(layout.mdwe, Mdwe::Refused);
//! // A program that is started by `execve` is refused the same.
//! let mut next = Layout::default();
//! next.inherit(&layout);
//! assert_eq!(next.mdwe, Mdwe::Refused);
//! assert_eq!(space.personality(mm, 0)?, 0);
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Linux
//! `kernel/sys.c` `prctl_set_mm`, `mm/ksm.c` `ksm_enable_merge_any`, 6.18. `PR_SET_MM` stores the
//! addresses of the heap and the data segment, and the other addresses only because later calls are
//! checked against them; it does not store the auxiliary vector.

use super::mmap::is_ksm_compatible;
use crate::Space;
use crate::mm::{Mdwe, MmapWriteGuard, ThpDisabled};
use crate::refused::{Refused, Rule};
use crate::types::platform::Environment;
use crate::types::prctl::PrctlOption;
use crate::types::{Errno, MmId, VmFlags};
use crate::vma::VmaBody;

/// The addresses that `PR_SET_MM` can set, with Linux's numbers for them.
mod part {
    pub(super) const START_CODE: u64 = 1;
    pub(super) const END_CODE: u64 = 2;
    pub(super) const START_DATA: u64 = 3;
    pub(super) const END_DATA: u64 = 4;
    pub(super) const START_STACK: u64 = 5;
    pub(super) const START_BRK: u64 = 6;
    pub(super) const BRK: u64 = 7;
    pub(super) const ARG_START: u64 = 8;
    pub(super) const ARG_END: u64 = 9;
    pub(super) const ENV_START: u64 = 10;
    pub(super) const ENV_END: u64 = 11;
    pub(super) const AUXV: u64 = 12;
}

/// Bit of `personality`: new readable mappings are also executable.
const READ_IMPLIES_EXEC: u32 = 0x40_0000;
/// Bit of `personality`: mappings are placed bottom-up.
const ADDR_COMPAT_LAYOUT: u32 = 0x20_0000;
/// `PR_THP_DISABLE_EXCEPT_ADVISED`.
const EXCEPT_ADVISED: u64 = 2;

impl<E: Environment> Space<E> {
    /// Performs `prctl` with an option and its arguments.
    ///
    /// # Errors
    /// See the [module](crate::syscall::prctl), which also has an example.
    pub fn prctl(&self, mm: MmId, option: PrctlOption, args: [u64; 4]) -> Result<u64, Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        let [a, b, c, d] = args;
        match option {
            PrctlOption::SET_MM => w.set_part(a, b, c, d)?,
            PrctlOption::SET_THP_DISABLE => {
                let rules = &self.policy.rules;
                let known = match a != 0 && rules.thp_disable_except_advised {
                    true => EXCEPT_ADVISED,
                    false => 0,
                };
                if b & !known != 0 || c != 0 || d != 0 {
                    return Err(self.refuse(Errno::EINVAL, Rule::KnownOption));
                }
                w.state_mut().layout.thp_disabled = match (a, b) {
                    (0, _) => ThpDisabled::No,
                    (_, 0) => ThpDisabled::Completely,
                    (_, _) => ThpDisabled::ExceptAdvised,
                };
            }
            PrctlOption::SET_MEMORY_MERGE => {
                if !self.policy.rules.memory_merge || b != 0 || c != 0 || d != 0 {
                    return Err(self.refuse(Errno::EINVAL, Rule::KnownOption));
                }
                w.merge_any(a != 0)?;
            }
            PrctlOption::SET_MDWE if self.policy.rules.mdwe => {
                let wanted = match args {
                    [0, 0, 0, 0] => Mdwe::Allowed,
                    [1, 0, 0, 0] => Mdwe::Refused,
                    [3, 0, 0, 0] => Mdwe::RefusedHere,
                    _ => return Err(self.refuse(Errno::EINVAL, Rule::KnownOption)),
                };
                let mdwe = &mut w.state_mut().layout.mdwe;
                if *mdwe != Mdwe::Allowed && *mdwe != wanted {
                    return Err(self.refuse(Errno::EPERM, Rule::MdweStays));
                }
                *mdwe = wanted;
            }
            PrctlOption::GET_MDWE if self.policy.rules.mdwe => {
                return match args {
                    [0, 0, 0, 0] => Ok(w.state().layout.mdwe.bits()),
                    _ => Err(self.refuse(Errno::EINVAL, Rule::KnownOption)),
                };
            }
            _ => return Err(self.refuse(Errno::EINVAL, Rule::KnownOption)),
        }
        Ok(0)
    }

    /// Performs `personality`; returns the old values of the bits that the core stores.
    ///
    /// The embedder stores the other bits of `personality`. The layout bit takes effect only at the
    /// next `execve`, which the embedder performs. The [module](crate::syscall::prctl) has an example.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    pub fn personality(&self, mm: MmId, bits: u32) -> Result<u64, Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        let layout = &mut w.state_mut().layout;
        let mut old = 0;
        if layout.read_implies_exec {
            old |= READ_IMPLIES_EXEC;
        }
        if layout.bottom_up {
            old |= ADDR_COMPAT_LAYOUT;
        }
        layout.read_implies_exec = bits & READ_IMPLIES_EXEC != 0;
        Ok(old.into())
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    #[doc(alias = "prctl_set_mm")]
    fn set_part(&mut self, which: u64, addr: u64, c: u64, d: u64) -> Result<(), Errno> {
        if c != 0 || d != 0 {
            return Err(self.space.refuse(Errno::EINVAL, Rule::KnownOption));
        }
        if !self.state().limits.sys_resource {
            return Err(self.space.refuse(Errno::EPERM, Rule::SysResource));
        }
        if which == part::AUXV {
            // The length `c` is 0, so the auxiliary vector does not change.
            return Ok(());
        }
        let system = &self.space.system;
        let allowed = system.lowest_addr()..system.task_size;
        if !allowed.contains(&addr) {
            let (start, len, end) = (addr, 0, allowed.end);
            let why = Refused::Outside { start, len, end };
            return Err(self.space.refuse(Errno::EINVAL, why));
        }
        let mut layout = self.state().layout;
        match which {
            part::START_DATA => layout.start_data = addr,
            part::END_DATA => layout.end_data = addr,
            part::START_STACK => layout.start_stack = addr,
            part::START_BRK => layout.start_brk = addr,
            part::BRK => layout.brk = addr,
            part::START_CODE => layout.code[0] = addr,
            part::END_CODE => layout.code[1] = addr,
            part::ARG_START => layout.args[0] = addr,
            part::ARG_END => layout.args[1] = addr,
            part::ENV_START => layout.env[0] = addr,
            part::ENV_END => layout.env[1] = addr,
            _ => return Err(self.space.refuse(Errno::EINVAL, Rule::KnownOption)),
        }
        let [code, code_end] = layout.code;
        let ordered = layout.start_data <= layout.end_data
            && layout.start_brk <= layout.brk
            && (code < code_end || code_end == 0)
            && [layout.args, layout.env]
                .iter()
                .all(|[a, b]| a <= b || *b == 0);
        if !ordered || self.data_limit_exceeded(&layout, layout.brk) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::PartsInOrder));
        }
        let lies_in_memory = matches!(which, part::START_STACK | part::ARG_START..=part::ENV_END);
        if lies_in_memory && self.find(addr).is_none() {
            return Err(self.refuse_unmapped(Errno::EFAULT, addr));
        }
        self.state_mut().layout = layout;
        Ok(())
    }

    /// Allows KSM to scan either all compatible mappings of the process or none.
    #[doc(alias = "ksm_enable_merge_any")]
    fn merge_any(&mut self, on: bool) -> Result<(), Errno> {
        if self.state().layout.merge_any == on {
            return Ok(());
        }
        self.state_mut().layout.merge_any = on;
        let mut at = 0;
        while let Some(vma) = self.find(at) {
            at = vma.range.end;
            let flags = match on {
                true if is_ksm_compatible(vma.body.flags) => vma.body.flags | VmFlags::MERGEABLE,
                true => vma.body.flags,
                false => vma.body.flags - VmFlags::MERGEABLE,
            };
            if !on && vma.body.flags.contains(VmFlags::MERGEABLE) {
                self.unmerge_range(&vma, vma.range)?;
            }
            self.set_body(vma.id, VmaBody { flags, ..vma.body });
        }
        Ok(())
    }
}
