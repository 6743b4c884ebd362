//! `process_madvise`: applies advice to several ranges at once.
//!
//! # Errors
//! The errors of `madvise` if the first range fails; EINVAL for advice that a process may give only
//! about itself, and for a negative length; EFAULT for a range outside the address space.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//! use vmarea::syscall::madvise::Advice;
//! use vmarea::syscall::process_madvise::Advised;
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(mm, &MmapRequest::anonymous(3 * PAGE_SIZE))?;
//! let ranges = [(at, PAGE_SIZE), (at + 2 * PAGE_SIZE, PAGE_SIZE)];
//! let advised = space.process_madvise(mm, &ranges, Advice::Cold, Advised::Other)?;
//! assert_eq!(advised, 2 * PAGE_SIZE);
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Linux
//! `mm/madvise.c` `vector_madvise`, 6.18. Partial effects: if a later range fails, the call
//! succeeds and returns the number of bytes processed before it.

use super::madvise::Advice;
use crate::Space;
use crate::policy::rules::AdviceRules;
use crate::refused::{Refused, Rule};
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, VmRange};
use smallvec::SmallVec;

/// The process whose memory `process_madvise` advises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advised {
    /// The caller itself: any advice is allowed.
    Own,
    /// Another process.
    Other,
}

impl<E: Environment> Space<E> {
    /// Applies advice to the ranges `(addr, len)`; returns how many bytes were advised.
    ///
    /// # Errors
    /// See the [module](crate::syscall::process_madvise), which also has an example.
    pub fn process_madvise(
        &self,
        mm: MmId,
        ranges: &[(u64, u64)],
        advice: Advice,
        advised: Advised,
    ) -> Result<u64, Errno> {
        let ranges = imported(self, ranges)?;
        let rules = &self.policy.rules.advice;
        let nothing = ranges.iter().all(|&(_, len)| len == 0);
        if nothing && !rules.process_checks_first {
            return Ok(0);
        }
        if !advice.is_known(rules) {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownAdvice));
        }
        let any = advised == Advised::Own && rules.process_own;
        if !any && !is_for_others(advice, rules) {
            return Err(self.refuse(Errno::EINVAL, Rule::AdviceForOthers));
        }
        // For another process, the embedder checks the caller's privilege; the core does not.
        if advised == Advised::Own && !rules.process_own_free {
            let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
            if !r.state().limits.sys_nice {
                return Err(self.refuse(Errno::EPERM, Rule::SysNice));
            }
        }
        if nothing {
            return Ok(0);
        }
        let mut done = 0;
        for (addr, len) in ranges {
            match self.madvise(mm, addr, len, advice) {
                Ok(()) => done += len,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

/// Checks and copies the caller's list of ranges, up to a total of 2 GiB minus one page.
///
/// Returns EINVAL for a negative length, and EFAULT for a range outside the address space. Bytes
/// beyond the maximum total are ignored.
#[doc(alias = "import_iovec")]
fn imported<E: Environment>(
    space: &Space<E>,
    ranges: &[(u64, u64)],
) -> Result<SmallVec<[(u64, u64); 4]>, Errno> {
    const MOST: u64 = 0x7fff_f000;
    if ranges.iter().any(|&(_, len)| (len as i64) < 0) {
        return Err(space.refuse(Errno::EINVAL, Rule::LengthFits));
    }
    let end = space.system.task_size;
    let single = ranges.len() == 1;
    let mut left = MOST;
    let mut taken = SmallVec::new();
    let room = taken.try_reserve(ranges.len());
    room.map_err(|_| Errno::ENOMEM)?;
    for &(addr, len) in ranges {
        let cut = len.min(left);
        let looked_at = if single { cut } else { len };
        let range = VmRange::of_len(addr, looked_at);
        if range.is_none_or(|range| range.end > end) {
            let (start, len) = (addr, looked_at);
            return Err(space.refuse(Errno::EFAULT, Refused::Outside { start, len, end }));
        }
        left -= cut;
        taken.push((addr, cut));
    }
    Ok(taken)
}

#[doc(alias = "process_madvise_remote_valid")]
fn is_for_others(advice: Advice, rules: &AdviceRules) -> bool {
    match advice {
        Advice::Cold | Advice::PageOut => true,
        Advice::WillNeed => rules.process_willneed,
        Advice::Collapse => rules.collapse,
        Advice::GuardInstall | Advice::GuardRemove => rules.guard_regions,
        _ => false,
    }
}
