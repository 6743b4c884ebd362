//! The table of mapped files, which the core identifies by inode number.
//!
//! The core does not report when the last mapping of a file is removed, so this table holds a
//! reference to each mapped file. When an address space is destroyed, `space::sweep` releases the
//! files that no VMA maps and that nothing else refers to.

use super::file_pages::FilePages;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;
use vmarea::types::FileId;

/// A mapped file, together with the path with which it was opened.
struct Kept {
    /// Pages of the file; `None` for a device, which stays in the table.
    pages: Option<Arc<FilePages>>,
    path: String,
}

static KEPT: Mutex<BTreeMap<u64, Kept>> = Mutex::new(BTreeMap::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Returns a new id for an open file description.
pub fn new_id() -> FileId {
    // ORDERING: Relaxed; the id only has to be unique.
    FileId(NEXT_ID.fetch_add(1, Ordering::Relaxed))
}

/// Returns the pages of the mapped file with this inode number.
pub fn file(number: u64) -> Option<Arc<FilePages>> {
    KEPT.lock().get(&number)?.pages.clone()
}

/// Returns the path with which the mapped file with this inode number was opened.
pub fn path(number: u64) -> String {
    KEPT.lock()
        .get(&number)
        .map(|kept| kept.path.clone())
        .unwrap_or_default()
}

/// Adds a file that is about to be mapped to the table; a device has no pages.
pub fn keep(number: u64, pages: Option<&Arc<FilePages>>, path: &str) {
    let kept = Kept {
        pages: pages.cloned(),
        path: path.into(),
    };
    drop(KEPT.lock().insert(number, kept));
}

/// Creates the file behind a shared anonymous mapping.
pub fn create_nameless(number: u64, pages: u64) {
    let kept = Kept {
        pages: Some(Arc::new(FilePages::of_size(pages << 12))),
        path: "/dev/zero (deleted)".into(),
    };
    KEPT.lock().insert(number, kept);
}

/// Returns the inode numbers of the files to which only this table refers.
pub fn only_kept_here() -> BTreeSet<u64> {
    let is_last = |pages: &Arc<FilePages>| Arc::strong_count(pages) == 1;
    let kept = KEPT.lock();
    let kept = kept
        .iter()
        .filter(|(_, kept)| kept.pages.as_ref().is_some_and(is_last));
    kept.map(|(&number, _)| number).collect()
}

/// Removes files from the table, which frees the pages of those to which nothing else refers.
pub fn release(numbers: &BTreeSet<u64>) {
    let mut kept = KEPT.lock();
    let gone: Vec<_> = numbers
        .iter()
        .filter_map(|number| kept.remove(number))
        .collect();
    drop(kept);
    drop(gone);
}
