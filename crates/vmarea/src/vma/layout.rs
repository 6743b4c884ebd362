//! What a VMA costs: where its fields lie, and all bytes that an address space has for its VMAs.
//!
//! The text on the lock inside of the VMA counts holes, cache lines, objects in a page and pages for
//! 1,000 VMAs. The same is counted here, and beside it what lies elsewhere: boxes of locks, chains,
//! anon_vmas with their interval trees, and the index.

use super::{MappedFile, Vma, VmaBody};
use crate::rmap::AnonVma;
use crate::space::Space;
use crate::types::platform::{Environment, WithVmaLock};
use crate::types::{MmId, PAGE_SIZE, VmaId};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::{align_of, offset_of, size_of};
use vmarea_sync::{Slots, VmaCell, VmaLockKind};

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// A part of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name here.
    pub name: &'static str,
    /// Its first byte.
    pub offset: usize,
    /// Its bytes.
    pub size: usize,
}

impl Field {
    /// The cache lines on which it lies, first and last.
    pub fn lines(&self) -> (usize, usize) {
        (self.offset / LINE, (self.offset + self.size - 1) / LINE)
    }
}

/// A kind of object and its fields, in order of their offsets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Bytes, the slot's own included.
    pub size: usize,
    /// Alignment of what is in the slot.
    pub align: usize,
    /// Every field.
    pub fields: Vec<Field>,
}

impl Object {
    /// Cache lines that it takes where it begins with one.
    pub fn lines(&self) -> usize {
        self.size.div_ceil(LINE)
    }

    /// Bytes before, between and after the fields that nothing uses, as offset and length.
    pub fn holes(&self) -> Vec<(usize, usize)> {
        let mut holes = Vec::new();
        let mut at = 0;
        for field in &self.fields {
            if field.offset > at {
                holes.push((at, field.offset - at));
            }
            at = field.offset + field.size;
        }
        if self.size > at {
            holes.push((at, self.size - at));
        }
        holes
    }

    /// Objects in a page.
    pub fn per_page(&self) -> usize {
        PAGE_SIZE as usize / self.size
    }

    /// Pages for so many objects.
    pub fn pages_for(&self, objects: usize) -> usize {
        objects.div_ceil(self.per_page())
    }
}

/// A VMA with the lock `L`, in its slot.
pub fn vma<L: VmaLockKind>() -> Object {
    type Of<L> = Vma<WithVmaLock<L>>;
    let base = Slots::<Of<L>>::VALUE_OFFSET;
    let cell = base + offset_of!(Of<L>, body);
    let body = cell + VmaCell::<VmaBody, L>::BODY_OFFSET;
    let field = |name, offset, size| Field { name, offset, size };
    let mut fields = vec![
        field("generation, next free", 0, 8),
        field("start", base + offset_of!(Of<L>, start), 8),
        field("end", base + offset_of!(Of<L>, end), 8),
        field("pgoff", base + offset_of!(Of<L>, pgoff), 8),
        field("anon_vma", base + offset_of!(Of<L>, anon_vma), 8),
        field("mm", base + offset_of!(Of<L>, mm), 4),
        field("rmap_span", base + offset_of!(Of<L>, rmap_span), 4),
        field("lock", cell, size_of::<L>()),
        field("flags", body + offset_of!(VmaBody, flags), 8),
        field(
            "file",
            body + offset_of!(VmaBody, file),
            size_of::<Option<MappedFile>>(),
        ),
        field("policy", body + offset_of!(VmaBody, policy), 4),
        field("name", body + offset_of!(VmaBody, name), 4),
        field("uffd", body + offset_of!(VmaBody, uffd), 4),
        field(
            "chain",
            base + offset_of!(Of<L>, chain),
            size_of_val(&Of::<L>::default().chain),
        ),
    ];
    fields.sort_by_key(|field| field.offset);
    Object {
        size: Slots::<Of<L>>::SLOT_BYTES,
        align: align_of::<Of<L>>(),
        fields,
    }
}

/// Bytes that an address space has for its VMAs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmaBytes {
    /// VMAs.
    pub vmas: usize,
    /// Their slots, with their locks.
    pub slots: usize,
    /// Locks outside of the slots.
    pub locks: usize,
    /// Chains of more than one link.
    pub chains: usize,
    /// The anon_vmas on which they hang.
    pub anon_vmas: usize,
    /// Interval trees of more than one VMA.
    pub rmap: usize,
    /// The index by address.
    pub index: usize,
}

impl VmaBytes {
    /// All of them.
    pub fn total(&self) -> usize {
        self.slots + self.locks + self.chains + self.anon_vmas + self.rmap + self.index
    }
}

impl<E: Environment> Space<E> {
    /// What the VMAs of an address space take. An anon_vma that two address spaces share counts for
    /// each. `None` where there is no such address space.
    pub fn vma_bytes(&self, mm: MmId) -> Option<VmaBytes> {
        let r = self.mmap_read_lock(mm)?;
        let mut bytes = VmaBytes {
            index: r.mm.tree.bytes(),
            ..VmaBytes::default()
        };
        let mut anon_vmas = BTreeSet::new();
        for entry in r.mm.tree.ranges(0, u64::MAX) {
            let Some(vma) = VmaId::from_bits(entry.value) else {
                continue;
            };
            bytes.vmas += 1;
            bytes.slots += Slots::<Vma<E>>::SLOT_BYTES;
            bytes.locks += E::VmaLock::SIDE_BYTES;
            let chain = self.vma(vma).chain.lock().clone();
            bytes.chains += chain.bytes();
            anon_vmas.extend(chain.iter().map(|link| link.anon_vma));
        }
        for anon_vma in anon_vmas {
            let guard = self.anon_vma(self.anon_vma_root(anon_vma)).lock.read();
            bytes.anon_vmas += Slots::<AnonVma<E::Wait>>::SLOT_BYTES;
            bytes.rmap += self.anon_vma(anon_vma).inner.get(&guard).tree.bytes();
        }
        Some(bytes)
    }
}
