//! The properties of a file that affect its mappings.
//!
//! The embedder implements the files themselves. A mapping stores only the properties that affect
//! placement, permissions and merging. One such property is the identity of the open file
//! description (Linux's `struct file`), because mappings of the same inode through different
//! descriptions never merge.

/// Identity of an open file description (`struct file`), chosen by the embedder: not 0, and below
/// [`FileId::NAMELESS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u64);

impl FileId {
    /// First id of the nameless shmem files that the core creates for shared anonymous mappings.
    /// The inode number of such a file is the same as its id.
    pub const NAMELESS: u64 = 1 << 62;

    /// True if the core created the file for a shared anonymous mapping.
    pub const fn is_nameless(self) -> bool {
        self.0 >= FileId::NAMELESS
    }
}

/// The kind of a file, which determines how its mappings behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file whose mappings are placed by the same rules as anonymous mappings.
    Regular,
    /// A regular file on a file system that aligns large mappings to huge pages (ext4, btrfs, xfs).
    RegularHugeAligned,
    /// A tmpfs file or memfd.
    Shmem,
    /// The nameless shmem file of a shared anonymous mapping.
    SharedAnon,
    /// A System V shared memory segment: its mapping has a `close` hook, so a merge never removes
    /// the mapping.
    SysvShm,
    /// A hugetlbfs file.
    Hugetlb,
    /// `/dev/zero`: a private mapping of it is anonymous but keeps its reference to the file.
    DevZero,
    /// A device; the model covers only the address range of a driver's mapping.
    Device,
    /// A mapping made by the kernel, without a file: `[vdso]`, `[vvar]`, `[uprobes]`. It can be
    /// unmapped and moved only as a whole.
    Special,
    /// `memfd_secret`: locked, excluded from core dumps, and not accessible to the kernel.
    Secret,
}

/// A file as the caller of `mmap` describes it.
///
/// ```
/// use vmarea_merge::types::{File, FileId, FileKind};
///
/// // `open` with O_RDONLY, on a file system that is mounted `noexec`.
/// let open = File::read_write(FileId(1), 7, FileKind::Regular);
/// let file = File { writable: false, noexec: true, ..open };
/// assert!(file.is_noexec() && file.kind.max_bytes() == i64::MAX as u64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    /// Identity of the open file description.
    pub id: FileId,
    /// Inode number, chosen by the embedder.
    pub inode: u64,
    /// Kind of the file.
    pub kind: FileKind,
    /// True if opened for reading (`FMODE_READ`).
    pub readable: bool,
    /// True if opened for writing (`FMODE_WRITE`).
    pub writable: bool,
    /// True if the file system is mounted `noexec`.
    pub noexec: bool,
    /// True if the inode is append-only.
    pub append_only: bool,
    /// True if `F_SEAL_WRITE` or `F_SEAL_FUTURE_WRITE` forbids new writable shared mappings.
    pub write_sealed: bool,
}

impl File {
    /// Describes a file that is open for reading and writing, without restrictions on its mappings.
    pub fn read_write(id: FileId, inode: u64, kind: FileKind) -> File {
        File {
            id,
            inode,
            kind,
            readable: true,
            writable: true,
            noexec: false,
            append_only: false,
            write_sealed: false,
        }
    }

    /// Checks whether mappings of the file must not be executable.
    #[doc(alias = "path_noexec")]
    pub fn is_noexec(&self) -> bool {
        self.noexec || self.kind == FileKind::Secret
    }
}

impl FileKind {
    /// Returns the largest file position, in bytes, at which a mapping may end.
    #[doc(alias = "file_mmap_size_max")]
    pub fn max_bytes(self) -> u64 {
        match self {
            // Character devices allow the whole 64-bit range.
            FileKind::DevZero | FileKind::Device | FileKind::Special => u64::MAX,
            _ => i64::MAX as u64,
        }
    }

    /// True if mappings of this kind of file have a `close` hook. A merge must not remove a VMA
    /// with a `close` hook.
    pub fn has_close(self) -> bool {
        matches!(self, FileKind::SysvShm | FileKind::Hugetlb)
    }
}
