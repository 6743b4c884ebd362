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
pub(crate) mod sorted_map;
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
