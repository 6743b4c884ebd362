//! The memory layout of a VMA's fields.
//!
//! The patch series that moved the lock into the VMA (Baghdasaryan, 2024) reports the holes and
//! cache lines of a VMA, the number of VMAs per page, and the number of pages for 1,000 VMAs. This
//! module computes the same figures. Memory outside the VMA is counted in
//! [`mm::bytes`](crate::mm::bytes).

use super::{MappedFile, Vma, VmaBody};
use crate::types::PAGE_SIZE;
use crate::types::platform::WithVmaLock;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::{align_of, offset_of, size_of};
use vmarea_sync::{Slots, VmaCell, VmaLockKind};

/// Size of a cache line in bytes.
pub const LINE: usize = 64;

/// One field of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Name of the field, for display.
    pub name: &'static str,
    /// Offset in the object, in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

impl Field {
    /// Returns the first and the last cache line that the field touches.
    pub fn lines(&self) -> (usize, usize) {
        (self.offset / LINE, (self.offset + self.size - 1) / LINE)
    }
}

/// A kind of object, with its fields in order of offset.
///
/// The function [`vma`](vma()) has an example.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Size of the object in bytes, including the slot header.
    pub size: usize,
    /// Alignment of the object in its slot.
    pub align: usize,
    /// All fields.
    pub fields: Vec<Field>,
}

impl Object {
    /// Returns the number of cache lines that an object aligned to a cache line occupies.
    pub fn lines(&self) -> usize {
        self.size.div_ceil(LINE)
    }

    /// Returns the holes before, between and after the fields, each as its offset and length.
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

    /// Returns the number of objects that fit into a page.
    pub fn per_page(&self) -> usize {
        PAGE_SIZE as usize / self.size
    }

    /// Returns the number of pages that `objects` objects need.
    pub fn pages_for(&self, objects: usize) -> usize {
        objects.div_ceil(self.per_page())
    }
}

/// Describes the layout of a VMA whose lock is of kind `L`, including its slot header.
///
/// ```
/// use vmarea::vma::layout::{LINE, vma};
/// use vmarea::vma::lock::VmaLock;
///
/// let object = vma::<VmaLock>();
/// assert_eq!(object.size, 2 * LINE);
/// assert_eq!(object.pages_for(object.per_page() + 1), 2);
/// assert!(object.fields.iter().any(|field| field.name == "lock" && field.lines() == (0, 0)));
/// ```
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
        field("page offsets", base + offset_of!(Of<L>, offsets), 8),
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
