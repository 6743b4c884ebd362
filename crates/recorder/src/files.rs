//! Inodes and open file descriptions, numbered as they are met.
//!
//! An inode is known by its device, its number and the time at which it was made: a file system
//! gives the number of a deleted file to another one, and nothing is held here that would keep it
//! from that. Which calls map the same open description is found out with [`Held`].
//!
//! # Linux
//! `pidfd_getfd(2)`, `kcmp(2)`, `statx(2)`. `/proc/PID/maps` shows the device of the superblock; on
//! btrfs and overlayfs `stat` answers another one, so there the maps are asked after the call. A
//! System V segment has its own number in the place of an inode number, on the device of all
//! nameless shared memory, so it is told from that by its name.

use super::mapped_files::{Held, Range};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatxFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use vmarea_linux_sys::ptrace::same_description;
use vmarea_process::maps::Mapping;
use vmarea_trace::event::{FileId, FileRef, Inode, InodeId, InodeKind, MmId};

const PAGE: u64 = 4096;
/// Descriptors that are left to other purposes.
const SPARE: u64 = 64;

const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
/// File systems whose `stat` gives another device than their superblock has: btrfs, overlayfs,
/// bcachefs.
const OTHER_DEVICE: [u64; 3] = [0x9123_683e, 0x794c_7630, 0xca45_1a4e];
/// `ST_VALID`, which says that the flags were filled in.
const ST_VALID: u64 = 0x20;

/// A device and an inode number.
pub(crate) type Place = (u64, u64);

/// Set in the device of System V segments.
const SEGMENTS: u64 = 1 << 63;

/// The place of a mapping's file; none for anonymous memory.
pub(crate) fn place_of(mapping: &Mapping) -> Option<Place> {
    if mapping.ino == 0 && mapping.dev == 0 {
        return None;
    }
    let segment = mapping.name.text().starts_with("/SYSV");
    let dev = mapping.dev | if segment { SEGMENTS } else { 0 };
    Some((dev, mapping.ino))
}

/// When an inode was made, where its file system remembers that: seconds and nanoseconds.
type Born = Option<(i64, u32)>;

fn born(fd: impl AsFd) -> Born {
    let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let known = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
    known.then_some((statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec))
}

/// An inode that was met at a place.
#[derive(Clone, Copy, Debug)]
struct Met {
    id: InodeId,
    born: Born,
}

impl Met {
    /// False where the place has been given to another inode meanwhile.
    fn is(&self, born: Born) -> bool {
        self.born.is_none() || born.is_none() || self.born == born
    }
}

/// A descriptor of a call, looked at before the call.
#[derive(Debug)]
pub(crate) struct Opened {
    fd: OwnedFd,
    stat: Stat,
    flags: OFlags,
}

impl Opened {
    /// Looks at a duplicate.
    pub(crate) fn look(fd: OwnedFd) -> Option<Opened> {
        let stat = rustix::fs::fstat(&fd).ok()?;
        let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
        Some(Opened { fd, stat, flags })
    }

    /// True where it was opened for input and output past the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.flags.contains(OFlags::DIRECT)
    }

    fn stat_place(&self) -> Place {
        (maps_dev(self.stat.st_dev), self.stat.st_ino)
    }
}

/// A device number as [`Inode::dev`] has it.
fn maps_dev(dev: u64) -> u64 {
    u64::from(rustix::fs::major(dev)) << 20 | u64::from(rustix::fs::minor(dev))
}

/// The range that a call has mapped a descriptor at.
#[derive(Clone, Debug)]
pub(crate) struct MappedAt {
    pub mm: MmId,
    pub addr: u64,
    /// In bytes, as the call has it.
    pub len: u64,
    pub shared: bool,
}

/// All inodes, and the descriptions that are mapped.
#[derive(Debug)]
pub(crate) struct Files {
    inodes: Vec<Inode>,
    by_maps: HashMap<Place, Met>,
    by_stat: HashMap<Place, Met>,
    /// Descriptions that are mapped now.
    pub held: Held,
    /// Those of each inode, and some that are mapped no more.
    descriptions: HashMap<Place, Vec<FileId>>,
    next_file: u32,
    /// Descriptions that are held at most.
    most: usize,
}

impl Files {
    /// None yet. This process may have as many descriptors from now on as it is allowed to.
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
            held: Held::default(),
            descriptions: HashMap::new(),
            next_file: 0,
            most: usize::try_from(most).unwrap_or(usize::MAX),
        }
    }

    /// What was said of an inode.
    pub(crate) fn inode(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(id.0 as usize - 1)
    }

    /// The inode at a place of `/proc/PID/maps`, where it has this path; `describe` tells more of
    /// it where it is new, or has changed its path.
    pub(crate) fn of_maps(
        &mut self,
        place: Place,
        path: &str,
        describe: impl FnOnce() -> Description,
    ) -> InodeId {
        let met = self.by_maps.get(&place).copied();
        if let Some(met) = met
            && self.inode(met.id).is_some_and(|i| same_path(&i.path, path))
        {
            return met.id;
        }
        let description = describe();
        match met.filter(|met| met.is(description.born)) {
            Some(met) => met.id,
            None => self.meet(place, description).id,
        }
    }

    fn meet(&mut self, place: Place, description: Description) -> Met {
        let born = description.born;
        let id = self.add(place, description);
        let met = Met { id, born };
        self.by_maps.insert(place, met);
        met
    }

    /// The file of a call that is over, and where it was mapped. `in_maps` answers the place that
    /// the maps show for it.
    pub(crate) fn of_call(
        &mut self,
        opened: Opened,
        at: Option<MappedAt>,
        in_maps: impl FnOnce() -> Option<Place>,
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

    /// The segment of a mapping that `shmat` has made: it was opened for just this.
    pub(crate) fn of_segment(&mut self, inode: InodeId, mapping: &Mapping) -> FileRef {
        let size = mapping.end - mapping.start;
        if let Some(known) = self.inodes.get_mut(inode.0 as usize - 1)
            && known.size == 0
        {
            // Only root may look at it; its pages are all mapped.
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

    fn inode_of(&mut self, opened: &Opened, in_maps: impl FnOnce() -> Option<Place>) -> InodeId {
        let seen = opened.stat_place();
        let born = born(&opened.fd);
        let link = || {
            let link = format!("/proc/self/fd/{}", opened.fd.as_raw_fd());
            let path = std::fs::read_link(link).unwrap_or_default();
            path.to_string_lossy().into_owned()
        };
        if let Some(met) = self.by_stat.get(&seen).filter(|met| met.is(born)) {
            // Where no time of birth is known the path tells, but for a file that was renamed.
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
        let place = if other { in_maps() } else { None }.unwrap_or(seen);
        let known = self.by_maps.get(&place).copied();
        let known = known.filter(|met| {
            let path = self.inode(met.id).map(|inode| inode.path.as_str());
            met.is(born) && path.is_some_and(|path| same_path(path, &description.path))
        });
        let met = known.unwrap_or_else(|| self.meet(place, description));
        self.by_stat.insert(seen, Met { born, ..met });
        met.id
    }

    /// The number of a description, which is held from now on where the call has mapped it. It is
    /// [`FileId::UNKNOWN`] where it may be one whose duplicate had to be given up.
    fn description_of(&mut self, opened: Opened, inode: InodeId, at: Option<MappedAt>) -> FileId {
        let place = opened.stat_place();
        let held = &self.held;
        let of_place = self.descriptions.entry(place).or_default();
        of_place.retain(|file| held.is_mapped(*file));
        let same = |file: &FileId| {
            let other = held.duplicate(*file).map(AsFd::as_fd);
            other.is_some_and(|fd| same_description(fd, opened.fd.as_fd()).unwrap_or(false))
        };
        let known = of_place.iter().copied().find(same);
        let Some(at) = at else {
            return known.unwrap_or_else(|| self.new_file());
        };
        let lost = |file: &FileId| held.is_lost_in(at.mm, *file);
        let unknown = known.is_none() && of_place.iter().any(lost);
        let kind = self.inode(inode).map(|i| i.kind);
        let range = mapped_range(&at, kind, &opened.stat);
        // What a driver maps need not be the file that it was asked to map.
        let itself = match kind {
            Some(InodeKind::Device | InodeKind::Other) => false,
            Some(InodeKind::DevZero) => !at.shared,
            _ => true,
        };
        if unknown || !itself {
            self.held.unmap(at.mm, &range);
            return if unknown {
                FileId::UNKNOWN
            } else {
                self.new_file()
            };
        }
        let file = known.unwrap_or_else(|| {
            let file = self.new_file();
            self.held.make_room(self.most);
            self.descriptions.entry(place).or_default().push(file);
            file
        });
        let ino = opened.stat.st_ino;
        self.held.map(at.mm, range, file, || (opened.fd, ino));
        file
    }

    fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file)
    }

    fn add(&mut self, (dev, ino): Place, d: Description) -> InodeId {
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

/// Where a mapping lies, in whole pages of its file.
fn mapped_range(at: &MappedAt, kind: Option<InodeKind>, stat: &Stat) -> Range {
    let page = match kind {
        Some(InodeKind::Hugetlb) => u64::try_from(stat.st_blksize).unwrap_or(PAGE).max(PAGE),
        _ => PAGE,
    };
    let len = at.len.checked_next_multiple_of(page).unwrap_or(at.len);
    at.addr..at.addr.saturating_add(len)
}

/// True for two paths of one file, of which one may have been deleted since.
fn same_path(a: &str, b: &str) -> bool {
    const DELETED: &str = " (deleted)";
    a.strip_suffix(DELETED).unwrap_or(a) == b.strip_suffix(DELETED).unwrap_or(b)
}

/// What an inode is like.
#[derive(Debug)]
pub(crate) struct Description {
    pub kind: InodeKind,
    pub fs_magic: u64,
    pub mount_flags: u64,
    pub size: u64,
    pub path: String,
    born: Born,
}

impl Description {
    /// Of a file that is open.
    pub(crate) fn of_stat(fd: impl AsFd, stat: &Stat, path: String) -> Description {
        let fs = rustix::fs::fstatfs(&fd).ok();
        let fs_magic = fs.map_or(0, |fs| fs.f_type as u64 & 0xffff_ffff);
        Description {
            kind: kind(stat, fs_magic),
            fs_magic,
            mount_flags: fs.map_or(0, |fs| fs.f_flags as u64 & !ST_VALID),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            path,
            born: born(&fd),
        }
    }

    /// Of a file that is mapped: `link` leads to it (`/proc/PID/map_files/...` or its path), and
    /// is believed where it leads to inode `ino`.
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

/// A guess for a file that may not be looked at.
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
