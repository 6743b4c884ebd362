//! The embedder's interface: frames, their contents, and the types that configure a machine.
//!
//! The core decides which frame holds which page. It calls the platform to allocate, free, fill or
//! copy frames. An embedder that needs no page contents, such as a replay, uses [`NoBytes`];
//! `vmarea-soft-platform` stores real bytes, so that data can be checked.

use crate::types::mmu::{Mmu, NoMmu};
use crate::types::writers::{DefaultWriters, Writers};
use crate::types::{Errno, FrameId, SwapId};
use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use vmarea_sync::{VmaLock, VmaLockKind};

pub use vmarea_sync::{BigReaderLock, Spin, Wait};

/// The types that an embedder chooses for a machine.
///
/// [`Standard`] accepts any platform in a box. An embedder that wants static dispatch to its
/// platform, or another kind of lock, implements this trait for a type of its own.
///
/// ```
/// use vmarea::prelude::*;
/// use vmarea::syscall::mmap::Placement;
/// use vmarea::types::NoBytes;
/// use vmarea::types::mmu::NoMmu;
/// use vmarea::types::platform::Spin;
/// use vmarea::types::writers::Regions;
/// use vmarea::vma::lock::VmaLock;
///
/// /// A kernel in which two CPUs can change one address space at once.
/// #[derive(Debug, Default)]
/// struct Kernel;
///
/// impl Environment for Kernel {
///     type VmaLock = VmaLock;
///     type Platform = NoBytes;
///     type Mmu = NoMmu;
///     type Wait = Spin;
///     type Writers = Regions;
/// }
///
/// let space = Space::<Kernel>::in_environment(Policy::LINUX, System::default(), NoBytes);
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// let map = |cpu| {
///     let placement = Placement::Arena(cpu);
///     space.mmap(mm, &MmapRequest { placement, ..MmapRequest::anonymous(PAGE_SIZE) })
/// };
/// // Each CPU maps in an arena of its own, 4 TiB from the next.
/// assert!(map(0)?.abs_diff(map(1)?) >= 4 << 40);
/// # Ok::<(), Errno>(())
/// ```
pub trait Environment: fmt::Debug + Default + Send + Sync + 'static {
    /// Kind of lock in each VMA.
    type VmaLock: VmaLockKind;
    /// The platform that stores the contents of pages.
    type Platform: Platform;
    /// The hardware page tables and TLBs.
    type Mmu: Mmu;
    /// How a thread waits for `mmap_lock` and for the reverse-map locks.
    type Wait: Wait + fmt::Debug;
    /// Which writers of one address space may run at the same time.
    type Writers: Writers;
}

/// An environment with any platform, spinning locks, a lock of kind `L` in each VMA, and writers of
/// kind `K`.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithVmaLock<L, K = DefaultWriters>(PhantomData<(L, K)>);

/// The standard environment: any platform, spinning locks, and the per-VMA lock that Linux has used
/// since 6.15.
pub type Standard = WithVmaLock<VmaLock>;

impl<L: VmaLockKind, K: Writers> Environment for WithVmaLock<L, K> {
    type VmaLock = L;
    type Platform = Box<dyn Platform>;
    type Mmu = NoMmu;
    type Wait = Spin;
    type Writers = K;
}

/// Storage for the contents of pages.
///
/// No method may call back into the [`Space`](crate::Space), unless its documentation says so; in debug
/// builds whose locks check their order, one that does panics with the method's name.
/// "Under spin locks" means that the
/// caller holds a page-table lock, for which other CPUs may be spinning, so that the method must
/// not sleep. The other methods may sleep if the environment's [`Wait`] sleeps.
///
/// # Errors
/// A method that fails has allocated nothing and changed nothing. A page fault returns
/// [`OutOfMemory`](crate::fault::Faulted::OutOfMemory) for ENOMEM,
/// [`NeedPage`](crate::fault::Faulted::NeedPage) for EAGAIN from `file_bring` and `copy_file`,
/// [`Retry`](crate::fault::Faulted::Retry) for EAGAIN from the other methods, and
/// [`NoPage`](crate::fault::Faulted::NoPage) (SIGBUS) for any other error, for example EIO; a
/// system call returns the error. Charges, counts and entries are left unchanged in either case.
///
/// # Examples
/// The four methods without a default are enough for a machine without swap and files:
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
/// use vmarea::prelude::*;
///
/// /// Memory for `left` more frames.
/// struct Memory {
///     frames: HashMap<FrameId, Vec<u8>>,
///     left: usize,
/// }
///
/// #[derive(Clone)]
/// struct Shared(Arc<Mutex<Memory>>);
///
/// impl Platform for Shared {
///     fn zero(&self, frame: FrameId) -> Result<(), Errno> {
///         let mut memory = self.0.lock().unwrap();
///         memory.left = memory.left.checked_sub(1).ok_or(Errno::ENOMEM)?;
///         memory.frames.insert(frame, vec![0; PAGE_SIZE as usize]);
///         Ok(())
///     }
///
///     fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
///         self.zero(to)?;
///         let mut memory = self.0.lock().unwrap();
///         let bytes = memory.frames[&from].clone();
///         memory.frames.insert(to, bytes);
///         Ok(())
///     }
///
///     fn copy_file(&self, _to: FrameId, _inode: u64, _index: u64) -> Result<(), Errno> {
///         Err(Errno::EIO)
///     }
///
///     fn free(&self, frame: FrameId) {
///         let mut memory = self.0.lock().unwrap();
///         memory.frames.remove(&frame);
///         memory.left += 1;
///     }
/// }
///
/// let memory = Shared(Arc::new(Mutex::new(Memory { frames: HashMap::new(), left: 2 })));
/// let space = Space::with_platform(Policy::LINUX, System::default(), Box::new(memory.clone()));
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
/// assert_eq!(space.fault(mm, at, Access::Write)?, Faulted::Done);
/// let child = space.fork(mm)?;
/// assert_eq!(space.fault(child, at, Access::Write)?, Faulted::Done);
/// // There is no third frame: the fault reports it, and has changed nothing.
/// assert_eq!(space.fault(mm, at + PAGE_SIZE, Access::Write)?, Faulted::OutOfMemory);
/// space.mm_exit(child)?;
/// space.mm_exit(mm)?;
/// assert!(memory.0.lock().unwrap().frames.is_empty());
/// # Ok::<(), Errno>(())
/// ```
pub trait Platform: Send + Sync {
    /// Allocates storage for `frame`, filled with zeros. Under spin locks, except for huge pages.
    fn zero(&self, frame: FrameId) -> Result<(), Errno>;
    /// Allocates storage for the frame `to`, as a copy of the frame `from`. Under spin locks, except
    /// for migration and KSM.
    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno>;
    /// Allocates storage for the frame `to`, as a private copy of page `index` of the file `inode`.
    /// The page is mapped, or has been read in by [`file_bring`](Platform::file_bring). Returns
    /// EAGAIN if the page is no longer in the page cache. Under spin locks.
    fn copy_file(&self, to: FrameId, inode: u64, index: u64) -> Result<(), Errno>;
    /// Frees the storage of a frame. Under spin locks.
    fn free(&self, frame: FrameId);
    /// Checks for KSM whether two frames contain equal bytes. A platform that cannot compare frames
    /// returns false. During the call the frames are mapped read-only, and no page-table lock is
    /// held.
    fn same(&self, one: FrameId, other: FrameId) -> bool {
        let _ = (one, other);
        false
    }
    /// Copies the bytes in a frame to a slot on the swap device. During the call the frame is
    /// mapped read-only, and no page-table lock is held. If the call fails, the page stays mapped.
    ///
    /// This method, `swap_in` and `swap_free` are called only if
    /// [`System::swap`](crate::System::swap) is set.
    fn swap_out(&self, slot: SwapId, frame: FrameId) -> Result<(), Errno> {
        let _ = (slot, frame);
        Ok(())
    }
    /// Allocates storage for `frame` and fills it with the bytes in a swap slot; the slot keeps its
    /// contents. Under spin locks.
    fn swap_in(&self, frame: FrameId, slot: SwapId) -> Result<(), Errno> {
        let _ = (frame, slot);
        Ok(())
    }
    /// Frees the storage of a swap slot. Under spin locks.
    fn swap_free(&self, slot: SwapId) {
        let _ = slot;
    }
    /// Waits for the page in `frame` to be migrated, because a thread needs the page; returns true.
    /// Called with `mmap_lock` or the VMA's lock held for reading; called again if it returns
    /// before the migration has ended. Returns false if the platform does not wait; the access then
    /// returns [`Retry`](crate::fault::Faulted::Retry).
    fn wait_on_migration(&self, frame: FrameId) -> bool {
        let _ = frame;
        false
    }
    /// Creates a nameless file of `pages` pages for a shared anonymous mapping. The core assigns
    /// inode numbers to such files, counting up from
    /// [`FileId::NAMELESS`](crate::types::FileId::NAMELESS); the file is needed until
    /// [`file_released`](Platform::file_released). Called with `mmap_lock` held for writing.
    fn shared_anon(&self, inode: u64, pages: u64) -> Result<(), Errno> {
        let _ = (inode, pages);
        Ok(())
    }
    /// Fills pages `first..end` of a file with zeros, for `MADV_REMOVE`. Called without locks.
    fn punch_hole(&self, inode: u64, first: u64, end: u64) -> Result<(), Errno> {
        let _ = (inode, first, end);
        Ok(())
    }
    /// Checks whether the page cache contains page `index` of a file; if so, a fault on the page is
    /// not reported to a userfaultfd registered for missing pages. Called with `mmap_lock` or the
    /// VMA's lock held for reading.
    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        let _ = (inode, index);
        true
    }
    /// Reads page `index` of a file, which is about to be mapped, into the page cache. Called with
    /// `mmap_lock` or the VMA's lock held for reading. A platform that cannot wait for the read
    /// returns EAGAIN instead; the embedder reads the page in after the fault has returned
    /// [`NeedPage`](crate::fault::Faulted::NeedPage).
    fn file_bring(&self, inode: u64, index: u64) -> Result<(), Errno> {
        let _ = (inode, index);
        Ok(())
    }
    /// Notifies that no shared mapping can write to the file any more. Called without locks; may call
    /// back into the [`Space`](crate::Space). A new mapping may have been made since.
    fn file_unwritable(&self, inode: u64) {
        let _ = inode;
    }
    /// Notifies that nothing uses the file any more: the last mapping has gone, and the embedder
    /// holds no reference ([`Space::file_get`](crate::Space::file_get)). Called without locks; may
    /// call back into the [`Space`](crate::Space). A file of
    /// [`shared_anon`](Platform::shared_anon) can be freed; another one only if
    /// [`Space::file_is_used`](crate::Space::file_is_used) returns false, because another thread may
    /// have mapped it since.
    fn file_released(&self, inode: u64) {
        let _ = inode;
    }
    /// Checks whether page `index` is within the file. An access beyond the end of the file raises
    /// SIGBUS. Called with `mmap_lock` or the VMA's lock held for reading.
    fn file_holds(&self, inode: u64, index: u64) -> bool {
        let _ = (inode, index);
        true
    }
}

impl<P: Platform + ?Sized> Platform for Box<P> {
    fn zero(&self, frame: FrameId) -> Result<(), Errno> {
        (**self).zero(frame)
    }
    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
        (**self).copy(to, from)
    }
    fn copy_file(&self, to: FrameId, inode: u64, index: u64) -> Result<(), Errno> {
        (**self).copy_file(to, inode, index)
    }
    fn free(&self, frame: FrameId) {
        (**self).free(frame);
    }
    fn same(&self, one: FrameId, other: FrameId) -> bool {
        (**self).same(one, other)
    }
    fn swap_out(&self, slot: SwapId, frame: FrameId) -> Result<(), Errno> {
        (**self).swap_out(slot, frame)
    }
    fn swap_in(&self, frame: FrameId, slot: SwapId) -> Result<(), Errno> {
        (**self).swap_in(frame, slot)
    }
    fn swap_free(&self, slot: SwapId) {
        (**self).swap_free(slot);
    }
    fn wait_on_migration(&self, frame: FrameId) -> bool {
        (**self).wait_on_migration(frame)
    }
    fn shared_anon(&self, inode: u64, pages: u64) -> Result<(), Errno> {
        (**self).shared_anon(inode, pages)
    }
    fn punch_hole(&self, inode: u64, first: u64, end: u64) -> Result<(), Errno> {
        (**self).punch_hole(inode, first, end)
    }
    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        (**self).file_is_cached(inode, index)
    }
    fn file_bring(&self, inode: u64, index: u64) -> Result<(), Errno> {
        (**self).file_bring(inode, index)
    }
    fn file_unwritable(&self, inode: u64) {
        (**self).file_unwritable(inode);
    }
    fn file_released(&self, inode: u64) {
        (**self).file_released(inode);
    }
    fn file_holds(&self, inode: u64, index: u64) -> bool {
        (**self).file_holds(inode, index)
    }
}

/// A platform that stores no page contents, for studying address space layouts.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBytes;

impl Platform for NoBytes {
    fn zero(&self, _: FrameId) -> Result<(), Errno> {
        Ok(())
    }
    fn copy(&self, _: FrameId, _: FrameId) -> Result<(), Errno> {
        Ok(())
    }
    fn copy_file(&self, _: FrameId, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn free(&self, _: FrameId) {}
    /// Returns true, as there is nothing to compare: the embedder must request merges only of equal
    /// pages.
    fn same(&self, _: FrameId, _: FrameId) -> bool {
        true
    }
}
