//! Migration: moves a page's content to another frame while no process can access the page.
//!
//! [`migrate_begin`](Space::migrate_begin) replaces every mapping by a migration entry, so that the
//! content cannot change; [`migrate_end`](Space::migrate_end) copies the content and maps the new
//! frame. Between the two calls, migration entries may be unmapped, moved, copied by a fork or
//! given another owner, like any other entry. `migrate_end` therefore reads the page's anon_vma and
//! index again.
//!
//! # Invariants
//! M1  a frame is marked `Migrating` only between `migrate_begin` and `migrate_end`, and only a
//!     frame with that mark has migration entries
//!
//! # Linux
//! `mm/migrate.c`, `mm/rmap.c` `try_to_migrate`, 6.18. In Linux, a migration entry does not count
//! as a mapping; here it does, so that `migrate_end` can tell whether it has replaced all migration
//! entries. Huge pages are split first.

use super::entry::{Pte, Was};
use super::frame::{LockedFrame, Mark};
use super::rmap_walk::Mapping;
use super::swap::WALKS;
use super::table::PageTable;
use crate::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{Errno, FrameId, VmRange};

/// A page that is being migrated. The caller must pass it to [`Space::migrate_end`].
#[derive(Debug)]
#[must_use = "the page's users wait until `migrate_end`"]
pub struct Migrating {
    old: LockedFrame,
}

impl Migrating {
    /// Returns the frame from which the page is being migrated.
    pub fn frame(&self) -> FrameId {
        self.old.0
    }
}

impl<E: Environment> Space<E> {
    /// Begins the migration of the page in `frame`: replaces every mapping by a migration entry.
    ///
    /// # Errors
    /// EINVAL if the frame is not in use; EBUSY if it is already being swapped out, migrated or
    /// merged, or is pinned; EAGAIN if some of its mappings could not be found. The page does not
    /// migrate if this call fails.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    /// let old = space.with_mapped(mm, at, |page| page.entry.frame())?.expect("present");
    ///
    /// let migrating = space.migrate_begin(old)?;
    /// // This platform does not wait, so an access has to be repeated.
    /// assert_eq!(space.fault(mm, at, Access::Read)?, Faulted::Retry);
    /// let new = space.migrate_end(migrating)?;
    /// assert_eq!(space.with_mapped(mm, at, |page| page.entry.frame())?, new);
    /// assert!(new != Some(old) && space.frame_mapcount(old).is_none());
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn migrate_begin(&self, frame: FrameId) -> Result<Migrating, Errno> {
        let old = self.frame_lock(frame)?;
        self.frame(frame).mark(Mark::Migrating);
        // A concurrent fork may copy an entry to an address that the walk has already passed.
        for _ in 0..WALKS {
            let mut found = 0;
            self.rmap_change(frame, &mut |table, mapping, entry| {
                found += 1;
                if entry.is_present() {
                    self.clear_flush(table, VmRange::page(mapping.addr));
                }
                *entry = departed(*entry);
            });
            if self.frame(frame).mapcount() == found + 1 {
                return Ok(Migrating { old });
            }
        }
        self.remove_migration_entries(frame, frame);
        self.frame(frame).unmark(Mark::Migrating);
        self.frame_unlock(old);
        Err(Errno::EAGAIN)
    }

    /// Ends a migration and returns the new frame, or `None` if the page is no longer mapped.
    ///
    /// # Errors
    /// ENOMEM if no new frame can be allocated, or the platform's error if the page cannot be
    /// copied: the page stays in its old frame.
    ///
    /// [`migrate_begin`](Self::migrate_begin) has an example.
    pub fn migrate_end(&self, migrating: Migrating) -> Result<Option<FrameId>, Errno> {
        let old = migrating.old.0;
        let there = self.frame(old);
        let copy = |new| {
            if there.is_ksm() {
                self.ksm.reserve_all(old, new)?;
            }
            let copied = self.platform.copy(new, old);
            copied.inspect_err(|_| self.ksm.give_up(new))
        };
        let new = match there.mapping() {
            Some(anon_vma) => self.frame_filled((anon_vma, there.index()), copy),
            None => Err(Errno::EINVAL),
        };
        let target = *new.as_ref().unwrap_or(&old);
        if let Ok(new) = new {
            if there.is_ksm() {
                self.frame(new).mark(Mark::Ksm);
            }
            self.swap.migrate(self, old, new);
        }
        while !self.remove_migration_entries(old, target) {
            // A concurrent fork copied an entry to an address that the walk had already passed, or
            // so many entries of a KSM page that there is no memory for them yet.
            core::hint::spin_loop();
        }
        there.unmark(Mark::Migrating);
        self.frame_unlock(migrating.old);
        let new = new?;
        self.ksm.give_up(new);
        let mapped = self.frame(new).mapcount() > 1;
        self.frame_unmap(new);
        Ok(mapped.then_some(new))
    }

    /// Replaces the migration entries of `from` by mappings of `to`; returns true if none remain.
    #[doc(alias = "remove_migration_ptes")]
    fn remove_migration_entries(&self, from: FrameId, to: FrameId) -> bool {
        let mut found = 0;
        self.rmap_change(from, &mut |table, mapping, entry| {
            found += 1;
            if let Pte::Migration { was, .. } = *entry {
                self.arrive(table, mapping, entry, was, (from, to));
            }
        });
        if from == to {
            self.frame(from).mapcount() == found + 1
        } else {
            self.frame(from).mapcount() == 1
        }
    }

    /// Replaces one migration entry of `from` by a mapping of `to`, if enough memory is available.
    fn arrive(
        &self,
        table: &PageTable,
        mapping: Mapping,
        entry: &mut Pte,
        was: Was,
        (from, to): (FrameId, FrameId),
    ) {
        let arrived = match was {
            Was::Ksm => Pte::Ksm { frame: to },
            Was::ReadOnly | Was::Writable => Pte::Anon {
                frame: to,
                writable: was == Was::Writable,
            },
        };
        if from == to {
            *entry = arrived;
            return;
        }
        let new = self.frame(to);
        if was == Was::Ksm {
            if self.ksm.add(to, table, mapping.addr).is_err() {
                return;
            }
            self.ksm.remove(from, table, mapping.addr);
        } else if let Some(anon_vma) = self.frame(from).mapping() {
            // The owner may have changed during the migration; the walk holds the family lock.
            new.set_mapping(anon_vma, self.frame(from).index());
        }
        *entry = arrived;
        new.map();
        self.frame_unmap(from);
    }
}

fn departed(entry: Pte) -> Pte {
    match entry {
        Pte::Anon { frame, writable } => Pte::Migration {
            frame,
            was: if writable {
                Was::Writable
            } else {
                Was::ReadOnly
            },
        },
        Pte::Ksm { frame } => Pte::Migration {
            frame,
            was: Was::Ksm,
        },
        other => other,
    }
}
