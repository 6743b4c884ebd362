//! What a mapping needs to know of the file behind it.
//!
//! Files themselves are the embedder's. A mapping holds the identity of the open description
//! (Linux's `struct file`), because two descriptions of one inode never merge, and the few facts
//! that steer placement, permission and merging.

use super::addr::PMD_SIZE;
use crate::mutant::{self, Mutant};
use crate::policy::Rules;

/// Identity of an open file description (`struct file`), chosen by the embedder; not 0, and below
/// [`FileId::NAMELESS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u64);

impl FileId {
    /// From here on the core numbers the nameless shmem files of shared anonymous mappings, which have the
    /// same number as inodes.
    pub const NAMELESS: u64 = 1 << 62;

    /// True for a file that the core made for a shared anonymous mapping.
    pub const fn is_nameless(self) -> bool {
        self.0 >= FileId::NAMELESS
    }
}

/// Kinds of file that map differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file of a file system that places its mappings like anonymous ones.
    Regular,
    /// A regular file of a file system (ext4, btrfs, xfs ...) that aligns large mappings to huge
    /// pages.
    RegularHugeAligned,
    /// tmpfs and memfd.
    Shmem,
    /// The nameless shmem file of a shared anonymous mapping.
    SharedAnon,
    /// A System V shared memory segment: its mapping has a `close` hook, so it never disappears in
    /// a merge.
    SysvShm,
    /// hugetlbfs.
    Hugetlb,
    /// `/dev/zero`: private mappings of it are anonymous but keep the file.
    DevZero,
    /// A driver's mapping: not modelled beyond its range.
    Device,
    /// A mapping of the kernel's own, without a file: `[vdso]`, `[vvar]`, `[uprobes]`. It goes and moves
    /// only as a whole.
    Special,
    /// `memfd_secret`: locked, left out of core dumps, and out of the kernel's own reach.
    Secret,
}

/// A file as the caller of `mmap` presents it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    /// The open description.
    pub id: FileId,
    /// The inode, as the embedder numbers them.
    pub inode: u64,
    /// What it is.
    pub kind: FileKind,
    /// Opened for reading (`FMODE_READ`).
    pub readable: bool,
    /// Opened for writing (`FMODE_WRITE`).
    pub writable: bool,
    /// On a file system mounted `noexec`.
    pub noexec: bool,
    /// The inode is append-only.
    pub append_only: bool,
    /// `F_SEAL_WRITE` or `F_SEAL_FUTURE_WRITE` forbid new writable shared mappings.
    pub write_sealed: bool,
}

impl File {
    /// Nothing of it may be executed.
    #[doc(alias = "path_noexec")]
    pub(crate) fn is_noexec(&self) -> bool {
        self.noexec || self.kind == FileKind::Secret
    }
}

impl FileKind {
    /// May a mapping of it be cut at `addr`?
    pub(crate) fn may_split(self, addr: u64, rules: &Rules) -> bool {
        match self {
            FileKind::Hugetlb => addr.is_multiple_of(PMD_SIZE),
            FileKind::Special => rules.special_splits || mutant::is_on(Mutant::SpecialSplits),
            _ => true,
        }
    }

    /// The largest size in bytes that a mapping of it may end at.
    #[doc(alias = "file_mmap_size_max")]
    pub(crate) fn max_bytes(self) -> u64 {
        match self {
            // Character devices have all of the 64 bits.
            FileKind::DevZero | FileKind::Device | FileKind::Special => u64::MAX,
            _ => i64::MAX as u64,
        }
    }

    /// Its mappings have a `close` hook, so that a merge must not take such a VMA away.
    pub fn has_close(self) -> bool {
        matches!(self, FileKind::SysvShm | FileKind::Hugetlb)
    }
}
