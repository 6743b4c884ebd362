//! Counts of the mappings of each file, and notices when the last mapping of a file has gone.
//!
//! An embedder stores the pages of files by inode number, and has to know when it may free them. The
//! core therefore counts, for each inode, its VMAs and the references that the embedder holds
//! ([`Space::file_get`]). A call that holds `mmap_lock` first adds up what it changes, because most
//! calls change VMAs of one file only; the sum is applied before the lock is released. The files
//! that nothing uses any more form a list, which is walked after the lock has been released, so that
//! the platform may take its time and may call back into the space.
//!
//! # Invariants
//! F1  while no call runs, the counts of an inode are the number of VMAs that map it, and of those
//!     through which it can be written
//! F2  a file with a count above 0 has an entry; other entries are in the list of one guard
//!
//! # Linux
//! `get_file` and `fput` of `vma->vm_file`, `mapping_map_writable`, 6.18.

use crate::Space;
use crate::page::sorted_map::SortedMap;
use crate::types::platform::{Environment, Platform};
use crate::types::violation::ensure;
use crate::types::{Errno, MmId, Violation, VmFlags};
use crate::vma::VmaBody;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vmarea_sync::SpinLock;

/// Number of tables by inode, so that calls on different files rarely wait for each other.
const TABLES: usize = 16;

/// How many VMAs map a file, in all address spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileMappings {
    /// Number of VMAs that map the file.
    pub all: u32,
    /// Number of those through which the file can be written: shared mappings of a file that was
    /// opened for writing, whatever their current protection is.
    #[doc(alias = "i_mmap_writable")]
    pub writable: u32,
}

/// What the core knows about one file.
#[derive(Debug, Default)]
struct Uses {
    mappings: FileMappings,
    /// Number of the embedder's references.
    held: u32,
    /// True if the last writable mapping has gone and the platform has not been told.
    lost_writers: bool,
    /// True if the file is in a guard's list.
    listed: bool,
    /// The next file in that list.
    next: Option<u64>,
}

impl Uses {
    fn is_unused(&self) -> bool {
        self.mappings.all == 0 && self.held == 0
    }

    /// Puts the file into a list if the platform has to be told something.
    fn list(&mut self, inode: u64, list: &mut Option<u64>) {
        if (self.is_unused() || self.lost_writers) && !self.listed {
            self.listed = true;
            self.next = list.replace(inode);
        }
    }
}

/// The uses of all files.
#[derive(Debug, Default)]
pub(crate) struct Files([SpinLock<SortedMap<u64, Uses>>; TABLES]);

impl Files {
    fn table(&self, inode: u64) -> &SpinLock<SortedMap<u64, Uses>> {
        &self.0[inode as usize % TABLES]
    }

    /// Calls `f` with the uses of a file, which are created if there are none.
    fn with_uses(&self, inode: u64, f: impl FnOnce(&mut Uses)) -> Result<(), Errno> {
        self.table(inode).lock().get_or_default(inode).map(f)
    }

    /// Adds to the counts of a file that has a count above 0.
    fn add(&self, inode: u64, change: Change, list: &mut Option<u64>) {
        let mut table = self.table(inode).lock();
        let uses = table.get_mut(inode).expect("the file of a VMA is counted");
        let FileMappings { all, writable } = uses.mappings;
        let sum = |count: u32, more| count.checked_add_signed(more).expect("counted before");
        uses.mappings = FileMappings {
            all: sum(all, change.all),
            writable: sum(writable, change.writable),
        };
        uses.lost_writers |= writable > 0 && uses.mappings.writable == 0;
        uses.list(inode, list);
    }
}

/// A change of the number of VMAs that map a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Change {
    all: i32,
    writable: i32,
}

/// What a call with `mmap_lock` held has changed, and which files nothing uses since.
///
/// The guard of the lock drops this value after it has released the lock.
#[derive(Debug)]
pub(crate) struct FileUses<'s, E: Environment> {
    space: &'s Space<E>,
    /// The file to which `change` applies.
    inode: u64,
    change: Change,
    /// The first file in the list of those about which the platform has to be told.
    list: Option<u64>,
}

impl<'s, E: Environment> FileUses<'s, E> {
    #[inline]
    pub(crate) fn none(space: &'s Space<E>) -> Self {
        FileUses {
            space,
            inode: 0,
            change: Change::default(),
            list: None,
        }
    }

    /// Counts `more` VMAs with this body.
    #[inline]
    pub(crate) fn count(&mut self, body: &VmaBody, more: i32) {
        if let Some(file) = body.file {
            let can_write = body.flags.contains(VmFlags::SHARED_MAYWRITE);
            let writable = if can_write { more } else { 0 };
            self.count_file(
                file.inode,
                Change {
                    all: more,
                    writable,
                },
            );
        }
    }

    fn count_file(&mut self, inode: u64, change: Change) {
        if self.inode != inode {
            self.settle();
            self.inode = inode;
        }
        self.change.all += change.all;
        self.change.writable += change.writable;
    }

    /// Keeps a file in use until the end of the call, which is about to map it.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn keep(&mut self, inode: u64) -> Result<(), Errno> {
        let files = &self.space.files;
        files.with_uses(inode, |uses| uses.mappings.all += 1)?;
        let change = Change {
            all: -1,
            writable: 0,
        };
        self.count_file(inode, change);
        Ok(())
    }

    /// Forgets a file that was kept, but could not be created.
    pub(crate) fn forget(&mut self, inode: u64) {
        self.change = Change::default();
        self.space.files.table(inode).lock().remove(inode);
    }

    /// Applies the changes, before other calls can see the VMAs.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.change != Change::default() {
            self.settle_change();
        }
    }

    fn settle_change(&mut self) {
        let change = core::mem::take(&mut self.change);
        self.space.files.add(self.inode, change, &mut self.list);
    }
}

impl<E: Environment> Drop for FileUses<'_, E> {
    #[inline]
    fn drop(&mut self) {
        if self.list.is_some() {
            self.space.report(self.list);
        }
    }
}

impl<E: Environment> Space<E> {
    /// Tells the platform about the files in a list. The caller holds no lock.
    #[cold]
    fn report(&self, mut list: Option<u64>) {
        while let Some(inode) = list {
            let mut table = self.files.table(inode).lock();
            let Some(uses) = table.get_mut(inode) else {
                return;
            };
            list = uses.next.take();
            uses.listed = false;
            // The file may have been mapped again in the meantime.
            let lost_writers = core::mem::take(&mut uses.lost_writers);
            let unwritable = lost_writers && uses.mappings.writable == 0;
            let released = uses.is_unused();
            if released {
                table.remove(inode);
            }
            drop(table);
            if unwritable {
                self.platform.file_unwritable(inode);
            }
            if released {
                self.platform.file_released(inode);
            }
        }
    }

    /// Takes a reference to a file, so that [`file_released`](Platform::file_released) is not called
    /// for it before [`file_put`](Self::file_put).
    ///
    /// An embedder that keeps a file as long as it is open takes a reference when it opens the file.
    ///
    /// # Errors
    /// ENOMEM.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::types::{File, FileId, FileKind};
    ///
    /// let (inode, id) = (7, FileId(1));
    /// space.file_get(inode)?;
    /// let request = MmapRequest {
    ///     file: Some(File::read_write(id, inode, FileKind::Regular)),
    ///     flags: MapFlags::SHARED,
    ///     ..MmapRequest::anonymous(2 * PAGE_SIZE)
    /// };
    /// let at = space.mmap(mm, &request)?;
    /// space.mprotect(mm, at, PAGE_SIZE, Prot::READ, None)?;
    /// let mappings = space.file_mappings(inode);
    /// assert_eq!((mappings.all, mappings.writable), (2, 2), "it can be made writable again");
    /// space.munmap(mm, at, 2 * PAGE_SIZE)?;
    /// // Here the platform is told that nothing uses the file any more.
    /// space.file_put(inode)?;
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "get_file")]
    pub fn file_get(&self, inode: u64) -> Result<(), Errno> {
        self.files.with_uses(inode, |uses| uses.held += 1)
    }

    /// Returns a reference that [`file_get`](Self::file_get) took; calls
    /// [`file_released`](Platform::file_released) if nothing else uses the file.
    ///
    /// # Errors
    /// EINVAL if there is no such reference.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// let inode = 7;
    /// space.file_get(inode)?;
    /// // When the last descriptor of the file is closed:
    /// space.file_put(inode)?;
    /// assert_eq!(space.file_put(inode), Err(Errno::EINVAL));
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "fput")]
    pub fn file_put(&self, inode: u64) -> Result<(), Errno> {
        let mut list = None;
        let mut table = self.files.table(inode).lock();
        let uses = table.get_mut(inode).ok_or(Errno::EINVAL)?;
        uses.held = uses.held.checked_sub(1).ok_or(Errno::EINVAL)?;
        uses.list(inode, &mut list);
        drop(table);
        self.report(list);
        Ok(())
    }

    /// Returns how many VMAs map a file. A call that maps the file counts as a VMA while it runs.
    ///
    /// [`file_get`](Self::file_get) has an example.
    #[doc(alias = "mapping_writably_mapped")]
    pub fn file_mappings(&self, inode: u64) -> FileMappings {
        let table = self.files.table(inode).lock();
        table
            .get(inode)
            .map(|uses| uses.mappings)
            .unwrap_or_default()
    }

    /// True if a VMA maps the file, a call is about to map it, or the embedder holds a reference.
    ///
    /// [`file_released`](Platform::file_released) can be called late: another thread may have taken a
    /// reference since. An embedder's table of files therefore has a lock and two rules. A thread that
    /// adds a file takes a reference first. `file_released` locks the table, and removes the file only
    /// if it is not in use. If the file came into use again, `file_released` is called again.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// let inode = 7;
    /// space.file_get(inode)?;
    /// assert!(space.file_is_used(inode));
    /// space.file_put(inode)?;
    /// assert!(!space.file_is_used(inode));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn file_is_used(&self, inode: u64) -> bool {
        let table = self.files.table(inode).lock();
        table.get(inode).is_some_and(|uses| !uses.is_unused())
    }

    /// Checks the invariants F1 and F2; no call may run.
    pub(crate) fn check_files(&self) -> Result<(), Violation> {
        let mut counted: BTreeMap<u64, FileMappings> = BTreeMap::new();
        for key in self.mms.keys().collect::<Vec<_>>() {
            let Some(r) = self.mmap_read_lock(MmId(key)) else {
                continue;
            };
            for body in r.vmas().map(|vma| vma.body) {
                if let Some(file) = body.file {
                    let counts = counted.entry(file.inode).or_default();
                    let can_write = body.flags.contains(VmFlags::SHARED_MAYWRITE);
                    counts.all += 1;
                    counts.writable += u32::from(can_write);
                }
            }
        }
        for table in &self.files.0 {
            let table = table.lock();
            for inode in table.keys() {
                let Some(uses) = table.get(inode) else {
                    continue;
                };
                let found = counted.remove(&inode).unwrap_or_default();
                ensure!(
                    uses.mappings == found,
                    "F1: file {inode:#x} has {:?}, not {found:?}",
                    uses.mappings
                );
                ensure!(!uses.is_unused(), "F2: nothing uses the file {inode:#x}");
            }
        }
        ensure!(counted.is_empty(), "F2: files are not counted: {counted:?}");
        Ok(())
    }
}
