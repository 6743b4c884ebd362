//! Which file a descriptor is, as far as the text tells.
//!
//! Files are known by the path with which they were opened, or better by the path that `-y`
//! prints behind each descriptor. Sizes come from `fstat` and `ftruncate` lines, where there are
//! any. A descriptor of which nothing is known is a file of its own each time.

use crate::event::{FileId, FileRef, InodeKind, Tid};
use crate::import::shaping::kind_of_path;
use crate::import::world::{FileKey, Kin, World};
use std::collections::HashMap;

/// An open description.
#[derive(Clone, Debug)]
pub(super) struct Open {
    key: FileKey,
    kind: InodeKind,
    path: String,
    file: FileId,
    flags: u64,
    close_on_exec: bool,
}

const O_CLOEXEC: u64 = 0o2000000;
const MFD_CLOEXEC: u64 = 1;

/// Descriptors of all processes.
#[derive(Debug, Default)]
pub(super) struct Files {
    processes: HashMap<Tid, HashMap<i32, Open>>,
    sizes: HashMap<FileKey, u64>,
    segments: HashMap<i64, FileId>,
}

impl Files {
    /// `open` and its kin have given `fd`.
    pub(super) fn open(&mut self, pid: Tid, fd: i32, path: String, flags: u64, world: &mut World) {
        let kind = kind_of_path(&path);
        let open = Open {
            key: FileKey::Path(path.clone()),
            kind,
            path,
            file: world.open(),
            flags: flags & !O_CLOEXEC,
            close_on_exec: flags & O_CLOEXEC != 0,
        };
        self.put(pid, fd, open);
    }

    /// `memfd_create` has given `fd`.
    pub(super) fn memfd(&mut self, pid: Tid, fd: i32, name: &str, flags: u64, world: &mut World) {
        const O_RDWR: u64 = 2;
        let open = Open {
            key: world.nameless(),
            kind: InodeKind::Shmem,
            path: format!("/memfd:{name} (deleted)"),
            file: world.open(),
            flags: O_RDWR,
            close_on_exec: flags & MFD_CLOEXEC != 0,
        };
        self.sizes.insert(open.key.clone(), 0);
        self.put(pid, fd, open);
    }

    /// `to` is now the description of `from`.
    pub(super) fn duplicate(&mut self, pid: Tid, from: i32, to: i32, flags: u64) {
        let Some(mut open) = self.get(pid, from).cloned() else {
            self.close(pid, to);
            return;
        };
        open.close_on_exec = flags & O_CLOEXEC != 0;
        self.put(pid, to, open);
    }

    /// `fd` is no longer open.
    pub(super) fn close(&mut self, pid: Tid, fd: i32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.remove(&fd);
        }
    }

    /// The size of the file behind `fd` was told or set.
    pub(super) fn size(&mut self, pid: Tid, fd: i32, size: u64) {
        if let Some(key) = self.get(pid, fd).map(|open| open.key.clone()) {
            self.sizes.insert(key, size);
        }
    }

    /// `shmget` has given a segment.
    pub(super) fn segment(&mut self, id: i64, size: u64) {
        self.sizes.insert(FileKey::Segment(id), size);
    }

    /// The file that a call maps. `shown` is the path that the text shows beside `fd`.
    pub(super) fn mapped(
        &mut self,
        pid: Tid,
        fd: i32,
        shown: Option<&str>,
        world: &mut World,
    ) -> FileRef {
        let shown = shown
            .filter(|path| path.starts_with('/'))
            .map(str::to_owned);
        let stale = match (self.get(pid, fd), &shown) {
            (None, _) => true,
            (Some(open), Some(path)) => open.path != *path && open.kind != InodeKind::Shmem,
            (Some(_), None) => false,
        };
        match shown {
            Some(path) if stale => self.open(pid, fd, path, 0, world),
            None if stale => return world.unknown_file(),
            _ => {}
        }
        let open = self.get(pid, fd).cloned();
        let open = open.expect("a descriptor that was not known was opened above");
        self.reference(&open, world)
    }

    /// The file that `shmat` maps.
    pub(super) fn attached(&mut self, id: i64, world: &mut World) -> FileRef {
        let file = *self.segments.entry(id).or_insert_with(|| world.open());
        let open = Open {
            key: FileKey::Segment(id),
            kind: InodeKind::SharedAnon,
            path: "/SYSV00000000 (deleted)".to_owned(),
            file,
            flags: 2,
            close_on_exec: false,
        };
        self.reference(&open, world)
    }

    /// `child` has the descriptors of `parent`; a thread shares them.
    pub(super) fn fork(&mut self, parent: Tid, child: Tid, kin: Kin) {
        if kin != Kin::Thread {
            let copy = self.processes.get(&parent).cloned().unwrap_or_default();
            self.processes.insert(child, copy);
        }
    }

    /// `execve` closes what was marked so.
    pub(super) fn exec(&mut self, pid: Tid) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.retain(|_, open| !open.close_on_exec);
        }
    }

    /// The process is gone.
    pub(super) fn end(&mut self, pid: Tid) {
        self.processes.remove(&pid);
    }

    fn reference(&self, open: &Open, world: &mut World) -> FileRef {
        let size = self.sizes.get(&open.key).copied().unwrap_or(0);
        FileRef {
            inode: world.inode(&open.key, open.kind, &open.path, size),
            file: open.file,
            open_flags: open.flags as u32,
            seals: 0,
            size,
        }
    }

    fn get(&self, pid: Tid, fd: i32) -> Option<&Open> {
        self.processes.get(&pid)?.get(&fd)
    }

    fn put(&mut self, pid: Tid, fd: i32, open: Open) {
        self.processes.entry(pid).or_default().insert(fd, open);
    }
}
