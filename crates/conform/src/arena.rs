//! The part of the address space that sequences play in, and the files that they may map.
//!
//! The arena lies far away from everything that a process begins with. Whole sequences use the
//! same files in the same state, so that one can be played again.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use vmarea::types::{self, FileId, FileKind, PAGE_SIZE, PMD_SIZE};

/// First address.
pub const START: u64 = 0x10_0000_0000;
/// Pages.
pub const PAGES: u64 = 96;
/// First address of a part with nothing far below it, where stacks can grow.
pub const DEEP: u64 = START + 0x100_0000;
/// Pages of that part.
pub const DEEP_PAGES: u64 = 24;
/// First address of a part with room for huge pages.
pub const HUGE: u64 = START + 0x200_0000;
/// Huge pages that fit there.
pub const HUGE_SLOTS: u64 = 4;
/// First address after all parts but the heap.
pub const END: u64 = HUGE + HUGE_SLOTS * PMD_SIZE;
/// What sequences call the beginning of the heap, which differs from run to run.
pub const HEAP: u64 = START + 0x1000_0000;
/// As far as a heap may grow.
pub const HEAP_END: u64 = HEAP + 0x20_0000;
/// What sequences call the beginning of the kernel's own mappings, `[vvar]` to `[vdso]`.
pub const SPECIAL: u64 = HEAP + 0x1000_0000;
/// As far as they may go.
pub const SPECIAL_END: u64 = SPECIAL + 0x10_0000;
/// Where they are moved to: far from what is read and written, for what they hold is the kernel's.
pub const SPECIAL_TO: u64 = START - 0x5_0000_0000;
/// Where mappings of the hugetlb file are wished: as far, for the machine may have no page for them.
pub const POOL: u64 = START - 0x4_0000_0000;
/// Pages that each file has at the beginning.
pub const FILE_PAGES: u64 = 24;

/// The userfaultfd, among descriptors; it was opened by process 0 and gives SIGBUS.
pub const USERFAULTFD: u64 = 16;
/// Bytes of each segment of System V shared memory, by their numbers in calls.
pub const SEGMENTS: [u64; 2] = [6 * PAGE_SIZE, PAGE_SIZE + 100];
/// Where process 0 keeps the segments attached, so that they go when nobody is left.
pub const KEEP: u64 = START - 0x1_0000_0000;
/// Where fillers begin, which are mapped until few VMAs are left.
pub const FILL: u64 = START - 0x8000_0000;

/// The kinds of file at hand, by their numbers in calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file on disk, for reading and writing.
    Disk,
    /// The same file, opened once more.
    DiskAgain,
    /// A file on disk that may only be read.
    DiskReadOnly,
    /// A memfd.
    Memfd,
    /// `/dev/zero`.
    Zero,
    /// A `memfd_secret`.
    Secret,
    /// A memfd of huge pages, of which none need be there.
    Huge,
}

/// All of them, in order.
pub const KINDS: [Kind; 7] = [
    Kind::Disk,
    Kind::DiskAgain,
    Kind::DiskReadOnly,
    Kind::Memfd,
    Kind::Zero,
    Kind::Secret,
    Kind::Huge,
];
/// Those that every machine has come first.
pub const PLAIN_KINDS: u64 = 5;
/// The number of [`Kind::Secret`].
pub const SECRET: u64 = 5;
/// The number of [`Kind::Huge`].
pub const HUGE_FILE: u64 = 6;
/// Pages of 2 MiB in that file.
pub const HUGE_FILE_PAGES: u64 = 4;

/// The open files of a sequence.
#[derive(Debug)]
pub struct Files {
    open: Vec<File>,
    /// Made anew for each sequence, because it cannot be emptied.
    secret: RefCell<Option<OwnedFd>>,
    huge: Option<OwnedFd>,
}

impl Files {
    /// Makes and fills them.
    ///
    /// # Errors
    /// Where the directory for temporary files cannot be written.
    pub fn create() -> io::Result<Files> {
        let disk = tempfile::NamedTempFile::new()?;
        let again = File::options().read(true).write(true).open(disk.path())?;
        let other = tempfile::NamedTempFile::new()?;
        let read_only = File::open(other.path())?;
        let name = c"vmarea-conform";
        let memfd: OwnedFd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
        let zero = File::options().read(true).write(true).open("/dev/zero")?;
        let files = Files {
            open: vec![disk.into_file(), again, read_only, memfd.into(), zero],
            secret: RefCell::new(None),
            huge: huge_file().ok(),
        };
        other.as_file().set_len(FILE_PAGES * PAGE_SIZE)?;
        fill(other.as_file(), Kind::DiskReadOnly)?;
        files.reset()?;
        Ok(files)
    }

    /// Brings their content back to what it was at first.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub fn reset(&self) -> io::Result<()> {
        for (kind, file) in KINDS.into_iter().zip(&self.open) {
            if matches!(kind, Kind::Disk | Kind::Memfd) {
                file.set_len(0)?;
                file.set_len(FILE_PAGES * PAGE_SIZE)?;
                fill(file, kind)?;
            }
        }
        *self.secret.borrow_mut() = secret_file().ok();
        Ok(())
    }

    /// The descriptor of a file by its number.
    pub fn descriptor(&self, number: u64) -> Option<i32> {
        match number {
            SECRET => self.secret.borrow().as_ref().map(AsRawFd::as_raw_fd),
            HUGE_FILE => self.huge.as_ref().map(AsRawFd::as_raw_fd),
            _ => self
                .open
                .get(usize::try_from(number).ok()?)
                .map(AsRawFd::as_raw_fd),
        }
    }
}

fn secret_file() -> io::Result<OwnedFd> {
    let file = vmarea_oracle::memfd_secret()?;
    rustix::fs::ftruncate(&file, FILE_PAGES * PAGE_SIZE)?;
    Ok(file)
}

fn huge_file() -> io::Result<OwnedFd> {
    use rustix::fs::MemfdFlags;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB;
    let file = rustix::fs::memfd_create(c"vmarea-conform-huge", flags)?;
    rustix::fs::ftruncate(&file, HUGE_FILE_PAGES * PMD_SIZE)?;
    Ok(file)
}

fn fill(file: &File, kind: Kind) -> io::Result<()> {
    for index in 0..FILE_PAGES {
        file.write_all_at(&stamp(kind, index).to_ne_bytes(), index * PAGE_SIZE)?;
    }
    Ok(())
}

/// The first eight bytes of a page at the beginning.
pub fn stamp(kind: Kind, index: u64) -> u64 {
    inode(kind) << 32 | 0x5eed_0000 | index
}

/// Our number for the inode.
pub fn inode(kind: Kind) -> u64 {
    match kind {
        Kind::Disk | Kind::DiskAgain => 1,
        Kind::DiskReadOnly => 2,
        Kind::Memfd => 3,
        Kind::Zero => 4,
        Kind::Secret => 5,
        Kind::Huge => 6,
    }
}

/// A nameless file of huge pages from the machine's pool.
pub fn hugetlb(id: u64) -> types::File {
    types::File {
        inode: id,
        kind: FileKind::Hugetlb,
        ..segment(0, id)
    }
}

/// A segment, opened as `id`.
pub fn segment(number: usize, id: u64) -> types::File {
    types::File {
        id: FileId(id),
        inode: segment_inode(number),
        kind: FileKind::SysvShm,
        readable: true,
        writable: true,
        noexec: false,
        append_only: false,
        write_sealed: false,
    }
}

/// Our number for a segment's inode.
pub fn segment_inode(number: usize) -> u64 {
    16 + number as u64
}

/// Bytes of the segment with an inode.
pub fn segment_len(inode: u64) -> Option<u64> {
    let number = inode.checked_sub(segment_inode(0))?;
    SEGMENTS.get(usize::try_from(number).ok()?).copied()
}

/// The file of a number, as the core takes it.
pub fn file(number: u64) -> Option<types::File> {
    let kind = *KINDS.get(usize::try_from(number).ok()?)?;
    Some(types::File {
        id: FileId(number + 1),
        inode: inode(kind),
        kind: match kind {
            Kind::Memfd => FileKind::Shmem,
            Kind::Zero => FileKind::DevZero,
            Kind::Secret => FileKind::Secret,
            Kind::Huge => FileKind::Hugetlb,
            _ => FileKind::RegularHugeAligned,
        },
        readable: true,
        writable: kind != Kind::DiskReadOnly,
        noexec: false,
        append_only: false,
        write_sealed: false,
    })
}
