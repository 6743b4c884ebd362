//! Inodes and open file descriptions, numbered in the order in which the recorder first sees them.
//!
//! An inode is identified by its device, its number and its creation time: a file system reuses
//! the number of a deleted file, and the recorder keeps nothing open that would prevent reuse.
//! [`MappedFiles`] determines which calls map the same open file description.
//!
//! # Linux
//! `pidfd_getfd(2)`, `kcmp(2)`, `statx(2)`. `/proc/PID/maps` shows the device of the superblock. On
//! btrfs and overlayfs `stat` returns another device, so for files on them the recorder reads the
//! maps after the call. For a System V segment the maps show the segment's identifier as the inode
//! number, on the device that all unnamed shared memory uses; the name of the mapping distinguishes
//! the segment from other files.

use super::creation::{BirthTime, KnownInode, Mapped, birth_time, may_be_same};
use super::mapped_files::{MappedFiles, Range};
use crate::RecordError;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use vmarea_linux_sys::PAGE;
use vmarea_linux_sys::ptrace::same_description;
use vmarea_process::maps::MapsEntry;
use vmarea_trace::event::{FileId, FileRef, Inode, InodeId, InodeKind, MmId, SnapVma};

/// Number of descriptors reserved for purposes other than duplicates of the program's descriptors.
const SPARE: u64 = 64;

const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
const OVERLAYFS: u64 = 0x794c_7630;
/// File systems whose `stat` returns a device other than the superblock's.
///
/// The file systems are btrfs, overlayfs and bcachefs.
const OTHER_DEVICE: [u64; 3] = [0x9123_683e, OVERLAYFS, 0xca45_1a4e];
/// Flag `ST_VALID` of `statfs`: the kernel filled in the flags.
const ST_VALID: u64 = 0x20;

/// Device and inode number.
pub(crate) type InodeKey = (u64, u64);

/// Bit that is set in the device number of System V shared memory segments.
const SEGMENTS: u64 = 1 << 63;

/// Returns the inode key of a mapping's file; `None` for anonymous memory.
pub(crate) fn inode_key(mapping: &MapsEntry) -> Option<InodeKey> {
    if mapping.ino == 0 && mapping.dev == 0 {
        return None;
    }
    let segment = mapping.name.text().starts_with("/SYSV");
    let dev = mapping.dev | if segment { SEGMENTS } else { 0 };
    Some((dev, mapping.ino))
}

/// Duplicate of the descriptor passed to a call, examined before the call runs.
#[derive(Debug)]
pub(crate) struct Opened {
    fd: OwnedFd,
    stat: Stat,
    flags: OFlags,
}

impl Opened {
    /// Reads the properties of a duplicated descriptor.
    pub(crate) fn inspect(fd: OwnedFd) -> Option<Opened> {
        let stat = rustix::fs::fstat(&fd).ok()?;
        let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
        Some(Opened { fd, stat, flags })
    }

    /// True if the file was opened for I/O that bypasses the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.flags.contains(OFlags::DIRECT)
    }

    fn stat_key(&self) -> InodeKey {
        (maps_dev(self.stat.st_dev), self.stat.st_ino)
    }
}

/// Converts a device number to the form of [`Inode::dev`].
fn maps_dev(dev: u64) -> u64 {
    u64::from(rustix::fs::major(dev)) << 20 | u64::from(rustix::fs::minor(dev))
}

/// Address range that a call mapped from a descriptor.
#[derive(Clone, Debug)]
pub(crate) struct MappedAt {
    pub mm: MmId,
    pub addr: u64,
    /// Length in bytes, from the call's argument.
    pub len: u64,
    pub shared: bool,
}

/// How open file descriptions are identified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Identified {
    /// By a duplicate of the descriptor, which [`MappedFiles`] keeps.
    ByDuplicate,
    /// By the kernel's address of the description, in the record of the call.
    ByRecord,
}

/// All inodes, and the open file descriptions that are mapped.
#[derive(Debug)]
pub(crate) struct Files {
    inodes: Vec<Inode>,
    by_maps: HashMap<InodeKey, KnownInode>,
    by_stat: HashMap<InodeKey, KnownInode>,
    /// Descriptions that are currently mapped.
    pub mapped: MappedFiles,
    /// Descriptions of each inode, including some whose mappings no longer exist.
    descriptions: HashMap<InodeKey, Vec<Mapped>>,
    next_file: u32,
    /// Maximum number of duplicates to keep open.
    most: usize,
    /// Whether a record of the call identifies the description, instead of a duplicate.
    identified: Identified,
}

/// True if a recording can still open the files that it needs besides its rings.
pub(crate) fn are_left() -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let open = std::fs::read_dir("/proc/self/fd").map_or(u64::MAX, |files| files.count() as u64);
    open.saturating_add(SPARE) <= limit
}

/// Returns the error for a process whose rings need `descriptors`.
pub(crate) fn too_many(descriptors: usize) -> RecordError {
    RecordError::TooManyFiles {
        needed: descriptors as u64 + 2 * SPARE,
        limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    }
}

impl Files {
    /// Creates an empty set. Raises this process's limit on open files to the hard limit.
    pub(crate) fn new() -> Files {
        let mut limit = getrlimit(Resource::Nofile);
        let wanted = Rlimit {
            current: limit.maximum,
            ..limit
        };
        if setrlimit(Resource::Nofile, wanted).is_ok() {
            limit = wanted;
        }
        let most = limit.current.unwrap_or(u64::MAX).saturating_sub(SPARE) / 2;
        Files {
            inodes: Vec::new(),
            by_maps: HashMap::new(),
            by_stat: HashMap::new(),
            mapped: MappedFiles::default(),
            descriptions: HashMap::new(),
            next_file: 0,
            identified: Identified::ByDuplicate,
            most: usize::try_from(most).unwrap_or(usize::MAX),
        }
    }

    /// From now on, leaves it to the caller to identify descriptions.
    pub(crate) fn identify_by_record(&mut self) {
        self.identified = Identified::ByRecord;
    }

    /// Returns the data of an inode.
    pub(crate) fn inode(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(id.0 as usize - 1)
    }

    /// True if mappings of the file map a file below it, so that the kernel does not join a new
    /// mapping with its neighbour.
    pub(crate) fn is_stacked(&self, id: InodeId) -> bool {
        self.inode(id)
            .is_some_and(|inode| inode.fs_magic == OVERLAYFS)
    }

    /// Returns the inode that `/proc/PID/maps` shows with this key and path.
    ///
    /// `describe` supplies the data of an inode that is new or whose path has changed.
    pub(crate) fn of_maps(
        &mut self,
        key: InodeKey,
        path: &str,
        describe: impl FnOnce() -> Description,
    ) -> InodeId {
        let met = self.by_maps.get(&key).copied();
        if let Some(met) = met
            && self.inode(met.id).is_some_and(|i| same_path(&i.path, path))
        {
            return met.id;
        }
        let description = describe();
        match met.filter(|met| met.is(description.born)) {
            Some(met) => met.id,
            None => self.number(key, description).id,
        }
    }

    fn number(&mut self, key: InodeKey, description: Description) -> KnownInode {
        let born = description.born;
        let id = self.add(key, description);
        let met = KnownInode { id, born };
        self.by_maps.insert(key, met);
        met
    }

    /// Returns the file that a finished call used. Records range `at` if the call mapped the file.
    ///
    /// `in_maps` returns the key that `/proc/PID/maps` shows for the file.
    pub(crate) fn of_call(
        &mut self,
        opened: Opened,
        at: Option<MappedAt>,
        in_maps: impl FnOnce() -> Option<InodeKey>,
    ) -> FileRef {
        let seals = rustix::fs::fcntl_get_seals(&opened.fd).map_or(0, |s| s.bits());
        let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
        let open_flags = opened.flags.bits();
        let inode = self.inode_of(&opened, in_maps);
        let file = self.description_of(opened, inode, at);
        FileRef {
            inode,
            file,
            open_flags,
            seals,
            size,
        }
    }

    /// Returns the file of a segment or ring, with a new description for each mapping.
    pub(crate) fn of_segment(&mut self, inode: InodeId, mapping: &MapsEntry) -> FileRef {
        let size = mapping.end - mapping.start;
        if let Some(known) = self.inodes.get_mut(inode.0 as usize - 1)
            && known.size == 0
        {
            // Only root may call `stat` on the segment. All of its pages are mapped.
            known.size = size;
        }
        FileRef {
            inode,
            file: self.new_file(),
            open_flags: OFlags::RDWR.bits(),
            seals: 0,
            size,
        }
    }

    fn inode_of(&mut self, opened: &Opened, in_maps: impl FnOnce() -> Option<InodeKey>) -> InodeId {
        let seen = opened.stat_key();
        let born = birth_time(&opened.fd);
        let link = || {
            let link = format!("/proc/self/fd/{}", opened.fd.as_raw_fd());
            let path = std::fs::read_link(link).unwrap_or_default();
            path.to_string_lossy().into_owned()
        };
        if let Some(met) = self.by_stat.get(&seen).filter(|met| met.is(born)) {
            // Without creation times, the paths are compared, which fails for a renamed file.
            let known = met.born.is_some() && born.is_some();
            if known
                || self
                    .inode(met.id)
                    .is_some_and(|i| same_path(&i.path, &link()))
            {
                return met.id;
            }
        }
        let description = Description::of_stat(&opened.fd, &opened.stat, link());
        let other = OTHER_DEVICE.contains(&description.fs_magic);
        let key = if other { in_maps() } else { None }.unwrap_or(seen);
        let known = self.by_maps.get(&key).copied();
        let known = known.filter(|met| {
            let path = self.inode(met.id).map(|inode| inode.path.as_str());
            met.is(born) && path.is_some_and(|path| same_path(path, &description.path))
        });
        let met = known.unwrap_or_else(|| self.number(key, description));
        self.by_stat.insert(seen, KnownInode { born, ..met });
        met.id
    }

    /// Returns the id of a description. The duplicate stays open if the call has mapped the
    /// description.
    ///
    /// Returns [`FileId::UNKNOWN`] if the description may be one whose duplicate was closed early, or
    /// if a record of the call identifies it.
    fn description_of(&mut self, opened: Opened, inode: InodeId, at: Option<MappedAt>) -> FileId {
        let kind = self.inode(inode).map(|i| i.kind);
        let itself = at.as_ref().is_none_or(|at| maps_itself(kind, at.shared));
        if self.identified == Identified::ByRecord {
            return match itself {
                true => FileId::UNKNOWN,
                false => self.new_file(),
            };
        }
        let key = opened.stat_key();
        let born = birth_time(&opened.fd);
        let mapped = &self.mapped;
        let in_maps = self.inode(inode).map(|inode| (inode.dev, inode.ino));
        let adopted = in_maps.filter(|in_maps| *in_maps != key);
        let adopted = adopted.and_then(|in_maps| self.descriptions.get(&in_maps));
        let adopted = adopted.cloned().unwrap_or_default();
        let of_key = self.descriptions.entry(key).or_default();
        of_key.retain(|known| mapped.is_mapped(known.file));
        let same = |file: &FileId| {
            let other = mapped.duplicate(*file).map(AsFd::as_fd);
            other.is_some_and(|fd| same_description(fd, opened.fd.as_fd()).unwrap_or(false))
        };
        let known = of_key.iter().map(|known| known.file).find(same);
        let Some(at) = at else {
            return known.unwrap_or_else(|| self.new_file());
        };
        let lost =
            |known: &Mapped| may_be_same(known.born, born) && mapped.is_lost_in(at.mm, known.file);
        let unknown = known.is_none() && of_key.iter().chain(&adopted).any(lost);
        let range = mapped_range(&at, kind, &opened.stat);
        if unknown || !itself {
            self.mapped.unmap(at.mm, &range);
            return if unknown {
                FileId::UNKNOWN
            } else {
                self.new_file()
            };
        }
        let file = known.unwrap_or_else(|| {
            let file = self.new_file();
            self.mapped.make_room(self.most);
            let of_key = self.descriptions.entry(key).or_default();
            of_key.push(Mapped { file, born });
            file
        });
        let ino = opened.stat.st_ino;
        self.mapped.map(at.mm, range, file, || (opened.fd, ino));
        file
    }

    /// Records the files that an address space maps already.
    ///
    /// Their descriptions are unknown: a call that maps one of these files again may use the same
    /// description or another one.
    pub(crate) fn adopt(&mut self, mm: MmId, vmas: &[SnapVma]) {
        let mut files: HashMap<InodeId, FileId> = HashMap::new();
        for vma in vmas {
            let Some(id) = vma.inode else { continue };
            let Some(inode) = self.inode(id) else {
                continue;
            };
            let (kind, key) = (inode.kind, (inode.dev, inode.ino));
            if !matches!(
                kind,
                InodeKind::Regular | InodeKind::Shmem | InodeKind::Hugetlb
            ) {
                continue;
            }
            let file = *files.entry(id).or_insert_with(|| {
                self.next_file += 1;
                let file = FileId(self.next_file);
                let born = None;
                let of_key = self.descriptions.entry(key).or_default();
                of_key.push(Mapped { file, born });
                file
            });
            self.mapped.adopt(mm, vma.start..vma.end, file, key.1);
        }
    }

    fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file)
    }

    fn add(&mut self, (dev, ino): InodeKey, d: Description) -> InodeId {
        let id = InodeId(u32::try_from(self.inodes.len() + 1).unwrap_or(u32::MAX));
        self.inodes.push(Inode {
            id,
            dev: dev & !SEGMENTS,
            ino,
            kind: d.kind,
            fs_magic: d.fs_magic,
            mount_flags: d.mount_flags,
            size: d.size,
            path: d.path,
        });
        id
    }
}

/// False if a driver may map a different file from the one passed to the call.
pub(crate) fn maps_itself(kind: Option<InodeKind>, shared: bool) -> bool {
    match kind {
        Some(InodeKind::Device | InodeKind::Other) => false,
        Some(InodeKind::DevZero | InodeKind::SharedAnon) => !shared,
        _ => true,
    }
}

/// Returns the address range of a mapping, rounded up to whole pages of the mapped file.
fn mapped_range(at: &MappedAt, kind: Option<InodeKind>, stat: &Stat) -> Range {
    let page = match kind {
        Some(InodeKind::Hugetlb) => u64::try_from(stat.st_blksize).unwrap_or(PAGE).max(PAGE),
        _ => PAGE,
    };
    let len = at.len.checked_next_multiple_of(page).unwrap_or(at.len);
    at.addr..at.addr.saturating_add(len)
}

/// True if two paths name the same file, even if it was deleted after one of them was read.
fn same_path(a: &str, b: &str) -> bool {
    const DELETED: &str = " (deleted)";
    a.strip_suffix(DELETED).unwrap_or(a) == b.strip_suffix(DELETED).unwrap_or(b)
}

/// Properties of an inode, as needed for an event.
#[derive(Debug)]
pub(crate) struct Description {
    pub kind: InodeKind,
    pub fs_magic: u64,
    pub mount_flags: u64,
    pub size: u64,
    pub path: String,
    born: BirthTime,
}

impl Description {
    /// Reads the properties of an open file.
    pub(crate) fn of_stat(fd: impl AsFd, stat: &Stat, path: String) -> Description {
        let fs = rustix::fs::fstatfs(&fd).ok();
        let fs_magic = fs.map_or(0, |fs| fs.f_type as u64 & 0xffff_ffff);
        Description {
            kind: kind(stat, fs_magic),
            fs_magic,
            mount_flags: fs.map_or(0, |fs| fs.f_flags as u64 & !ST_VALID),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            path,
            born: birth_time(&fd),
        }
    }

    /// Reads the properties of a mapped file.
    ///
    /// `link` (`/proc/PID/map_files/...` or the file's path) is used only if it leads to inode
    /// `ino`.
    pub(crate) fn of_mapped(link: &str, ino: u64, path: &str) -> Description {
        let shared_anon = path == "/dev/zero (deleted)"
            || path.starts_with("/SYSV") && path.ends_with(" (deleted)");
        let open = || {
            let fd = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, 0.into()).ok()?;
            let stat = rustix::fs::fstat(&fd).ok()?;
            (stat.st_ino == ino).then(|| Description::of_stat(&fd, &stat, path.to_owned()))
        };
        let mut description = open().unwrap_or_else(|| Description {
            kind: kind_of_path(path),
            fs_magic: 0,
            mount_flags: 0,
            size: 0,
            path: path.to_owned(),
            born: None,
        });
        if shared_anon && description.kind != InodeKind::Hugetlb {
            description.kind = InodeKind::SharedAnon;
        }
        description
    }
}

fn kind(stat: &Stat, fs_magic: u64) -> InodeKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => match fs_magic {
            TMPFS => InodeKind::Shmem,
            HUGETLBFS => InodeKind::Hugetlb,
            _ => InodeKind::Regular,
        },
        FileType::CharacterDevice => {
            let rdev = stat.st_rdev;
            match (rustix::fs::major(rdev), rustix::fs::minor(rdev)) {
                (1, 5) => InodeKind::DevZero,
                _ => InodeKind::Device,
            }
        }
        _ => InodeKind::Other,
    }
}

/// Guesses the kind of a file that the recorder is not permitted to open.
fn kind_of_path(path: &str) -> InodeKind {
    if path.starts_with("/memfd:") {
        InodeKind::Shmem
    } else if path.starts_with("/anon_hugepage") {
        InodeKind::Hugetlb
    } else if path == "/dev/zero" {
        InodeKind::DevZero
    } else if path.starts_with("/dev/") {
        InodeKind::Device
    } else if path.starts_with('/') {
        InodeKind::Regular
    } else {
        InodeKind::Other
    }
}
