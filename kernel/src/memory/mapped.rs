//! The table of mapped files, which the core identifies by inode number.
//!
//! An entry refers to the pages of its file as long as the core uses the file: until
//! `Platform::file_released`, or until the end of a call that was about to map the file at that
//! time (`space::file`).

use super::file_pages::FilePages;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;
use vmarea::types::FileId;

/// A mapped file, together with the path with which it was opened.
struct Kept {
    /// Pages of the file; `None` for a device.
    pages: Option<Arc<FilePages>>,
    path: String,
    /// Number of calls that are about to map the file.
    calls: usize,
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

/// Adds a file to the table before a call maps it; a device has no pages.
pub fn begin(number: u64, pages: Option<&Arc<FilePages>>, path: &str) {
    let new = || Kept {
        pages: pages.cloned(),
        path: path.into(),
        calls: 0,
    };
    KEPT.lock().entry(number).or_insert_with(new).calls += 1;
}

/// Ends what [`begin`] began. The caller then returns its reference to the core, which releases the
/// file if the call has not mapped it.
pub fn end(number: u64) {
    if let Some(kept) = KEPT.lock().get_mut(&number) {
        kept.calls -= 1;
    }
}

/// Creates the file behind a shared anonymous mapping.
pub fn create_nameless(number: u64, pages: u64) {
    let kept = Kept {
        pages: Some(Arc::new(FilePages::of_size(pages << 12))),
        path: "/dev/zero (deleted)".into(),
        calls: 0,
    };
    KEPT.lock().insert(number, kept);
}

/// Removes a file that the core no longer uses, unless a call is about to map it. This frees the
/// pages if nothing else refers to them.
pub fn release(number: u64) {
    let mut table = KEPT.lock();
    let gone = match table.get(&number) {
        Some(kept) if kept.calls == 0 => table.remove(&number),
        _ => None,
    };
    drop(table);
    drop(gone);
}
