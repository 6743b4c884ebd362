//! Creation, import and teardown of an address space.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let parent = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(parent, &MmapRequest::anonymous(PAGE_SIZE))?;
//! space.fault(parent, at, Access::Write)?;
//! let child = space.fork(parent)?;
//! let bytes = space.vma_bytes(child).expect("exists");
//! assert_eq!(bytes.vmas, 1);
//!
//! // A page fault of another thread would lock only this VMA.
//! assert!(space.lock_vma(child, at).is_ok());
//! // A writer keeps all others out of the whole address space.
//! drop(space.mmap_write_lock(child));
//!
//! space.validate_all().expect("sound");
//! space.mm_exit(child)?;
//! assert!(space.mmap_read_lock(child).is_none());
//! # Ok::<(), Errno>(())
//! ```

use super::{Layout, Limits, MmState, MmapWriteGuard};
use crate::Space;
use crate::changes::Change;
use crate::page::range::Zap;
use crate::rmap::root_locks::AnonVmaRootLocks;
use crate::types::mmu::Mmu;
use crate::types::platform::Environment;
use crate::types::writers::{WriteToken, Writers};
use crate::types::{Errno, MmId, PageOffsets, Pgoff, VmFlags, VmRange, VmaId};
use crate::vma::VmaBody;
use core::sync::atomic::Ordering;
use vmarea_sync::Nesting;

/// A VMA to import unchanged, such as one from `execve` or from a running process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImportedVma {
    /// Address range of the VMA.
    pub range: VmRange,
    /// Page offset of the VMA.
    pub pgoff: Pgoff,
    /// Page offset of the VMA's first anonymous page, if it is known; otherwise that of a VMA that
    /// has not moved.
    pub anon_pgoff: Option<Pgoff>,
    /// Flags, file, memory policy and the other attributes.
    pub body: VmaBody,
    /// The VMA's anon_vma.
    pub anon: ImportedAnon,
}

/// The source of an imported VMA's anon_vma.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportedAnon {
    /// The VMA has no anon_vma.
    Unfaulted,
    /// The VMA has a new anon_vma of its own.
    New,
    /// The VMA has a new anon_vma of its own and is linked to one of an ancestor, as after a fork.
    Inherited,
    /// The VMA has the same anon_vmas as another VMA, which must already have been imported.
    SameAs(VmaId),
}

impl<E: Environment> Space<E> {
    /// Creates an empty address space.
    ///
    /// # Errors
    /// ENOMEM, or the error of [`Mmu::mm_created`].
    pub fn mm_create(&self, layout: Layout, limits: Limits) -> Result<MmId, Errno> {
        let id = MmId(self.mms.insert()?);
        let mm = self.mms.get(id.0).expect("just made");
        if let Err(error) = self.mmu.mm_created(id) {
            self.mms.remove(id.0);
            return Err(error);
        }
        mm.pages.set_owner(id);
        // No other thread knows the new address space, but a fork already holds its parent's lock.
        let mut token = E::Writers::write_all(&mm.mmap_lock, Nesting::Nested);
        mm.state.claim(token.whole_mut());
        *mm.state.get_mut(token.whole_mut()) = MmState {
            layout,
            limits,
            pkeys: u16::from(self.system.protection_keys),
            // Without protection keys, key 0 is the execute-only key, so no call can use key 0.
            execute_only_pkey: (!self.system.protection_keys).then_some(0),
            ..MmState::default()
        };
        mm.fault_counters.reset();
        mm.pages.forget_faults();
        for counter in [&mm.last_used_hits, &mm.last_used_misses, &mm.last_used] {
            // ORDERING: Relaxed; statistics.
            counter.store(0, Ordering::Relaxed);
        }
        Ok(id)
    }

    /// Imports a VMA into an address space; VMAs must be imported in ascending address order.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist; EEXIST if the range is mapped; EINVAL if the VMA
    /// whose anon_vma it should share is gone or has none; ENOMEM.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
    /// use vmarea::types::Pgoff;
    /// use vmarea::vma::VmaBody;
    ///
    /// let range = VmRange::new(0x40_0000, 0x40_2000);
    /// // A line of `/proc/PID/maps` becomes a VMA. No rule merges it with its neighbours.
    /// let text = ImportedVma {
    ///     range,
    ///     pgoff: Pgoff::of_addr(range.start),
    ///     anon_pgoff: None,
    ///     body: VmaBody { flags: VmFlags::READ | VmFlags::EXEC, ..VmaBody::default() },
    ///     anon: ImportedAnon::Unfaulted,
    /// };
    /// space.mm_import(mm, &text)?;
    /// assert_eq!(space.mm_import(mm, &text), Err(Errno::EEXIST));
    /// assert!(space.maps(mm).map(|vma| vma.range).eq([range]));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn mm_import(&self, mm: MmId, vma: &ImportedVma) -> Result<VmaId, Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if w.intersection(vma.range).is_some() {
            return Err(Errno::EEXIST);
        }
        w.reserve_in_index(1, vma.range.start)?;
        let offsets = PageOffsets::starting_at(vma.pgoff, vma.range.start);
        let private = !vma.body.flags.contains(VmFlags::MAYSHARE);
        let offsets = match vma.anon_pgoff.filter(|_| private) {
            Some(pgoff) => offsets.with_anon(pgoff, vma.range.start),
            None => self.policy.rules.anon_offsets(&vma.body, offsets),
        };
        if let Some(file) = vma.body.file {
            w.files.keep(file.inode)?;
        }
        let id = w.new_vma(vma.range, offsets, vma.body)?;
        if let Err(error) = self.import_anon_vma(id, vma.anon) {
            w.release_vma(id);
            return Err(error);
        }
        w.link(id);
        let pages = vma.range.pages() as i64;
        w.stat_account(vma.body.flags, pages);
        w.note_peak();
        let state = w.state_mut();
        if vma.body.flags.contains(VmFlags::LOCKED) {
            state.locked_vm += vma.range.pages();
        }
        if vma.body.flags.contains(VmFlags::ACCOUNT) {
            state.committed += vma.range.pages();
        }
        Ok(id)
    }

    fn import_anon_vma(&self, id: VmaId, anon: ImportedAnon) -> Result<(), Errno> {
        let vma = self.vma(id);
        let link = |anon_vma| {
            let span = self.rmap_span_of(vma);
            self.anon_vma_link((id, vma), span, anon_vma).map(drop)
        };
        match anon {
            ImportedAnon::Unfaulted => Ok(()),
            ImportedAnon::New => {
                let own = self.anon_vma_alloc_root()?;
                link(own).inspect_err(|_| {
                    let mut guard = self.anon_vma_lock(own);
                    self.anon_vma_put(own, &mut guard);
                })
            }
            ImportedAnon::Inherited => {
                self.anon_vma_link_inherited((id, vma), self.rmap_span_of(vma))
            }
            ImportedAnon::SameAs(other) => {
                let other = self.vmas.get(other.0).ok_or(Errno::EINVAL)?;
                let shared = other.anon_vma().ok_or(Errno::EINVAL)?;
                vma.set_rmap_span(self.rmap_span_of(vma));
                let mut root_locks = AnonVmaRootLocks::none();
                self.anon_vma_clone((id, vma), other, shared, &mut root_locks)
            }
        }
    }

    /// Unmaps everything and removes the address space, after its last user is gone.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    #[doc(alias = "exit_mmap")]
    pub fn mm_exit(&self, mm: MmId) -> Result<(), Errno> {
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        w.unmap_everything();
        self.mmu.mm_gone(mm);
        w.forget_parts();
        w.mm.state.release(w.token.whole_mut());
        self.mms.remove(mm.0);
        Ok(())
    }

    /// Returns the number of counted lookups, and how many of them would have hit a last-VMA cache.
    ///
    /// The documentation of [`lookup`](crate::lookup) has an example.
    pub fn lookup_counts(&self, mm: MmId) -> (u64, u64) {
        // ORDERING: Relaxed; statistics.
        self.mms.get(mm.0).map_or((0, 0), |m| {
            let hits = m.last_used_hits.load(Ordering::Relaxed);
            (hits + m.last_used_misses.load(Ordering::Relaxed), hits)
        })
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    pub(crate) fn unmap_everything(&mut self) {
        let all = VmRange::new(0, crate::types::PAGE_MASK);
        let mut at = 0;
        while let Some(vma) = self.find(at) {
            at = vma.range.end;
            self.start_write(vma.id);
        }
        self.page_tables().zap(all, Zap::All);
        self.mm.pages.free_tables(all);
        while let Some(vma) = self.find(0) {
            self.changed(|| Change::Unmapped { range: vma.range });
            self.forget(vma.id);
        }
    }
}
