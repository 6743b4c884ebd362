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
use crate::types::writers::Writers;
use crate::types::{Errno, MmId, VmFlags, VmRange, VmaId};
use crate::vma::VmaBody;
use alloc::vec::Vec;
use vmarea_range_tree::Entry;

/// What a fork has copied so far.
#[derive(Default)]
struct Copies {
    /// A range that includes every VMA whose pages the parent and the child share.
    shared: VmRange,
    /// The child's VMAs, if they are put into its index at once, at the end.
    at_once: Option<Vec<Entry>>,
}

impl<E: Environment> Space<E> {
    /// Creates a copy-on-write copy of `parent`.
    ///
    /// # Errors
    /// See the [module](crate::syscall::fork).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    ///
    /// let child = space.fork(mm)?;
    /// assert_eq!(space.frames_in_use(), 1, "both processes map the frame");
    /// space.fault(child, at, Access::Write)?;
    /// assert_eq!(space.frames_in_use(), 2, "the child has a copy");
    /// # Ok::<(), Errno>(())
    /// ```
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
        let mut copies = Copies::default();
        // The observer of lookups must see each VMA separately, and the reverse map of KSM pages finds
        // VMAs in the index.
        let space = self.space;
        let one_by_one = space.lookup_observer.is_some() || !space.ksm.is_empty();
        if E::Writers::PARTS == 0 && !one_by_one {
            let count = parent.state().map_count as usize;
            let mut made = Vec::new();
            let room = made.try_reserve_exact(count);
            room.map_err(|_| Errno::ENOMEM)?;
            self.index().reserve_build(count)?;
            copies.at_once = Some(made);
        }
        let result = self.dup_vmas(parent, &mut copies);
        if let Some(made) = &copies.at_once {
            self.index().build(made);
        }
        // Until now, threads of the parent could write to pages that the child shares. These writes
        // are as if they were made before the fork, because the child does not run yet.
        parent.page_tables().flush(copies.shared);
        result
    }

    fn dup_vmas(
        &mut self,
        parent: &mut MmapWriteGuard<'_, E>,
        copies: &mut Copies,
    ) -> Result<(), Errno> {
        for entry in parent.index().ranges() {
            let Some(id) = VmaId::from_bits(entry.value) else {
                continue;
            };
            let range = VmRange::new(entry.start, entry.end);
            let flags = parent.body(id).flags;
            if flags.contains(VmFlags::DONTCOPY) {
                self.stat_account(flags, -(range.pages() as i64));
                continue;
            }
            if flags.contains(VmFlags::ACCOUNT) {
                self.charge(range.pages())?;
            }
            self.dup_vma(parent, (id, range), copies)?;
        }
        Ok(())
    }

    fn dup_vma(
        &mut self,
        parent: &mut MmapWriteGuard<'_, E>,
        (id, range): (VmaId, VmRange),
        copies: &mut Copies,
    ) -> Result<(), Errno> {
        parent.start_write(id);
        let space = self.space;
        let (vma, body) = (space.vma(id), parent.body(id));
        // A userfaultfd context is inherited only if its owner requested fork events.
        let flags = body.flags - VmFlags::LOCKED_MASK - VmFlags::UFFD_ANY;
        let body = VmaBody {
            flags,
            uffd: 0,
            ..*body
        };
        if copies.at_once.is_none() {
            self.reserve_in_index(1, range.start)?;
        }
        let new = self.new_vma(range, vma.offsets(), body)?;
        let wiped = flags.contains(VmFlags::WIPEONFORK);
        let has_anon_vma = vma.anon_vma().is_some();
        if !wiped && let Err(error) = space.anon_vma_fork((new, space.vma(new)), vma) {
            self.release_vma(new);
            return Err(error);
        }
        match &mut copies.at_once {
            None => self.link(new),
            Some(made) => made.push(self.attach(new)),
        }
        if !wiped && (has_anon_vma || flags.contains(VmFlags::MAYBE_GUARD)) {
            let own = space.vma(new).anon_vma();
            let pinned = parent.page_tables().pinned_pages(range);
            let spare = self.spare_frames(own, pinned)?;
            // VMAs are copied in ascending order.
            let first = match copies.shared.is_empty() {
                true => range.start,
                false => copies.shared.start,
            };
            copies.shared = VmRange::new(first, range.end);
            parent.page_tables().copy_to(&self.mm.pages, range, spare)?;
        }
        Ok(())
    }
}
