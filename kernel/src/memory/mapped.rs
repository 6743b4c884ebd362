//! The table of mapped files, which the core identifies by inode number.
//!
//! The core does not report when the last mapping of a file is removed, so this table holds a
//! reference to each mapped file. When an address space is destroyed, [`sweep`] releases the files
//! that no VMA maps and that nothing else refers to.

use super::Inode;
use super::inode::Device;
use crate::memory::space;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general::{F_SEAL_FUTURE_WRITE, F_SEAL_WRITE};
use spin::{Mutex, RwLock, RwLockReadGuard};
use vmarea::types::{File, FileId, FileKind};

/// A mapped file, together with the path with which it was opened.
struct Kept {
    inode: Arc<Inode>,
    path: String,
}

static KEPT: Mutex<BTreeMap<u64, Kept>> = Mutex::new(BTreeMap::new());
/// Read-locked during a fork, so that a sweep does not overlook the child's mappings.
static FORKS: RwLock<()> = RwLock::new(());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Returns a new id for an open file description.
pub fn new_id() -> FileId {
    // ORDERING: Relaxed; the id only has to be unique.
    FileId(NEXT_ID.fetch_add(1, Ordering::Relaxed))
}

/// Returns the mapped file with this inode number.
pub fn file(number: u64) -> Option<Arc<Inode>> {
    KEPT.lock().get(&number).map(|kept| Arc::clone(&kept.inode))
}

/// Returns the path with which the mapped file with this inode number was opened.
pub fn path(number: u64) -> String {
    KEPT.lock()
        .get(&number)
        .map(|kept| kept.path.clone())
        .unwrap_or_default()
}

/// Adds a file that is about to be mapped to the table, and describes the file to the core.
pub fn keep(
    inode: &Arc<Inode>,
    path: &str,
    id: FileId,
    (readable, writable): (bool, bool),
) -> File {
    let kept = Kept {
        inode: Arc::clone(inode),
        path: path.into(),
    };
    drop(KEPT.lock().insert(inode.number, kept));
    File {
        id,
        inode: inode.number,
        kind: match inode.as_device() {
            Some(Device::Zero) => FileKind::DevZero,
            _ => FileKind::Shmem,
        },
        readable,
        writable,
        noexec: false,
        append_only: false,
        write_sealed: inode.has_seal(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE),
    }
}

/// Creates the file behind a shared anonymous mapping.
pub fn create_nameless(number: u64, pages: u64) {
    let kept = Kept {
        inode: Inode::nameless(number, pages << 12),
        path: "/dev/zero (deleted)".into(),
    };
    KEPT.lock().insert(number, kept);
}

/// Returns a guard that prevents sweeps while an address space is being copied.
pub fn forking() -> RwLockReadGuard<'static, ()> {
    FORKS.read()
}

/// Releases the files that no VMA maps and that nothing else refers to.
pub fn sweep() {
    let Some(_gate) = FORKS.try_write() else {
        return;
    };
    let is_unused =
        |(&number, kept): (&u64, &Kept)| (Arc::strong_count(&kept.inode) == 1).then_some(number);
    let mut unused: BTreeSet<u64> = KEPT.lock().iter().filter_map(is_unused).collect();
    if unused.is_empty() {
        return;
    }
    for mm in crate::memory::mm::all() {
        if let Some(r) = space().mmap_read_lock(mm) {
            r.vmas().filter_map(|vma| vma.body.file).for_each(|file| {
                let number = file.inode;
                unused.remove(&number);
            });
        }
    }
    let mut kept = KEPT.lock();
    let gone: Vec<_> = unused
        .iter()
        .filter_map(|number| kept.remove(number))
        .collect();
    drop(kept);
    drop(gone);
}
