//! Migration: a page goes to another frame while nobody looks at it.
//!
//! [`migrate_begin`](Space::migrate_begin) puts a migration entry in the place of every mapping, so that
//! the bytes stand still; [`migrate_end`](Space::migrate_end) copies them and puts the new frame there.
//! Between the two the entries may be unmapped, moved, copied by fork or given another owner like any
//! others: the page's anon_vma and index are read again at the end.
//!
//! # Invariants
//! M1  only frames between begin and end are marked `Migrating`, and only they have migration entries
//!
//! # Linux
//! `mm/migrate.c`, `mm/rmap.c` `try_to_migrate`, 6.18. There a migration entry does not count as a
//! mapping; here it does, so that the end knows when it has found all. Huge pages are cut first.

use super::entry::{Pte, Was};
use super::frame::{LockedFrame, Mark};
use super::swap::WALKS;
use super::table::PageTable;
use crate::rmap::walk::Mapping;
use crate::space::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{Errno, FrameId};

/// A page that is between two frames. It has to be given to [`Space::migrate_end`].
#[derive(Debug)]
#[must_use = "the page's users wait until `migrate_end`"]
pub struct Migrating {
    old: LockedFrame,
}

impl Migrating {
    /// The frame that it leaves.
    pub fn frame(&self) -> FrameId {
        self.old.0
    }
}

impl<E: Environment> Space<E> {
    /// Begins the migration of the page in `frame`: every mapping of it becomes a migration entry.
    ///
    /// # Errors
    /// EINVAL where the frame is not in use; EBUSY where another swaps, migrates or merges it; EAGAIN
    /// where not all of its mappings could be found, and then it stays where it is.
    pub fn migrate_begin(&self, frame: FrameId) -> Result<Migrating, Errno> {
        let old = self.frame_lock(frame)?;
        self.frame(frame).mark(Mark::Migrating);
        // A fork that is under way may copy an entry behind the walk's back.
        for _ in 0..WALKS {
            let mut found = 0;
            self.rmap_change(frame, &mut |_, _, entry| {
                found += 1;
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

    /// Ends a migration: the page is in a new frame, which is given; `None` where nobody maps the page
    /// any more.
    ///
    /// # Errors
    /// ENOMEM without a new frame: the page is where it was.
    pub fn migrate_end(&self, migrating: Migrating) -> Result<Option<FrameId>, Errno> {
        let old = migrating.old.0;
        let there = self.frame(old);
        let new = match there.mapping() {
            Some(anon_vma) => self.frame_alloc(anon_vma, there.index()),
            None => Err(Errno::EINVAL),
        };
        let target = *new.as_ref().unwrap_or(&old);
        if let Ok(new) = new {
            self.platform.copy(new, old);
            if there.is_ksm() {
                self.frame(new).mark(Mark::Ksm);
            }
            self.swap.migrate(self, old, new);
        }
        while !self.remove_migration_entries(old, target) {
            // A fork that is under way has copied an entry behind the walk's back.
            core::hint::spin_loop();
        }
        there.unmark(Mark::Migrating);
        self.frame_unlock(migrating.old);
        let new = new?;
        let mapped = self.frame(new).mapcount() > 1;
        self.frame_unmap(new);
        Ok(mapped.then_some(new))
    }

    /// Puts `to` in the place of every migration entry for `from`; true where none is left.
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

    fn arrive(
        &self,
        table: &PageTable,
        mapping: Mapping,
        entry: &mut Pte,
        was: Was,
        (from, to): (FrameId, FrameId),
    ) {
        *entry = match was {
            Was::Ksm => Pte::Ksm { frame: to },
            Was::ReadOnly | Was::Writable => Pte::Anon {
                frame: to,
                writable: was == Was::Writable,
            },
        };
        if from == to {
            return;
        }
        let new = self.frame(to);
        if was == Was::Ksm {
            self.ksm.remove(from, table, mapping.addr);
            self.ksm.add(to, table, mapping.addr);
        } else if let Some(anon_vma) = self.frame(from).mapping() {
            // What it was given while it was on its way; the walk holds the family's lock.
            new.set_mapping(anon_vma, self.frame(from).index());
        }
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
