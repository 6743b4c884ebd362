//! The page at an address, as an embedder accesses it or enters it in a page table.

use vmarea::types::VmFlags;
use vmarea::types::mmu::{MappedPage, Translation};

/// `vmarea_page.kind`: no page is mapped, so an access faults.
pub const VMAREA_PAGE_NONE: u32 = 0;
/// `vmarea_page.kind`: a page of zeros, which all address spaces share.
pub const VMAREA_PAGE_ZERO: u32 = 1;
/// `vmarea_page.kind`: the page in `frame`.
pub const VMAREA_PAGE_FRAME: u32 = 2;
/// `vmarea_page.kind`: page `index` of the file `inode`.
pub const VMAREA_PAGE_FILE: u32 = 3;

/// The page at an address, and the accesses that need no fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Page {
    /// One of VMAREA_PAGE_NONE, VMAREA_PAGE_ZERO, VMAREA_PAGE_FRAME and VMAREA_PAGE_FILE.
    pub kind: u32,
    /// Allowed accesses, as PROT_ bits. Loads are allowed if any access is, as on x86-64.
    pub prot: u32,
    /// Protection key of the mapping.
    pub pkey: u32,
    /// Always 0.
    pub reserved: u32,
    /// Number of the frame: small, so that it can index an array, and reused after `free`.
    pub frame: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// Number of the page in the file.
    pub index: u64,
}

/// Returns the accesses that `flags` allow, as PROT_ bits; includes loads if any is allowed.
pub fn allowed_accesses(flags: VmFlags) -> VmFlags {
    let mut allowed = flags & VmFlags::ACCESS;
    allowed.set(VmFlags::READ, flags.is_accessible());
    allowed
}

impl From<Translation> for Page {
    fn from(to: Translation) -> Page {
        let mut allowed = allowed_accesses(to.flags);
        allowed.set(VmFlags::WRITE, to.writable);
        let page = Page {
            prot: allowed.bits() as u32,
            pkey: to.flags.pkey(),
            ..Page::default()
        };
        match to.page {
            MappedPage::Zero => Page {
                kind: VMAREA_PAGE_ZERO,
                ..page
            },
            MappedPage::Frame(frame) => Page {
                kind: VMAREA_PAGE_FRAME,
                frame: frame.index() as u64,
                ..page
            },
            MappedPage::File { inode, index } => Page {
                kind: VMAREA_PAGE_FILE,
                inode,
                index: index.0,
                ..page
            },
        }
    }
}
