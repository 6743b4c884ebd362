//! Page frames and page tables.
//!
//! # Picture
//! ```text
//! table ─ entry ─┬─ Anon ──────▶ frame ── mapping, index ──▶ anon_vma (see `rmap`)
//!                ├─ Ksm ───────▶ frame ── reverse map of its own          `ksm`
//!                ├─ Migration ─▶ frame that is being migrated               `migrate`
//!                └─ Swap ──────▶ slot, its count, possibly a cached frame   `swap`
//!         huge ─────────────────▶ 512 frames mapped as a whole     `huge`, `thp`
//! `shard`  part of a page table   `references` what entries hold   `sorted_map` maps that may fail
//! `tables` range operations on one page table, as the system calls use them
//! `range`  zap, copy, change the owner of a range             `moving`  moves entries for mremap
//! `protect` changes the protection of a range                 `pair`    two tables, locked together
//! `clean`  write-protects file pages before they are written back
//! `gather` removed entries, whose frames are released after the TLB flush
//! `rmap_walk` finds the entries that map a frame
//! `walk`   visits a range with the reverse map locked, and waits for migrating pages
//! `shared` counts the pages of a range that another process maps too    `pin`  pinned pages
//! ```
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//! use vmarea::page::swap::SwapMap;
//!
//! let system = System { swap: true, swap_slots: 16, ..System::default() };
//! let space = Space::new(Policy::LINUX, system);
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
//! space.fault(mm, at, Access::Write)?;
//! let frame_of = |addr| {
//!     let space = space.mmap_read_lock(mm)?;
//!     space.pages().get(addr).frame()
//! };
//!
//! // After a fork, two page tables map the frame.
//! let child = space.fork(mm)?;
//! let frame = frame_of(at).expect("present");
//! assert_eq!(space.frame_mapcount(frame), Some(2));
//! assert_eq!(space.frame_at(frame.index()), Some(frame));
//! let mut places = 0;
//! space.rmap_walk(frame, |_| places += 1);
//! assert_eq!(places, 2);
//! space.mm_exit(child)?;
//!
//! // The page moves to another frame, and then to the swap device.
//! let migrating = space.migrate_begin(frame)?;
//! let moved = space.migrate_end(migrating)?.expect("still mapped");
//! assert_eq!(frame_of(at), Some(moved));
//! let slot = space.swap_out(mm, at)?;
//! assert_eq!(frame_of(at), None);
//! assert_eq!(space.swap_map(slot).0 & !SwapMap::HAS_CACHE, 1);
//! // An access brings it back. A pinned page stays.
//! space.fault(mm, at, Access::Write)?;
//! let pin = space.pin_page(mm, at)?;
//! assert_eq!(space.swap_out(mm, at), Err(Errno::EBUSY));
//! space.unpin_page(pin);
//! let frame = frame_of(at).expect("present");
//! // This machine has no processor whose accesses would give the page a second chance.
//! assert!(space.reclaim_frame(frame).is_ok());
//! space.fault(mm, at, Access::Write)?;
//! space.swap_out_frame(frame_of(at).expect("present"))?;
//! space.validate_all().expect("sound");
//! # Ok::<(), Errno>(())
//! ```

mod clean;
pub mod entry;
pub mod frame;
pub(crate) mod gather;
pub(crate) mod huge;
pub mod ksm;
pub mod migrate;
pub mod moving;
mod pair;
pub mod pin;
mod protect;
pub mod range;
mod references;
pub mod rmap_walk;
mod shard;
pub mod shared;
mod slot;
mod sorted_map;
pub mod swap;
pub mod table;
mod tables;
pub mod thp;
pub(crate) mod validate;
mod vma_hint;
pub mod walk;

pub use entry::{Pte, Was};
pub use frame::Frame;
pub use pin::PagePin;
pub(crate) use range::{Kept, Owner};
pub(crate) use shard::{Blocked, FaultPath};
pub use shared::{SharedPage, SharedPages, Why};
pub use slot::SlotKind;
pub use swap::SwapMap;
pub use table::PageTable;
pub use tables::PageTables;
pub use thp::HugeCounts;
pub use walk::{PageWalk, WalkAction, WalkFlags, WalkOps};
