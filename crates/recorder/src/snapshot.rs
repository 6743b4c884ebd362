//! Looks at an address space while its task is stopped: `/proc/PID/maps` and the kernel's view.
//!
//! Both are read one after the other and matched by range; where other threads run meanwhile they
//! may differ, and a mapping that only one of them shows keeps no kernel part. Pointers of the
//! kernel become numbers that mean nothing but equality.

use super::files::{Description, Files, place_of};
use std::collections::HashMap;
use std::io;
use vmarea_process::maps::{self, MapName, Mapping};
use vmarea_process::system;
use vmarea_process::view::{KernelView, View, ViewVma};
use vmarea_trace::event::{
    InodeId, KernelVma, MmId, MmInfo, Nanos, Reason, SnapKind, SnapVma, Snapshot,
};

/// What looks are taken with.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    kernel: Option<KernelView>,
    view: View,
    anon_vmas: Numbers,
    files: Numbers,
}

/// Small numbers for pointers.
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

/// Whether other threads may change what is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Still {
    /// All users of the address space are stopped.
    Yes,
    /// Some may run.
    No,
}

/// What to look at, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// A stopped thread that uses it.
    pub tid: i32,
    /// Its thread group.
    pub pid: i32,
    /// Its number in the trace.
    pub mm: MmId,
    /// Why.
    pub reason: Reason,
    /// Whether it holds still.
    pub still: Still,
}

impl Looks {
    /// Looks with the kernel's view, or without it.
    pub(crate) fn new(kernel: Option<KernelView>) -> Looks {
        Looks {
            kernel,
            ..Looks::default()
        }
    }

    /// Takes a look at time `t`.
    ///
    /// # Errors
    /// Those of [`maps::read`]; `NotFound` where the thread has no mappings left.
    pub(crate) fn take(
        &mut self,
        subject: Subject,
        t: Nanos,
        files: &mut Files,
    ) -> io::Result<Snapshot> {
        let Subject { tid, pid, mm, .. } = subject;
        let mappings = maps::read(tid)?;
        if mappings.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut info = system::mm_info(tid);
        let seen = match &self.kernel {
            Some(kernel) => kernel.read(pid, &mut self.view).is_ok(),
            None => false,
        };
        if seen {
            self.view.mm.fill(&mut info);
        }
        let vmas = self.vmas(tid, &mappings, seen, files);
        Ok(Snapshot {
            mm,
            reason: subject.reason,
            t,
            exact: subject.still == Still::Yes,
            info: Some(info).filter(|info| *info != MmInfo::default()),
            vmas,
        })
    }

    fn vmas(
        &mut self,
        tid: i32,
        mappings: &[Mapping],
        seen: bool,
        files: &mut Files,
    ) -> Vec<SnapVma> {
        let in_kernel: &[ViewVma] = if seen { &self.view.vmas } else { &[] };
        let mut vmas = Vec::with_capacity(mappings.len());
        for mapping in mappings.iter().filter(|m| !is_vsyscall(m)) {
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

fn is_vsyscall(mapping: &Mapping) -> bool {
    matches!(&mapping.name, MapName::Special(name) if name == "[vsyscall]")
}

/// The inode of a mapping.
pub(super) fn inode(tid: i32, mapping: &Mapping, files: &mut Files) -> Option<InodeId> {
    let place = place_of(mapping)?;
    let (start, end) = (mapping.start, mapping.end);
    let path = mapping.name.text();
    Some(files.of_maps(place, &path, || {
        let link = format!("/proc/{tid}/map_files/{start:x}-{end:x}");
        let named = matches!(mapping.name.kind(), SnapKind::Named(_));
        let described = Description::of_mapped(&link, mapping.ino, &path);
        if described.fs_magic != 0 || named {
            return described;
        }
        // Only root may follow the link; anybody may look at a path.
        let path_there = mapping.name.path().unwrap_or_default();
        let link = format!("/proc/{tid}/root{}", path_there.to_string_lossy());
        Description::of_mapped(&link, mapping.ino, &path)
    }))
}
