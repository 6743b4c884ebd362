//! The files of a trace as the core sees them, and other objects that calls identify by number.
//!
//! The other objects are System V shared memory segments, userfaultfd contexts and the address
//! spaces of threads.

use std::collections::HashMap;
use std::num::NonZeroU32;
use vmarea::types::{Errno, File, FileId, FileKind, PMD_SIZE};
use vmarea_trace::event::{
    FileId as TraceFile, FileRef, Inode, InodeId, InodeKind, MmId, Snapshot, Tid,
};

/// Default huge page size in bytes, for calls that do not specify a size.
pub(super) const HUGE_PAGE: u64 = PMD_SIZE;

/// Files, shared memory segments and userfaultfd contexts in a trace.
#[derive(Debug, Default)]
pub struct Files {
    inodes: HashMap<InodeId, Inode>,
    /// Number of nameless files so far. A nameless file has no number in the trace: it backs
    /// anonymous huge pages, or its open file description is unknown.
    nameless_files: u64,
    /// Inode that the kernel showed for each nameless file, by the file's number in the replay.
    pub(crate) nameless: HashMap<u64, InodeId>,
    /// Size in bytes of each System V segment, by inode.
    pub(super) segments: HashMap<u64, u64>,
    /// Userfaultfd contexts by descriptor, each with the address space for which it was created.
    contexts: HashMap<(MmId, i32), (NonZeroU32, MmId)>,
    last_context: u32,
    /// Length in bytes of each ring of asynchronous I/O, by its address.
    pub(super) rings: HashMap<(MmId, u64), u64>,
    tasks: HashMap<Tid, MmId>,
}

/// First file id for files that the kernel's view identifies.
pub(super) const BY_VIEW: u64 = 1 << 40;
/// First file number for nameless files, above all file numbers in a trace.
const NAMELESS: u64 = 1 << 48;

/// Magic number of the `memfd_secret` file system.
const SECRETMEM: u64 = 0x5345_434d;
/// File systems that align their mappings to huge pages: ext4, btrfs, xfs, bcachefs.
const HUGE_ALIGNED: [u64; 4] = [0xef53, 0x9123_683e, 0x5846_5342, 0xca45_1a4e];
/// Other file systems with regular files that can be mapped: tmpfs, overlayfs, f2fs, squashfs,
/// iso9660, vfat.
const ORDINARY: [u64; 6] = [
    0x0102_1994,
    0x794c_7630,
    0xf2f5_2010,
    0x7371_7368,
    0x9660,
    0x4d44,
];
/// Magic numbers of pseudo file systems, whose files may have their own `mmap` handler: proc,
/// sysfs, debugfs, tracefs.
const DRIVERS: [u64; 4] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163];

const ST_NOEXEC: u64 = 8;
const O_ACCMODE: u32 = 3;
const F_SEAL_WRITE: u32 = 8;
const F_SEAL_FUTURE_WRITE: u32 = 16;

impl Files {
    /// Records a file.
    pub fn inode(&mut self, inode: &Inode) {
        // A segment may have been attached before the recording.
        if inode.path.starts_with("/SYSV") && inode.size != 0 {
            self.segments.insert(u64::from(inode.id.0), inode.size);
        }
        self.inodes.insert(inode.id, inode.clone());
    }

    /// Returns the recorded attributes of a file.
    pub fn get(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(&id)
    }

    /// True if the file is the ring of `io_setup`.
    pub(super) fn is_ring(&self, id: InodeId) -> bool {
        self.get(id).is_some_and(|i| i.path.starts_with("/[aio]"))
    }

    /// Records the rings in a list of mappings, which may be older than the recording.
    pub(super) fn rings_in(&mut self, list: &Snapshot) {
        for vma in &list.vmas {
            if vma.inode.is_some_and(|inode| self.is_ring(inode)) {
                let ring = self.rings.entry((list.mm, vma.start));
                ring.or_insert(vma.end.saturating_sub(vma.start));
            }
        }
    }

    /// Returns the trace's number for a file of the replay; `None` if it has none, or none yet.
    pub(super) fn recorded(&self, inode: u64) -> Option<InodeId> {
        match self.nameless.get(&inode) {
            Some(shown) => Some(*shown),
            None if Files::is_nameless(inode) => None,
            None => u32::try_from(inode).ok().map(InodeId),
        }
    }

    /// True if the file is nameless: its number was assigned by the replay or by the core.
    pub fn is_nameless(inode: u64) -> bool {
        inode >= NAMELESS
    }

    /// Records the address space of a thread.
    pub(super) fn task(&mut self, tid: Tid, mm: MmId) {
        self.tasks.insert(tid, mm);
    }

    pub(super) fn mm_of(&self, tid: Tid) -> Option<MmId> {
        self.tasks.get(&tid).copied()
    }

    /// Copies the userfaultfd descriptors of `parent` to `child`, as fork does.
    pub(super) fn fork(&mut self, parent: MmId, child: MmId) {
        let of_parent = |((mm, fd), context): (&(MmId, i32), &(NonZeroU32, MmId))| {
            (*mm == parent).then_some(((child, *fd), *context))
        };
        let copied: Vec<_> = self.contexts.iter().filter_map(of_parent).collect();
        self.contexts.extend(copied);
    }

    /// Records a new userfaultfd. If another userfaultfd still has the same descriptor number, its
    /// closing was not recorded, and the new userfaultfd replaces it.
    pub(super) fn new_context(&mut self, mm: MmId, fd: i32) {
        self.last_context += 1;
        if let Some(number) = NonZeroU32::new(self.last_context) {
            self.contexts.insert((mm, fd), (number, mm));
        }
    }

    /// Returns the context of a userfaultfd and the address space that it watches.
    ///
    /// Returns `None` if the process got the descriptor in a way that is not recorded.
    pub(super) fn context(&self, mm: MmId, fd: i32) -> Option<(NonZeroU32, MmId)> {
        self.contexts.get(&(mm, fd)).copied()
    }

    /// Returns the kind of the file, which determines how it can be mapped.
    pub fn kind(&self, id: InodeId) -> FileKind {
        let Some(inode) = self.get(id) else {
            return FileKind::Regular;
        };
        match inode.kind {
            InodeKind::Regular if HUGE_ALIGNED.contains(&inode.fs_magic) => {
                FileKind::RegularHugeAligned
            }
            InodeKind::Regular if DRIVERS.contains(&inode.fs_magic) => FileKind::Device,
            InodeKind::Regular if inode.fs_magic == SECRETMEM => FileKind::Secret,
            InodeKind::Regular => FileKind::Regular,
            InodeKind::Shmem => FileKind::Shmem,
            InodeKind::SharedAnon if inode.path.starts_with("/SYSV") => FileKind::SysvShm,
            InodeKind::SharedAnon => FileKind::SharedAnon,
            InodeKind::Hugetlb => FileKind::Hugetlb,
            InodeKind::DevZero => FileKind::DevZero,
            InodeKind::Device | InodeKind::Other => FileKind::Device,
        }
    }

    /// Returns the open file that a call refers to.
    pub(super) fn file(&mut self, r: &FileRef) -> File {
        let mode = r.open_flags & O_ACCMODE;
        let noexec = self
            .get(r.inode)
            .is_some_and(|i| i.mount_flags & ST_NOEXEC != 0);
        let id = match (r.file, r.file.in_view()) {
            (TraceFile::UNKNOWN, _) => self.next_nameless(),
            (_, Some(number)) => FileId(BY_VIEW + number),
            (file, None) => FileId(u64::from(file.0)),
        };
        File {
            id,
            inode: u64::from(r.inode.0),
            kind: self.kind(r.inode),
            readable: mode != 1,
            writable: mode != 0,
            noexec,
            append_only: false,
            write_sealed: r.seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) != 0,
        }
    }

    /// Creates the hugetlb file of one anonymous mapping.
    pub(super) fn nameless_huge(&mut self) -> File {
        let id = self.next_nameless();
        File::read_write(id, id.0, FileKind::Hugetlb)
    }

    pub(super) fn next_nameless(&mut self) -> FileId {
        self.nameless_files += 1;
        FileId(NAMELESS + self.nameless_files)
    }

    /// Returns the call's error if only the driver determines whether the file can be mapped.
    ///
    /// Returns `None` if files of this kind can always be mapped.
    pub(super) fn refused_by_file(&self, r: &FileRef, ret: i64) -> Option<Errno> {
        let inode = self.get(r.inode)?;
        match inode.kind {
            InodeKind::Shmem | InodeKind::SharedAnon | InodeKind::DevZero => None,
            InodeKind::Hugetlb => self.refused_by_pool(ret),
            InodeKind::Regular
                if HUGE_ALIGNED.contains(&inode.fs_magic) || ORDINARY.contains(&inode.fs_magic) =>
            {
                None
            }
            InodeKind::Regular | InodeKind::Device | InodeKind::Other => errno(ret),
        }
    }

    /// Returns `ENOMEM` if the call failed with it: traces do not record the huge page pool.
    pub(super) fn refused_by_pool(&self, ret: i64) -> Option<Errno> {
        errno(ret).filter(|errno| *errno == Errno::ENOMEM)
    }
}

fn errno(ret: i64) -> Option<Errno> {
    let refused = (-4095..0).contains(&ret);
    Errno::from_number(-ret as i32).filter(|_| refused)
}

#[cfg(test)]
mod tests {
    use super::super::{Replayer, Report};
    use super::*;
    use vmarea_trace::event::{
        Call, Event, Header, MmStart, Order, Origin, Perms, SnapKind, SnapReason, SnapVma,
    };
    use vmarea_trace::sysno;

    const THERE: u64 = 0x7f00_0000_0000;
    const MM: MmId = MmId(1);

    /// Returns the file of a mapping with this name.
    fn file(kind: InodeKind, path: &str) -> Inode {
        Inode {
            id: InodeId(1),
            dev: 1,
            ino: 9,
            kind,
            fs_magic: 0x0102_1994,
            mount_flags: 0,
            size: 56,
            path: path.to_owned(),
        }
    }

    fn mapping() -> SnapVma {
        let perms = Perms {
            read: true,
            write: true,
            exec: false,
            shared: true,
        };
        SnapVma {
            start: THERE,
            end: THERE + 4096,
            perms,
            offset: 0,
            inode: Some(InodeId(1)),
            kind: SnapKind::Plain,
            kernel: None,
        }
    }

    fn list(reason: SnapReason, vmas: Vec<SnapVma>) -> Event {
        Event::Snapshot(Snapshot {
            mm: MM,
            reason,
            t: 0,
            exact: true,
            info: None,
            vmas,
        })
    }

    /// Replays the end of a mapping that is older than the recording, by a call with its address.
    fn ended(file: Inode, nr: u32) -> Report {
        let ends = Call {
            tid: Tid(1),
            mm: MM,
            nr,
            args: [THERE, 0, 0, 0, 0, 0],
            ret: 0,
            t: 0,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        };
        let (mm, origin) = (MM, Origin::Attach);
        let events = [
            Event::Inode(file),
            Event::MmStart(MmStart { mm, origin, t: 0 }),
            list(SnapReason::Attach, vec![mapping()]),
            Event::Call(ends),
            list(SnapReason::Exit, Vec::new()),
        ];
        let header = Header {
            page_size: 4096,
            ..Header::default()
        };
        Replayer::report(&header, &events)
    }

    #[test]
    fn what_was_mapped_before_the_recording_is_unmapped() {
        let segment = file(InodeKind::SharedAnon, "/SYSV009a499a (deleted)");
        let ring = file(InodeKind::Other, "/[aio] (deleted)");
        for (file, nr) in [(segment, sysno::SHMDT), (ring, sysno::IO_DESTROY)] {
            let report = ended(file, nr);
            assert_eq!(report.verify.results_compared, 1, "{report:?}");
            assert_eq!(report.verify.differences, 0, "{report:?}");
            assert_eq!(report.verify.undecided, 0, "{report:?}");
        }
    }
}
