//! `userfaultfd`: registers a range with a context and unregisters it.
//!
//! A context is identified by a number that the embedder chooses, together with the address space
//! for which the context was opened. The embedder handles the faults; see
//! [`Faulted::Userfault`](crate::fault::Faulted). Not implemented: moving and copying pages through
//! a context, and notifications of forks and moves. Therefore the child of a fork has no context,
//! and a moved range loses its context.
//!
//! # Errors
//! EINVAL for an unknown mode, WP with RWP, a range that is empty, misaligned, too long or unmapped, a
//! mapping that does not support the mode, and unregistering a range of another context; EPERM if the
//! mapping can never become writable; EBUSY if another context has registered the range, or under the
//! rules of 7.3 if this one has, with the mode WP or RWP that is not asked for again; ENOMEM at
//! the map limit, or if the address space is gone.
//!
//! # Examples
//! ```
//! use core::num::NonZeroU32;
//! use vmarea::prelude::*;
//! use vmarea::syscall::userfaultfd::WatchMode;
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
//! let (context, range) = (NonZeroU32::MIN, (at, PAGE_SIZE));
//! space.userfaultfd_register(mm, context, range, WatchMode::MISSING)?;
//! assert_eq!(space.maps(mm).count(), 2);
//! space.userfaultfd_unregister(mm, context, range)?;
//! assert_eq!(space.maps(mm).count(), 1);
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Linux
//! `fs/userfaultfd.c` `userfaultfd_register`, `mm/userfaultfd.c` `userfaultfd_register_range`,
//! 6.18. Partial effects: at the map limit, the VMAs before the one that fails are changed.

use crate::Space;
use crate::mm::MmapWriteGuard;
use crate::policy::Rules;
use crate::refused::{Refused, Rule};
use crate::types::platform::Environment;
use crate::types::{Errno, FileKind, MmId, PAGE_MASK, VmFlags, VmRange};
use crate::vma::merge::CallKind;
use crate::vma::{VmaBody, VmaView};
use core::num::NonZeroU32;

bitflags::bitflags! {
    /// Events that a context watches for (`UFFDIO_REGISTER_MODE_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WatchMode: u64 {
        /// Accesses to missing pages.
        const MISSING = 1;
        /// Writes to pages that have been write-protected through the context.
        const WP = 2;
        /// Accesses to pages that are in the page cache but are not mapped.
        const MINOR = 4;
        /// All accesses to pages that have been protected from them through the context. Whether the
        /// context has asked for `UFFD_FEATURE_RWP` is for the embedder to know.
        const RWP = 8;
    }
}

impl WatchMode {
    fn flags(self) -> VmFlags {
        let mut flags = VmFlags::empty();
        flags.set(VmFlags::UFFD_MISSING, self.contains(WatchMode::MISSING));
        flags.set(VmFlags::UFFD_WP, self.contains(WatchMode::WP));
        flags.set(VmFlags::UFFD_MINOR, self.contains(WatchMode::MINOR));
        flags.set(VmFlags::UFFD_RWP, self.contains(WatchMode::RWP));
        flags
    }

    /// True if a kernel knows the modes, and they go together: one bit of a page's entry says that the
    /// page is protected, whether from writes or from all accesses.
    fn is_known(self, rules: &Rules) -> bool {
        let has_unknown =
            !WatchMode::all().contains(self) || self.contains(WatchMode::RWP) && !rules.uffd_rwp;
        !(self.is_empty() || has_unknown || self.contains(WatchMode::WP | WatchMode::RWP))
    }
}

impl<E: Environment> Space<E> {
    /// Registers `[start, start + len)` with `context`, which then watches the range.
    ///
    /// # Errors
    /// See the [module](crate::syscall::userfaultfd), which also has an example.
    pub fn userfaultfd_register(
        &self,
        mm: MmId,
        context: NonZeroU32,
        (start, len): (u64, u64),
        mode: WatchMode,
    ) -> Result<(), Errno> {
        if !mode.is_known(&self.policy.rules) {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownFlags));
        }
        let range = self.watched_range(start, len)?;
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ENOMEM)?;
        w.check_watchable(range, context, mode)?;
        w.watch(range, context, mode.flags())
    }

    /// Unregisters `[start, start + len)` from `context`, which then no longer watches the range.
    ///
    /// # Errors
    /// See the [module](crate::syscall::userfaultfd), which also has an example.
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
        if !aligned {
            return Err(self.refuse(Errno::EINVAL, Rule::AlignedAddress));
        }
        if len == 0 {
            return Err(self.refuse(Errno::EINVAL, Rule::SomeLength));
        }
        if too_low || start >= task_size || len > task_size - start {
            let end = task_size;
            return Err(self.refuse(Errno::EINVAL, Refused::Outside { start, len, end }));
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
        if self.vmas_in(range).next().is_none() {
            return Err(self.refuse_unmapped(Errno::EINVAL, range.start));
        }
        let rules = &self.space.policy.rules;
        for vma in self.vmas_in(range) {
            let is_inaccessible = !vma.body.flags.intersects(VmFlags::ACCESS);
            if !can_be_watched(&vma, mode, rules)
                || mode.contains(WatchMode::RWP) && is_inaccessible
            {
                return Err(self.space.refuse(Errno::EINVAL, Rule::CanBeWatched));
            }
            if !vma.body.flags.contains(VmFlags::MAYWRITE) {
                return Err(self.space.refuse(Errno::EPERM, Rule::WatchedIsWritable));
            }
            if vma.body.uffd != 0 && vma.body.uffd != context.get() {
                return Err(self.space.refuse(Errno::EBUSY, Rule::WatchedByOther));
            }
            let protects = VmFlags::UFFD_WP | VmFlags::UFFD_RWP;
            let given_up = (vma.body.flags & protects) - mode.flags();
            if rules.uffd_keeps_protection && !given_up.is_empty() {
                return Err(self.space.refuse(Errno::EBUSY, Rule::WatchedByOther));
            }
        }
        Ok(())
    }

    fn check_unwatchable(&self, range: VmRange, context: NonZeroU32) -> Result<(), Errno> {
        if self.vmas_in(range).next().is_none() {
            return Err(self.refuse_unmapped(Errno::EINVAL, range.start));
        }
        let rules = &self.space.policy.rules;
        for vma in self.vmas_in(range) {
            let others = vma.body.uffd != 0 && vma.body.uffd != context.get();
            if others || !can_be_watched(&vma, mode_of(vma.body.flags), rules) {
                return Err(self.space.refuse(Errno::EINVAL, Rule::CanBeWatched));
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
        self.each_part(range, |body| (body.uffd != 0).then(|| unwatched(body)))
    }

    /// Replaces the body of each VMA's part of the range by the body that `body` returns, if any.
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

/// Returns the body without a userfaultfd context.
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
    mode.set(WatchMode::RWP, flags.contains(VmFlags::UFFD_RWP));
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
