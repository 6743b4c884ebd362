//! The embedder's observer of changes, for one whose host brings the pages.

use crate::boundary::WithSize;
use crate::callbacks::call;
use core::ffi::c_void;
use vmarea::changes::Change;
use vmarea::types::{MmId, VmFlags, VmRange};

/// `vmarea_change.kind`: a range in which nothing was mapped is mapped.
pub const VMAREA_CHANGE_MAPPED: u32 = 1;
/// `vmarea_change.kind`: a mapped range is no longer mapped.
pub const VMAREA_CHANGE_UNMAPPED: u32 = 2;
/// `vmarea_change.kind`: a mapped range has another protection.
pub const VMAREA_CHANGE_PROTECTED: u32 = 3;
/// `vmarea_change.kind`: a mapped range with its pages is at `to`, where nothing was mapped. If the
/// old range stays mapped without pages, VMAREA_CHANGE_MAPPED follows.
pub const VMAREA_CHANGE_MOVED: u32 = 4;
/// `vmarea_change.kind`: the pages of a mapped range have been dropped.
pub const VMAREA_CHANGE_EMPTIED: u32 = 5;
/// `vmarea_change.kind`: the pages of a mapped range have been dropped, and accesses raise SIGSEGV.
pub const VMAREA_CHANGE_GUARDED: u32 = 6;
/// `vmarea_change.kind`: accesses to guard pages in a mapped range no longer raise SIGSEGV.
pub const VMAREA_CHANGE_UNGUARDED: u32 = 7;

/// A change of the mappings of an address space.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ChangeOfMapping {
    /// VMAREA_CHANGE_MAPPED or another kind.
    pub kind: u32,
    /// VMAREA_CHANGE_MAPPED and VMAREA_CHANGE_PROTECTED: the protection, as PROT_ bits.
    pub prot: u32,
    /// VMAREA_CHANGE_MAPPED: 1 if the mapping is shared.
    pub shared: u32,
    /// VMAREA_CHANGE_MAPPED: 1 if `inode` and `index` say what is mapped.
    pub has_file: u32,
    /// First address of the range.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
    /// VMAREA_CHANGE_MOVED: the new address of `start`.
    pub to: u64,
    /// Inode number of the mapped file.
    pub inode: u64,
    /// Number of the first page in the file.
    pub index: u64,
}

impl From<Change> for ChangeOfMapping {
    fn from(change: Change) -> ChangeOfMapping {
        let of = |kind, range: VmRange| ChangeOfMapping {
            kind,
            start: range.start,
            end: range.end,
            ..ChangeOfMapping::default()
        };
        let prot = |flags: VmFlags| (flags & VmFlags::ACCESS).bits() as u32;
        match change {
            Change::Mapped { range, flags, file } => ChangeOfMapping {
                prot: prot(flags),
                shared: flags.contains(VmFlags::MAYSHARE).into(),
                has_file: file.is_some().into(),
                inode: file.map_or(0, |(inode, _)| inode),
                index: file.map_or(0, |(_, first)| first.0),
                ..of(VMAREA_CHANGE_MAPPED, range)
            },
            Change::Unmapped { range } => of(VMAREA_CHANGE_UNMAPPED, range),
            Change::Protected { range, flags } => ChangeOfMapping {
                prot: prot(flags),
                ..of(VMAREA_CHANGE_PROTECTED, range)
            },
            Change::Moved { from, to } => ChangeOfMapping {
                to,
                ..of(VMAREA_CHANGE_MOVED, from)
            },
            Change::Emptied { range } => of(VMAREA_CHANGE_EMPTIED, range),
            Change::Guarded { range } => of(VMAREA_CHANGE_GUARDED, range),
            Change::Unguarded { range } => of(VMAREA_CHANGE_UNGUARDED, range),
        }
    }
}

/// An observer of changes, for a sandbox or an emulator whose host brings the pages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Changes {
    /// sizeof(struct vmarea_changes).
    pub size: usize,
    /// Passed to the callback.
    pub context: *mut c_void,
    /// Notifies of each change of a mapping, whether or not the library has seen a fault in it.
    /// vmarea_fork is not reported: the child has the mappings that vmarea_maps returns. Runs with a
    /// lock of the address space held, and must not call the library.
    pub changed:
        Option<unsafe extern "C" fn(context: *mut c_void, mm: u64, change: *const ChangeOfMapping)>,
}

// SAFETY: `size` is the first member.
unsafe impl WithSize for Changes {}

// SAFETY: the header says that any thread may run the callbacks with the context, at the same time.
unsafe impl Send for Changes {}
// SAFETY: as for `Send`.
unsafe impl Sync for Changes {}

impl vmarea::changes::Observer for Changes {
    fn changed(&self, mm: MmId, change: Change) {
        let change = ChangeOfMapping::from(change);
        call!(self, changed(mm.to_bits(), &raw const change), else ());
    }
}
