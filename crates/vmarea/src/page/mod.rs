//! Frames and page tables: the side of pages that merging and faults depend on.
//!
//! # Picture
//! ```text
//! table ─ entry ─┬─ Anon ──────▶ frame ── mapping, index ──▶ anon_vma (see `rmap`)
//!                ├─ Ksm ───────▶ frame ── reverse map of its own          `ksm`
//!                ├─ Migration ─▶ frame, on its way to another             `migrate`
//!                └─ Swap ──────▶ slot, its count, perhaps a frame         `swap`
//!         huge ─────────────────▶ 512 frames at once                      `thp`
//! `tables` one table as calls see it, by ranges
//! `range`  what they do to a range: zap, protect, copy, reown    `moving`  what mremap does
//! `walk`   visiting a range with the reverse map held and migrations waited for
//! `shared` is a page of this range also another process's?    `pin` pages that must stay as they are
//! ```

pub mod entry;
pub mod frame;
pub mod ksm;
pub mod migrate;
pub mod moving;
pub mod pin;
pub mod range;
pub mod shared;
mod slot;
pub mod swap;
pub mod table;
mod tables;
pub mod thp;
mod validate;
mod vma_hint;
pub mod walk;

pub use entry::{Pte, Was};
pub use frame::Frame;
pub use pin::PagePin;
pub use shared::{SharedPage, SharedPages, Why};
pub use slot::SlotKind;
pub use swap::SwapMap;
pub(crate) use table::FaultPath;
pub use table::PageTable;
pub use tables::PageTables;
pub use thp::HugeCounts;
pub use walk::{PageWalk, WalkAction, WalkFlags, WalkOps};
