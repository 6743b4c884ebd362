//! Reduced VMAs and address spaces, which contain only the data that a lookup reads.
//!
//! The index and the type-stable slots are the core's own, but here a slot contains only a VMA's
//! bounds, padded to the size of a full VMA. These structures allow lookups to be measured without
//! the surrounding calls.

use std::sync::atomic::{AtomicU64, Ordering};
use vmarea::lookup::Vmas;
use vmarea::types::{MmId, VmRange, VmaId};
use vmarea_range_tree::{Entry, OutOfMemory, RangeTree};
use vmarea_sync::{Key, Slots};

/// Reduced VMA: only its bounds.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Bare {
    start: AtomicU64,
    end: AtomicU64,
    mm: AtomicU64,
}

/// Reduced address space.
#[derive(Clone, Copy, Debug)]
pub(super) struct BareMm<'a> {
    pub id: MmId,
    pub tree: &'a RangeTree,
    pub slots: &'a Slots<Bare>,
}

/// Returns the id of the address space with this number, counted from 0.
pub(super) fn mm_id(number: u32) -> MmId {
    // Slots in use have odd generations; any nonzero number is an id.
    MmId::from_bits(1 << 32 | u64::from(number)).expect("not zero")
}

impl BareMm<'_> {
    fn bare(&self, vma: VmaId) -> Option<&Bare> {
        self.slots.get(Key::from_bits(vma.to_bits())?)
    }

    /// Adds a VMA. Returns `None` if there is not enough memory.
    pub fn link(&self, range: VmRange) -> Option<VmaId> {
        let id = VmaId::from_bits(self.slots.insert().ok()?.to_bits())?;
        let bare = self.bare(id)?;
        bare.mm.store(self.id.to_bits(), Ordering::Relaxed);
        bare.start.store(range.start, Ordering::Relaxed);
        bare.end.store(range.end, Ordering::Relaxed);
        let mut tree = self.tree.write();
        let room: Result<(), OutOfMemory> = tree.reserve(1);
        room.ok()?;
        tree.insert(Entry {
            start: range.start,
            end: range.end,
            value: id.to_bits(),
        });
        Some(id)
    }

    /// Changes the bounds of a VMA that currently starts at `start`.
    pub fn resize(&self, vma: VmaId, start: u64, range: VmRange) {
        if let Some(bare) = self.bare(vma) {
            bare.start.store(range.start, Ordering::Relaxed);
            bare.end.store(range.end, Ordering::Relaxed);
        }
        self.tree.write().resize(start, range.start, range.end);
    }

    /// Removes a VMA.
    pub fn unlink(&self, vma: VmaId) {
        if let Some(bare) = self.bare(vma) {
            let start = bare.start.load(Ordering::Relaxed);
            self.tree.write().remove(start);
        }
        if let Some(key) = Key::from_bits(vma.to_bits()) {
            self.slots.remove(key);
        }
    }
}

impl Vmas for BareMm<'_> {
    #[inline]
    fn mm(&self) -> MmId {
        self.id
    }

    #[inline]
    fn find(&self, addr: u64) -> Option<VmaId> {
        VmaId::from_bits(self.tree.find(addr)?.value)
    }

    #[inline]
    fn range(&self, vma: VmaId) -> Option<VmRange> {
        let bare = self.bare(vma)?;
        let range = VmRange {
            start: bare.start.load(Ordering::Relaxed),
            end: bare.end.load(Ordering::Relaxed),
        };
        (bare.mm.load(Ordering::Relaxed) == self.id.to_bits()).then_some(range)
    }
}
