//! The VMA and its lock in four states of the patch series, in the memory layout that C prescribes.
//!
//! The names, sizes and order of the fields are taken from the listing in the series' cover letter
//! for the state after the series, and from Linux 6.12 for the state before it. The configuration
//! is 64-bit x86 with NUMA, swap and per-VMA locks, but without userfaultfd. Only the positions of
//! the fields matter; their values are never used.

use serde::Serialize;
use std::mem::{align_of, offset_of, size_of};

/// Aligns the next field to a cache line without occupying memory, as `__aligned__(64)` does.
#[repr(align(64))]
struct Line;

/// `rw_semaphore`: count, owner, spinner queue, lock and list of waiters.
#[repr(C)]
struct RwSemaphore {
    count: u64,
    owner: u64,
    osq: u32,
    wait_lock: u32,
    wait_list: [u64; 2],
}

/// Defines a structure, and a function that lists the structure's members as `pahole` does.
macro_rules! modelled {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        struct $name { $($field: $kind,)* }

        impl $name {
            fn object() -> Object {
                let members = vec![$(Member {
                    name: stringify!($field),
                    offset: offset_of!($name, $field),
                    size: size_of_field(|of: &$name| &of.$field),
                },)*];
                Object {
                    size: size_of::<$name>(),
                    align: align_of::<$name>(),
                    members: members.into_iter().filter(|m| !m.name.starts_with('_')).collect(),
                }
            }
        }
    };
}

fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Models the VMA with `before` and `after`, the fields that move, around those that stay in place.
macro_rules! modelled_vma {
    ($(#[$doc:meta])* $name:ident {
        before: { $($before:ident: $before_kind:ty),* },
        after: { $($after:ident: $after_kind:ty),* }
    }) => {
        modelled! {
            $(#[$doc])*
            $name {
                vm_start_vm_end: [u64; 2],
                vm_mm: u64,
                vm_page_prot: u64,
                vm_flags: u64,
                detached: bool,
                vm_lock_seq: u32,
                $($before: $before_kind,)*
                anon_vma_chain: [u64; 2],
                anon_vma: u64,
                vm_ops: u64,
                vm_pgoff: u64,
                vm_file: u64,
                vm_private_data: u64,
                swap_readahead_info: u64,
                vm_policy: u64,
                $($after: $after_kind,)*
            }
        }
    };
}

modelled_vma! {
    /// The VMA before the series; its lock is a separate slab object.
    Before {
        before: { vm_lock_pointer: u64, shared: [u64; 4] },
        after: { vm_userfaultfd_ctx: [u8; 0] }
    }
}

modelled_vma! {
    /// The VMA with the semaphore among its fields, as it was before the lock became a separate
    /// object.
    Unaligned {
        before: { vm_lock: RwSemaphore, shared: [u64; 4] },
        after: { vm_userfaultfd_ctx: [u8; 0] }
    }
}

modelled_vma! {
    /// The VMA after the second patch: the semaphore is on a cache line of its own.
    Aligned {
        before: { shared: [u64; 4] },
        after: { vm_userfaultfd_ctx: [u8; 0], _align: [Line; 0], vm_lock: RwSemaphore }
    }
}

modelled_vma! {
    /// The VMA after the fourth patch: the lock is an atomic on a cache line with rarely used
    /// fields.
    After {
        before: {},
        after: { _align: [Line; 0], vm_lock: u32, shared: [u64; 4], vm_userfaultfd_ctx: [u8; 0] }
    }
}

/// One member of a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Member {
    /// Name.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A structure as `pahole` describes it.
#[derive(Clone, Debug, Serialize)]
pub struct Object {
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Members in the order of their offsets.
    pub members: Vec<Member>,
}

impl Object {
    /// Returns the number of cache lines that the structure occupies.
    pub fn lines(&self) -> usize {
        self.size.div_ceil(64)
    }

    /// Returns the sum of the members' sizes.
    pub fn sum(&self) -> usize {
        self.members.iter().map(|member| member.size).sum()
    }

    /// Returns the sizes of the holes between members.
    pub fn holes(&self) -> Vec<usize> {
        let mut end = 0;
        let mut holes = Vec::new();
        for member in self.members.iter().filter(|member| member.size > 0) {
            holes.extend((member.offset > end).then(|| member.offset - end));
            end = member.offset + member.size;
        }
        holes
    }

    /// Returns the number of unused bytes after the last member.
    pub fn padding(&self) -> usize {
        self.size - self.sum() - self.holes().iter().sum::<usize>()
    }

    /// Returns the offset of a member.
    pub fn offset(&self, name: &str) -> Option<usize> {
        let member = self.members.iter().find(|member| member.name == name)?;
        Some(member.offset)
    }
}

/// Place of a VMA's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// The lock is in a slab object of this size in bytes.
    Allocated(usize),
    /// The lock is embedded in the VMA.
    Embedded,
}

/// One state of the series.
#[derive(Clone, Debug)]
pub struct State {
    /// Name.
    pub name: &'static str,
    /// Layout of the VMA.
    pub vma: Object,
    /// Place of the lock.
    pub lock: Lock,
}

/// Returns the four states, from the state before the series to the state after it.
pub fn states() -> [State; 4] {
    let state = |name, vma, lock| State { name, vma, lock };
    let apart = Lock::Allocated(size_of::<RwSemaphore>());
    [
        state("before: lock allocated apart", Before::object(), apart),
        state("lock among the fields", Unaligned::object(), Lock::Embedded),
        state("lock on its own line", Aligned::object(), Lock::Embedded),
        state("after: atomic", After::object(), Lock::Embedded),
    ]
}

/// Returns the number of objects of `size` bytes that fit in a slab of `pages` pages.
pub fn objects_per_slab(size: usize, pages: usize) -> usize {
    pages * 4096 / size
}

/// Returns the number of pages needed for `objects` objects of `size` bytes in `pages`-page slabs.
pub fn pages_for(objects: usize, size: usize, pages: usize) -> usize {
    objects.div_ceil(objects_per_slab(size, pages)) * pages
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the summary that `pahole` prints in the cover letter.
    #[test]
    fn the_state_after_the_series_is_that_of_the_listing() {
        let [before, unaligned, aligned, after] = states();
        let vma = after.vma;
        assert_eq!((vma.size, vma.lines(), vma.align), (192, 3, 64));
        assert_eq!((vma.members.len(), vma.sum()), (17, 153));
        assert_eq!((vma.holes(), vma.padding()), (vec![3, 8, 4], 24));
        assert_eq!((before.vma.size, before.lock), (160, Lock::Allocated(40)));
        assert_eq!((unaligned.vma.size, aligned.vma.size), (192, 256));
        assert_eq!(aligned.vma.offset("vm_lock"), Some(192));
    }

    /// Checks the slabinfo lines and the sums in the cover letter.
    #[test]
    fn slabs_are_those_of_slabinfo() {
        for (size, pages, objects) in [(40, 1, 102), (160, 2, 51), (256, 2, 32), (192, 2, 42)] {
            assert_eq!(objects_per_slab(size, pages), objects);
        }
        assert_eq!(pages_for(1000, 160, 2) + pages_for(1000, 40, 1), 50);
        assert_eq!(pages_for(1000, 256, 2), 64);
        assert_eq!(pages_for(1000, 192, 2), 48);
    }
}
