//! A file that a call is about to map.

use super::space;
use crate::memory::file_pages::FilePages;
use crate::memory::mapped;
use alloc::sync::Arc;
use vmarea::types::Errno;

/// Keeps a file in use until it is dropped, at the end of the call.
#[derive(Debug)]
#[must_use = "the file may be released when this value is dropped"]
pub struct InUse(u64);

impl InUse {
    /// Takes a reference to the file with this inode number; a device has no pages.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(number: u64, pages: Option<&Arc<FilePages>>, path: &str) -> Result<InUse, Errno> {
        space().file_get(number)?;
        mapped::add(number, pages, path);
        Ok(InUse(number))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let _ = space().file_put(self.0);
    }
}
