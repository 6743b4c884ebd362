//! Finds the file behind a descriptor, as far as the text shows it.
//!
//! A file is identified by the path that `-y` prints after each descriptor, or else by the path
//! that was opened. Sizes come from `fstat` and `ftruncate` lines, if there are any. Each use of an
//! unknown descriptor counts as a separate file.

use crate::event::{FileId, FileRef, InodeKind, Tid};
use crate::import::classify::kind_of_path;
use crate::import::state::{FileKey, ImportState, Sharing};
use std::collections::HashMap;

/// An open file description.
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
    /// Records that `open` or a variant returned `fd`.
    pub(super) fn open(
        &mut self,
        pid: Tid,
        fd: i32,
        path: String,
        flags: u64,
        state: &mut ImportState,
    ) {
        let kind = kind_of_path(&path);
        let open = Open {
            key: FileKey::Path(path.clone()),
            kind,
            path,
            file: state.open(),
            flags: flags & !O_CLOEXEC,
            close_on_exec: flags & O_CLOEXEC != 0,
        };
        self.put(pid, fd, open);
    }

    /// Records that `memfd_create` returned `fd`.
    pub(super) fn memfd(
        &mut self,
        pid: Tid,
        fd: i32,
        name: &str,
        flags: u64,
        state: &mut ImportState,
    ) {
        const O_RDWR: u64 = 2;
        let open = Open {
            key: state.nameless(),
            kind: InodeKind::Shmem,
            path: format!("/memfd:{name} (deleted)"),
            file: state.open(),
            flags: O_RDWR,
            close_on_exec: flags & MFD_CLOEXEC != 0,
        };
        self.sizes.insert(open.key.clone(), 0);
        self.put(pid, fd, open);
    }

    /// Records that descriptor `to` now refers to the open file description of `from`.
    pub(super) fn duplicate(&mut self, pid: Tid, from: i32, to: i32, flags: u64) {
        let Some(mut open) = self.get(pid, from).cloned() else {
            self.close(pid, to);
            return;
        };
        open.close_on_exec = flags & O_CLOEXEC != 0;
        self.put(pid, to, open);
    }

    /// Records that `fd` was closed.
    pub(super) fn close(&mut self, pid: Tid, fd: i32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.remove(&fd);
        }
    }

    /// Records the size that a call returned or set for the file behind `fd`.
    pub(super) fn size(&mut self, pid: Tid, fd: i32, size: u64) {
        if let Some(key) = self.get(pid, fd).map(|open| open.key.clone()) {
            self.sizes.insert(key, size);
        }
    }

    /// Records a segment that `shmget` returned.
    pub(super) fn segment(&mut self, id: i64, size: u64) {
        self.sizes.insert(FileKey::Segment(id), size);
    }

    /// Returns the file that a call maps. `shown` is the path that the text shows next to `fd`.
    pub(super) fn mapped(
        &mut self,
        pid: Tid,
        fd: i32,
        shown: Option<&str>,
        state: &mut ImportState,
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
            Some(path) if stale => self.open(pid, fd, path, 0, state),
            None if stale => return state.unknown_file(),
            _ => {}
        }
        let open = self.get(pid, fd).cloned();
        let open = open.expect("a descriptor that was not known was opened above");
        self.reference(&open, state)
    }

    /// Returns the segment that `shmat` maps.
    pub(super) fn attached(&mut self, id: i64, state: &mut ImportState) -> FileRef {
        let file = *self.segments.entry(id).or_insert_with(|| state.open());
        let open = Open {
            key: FileKey::Segment(id),
            kind: InodeKind::SharedAnon,
            path: "/SYSV00000000 (deleted)".to_owned(),
            file,
            flags: 2,
            close_on_exec: false,
        };
        self.reference(&open, state)
    }

    /// Copies the descriptors of `parent` to `child`, or shares them if the child is a thread.
    pub(super) fn fork(&mut self, parent: Tid, child: Tid, sharing: Sharing) {
        if sharing != Sharing::Thread {
            let copy = self.processes.get(&parent).cloned().unwrap_or_default();
            self.processes.insert(child, copy);
        }
    }

    /// Closes the descriptors that are marked close-on-exec.
    pub(super) fn exec(&mut self, pid: Tid) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.retain(|_, open| !open.close_on_exec);
        }
    }

    /// Forgets a process that has exited.
    pub(super) fn end(&mut self, pid: Tid) {
        self.processes.remove(&pid);
    }

    fn reference(&self, open: &Open, state: &mut ImportState) -> FileRef {
        let size = self.sizes.get(&open.key).copied().unwrap_or(0);
        FileRef {
            inode: state.inode(&open.key, open.kind, &open.path, size),
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
