//! `userfaultfd`: registering a range with a context, and taking it back.
//!
//! A context is a number that the embedder chooses, with the address space that it was opened for.
//! What happens at a fault is the embedder's: see [`Faulted::Userfault`](crate::fault::Faulted).
//! Deliberately absent: moving and copying pages through a context, and what it tells of forks and
//! moves. A fork therefore leaves the child without, and a moved range loses it.
//!
//! # Errors
//! EINVAL for an unknown mode, a range that is empty, misaligned, too long or unmapped, a mapping
//! that cannot be watched so, and taking back what another context has; EPERM where it could never be
//! written; EBUSY where another context has it; ENOMEM at the map limit or without the address space.
//!
//! # Linux
//! `fs/userfaultfd.c` `userfaultfd_register`, `mm/userfaultfd.c` `userfaultfd_register_range`, 6.18.
//! By halves: at the map limit the VMAs before are done.

use crate::mm::MmapWriteGuard;
use crate::mutant::{self, Mutant};
use crate::policy::Rules;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{Errno, FileKind, MmId, PAGE_MASK, VmFlags, VmRange};
use crate::vma::merge::CallKind;
use crate::vma::{VmaBody, VmaView};
use core::num::NonZeroU32;

bitflags::bitflags! {
    /// What is watched (`UFFDIO_REGISTER_MODE_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WatchMode: u64 {
        /// Pages that are not there.
        const MISSING = 1;
        /// Writes to pages that were protected through the context.
        const WP = 2;
        /// Pages of a file that are there, and not mapped.
        const MINOR = 4;
    }
}

impl WatchMode {
    fn flags(self) -> VmFlags {
        let mut flags = VmFlags::empty();
        flags.set(VmFlags::UFFD_MISSING, self.contains(WatchMode::MISSING));
        flags.set(VmFlags::UFFD_WP, self.contains(WatchMode::WP));
        flags.set(VmFlags::UFFD_MINOR, self.contains(WatchMode::MINOR));
        flags
    }
}

impl<E: Environment> Space<E> {
    /// Context `context` watches `[start, start + len)` from now on.
    pub fn userfaultfd_register(
        &self,
        mm: MmId,
        context: NonZeroU32,
        (start, len): (u64, u64),
        mode: WatchMode,
    ) -> Result<(), Errno> {
        if mode.is_empty() || !WatchMode::all().contains(mode) {
            return Err(Errno::EINVAL);
        }
        let range = self.watched_range(start, len)?;
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ENOMEM)?;
        w.check_watchable(range, context, mode)?;
        w.watch(range, context, mode.flags())
    }

    /// Context `context` watches `[start, start + len)` no more.
    pub fn userfaultfd_unregister(
        &self,
        mm: MmId,
        context: NonZeroU32,
        (start, len): (u64, u64),
    ) -> Result<(), Errno> {
        let range = self.watched_range(start, len)?;
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ENOMEM)?;
        w.check_unwatchable(range, context)?;
        w.unwatch(range)
    }

    #[doc(alias = "validate_range")]
    fn watched_range(&self, start: u64, len: u64) -> Result<VmRange, Errno> {
        let task_size = self.system.task_size;
        let aligned = (start | len) & !PAGE_MASK == 0;
        let too_low = self.policy.rules.uffd_asks_min_addr && start < self.system.lowest_addr();
        if !aligned || too_low || len == 0 || start >= task_size || len > task_size - start {
            return Err(Errno::EINVAL);
        }
        Ok(VmRange::new(start, start + len))
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    fn check_watchable(
        &self,
        range: VmRange,
        context: NonZeroU32,
        mode: WatchMode,
    ) -> Result<(), Errno> {
        let vmas = self.vmas_in(range);
        if vmas.is_empty() {
            return Err(Errno::EINVAL);
        }
        let rules = &self.space.policy.rules;
        for id in vmas {
            let vma = self.view(id);
            if !can_be_watched(&vma, mode, rules) {
                return Err(Errno::EINVAL);
            }
            if !vma.body.flags.contains(VmFlags::MAYWRITE) {
                return Err(Errno::EPERM);
            }
            if vma.body.uffd != 0 && vma.body.uffd != context.get() {
                return Err(Errno::EBUSY);
            }
        }
        Ok(())
    }

    fn check_unwatchable(&self, range: VmRange, context: NonZeroU32) -> Result<(), Errno> {
        let vmas = self.vmas_in(range);
        if vmas.is_empty() {
            return Err(Errno::EINVAL);
        }
        let rules = &self.space.policy.rules;
        for id in vmas {
            let vma = self.view(id);
            let others = vma.body.uffd != 0 && vma.body.uffd != context.get();
            if others || !can_be_watched(&vma, mode_of(vma.body.flags), rules) {
                return Err(Errno::EINVAL);
            }
        }
        Ok(())
    }

    #[doc(alias = "userfaultfd_register_range")]
    fn watch(&mut self, range: VmRange, context: NonZeroU32, watch: VmFlags) -> Result<(), Errno> {
        self.each_part(range, |body| {
            let there = body.uffd == context.get() && body.flags.contains(watch);
            (!there).then(|| VmaBody {
                flags: (body.flags - VmFlags::UFFD_ANY) | watch,
                uffd: context.get(),
                ..body
            })
        })
    }

    #[doc(alias = "userfaultfd_clear_vma")]
    fn unwatch(&mut self, range: VmRange) -> Result<(), Errno> {
        let keeps = mutant::is_on(Mutant::UnwatchKeepsContext);
        self.each_part(range, |body| {
            let bare = unwatched(body);
            let uffd = if keeps { body.uffd } else { bare.uffd };
            (body.uffd != 0).then_some(VmaBody { uffd, ..bare })
        })
    }

    /// Gives each VMA's part of the range another body, where there is one for it.
    fn each_part(
        &mut self,
        range: VmRange,
        body: impl Fn(VmaBody) -> Option<VmaBody>,
    ) -> Result<(), Errno> {
        let mut at = range.start;
        while let Some(vma) = self.find_vma(at).filter(|v| v.range.start < range.end) {
            let part = vma.range.clip(range);
            at = part.end;
            if let Some(body) = body(vma.body) {
                self.call = CallKind::Other;
                let id = self.modify(&vma, part, body)?;
                at = self.view(id).range.end.max(at);
            }
            if at >= range.end {
                break;
            }
        }
        Ok(())
    }
}

/// The same without a context.
pub(crate) fn unwatched(body: VmaBody) -> VmaBody {
    VmaBody {
        flags: body.flags - VmFlags::UFFD_ANY,
        uffd: 0,
        ..body
    }
}

fn mode_of(flags: VmFlags) -> WatchMode {
    let mut mode = WatchMode::empty();
    mode.set(WatchMode::MISSING, flags.contains(VmFlags::UFFD_MISSING));
    mode.set(WatchMode::WP, flags.contains(VmFlags::UFFD_WP));
    mode.set(WatchMode::MINOR, flags.contains(VmFlags::UFFD_MINOR));
    mode
}

#[doc(alias = "vma_can_userfault")]
fn can_be_watched(vma: &VmaView, mode: WatchMode, rules: &Rules) -> bool {
    let flags = vma.body.flags;
    let hugetlb = flags.contains(VmFlags::HUGETLB);
    let shmem = !vma.is_anonymous()
        && vma
            .body
            .file
            .is_some_and(|f| matches!(f.kind, FileKind::Shmem | FileKind::SharedAnon));
    let droppable = flags.contains(VmFlags::DROPPABLE) && !rules.uffd_takes_droppable;
    if droppable || !hugetlb && flags.intersects(VmFlags::SPECIAL) {
        return false;
    }
    if mode.contains(WatchMode::MINOR) && !hugetlb && !shmem {
        return false;
    }
    if mode.contains(WatchMode::WP) && !rules.uffd_protects_files && !vma.is_anonymous() {
        return false;
    }
    vma.is_anonymous() || hugetlb || shmem
}
