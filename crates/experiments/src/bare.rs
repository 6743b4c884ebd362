//! VMAs and address spaces as a lookup sees them, and nothing else of them.
//!
//! The index and the type-stable slots are those of the core; a slot here holds the bounds alone, and
//! lies as far from the next as a VMA's. With it lookups can be measured without the calls around them.

use std::sync::atomic::{AtomicU64, Ordering};
use vmarea::lookup::range_tree::{Entry, OutOfMemory, RangeTree};
use vmarea::lookup::{Key, Slots, Vmas};
use vmarea::types::{MmId, VmRange, VmaId};

/// A VMA.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Bare {
    start: AtomicU64,
    end: AtomicU64,
    mm: AtomicU64,
}

/// An address space.
#[derive(Clone, Copy, Debug)]
pub(super) struct BareMm<'a> {
    pub id: MmId,
    pub tree: &'a RangeTree,
    pub slots: &'a Slots<Bare>,
}

/// The id of an address space by its number.
pub(super) fn mm_id(number: u32) -> MmId {
    // Odd generations are of slots in use; any number that is not zero is an id.
    MmId::from_bits(1 << 32 | u64::from(number)).expect("not zero")
}

impl BareMm<'_> {
    fn bare(&self, vma: VmaId) -> Option<&Bare> {
        self.slots.get(Key::from_bits(vma.to_bits())?)
    }

    /// A new VMA. `None` where there is no memory.
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

    /// A VMA that began at `start` has other bounds.
    pub fn resize(&self, vma: VmaId, start: u64, range: VmRange) {
        if let Some(bare) = self.bare(vma) {
            bare.start.store(range.start, Ordering::Relaxed);
            bare.end.store(range.end, Ordering::Relaxed);
        }
        self.tree.write().resize(start, range.start, range.end);
    }

    /// A VMA goes.
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
