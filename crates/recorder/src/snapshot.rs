//! Snapshots of a stopped task's address space: `/proc/PID/maps` and the kernel's view.
//!
//! The recorder reads the two sources one after the other and matches them by range. The two
//! sources can differ if other threads run in between; a mapping that only `/proc/PID/maps`
//! contains is recorded without kernel data. The trace replaces kernel pointers by small numbers
//! that can only be compared for equality.

use super::clock::clock;
use super::files::{Description, Files, inode_key};
use std::collections::HashMap;
use std::io;
use vmarea_process::maps::{self, MapsEntry};
use vmarea_process::system;
use vmarea_process::view::{KernelView, View, ViewVma};
use vmarea_trace::event::{
    FileId, InodeId, KernelVma, MmId, MmInfo, Nanos, SnapKind, SnapReason, SnapVma, Snapshot,
};

/// Takes snapshots, replacing the kernel pointers in them with small numbers.
#[derive(Debug, Default)]
pub(crate) struct Snapshotter {
    kernel: Option<KernelView>,
    view: View,
    anon_vmas: Numbers,
    files: Numbers,
    read_between: (Nanos, Nanos),
}

/// Small numbers that represent kernel pointers.
#[derive(Debug, Default)]
struct Numbers(HashMap<u64, u64>);

impl Numbers {
    fn of(&mut self, pointer: u64) -> u64 {
        if pointer == 0 {
            return 0;
        }
        let next = self.0.len() as u64 + 1;
        *self.0.entry(pointer).or_insert(next)
    }
}

/// Whether all users of the address space are stopped during a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AllStopped {
    /// All users of the address space are stopped.
    Yes,
    /// Some users may run.
    No,
}

/// The address space to take a snapshot of, and the reason for the snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// Id of a stopped thread that uses the address space.
    pub tid: i32,
    /// Thread group of the thread.
    pub pid: i32,
    /// Id of the address space in the trace.
    pub mm: MmId,
    /// Reason for the snapshot.
    pub reason: SnapReason,
    /// Whether all users of the address space are stopped.
    pub all_stopped: AllStopped,
}

impl Snapshotter {
    /// Creates a snapshotter that reads the kernel's view through `kernel`, if given.
    pub(crate) fn new(kernel: Option<KernelView>) -> Snapshotter {
        Snapshotter {
            kernel,
            ..Snapshotter::default()
        }
    }

    /// True if snapshots include the kernel's view.
    pub(crate) fn reads_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    /// Returns the times before and after the reading of the mappings for the last snapshot.
    pub(crate) fn read_between(&self) -> (Nanos, Nanos) {
        self.read_between
    }

    /// Returns the id of the open file description at a kernel's address, as snapshots show it.
    pub(crate) fn file(&mut self, pointer: u64) -> FileId {
        match self.files.of(pointer) {
            0 => FileId::UNKNOWN,
            number => FileId::of_view(number),
        }
    }

    /// Takes a snapshot at time `t`.
    ///
    /// # Errors
    /// The errors of [`maps::read`]; `NotFound` if the thread has no mappings any more.
    pub(crate) fn take(
        &mut self,
        subject: Subject,
        t: Nanos,
        files: &mut Files,
    ) -> io::Result<Snapshot> {
        let Subject { tid, mm, .. } = subject;
        // The two lists are read directly one after the other, because the program may be running.
        let begun = clock();
        let mappings = maps::read(tid)?;
        if mappings.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let seen = match &self.kernel {
            Some(kernel) => kernel.read_thread(tid, &mut self.view).is_ok(),
            None => false,
        };
        self.read_between = (begun, clock());
        let mut info = system::mm_info(tid);
        if seen {
            self.view.mm.fill(&mut info);
        }
        let vmas = self.vmas(tid, &mappings, seen, files);
        Ok(Snapshot {
            mm,
            reason: subject.reason,
            t,
            exact: subject.all_stopped == AllStopped::Yes,
            info: Some(info).filter(|info| *info != MmInfo::default()),
            vmas,
        })
    }

    fn vmas(
        &mut self,
        tid: i32,
        mappings: &[MapsEntry],
        seen: bool,
        files: &mut Files,
    ) -> Vec<SnapVma> {
        let in_kernel: &[ViewVma] = if seen { &self.view.vmas } else { &[] };
        let mut vmas = Vec::with_capacity(mappings.len());
        for mapping in mappings.iter().filter(|m| !m.is_vsyscall()) {
            let kernel = in_kernel
                .binary_search_by_key(&mapping.start, |v| v.start)
                .ok()
                .map(|at| in_kernel[at])
                .filter(|v| v.end == mapping.end);
            vmas.push(SnapVma {
                start: mapping.start,
                end: mapping.end,
                perms: mapping.perms,
                offset: mapping.offset,
                inode: inode(tid, mapping, files),
                kind: mapping.name.kind(),
                kernel: kernel.map(|v| KernelVma {
                    pgoff: v.pgoff,
                    flags: v.flags,
                    anon_vma: self.anon_vmas.of(v.anon_vma),
                    root: self.anon_vmas.of(v.root),
                    chain_singular: v.chain_singular,
                    file: self.files.of(v.file),
                    policy: v.policy.is_some_and(|p| p != 0),
                }),
            });
        }
        vmas
    }
}

/// Returns the inode of a mapping.
pub(super) fn inode(tid: i32, mapping: &MapsEntry, files: &mut Files) -> Option<InodeId> {
    let key = inode_key(mapping)?;
    let (start, end) = (mapping.start, mapping.end);
    let path = mapping.name.text();
    Some(files.of_maps(key, &path, || {
        let link = format!("/proc/{tid}/map_files/{start:x}-{end:x}");
        let named = matches!(mapping.name.kind(), SnapKind::Named(_));
        let described = Description::of_mapped(&link, mapping.ino, &path);
        if described.fs_magic != 0 || named {
            return described;
        }
        // Only root may follow the link; every user may `stat` a path.
        let path_there = mapping.name.path().unwrap_or_default();
        let link = format!("/proc/{tid}/root{}", path_there.to_string_lossy());
        Description::of_mapped(&link, mapping.ino, &path)
    }))
}
