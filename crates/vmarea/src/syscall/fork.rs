//! `fork`: copies an address space.
//!
//! # Errors
//! ENOMEM if the commit limit is reached or there is not enough memory; the partial copy is then
//! removed.
//!
//! # Linux
//! `kernel/fork.c` (`mm/mmap.c` since 6.17) `dup_mmap`, 6.18. DONTFORK mappings are omitted,
//! WIPEONFORK mappings are empty in the child, locks are not inherited, and nothing merges. Pages
//! are copied only if the VMA has an anon_vma; file pages are faulted in again by the child. Pinned
//! pages are copied at once.

use crate::Space;
use crate::mm::MmapWriteGuard;
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, VmFlags, VmRange, VmaId};
use crate::vma::VmaBody;

impl<E: Environment> Space<E> {
    /// Creates a copy-on-write copy of `parent`.
    #[doc(alias = "dup_mm")]
    pub fn fork(&self, parent: MmId) -> Result<MmId, Errno> {
        let mut p = self.mmap_write_lock(parent).ok_or(Errno::ESRCH)?;
        let old = p.state();
        let child = self.mm_create(old.layout, old.limits)?;
        let mut c = self.mmap_write_lock_nested(child).expect("just made");
        *c.state_mut() = old.of_child();
        let copied = c.dup_mmap(&mut p);
        let state = c.state_mut();
        state.peak_map_count = state.map_count;
        drop(c);
        match copied {
            Ok(()) => Ok(child),
            Err(error) => {
                drop(p);
                self.mm_exit(child)?;
                Err(error)
            }
        }
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    fn dup_mmap(&mut self, parent: &mut MmapWriteGuard<'_, E>) -> Result<(), Errno> {
        let mut copied = VmRange::new(0, 0);
        let result = self.dup_vmas(parent, &mut copied);
        // Until now, threads of the parent could write to pages that the child shares. These writes
        // are as if they were made before the fork, because the child does not run yet.
        parent.page_tables().flush(copied);
        result
    }

    /// Copies the VMAs; extends `copied` to include every VMA whose pages were copied.
    fn dup_vmas(
        &mut self,
        parent: &mut MmapWriteGuard<'_, E>,
        copied: &mut VmRange,
    ) -> Result<(), Errno> {
        let mut at = 0;
        while let Some(vma) = parent.find(at) {
            at = vma.range.end;
            let flags = vma.body.flags;
            if flags.contains(VmFlags::DONTCOPY) {
                self.stat_account(flags, -(vma.range.pages() as i64));
                continue;
            }
            if flags.contains(VmFlags::ACCOUNT) {
                self.charge(vma.range.pages())?;
            }
            self.dup_vma(parent, vma.id, copied)?;
        }
        Ok(())
    }

    fn dup_vma(
        &mut self,
        parent: &mut MmapWriteGuard<'_, E>,
        id: VmaId,
        copied: &mut VmRange,
    ) -> Result<(), Errno> {
        parent.start_write(id);
        let vma = parent.view(id);
        let space = self.space;
        // A userfaultfd context is inherited only if its owner requested fork events.
        let flags = vma.body.flags - VmFlags::LOCKED_MASK - VmFlags::UFFD_ANY;
        let body = VmaBody {
            flags,
            uffd: 0,
            ..vma.body
        };
        self.reserve_in_index(1, vma.range.start)?;
        let new = self.new_vma(vma.range, vma.pgoff, body)?;
        let wiped = flags.contains(VmFlags::WIPEONFORK);
        if !wiped && let Err(error) = space.anon_vma_fork((new, space.vma(new)), space.vma(id)) {
            self.release_vma(new);
            return Err(error);
        }
        self.link(new);
        if !wiped && (vma.anon_vma.is_some() || flags.contains(VmFlags::MAYBE_GUARD)) {
            let own = space.vma(new).anon_vma();
            let pinned = parent.page_tables().pinned_pages(vma.range);
            let copies = self.spare_frames(own, pinned)?;
            // VMAs are copied in ascending order.
            let first = match copied.is_empty() {
                true => vma.range.start,
                false => copied.start,
            };
            *copied = VmRange::new(first, vma.range.end);
            parent
                .page_tables()
                .copy_to(&self.mm.pages, vma.range, copies)?;
        }
        Ok(())
    }
}
