//! What a mapping needs to know of the file behind it.
//!
//! Files themselves are the embedder's. A mapping holds the identity of the open description
//! (Linux's `struct file`), because two descriptions of one inode never merge, and the few facts
//! that steer placement, permission and merging.

/// Identity of an open file description (`struct file`), chosen by the embedder; not 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u64);

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

impl FileKind {
    /// Its mappings have a `close` hook, so that a merge must not take such a VMA away.
    pub fn has_close(self) -> bool {
        matches!(self, FileKind::SysvShm | FileKind::Hugetlb)
    }
}
