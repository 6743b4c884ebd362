//! Address ranges used by generated sequences, and the files that they may map.
//!
//! The arena is far from every initial mapping of a process. All sequences start with the same
//! files in the same state, so that a sequence can be replayed.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use vmarea::types::{self, FileId, FileKind, PAGE_SIZE, PMD_SIZE};

/// First address of the arena's main part.
pub const START: u64 = 0x10_0000_0000;
/// Number of pages in the main part.
pub const PAGES: u64 = 96;
/// First address of the part that has a large gap below it, into which stacks can grow.
pub const DEEP: u64 = START + 0x100_0000;
/// Number of pages in the part at [`DEEP`].
pub const DEEP_PAGES: u64 = 24;
/// First address of the part that is large enough for huge pages.
pub const HUGE: u64 = START + 0x200_0000;
/// Number of huge pages that fit at [`HUGE`].
pub const HUGE_SLOTS: u64 = 4;
/// First address after all parts of the arena except the heap.
pub const END: u64 = HUGE + HUGE_SLOTS * PMD_SIZE;
/// Symbolic start address of the heap in sequences; the real address differs from run to run.
pub const HEAP: u64 = START + 0x1000_0000;
/// Symbolic end of the range into which the heap may grow.
pub const HEAP_END: u64 = HEAP + 0x20_0000;
/// Symbolic start address of the kernel's special mappings, `[vvar]` to `[vdso]`.
pub const SPECIAL: u64 = HEAP + 0x1000_0000;
/// Symbolic end of the range for special mappings.
pub const SPECIAL_END: u64 = SPECIAL + 0x10_0000;
/// Destination of moved special mappings.
///
/// No step accesses memory near this address, because the kernel determines the content of special
/// mappings.
pub const SPECIAL_TO: u64 = START - 0x5_0000_0000;
/// Address hint for mappings of the hugetlb file.
///
/// No step accesses memory near this address, because the machine may have no free huge page for
/// the file.
pub const POOL: u64 = START - 0x4_0000_0000;
/// Initial number of pages in each file.
pub const FILE_PAGES: u64 = 24;

/// Number of the userfaultfd's descriptor in sequences. Process 0 opens the userfaultfd; a fault in
/// a range that it watches raises SIGBUS.
pub const USERFAULTFD: u64 = 16;
/// Sizes in bytes of the System V shared memory segments, indexed by segment number.
pub const SEGMENTS: [u64; 2] = [6 * PAGE_SIZE, PAGE_SIZE + 100];
/// Address at which process 0 attaches the segments, so that they exist until the last process
/// exits.
pub const KEEP: u64 = START - 0x1_0000_0000;
/// Start address of the filler mappings, which bring the number of VMAs close to the limit.
pub const FILL: u64 = START - 0x8000_0000;

/// Kind of mappable file. Calls identify a file by the index of its kind in [`KINDS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file on disk, open for reading and writing.
    Disk,
    /// A second open file description of [`Disk`](Kind::Disk)'s inode.
    DiskAgain,
    /// A read-only file on disk.
    DiskReadOnly,
    /// A memfd.
    Memfd,
    /// `/dev/zero`.
    Zero,
    /// A `memfd_secret`.
    Secret,
    /// A hugetlb memfd. The machine may have no free huge page for it.
    Huge,
}

/// All kinds, in the order of their file numbers.
pub const KINDS: [Kind; 7] = [
    Kind::Disk,
    Kind::DiskAgain,
    Kind::DiskReadOnly,
    Kind::Memfd,
    Kind::Zero,
    Kind::Secret,
    Kind::Huge,
];
/// Number of file kinds that every machine supports; these kinds come first in [`KINDS`].
pub const PLAIN_KINDS: u64 = 5;
/// File number of [`Kind::Secret`].
pub const SECRET: u64 = 5;
/// File number of [`Kind::Huge`].
pub const HUGE_FILE: u64 = 6;
/// Number of 2 MiB pages in the hugetlb file.
pub const HUGE_FILE_PAGES: u64 = 4;

/// The open files of a sequence.
#[derive(Debug)]
pub struct Files {
    open: Vec<File>,
    /// The `memfd_secret`, which is created anew for each sequence because it cannot be emptied.
    secret: RefCell<Option<OwnedFd>>,
    huge: Option<OwnedFd>,
}

/// Returns the largest size of a file on disk in bytes: the last position to which a file can be set.
pub fn largest_disk_file() -> u64 {
    static LARGEST: OnceLock<u64> = OnceLock::new();
    *LARGEST.get_or_init(|| {
        let Ok(mut file) = tempfile::tempfile() else {
            return i64::MAX as u64;
        };
        // The position below is permitted, the one above is not.
        let (mut below, mut above) = (0, 1 << 63);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            match file.seek(SeekFrom::Start(middle)) {
                Ok(_) => below = middle,
                Err(_) => above = middle,
            }
        }
        below
    })
}

impl Files {
    /// Creates and fills the files.
    ///
    /// # Errors
    /// If the directory for temporary files is not writable.
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

    /// Restores the files' initial content.
    ///
    /// # Errors
    /// If a file cannot be written.
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

    /// Returns the descriptor of file `number`.
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

/// Returns the first eight bytes of page `index` in a file's initial content.
pub fn stamp(kind: Kind, index: u64) -> u64 {
    inode(kind) << 32 | 0x5eed_0000 | index
}

/// Returns the model's inode number for a kind of file.
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

/// Returns an unnamed hugetlb file backed by the machine's pool.
pub fn hugetlb(id: u64) -> types::File {
    types::File {
        inode: id,
        kind: FileKind::Hugetlb,
        ..segment(0, id)
    }
}

/// Returns the file of a System V segment, with the file id `id`.
pub fn segment(number: usize, id: u64) -> types::File {
    types::File::read_write(FileId(id), segment_inode(number), FileKind::SysvShm)
}

/// Returns the model's inode number for a segment.
pub fn segment_inode(number: usize) -> u64 {
    16 + number as u64
}

/// Returns the size in bytes of the segment with this inode number; `None` if no segment has it.
pub fn segment_len(inode: u64) -> Option<u64> {
    let number = inode.checked_sub(segment_inode(0))?;
    SEGMENTS.get(usize::try_from(number).ok()?).copied()
}

/// Returns the number of a file that sequences can map.
pub fn number(file: FileId) -> Option<u64> {
    let number = file.0.checked_sub(1)?;
    (number < KINDS.len() as u64).then_some(number)
}

/// Returns the file with this number as the core's file type.
pub fn file(number: u64) -> Option<types::File> {
    let kind = *KINDS.get(usize::try_from(number).ok()?)?;
    let file_kind = match kind {
        Kind::Memfd => FileKind::Shmem,
        Kind::Zero => FileKind::DevZero,
        Kind::Secret => FileKind::Secret,
        Kind::Huge => FileKind::Hugetlb,
        _ => FileKind::RegularHugeAligned,
    };
    Some(types::File {
        writable: kind != Kind::DiskReadOnly,
        ..types::File::read_write(FileId(number + 1), inode(kind), file_kind)
    })
}
