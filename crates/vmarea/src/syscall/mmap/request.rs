//! The arguments of `mmap`.

use crate::Space;
use crate::refused::Rule;
use crate::types::call_flags::{MapFlags, Prot};
use crate::types::platform::Environment;
use crate::types::{Errno, File, FileKind, PAGE_MASK, PMD_SIZE, align_up, page_align};

/// How the address of a mapping without FIXED is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// The core searches for a free range.
    #[default]
    Search,
    /// The core uses this address as if it had found it (for a replay under another policy).
    At(u64),
    /// The core searches for a free range in the arena with this number, and then elsewhere.
    ///
    /// If each CPU has an arena, the calls of different CPUs need not wait for each other. Linux
    /// has no arenas. Any number is valid; there are 30 arenas of 4 TiB.
    Arena(usize),
}

/// The arguments of `mmap`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MmapRequest {
    /// The requested address: a hint, or with FIXED the exact address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Requested protection.
    pub prot: Prot,
    /// Mapping type and other flags.
    pub flags: MapFlags,
    /// The mapped file; `None` for `MAP_ANONYMOUS`.
    pub file: Option<File>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// How the address is chosen without FIXED.
    pub placement: Placement,
    /// The error that the file's `mmap` operation returns if the file cannot be mapped.
    ///
    /// An embedder whose files can always be mapped leaves this field `None`.
    pub refused: Option<Errno>,
}

impl MmapRequest {
    /// Returns a request for `len` bytes of private anonymous memory, readable and writable, at an
    /// address that the core chooses.
    ///
    /// ```
    /// use vmarea::prelude::*;
    ///
    /// let readable = MmapRequest { prot: Prot::READ, ..MmapRequest::anonymous(PAGE_SIZE) };
    /// assert_eq!(readable.flags, MapFlags::PRIVATE | MapFlags::ANONYMOUS);
    /// ```
    pub fn anonymous(len: u64) -> Self {
        MmapRequest {
            len,
            prot: Prot::READ | Prot::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS,
            ..MmapRequest::default()
        }
    }

    /// Rounds up the length of a hugetlb file mapping to whole huge pages.
    ///
    /// `shmat` and `remap_file_pages` do not round up hugetlb lengths this way. A length that wraps
    /// becomes 0.
    #[doc(alias = "ksys_mmap_pgoff")]
    pub(super) fn in_pages_of_file(&self) -> Self {
        match self.file.map(|f| f.kind) {
            Some(FileKind::Hugetlb) => MmapRequest {
                len: align_up(self.len, PMD_SIZE).unwrap_or(0),
                ..*self
            },
            _ => *self,
        }
    }

    /// Returns the length of the mapping in bytes, rounded up to whole pages.
    ///
    /// Returns EINVAL if the length is 0, if the offset is not page-aligned, or if huge pages are
    /// requested for a file that has none; ENOMEM if the length wraps.
    pub(super) fn mapped_len<E: Environment>(&self, space: &Space<E>) -> Result<u64, Errno> {
        let small = self.file.is_some_and(|f| f.kind != FileKind::Hugetlb);
        let huge = self.flags.contains(MapFlags::HUGETLB);
        if self.len == 0 || self.offset & !PAGE_MASK != 0 || small && huge {
            let rule = match (self.len, self.offset & !PAGE_MASK) {
                (0, _) => Rule::SomeLength,
                (_, 0) => Rule::HugePagesOfFile,
                _ => Rule::AlignedOffset,
            };
            return Err(space.refuse(Errno::EINVAL, rule));
        }
        page_align(self.len).ok_or_else(|| space.refuse(Errno::ENOMEM, Rule::LengthFits))
    }
}
