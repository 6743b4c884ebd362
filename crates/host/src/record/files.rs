//! Inodes and open file descriptions, numbered as they are met.
//!
//! Whether two mappings are of one description decides whether they merge, and no number tells:
//! so a duplicate of each description that was mapped is kept for a while and compared with
//! later ones. A duplicate delays the last close. For a description that can write that could be
//! noticed (`ETXTBSY`), so those are let go before any program is executed, and all of an address
//! space with it.
//!
//! # Linux
//! `pidfd_getfd(2)`, `kcmp(2)`. `/proc/PID/maps` shows the device of the superblock; on btrfs and
//! overlayfs `stat` answers another one, so there the maps are asked after the call.

use crate::sys::ptrace::same_description;
use rustix::fs::{FileType, OFlags, Stat};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use vmarea_trace::event::{FileId, FileRef, Inode, InodeId, InodeKind, MmId};

/// Duplicates that are kept at most.
const KEPT: usize = 256;

const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
/// File systems whose `stat` gives another device than their superblock has: btrfs, overlayfs,
/// bcachefs.
const OTHER_DEVICE: [u64; 3] = [0x9123_683e, 0x794c_7630, 0xca45_1a4e];
/// `ST_VALID`, which says that the flags were filled in.
const ST_VALID: u64 = 0x20;

/// A device and an inode number.
pub(crate) type Place = (u64, u64);

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

#[derive(Debug)]
struct Kept {
    file: FileId,
    place: Place,
    fd: OwnedFd,
    writable: bool,
    mm: MmId,
}

/// All inodes and the descriptions that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Files {
    inodes: Vec<Inode>,
    by_maps: HashMap<Place, InodeId>,
    by_stat: HashMap<Place, InodeId>,
    kept: VecDeque<Kept>,
    next_file: u32,
}

impl Files {
    /// What was said of an inode.
    pub(crate) fn inode(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(id.0 as usize - 1)
    }

    /// The inode at a place of `/proc/PID/maps`; `describe` tells more of it when it is new.
    pub(crate) fn of_maps(
        &mut self,
        place: Place,
        describe: impl FnOnce() -> Description,
    ) -> InodeId {
        match self.by_maps.get(&place) {
            Some(id) => *id,
            None => {
                let id = self.add(place, describe());
                self.by_maps.insert(place, id);
                id
            }
        }
    }

    /// The file of a call that is over. `in_maps` answers the place that the maps show for it.
    pub(crate) fn of_call(
        &mut self,
        opened: Opened,
        mm: MmId,
        in_maps: impl FnOnce() -> Option<Place>,
    ) -> FileRef {
        let seals = rustix::fs::fcntl_get_seals(&opened.fd).map_or(0, |s| s.bits());
        let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
        let open_flags = opened.flags.bits();
        let inode = self.inode_of(&opened, in_maps);
        let file = self.description_of(opened, mm);
        FileRef {
            inode,
            file,
            open_flags,
            seals,
            size,
        }
    }

    fn inode_of(&mut self, opened: &Opened, in_maps: impl FnOnce() -> Option<Place>) -> InodeId {
        let seen = opened.stat_place();
        if let Some(id) = self.by_stat.get(&seen) {
            return *id;
        }
        let link = format!("/proc/self/fd/{}", opened.fd.as_raw_fd());
        let path = std::fs::read_link(link).unwrap_or_default();
        let path = path.to_string_lossy().into_owned();
        let description = Description::of_stat(&opened.fd, &opened.stat, path);
        let other = OTHER_DEVICE.contains(&description.fs_magic);
        let place = if other { in_maps() } else { None }.unwrap_or(seen);
        let id = self.of_maps(place, || description);
        self.by_stat.insert(seen, id);
        id
    }

    fn description_of(&mut self, opened: Opened, mm: MmId) -> FileId {
        let place = opened.stat_place();
        for kept in self.kept.iter_mut().filter(|k| k.place == place) {
            if same_description(kept.fd.as_fd(), opened.fd.as_fd()).unwrap_or(false) {
                kept.mm = mm;
                return kept.file;
            }
        }
        self.next_file += 1;
        let file = FileId(self.next_file);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Kept {
            file,
            place,
            writable: !opened.flags.intersection(OFlags::RWMODE).is_empty(),
            fd: opened.fd,
            mm,
        });
        file
    }

    fn add(&mut self, (dev, ino): Place, d: Description) -> InodeId {
        let id = InodeId(u32::try_from(self.inodes.len() + 1).unwrap_or(u32::MAX));
        self.inodes.push(Inode {
            id,
            dev,
            ino,
            kind: d.kind,
            fs_magic: d.fs_magic,
            mount_flags: d.mount_flags,
            size: d.size,
            path: d.path,
        });
        id
    }

    /// Lets go of what could keep a program from being executed.
    pub(crate) fn before_exec(&mut self) {
        self.kept.retain(|k| !k.writable);
    }

    /// Lets go of the descriptions of an address space that has ended.
    pub(crate) fn mm_ended(&mut self, mm: MmId) {
        self.kept.retain(|k| k.mm != mm);
    }
}

/// What an inode is like.
#[derive(Debug)]
pub(crate) struct Description {
    pub kind: InodeKind,
    pub fs_magic: u64,
    pub mount_flags: u64,
    pub size: u64,
    pub path: String,
}

impl Description {
    /// Of a file that is open.
    pub(crate) fn of_stat(fd: impl AsFd, stat: &Stat, path: String) -> Description {
        let fs = rustix::fs::fstatfs(fd).ok();
        let fs_magic = fs.map_or(0, |fs| fs.f_type as u64 & 0xffff_ffff);
        Description {
            kind: kind(stat, fs_magic),
            fs_magic,
            mount_flags: fs.map_or(0, |fs| fs.f_flags as u64 & !ST_VALID),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            path,
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
