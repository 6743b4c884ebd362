//! A VMA as the merge decision sees it: a snapshot of its range and attributes.

use crate::types::{
    AnonVmaId, File, FileId, FileKind, PAGE_SIZE, PageOffsets, Pgoff, VmFlags, VmRange, VmaId,
};

/// Attributes of a VMA that are protected by `mmap_lock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmaBody {
    /// `vm_flags`.
    pub flags: VmFlags,
    /// The mapped file, if there is one.
    pub file: Option<MappedFile>,
    /// Number that identifies the memory policy; 0 for the task's policy.
    pub policy: u32,
    /// Number that identifies the name set with `PR_SET_VMA`; 0 for none.
    pub name: u32,
    /// Number that identifies the userfaultfd context; 0 for none.
    pub uffd: u32,
}

/// Properties of a mapped file, as stored in a VMA.
///
/// The struct is packed so that a VMA fits in two cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))]
pub struct MappedFile {
    /// Identity of the open file description.
    pub id: FileId,
    /// Inode number, chosen by the embedder.
    pub inode: u64,
    /// Kind of the file.
    pub kind: FileKind,
}

impl From<&File> for MappedFile {
    fn from(file: &File) -> Self {
        MappedFile {
            id: file.id,
            inode: file.inode,
            kind: file.kind,
        }
    }
}

/// A snapshot of a VMA, for merge decisions and for callers.
///
/// ```
/// use vmarea_merge::types::{PAGE_SIZE, PageOffsets, Pgoff, VmFlags, VmRange, VmaId};
/// use vmarea_merge::view::{VmaBody, VmaView};
///
/// let start = 16 * PAGE_SIZE;
/// let stack = VmaView {
///     id: VmaId::from_bits(1).expect("not 0"),
///     range: VmRange::new(start, start + 4 * PAGE_SIZE),
///     offsets: PageOffsets::starting_at(Pgoff(100), start),
///     anon_vma: None,
///     chain_singular: true,
///     body: VmaBody { flags: VmFlags::GROWSDOWN, ..VmaBody::default() },
/// };
/// assert_eq!(stack.pgoff_at(start + PAGE_SIZE), Pgoff(101));
/// assert_eq!(stack.pgoff_end(), Pgoff(104));
/// assert_eq!(stack.start_gap(2 * PAGE_SIZE), start - 2 * PAGE_SIZE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaView {
    /// Identity of the VMA.
    pub id: VmaId,
    /// Address range of the VMA.
    pub range: VmRange,
    /// Page offsets of the VMA's pages.
    pub offsets: PageOffsets,
    /// The VMA's anon_vma (`vma->anon_vma`), if it has one.
    pub anon_vma: Option<AnonVmaId>,
    /// True if the VMA's chain has at most one link.
    pub chain_singular: bool,
    /// Flags, file and the other attributes.
    pub body: VmaBody,
}

impl VmaView {
    /// Checks whether the VMA is anonymous (`vma_is_anonymous`). A private mapping of `/dev/zero`
    /// is anonymous too.
    pub fn is_anonymous(&self) -> bool {
        self.body.is_anonymous()
    }

    /// Returns the page offset that corresponds to `addr`, which may be outside of the VMA.
    pub fn pgoff_at(&self, addr: u64) -> Pgoff {
        self.offsets.pgoff_at(addr)
    }

    /// Returns the page offset of the first page.
    #[doc(alias = "vma_start_pgoff")]
    pub fn pgoff(&self) -> Pgoff {
        self.pgoff_at(self.range.start)
    }

    /// Returns the page offset immediately after the last page of the VMA.
    pub fn pgoff_end(&self) -> Pgoff {
        self.pgoff_at(self.range.end)
    }

    /// Returns the start of the guard gap below a stack or shadow stack; for other VMAs, the VMA's
    /// start.
    #[doc(alias = "vm_start_gap")]
    pub fn start_gap(&self, stack_guard_gap: u64) -> u64 {
        let gap = if self.body.flags.contains(VmFlags::GROWSDOWN) {
            stack_guard_gap
        } else if self.body.flags.contains(VmFlags::SHADOW_STACK) {
            PAGE_SIZE
        } else {
            0
        };
        self.range.start.saturating_sub(gap)
    }
}

impl VmaBody {
    /// Checks whether the pages are anonymous: no file, or a private mapping of `/dev/zero`.
    pub fn is_anonymous(&self) -> bool {
        match self.file {
            None => true,
            Some(file) => file.kind == FileKind::DevZero && !self.flags.contains(VmFlags::MAYSHARE),
        }
    }

    /// Checks whether the VMA maps a `memfd_secret` file. The kernel does not access the pages of
    /// such a file on behalf of a program.
    #[doc(alias = "vma_is_secretmem")]
    pub fn is_secret(&self) -> bool {
        self.file.is_some_and(|f| f.kind == FileKind::Secret)
    }

    /// Checks whether the VMA has a `close` hook, which means that a merge must not remove it.
    pub fn has_close(&self) -> bool {
        self.file.is_some_and(|f| f.kind.has_close())
    }
}
