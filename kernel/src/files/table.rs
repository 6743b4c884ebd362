//! `FileTable`: the descriptors of a process.

use super::{Inode, OpenFile};
use crate::failure::Failure;
use crate::space::shrinker;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use linux_raw_sys::errno::{EBADF, EMFILE, ENFILE, ENOMEM};
use spin::Mutex;

/// Maximum number of descriptors per process.
const MAX_DESCRIPTORS: usize = 4096;

/// A descriptor's file, and whether `execve` closes it.
#[derive(Clone, Debug)]
struct Descriptor {
    file: Arc<OpenFile>,
    close_on_exec: bool,
}

/// The descriptors of one process, or of several processes that share the table.
#[derive(Debug)]
pub struct FileTable {
    descriptors: Mutex<Vec<Option<Descriptor>>>,
    /// Number of processes that share the table.
    users: AtomicUsize,
}

impl Default for FileTable {
    fn default() -> Self {
        FileTable {
            descriptors: Mutex::default(),
            users: AtomicUsize::new(1),
        }
    }
}

impl FileTable {
    /// Returns a copy of the table with the same open files.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn copy(&self) -> Result<FileTable, Failure> {
        let descriptors = self.descriptors.lock();
        let mut copy = Vec::new();
        copy.try_reserve_exact(descriptors.len())
            .map_err(|_| ENOMEM)?;
        copy.extend(descriptors.iter().cloned());
        Ok(FileTable {
            descriptors: Mutex::new(copy),
            users: AtomicUsize::new(1),
        })
    }

    /// Increments the number of processes that share the table.
    pub fn share(&self) {
        // ORDERING: Relaxed; only a count.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// True if several processes share the table.
    pub fn is_shared(&self) -> bool {
        // ORDERING: Relaxed; only a count.
        self.users.load(Ordering::Relaxed) > 1
    }

    /// Decrements the number of processes that share the table; closes all files when it reaches 0.
    pub fn release(&self) {
        // ORDERING: AcqRel; the last user sees what the others did.
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            let all = core::mem::take(&mut *self.descriptors.lock());
            drop(all);
        }
    }

    /// Returns the file that a descriptor refers to.
    ///
    /// # Errors
    /// EBADF.
    pub fn get(&self, number: u32) -> Result<Arc<OpenFile>, Failure> {
        let descriptors = self.descriptors.lock();
        let found = descriptors.get(number as usize).and_then(Option::as_ref);
        Ok(Arc::clone(&found.ok_or(EBADF)?.file))
    }

    /// Allocates the lowest free descriptor that is at least `first` for a file.
    ///
    /// # Errors
    /// EMFILE if the process has too many files; ENFILE if the kernel's heap is nearly used up;
    /// ENOMEM.
    pub fn add(
        &self,
        file: Arc<OpenFile>,
        first: u32,
        close_on_exec: bool,
    ) -> Result<u32, Failure> {
        if !shrinker::has_heap() {
            return Err(ENFILE.into());
        }
        let mut descriptors = self.descriptors.lock();
        let is_free = |&at: &usize| descriptors.get(at).is_none_or(Option::is_none);
        let at = (first as usize..MAX_DESCRIPTORS)
            .find(is_free)
            .ok_or(EMFILE)?;
        extend_to(&mut descriptors, at + 1)?;
        descriptors[at] = Some(Descriptor {
            file,
            close_on_exec,
        });
        Ok(at as u32)
    }

    /// Makes the descriptor `at` refer to a file, and closes the file that `at` referred to before.
    ///
    /// # Errors
    /// EBADF if the number is too large; ENOMEM.
    pub fn set(&self, at: u32, file: Arc<OpenFile>, close_on_exec: bool) -> Result<(), Failure> {
        if at as usize >= MAX_DESCRIPTORS {
            return Err(EBADF.into());
        }
        let old = {
            let mut descriptors = self.descriptors.lock();
            extend_to(&mut descriptors, at as usize + 1)?;
            descriptors[at as usize].replace(Descriptor {
                file,
                close_on_exec,
            })
        };
        drop(old);
        Ok(())
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    /// EBADF.
    pub fn close(&self, at: u32) -> Result<(), Failure> {
        let closed = self
            .descriptors
            .lock()
            .get_mut(at as usize)
            .and_then(Option::take);
        match closed {
            Some(_) => Ok(()),
            None => Err(EBADF.into()),
        }
    }

    /// Closes the descriptors that are marked close-on-exec.
    pub fn close_on_exec(&self) {
        let mut closed = Vec::new();
        for descriptor in self.descriptors.lock().iter_mut() {
            closed.extend(descriptor.take_if(|d| d.close_on_exec));
        }
        drop(closed);
    }

    /// Calls `f` with a descriptor's close-on-exec flag.
    ///
    /// # Errors
    /// EBADF.
    pub fn with_close_on_exec<R>(
        &self,
        at: u32,
        f: impl FnOnce(&mut bool) -> R,
    ) -> Result<R, Failure> {
        let mut descriptors = self.descriptors.lock();
        let found = descriptors.get_mut(at as usize).and_then(Option::as_mut);
        Ok(f(&mut found.ok_or(EBADF)?.close_on_exec))
    }

    /// Returns the inodes of the open files.
    pub fn inodes(&self) -> Vec<Arc<Inode>> {
        let descriptors = self.descriptors.lock();
        let open = descriptors.iter().flatten();
        open.filter_map(|d| d.file.inode().cloned()).collect()
    }

    /// Returns the descriptors in use.
    pub fn numbers(&self) -> Vec<u32> {
        let descriptors = self.descriptors.lock();
        let used = descriptors.iter().enumerate().filter(|(_, d)| d.is_some());
        used.map(|(at, _)| at as u32).collect()
    }
}

/// Extends a table to at least `len` descriptors.
///
/// # Errors
/// ENOMEM.
fn extend_to(descriptors: &mut Vec<Option<Descriptor>>, len: usize) -> Result<(), Failure> {
    let missing = len.saturating_sub(descriptors.len());
    descriptors.try_reserve(missing).map_err(|_| ENOMEM)?;
    let len = len.max(descriptors.len());
    descriptors.resize(len, None);
    Ok(())
}
