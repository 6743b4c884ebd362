//! The release of mapped files that no VMA maps any more.

use super::space;
use crate::memory::mapped;
use spin::{RwLock, RwLockReadGuard};

/// Read-locked during a fork, so that a sweep does not overlook the child's mappings.
static FORKS: RwLock<()> = RwLock::new(());

/// Returns a guard that prevents sweeps while an address space is being copied.
pub fn forking() -> RwLockReadGuard<'static, ()> {
    FORKS.read()
}

/// Releases the files that no VMA maps and that nothing else refers to.
pub fn sweep() {
    let Some(_gate) = FORKS.try_write() else {
        return;
    };
    let mut unused = mapped::only_kept_here();
    if unused.is_empty() {
        return;
    }
    for mm in super::all() {
        if let Some(r) = space().mmap_read_lock(mm) {
            r.vmas().filter_map(|vma| vma.body.file).for_each(|file| {
                let number = file.inode;
                unused.remove(&number);
            });
        }
    }
    mapped::release(&unused);
}
