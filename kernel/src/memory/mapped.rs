//! The table of mapped files, which the core identifies by inode number.
//!
//! An entry refers to the pages of its file as long as the core counts a use of the file. A call that
//! is about to map the file counts as one (`space::file`).

use super::file_pages::FilePages;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::{Mutex, Once};
use vmarea::types::FileId;

/// A mapped file, together with the path with which it was opened.
struct Kept {
    /// Pages of the file; `None` for a device.
    pages: Option<Arc<FilePages>>,
    path: String,
}

static KEPT: Mutex<BTreeMap<u64, Kept>> = Mutex::new(BTreeMap::new());
static IS_USED: Once<fn(u64) -> bool> = Once::new();
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

/// Adds a file to the table; a device has no pages. The caller holds a reference to the file.
pub fn add(number: u64, pages: Option<&Arc<FilePages>>, path: &str) {
    let new = || Kept {
        pages: pages.cloned(),
        path: path.into(),
    };
    KEPT.lock().entry(number).or_insert_with(new);
}

/// Creates the file behind a shared anonymous mapping.
pub fn create_nameless(number: u64, pages: u64) {
    let kept = Kept {
        pages: Some(Arc::new(FilePages::of_size(pages << 12))),
        path: "/dev/zero (deleted)".into(),
    };
    KEPT.lock().insert(number, kept);
}

/// Sets the core's answer to the question whether a file is in use.
pub fn set_is_used(is_used: fn(u64) -> bool) {
    IS_USED.call_once(|| is_used);
}

/// Removes a file unless it is in use again. This frees the pages if nothing else refers to them.
pub fn release(number: u64) {
    let mut table = KEPT.lock();
    let gone = match IS_USED.get() {
        Some(is_used) if !is_used(number) => table.remove(&number),
        _ => None,
    };
    drop(table);
    drop(gone);
}
