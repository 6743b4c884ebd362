//! The list of mappings, as in `/proc/PID/maps`.

use crate::boundary::{places, register};
use crate::space::{SpaceHandle, address_space};
use vmarea::types::{AnonVmaId, Errno, VmRange};
use vmarea::vma::VmaView;

/// A mapping (VMA).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// Offset in the file, in pages; for anonymous memory, the page offset that merging compares.
    pub pgoff: u64,
    /// Linux's VM_ flags: 1 read, 2 write, 4 execute, 8 shared.
    pub flags: u64,
    /// Number of the open file description; 0 for none.
    pub file: u64,
    /// Inode number of the file; 0 for none.
    pub inode: u64,
    /// A number that mappings with the same anon_vma share; 0 for none.
    pub anon_vma: u64,
}

impl From<VmaView> for Mapping {
    fn from(vma: VmaView) -> Mapping {
        Mapping {
            start: vma.range.start,
            end: vma.range.end,
            pgoff: vma.pgoff().0,
            flags: vma.body.flags.bits(),
            file: vma.body.file.map_or(0, |file| file.id.0),
            inode: vma.body.file.map_or(0, |file| file.inode),
            anon_vma: vma.anon_vma.map_or(0, AnonVmaId::to_bits),
        }
    }
}

/// Writes up to `capacity` of the mappings that end above `from` to the array `mappings`, in
/// address order, and returns their number. To continue, pass the `end` of the last mapping as
/// `from`. Each call returns a consistent snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_maps(
    space: *const SpaceHandle,
    mm: u64,
    from: u64,
    mappings: *mut Mapping,
    capacity: usize,
) -> i64 {
    // SAFETY: `space` is as the header demands.
    register(unsafe { address_space(space, mm) }.and_then(|(space, mm)| {
        // SAFETY: so is `mappings`.
        let places = unsafe { places(mappings, capacity) }?;
        let guard = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        let range = VmRange::new(from, u64::MAX);
        let mut count = 0;
        for (place, vma) in places.iter_mut().zip(guard.vmas_in(range)) {
            place.write(vma.into());
            count += 1;
        }
        Ok(count)
    }))
}
