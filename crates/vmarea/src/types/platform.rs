//! The interface to the embedder: frames, their contents, and the types that configure a machine.
//!
//! The core decides which frame holds which page. The platform is notified when a frame is
//! allocated, freed, filled or copied. A replay needs no contents and uses [`NoBytes`]; the
//! software platform stores real bytes, so that data can be checked.

use crate::types::mmu::{Mmu, NoMmu};
use crate::types::{Errno, FrameId, SwapId};
use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use vmarea_sync::{VmaLock, VmaLockKind};

pub use vmarea_sync::{Spin, Wait};

/// The types that an embedder chooses for a machine.
///
/// [`Standard`] accepts any platform in a box. An embedder that wants static calls to its platform,
/// or another kind of lock, implements this trait for its own type.
pub trait Environment: fmt::Debug + Default + Send + Sync + 'static {
    /// Kind of lock in each VMA.
    type VmaLock: VmaLockKind;
    /// Platform that stores the pages.
    type Platform: Platform;
    /// Hardware page tables and TLBs.
    type Mmu: Mmu;
    /// Method by which a thread waits for `mmap_lock` and for the reverse map's locks.
    type Wait: Wait + fmt::Debug;
}

/// An environment with any platform, spinning locks, and a lock of the kind `L` in each VMA.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithVmaLock<L>(PhantomData<L>);

/// The standard environment: any platform, spinning locks, and the per-VMA lock of Linux since
/// 6.15.
pub type Standard = WithVmaLock<VmaLock>;

impl<L: VmaLockKind> Environment for WithVmaLock<L> {
    type VmaLock = L;
    type Platform = Box<dyn Platform>;
    type Mmu = NoMmu;
    type Wait = Spin;
}

/// Storage for the contents of pages.
///
/// No method may call back into the [`Space`](crate::Space). "Under spin locks" means that the
/// caller holds a page-table lock, which other CPUs spin for: the method must not sleep. The other
/// methods may sleep if the environment's [`Wait`] sleeps.
///
/// # Errors
/// A method that fails has allocated nothing and changed nothing. A page fault answers
/// [`OutOfMemory`](crate::fault::Faulted::OutOfMemory) to ENOMEM,
/// [`NeedPage`](crate::fault::Faulted::NeedPage) to EAGAIN from `file_bring` and `copy_file`,
/// [`Retry`](crate::fault::Faulted::Retry) to EAGAIN from the other methods, and
/// [`NoPage`](crate::fault::Faulted::NoPage) (SIGBUS) to any other error, for example EIO; a system
/// call returns the error. Either leaves charges, counts and entries as they were.
pub trait Platform: Send + Sync {
    /// Allocates storage for `frame`, filled with zeros. Under spin locks, except for huge pages.
    fn zero(&self, frame: FrameId) -> Result<(), Errno>;
    /// Allocates storage for the frame `to`, as a copy of the frame `from`. Under spin locks, except
    /// for migration and KSM.
    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno>;
    /// Allocates storage for the frame `to`, as a private copy of page `index` of the file `inode`,
    /// which is mapped or was brought by [`file_bring`](Platform::file_bring). Under spin locks; if
    /// the page is not in the page cache any more, returns EAGAIN.
    fn copy_file(&self, to: FrameId, inode: u64, index: u64) -> Result<(), Errno>;
    /// Frees the storage of a frame. Under spin locks.
    fn free(&self, frame: FrameId);
    /// Checks whether two frames hold equal bytes, for KSM. A platform that cannot tell returns
    /// false. The frames are mapped read-only meanwhile; no page-table lock is held.
    fn same(&self, one: FrameId, other: FrameId) -> bool {
        let _ = (one, other);
        false
    }
    /// Copies the bytes of a frame to a slot of the swap device. The frame is mapped read-only
    /// meanwhile; no page-table lock is held. If it fails, the page stays mapped.
    ///
    /// This method, `swap_in` and `swap_free` are called only if
    /// [`System::swap`](crate::System::swap) is set.
    fn swap_out(&self, slot: SwapId, frame: FrameId) -> Result<(), Errno> {
        let _ = (slot, frame);
        Ok(())
    }
    /// Allocates storage for `frame`, with the bytes of a swap slot. The slot keeps its bytes.
    /// Under spin locks.
    fn swap_in(&self, frame: FrameId, slot: SwapId) -> Result<(), Errno> {
        let _ = (frame, slot);
        Ok(())
    }
    /// Frees the storage of a swap slot. Under spin locks.
    fn swap_free(&self, slot: SwapId) {
        let _ = slot;
    }
    /// Waits until the migration of the page in `frame`, which a thread needs, may have ended. This
    /// method is called with `mmap_lock` or the VMA's lock held for reading, and is called again if
    /// the migration has not ended. Returns false if the platform does not wait; the access then
    /// returns [`Retry`](crate::fault::Faulted::Retry).
    fn wait_on_migration(&self, frame: FrameId) -> bool {
        let _ = frame;
        false
    }
    /// Creates the nameless file of a shared anonymous mapping, with a size of `pages` pages. The
    /// core assigns the file's inode number, counting up from
    /// [`FileId::NAMELESS`](crate::types::FileId::NAMELESS). Called with `mmap_lock` held for
    /// writing.
    fn shared_anon(&self, inode: u64, pages: u64) -> Result<(), Errno> {
        let _ = (inode, pages);
        Ok(())
    }
    /// Fills the pages `first..end` of a file with zeros (`MADV_REMOVE`). Called without locks.
    fn punch_hole(&self, inode: u64, first: u64, end: u64) -> Result<(), Errno> {
        let _ = (inode, first, end);
        Ok(())
    }
    /// Checks whether the page cache contains page `index` of a file; if so, a userfaultfd for
    /// missing pages is not notified. Called with `mmap_lock` or the VMA's lock held for reading.
    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        let _ = (inode, index);
        true
    }
    /// Brings page `index` of a file, which is about to be mapped, into the page cache. Called with
    /// `mmap_lock` or the VMA's lock held for reading; a platform that must not sleep so long, or
    /// cannot, returns EAGAIN and brings the page when the fault answers
    /// [`NeedPage`](crate::fault::Faulted::NeedPage).
    fn file_bring(&self, inode: u64, index: u64) -> Result<(), Errno> {
        let _ = (inode, index);
        Ok(())
    }
    /// Checks whether the file contains page `index`. An access beyond the end of the file raises
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
    fn file_holds(&self, inode: u64, index: u64) -> bool {
        (**self).file_holds(inode, index)
    }
}

/// A platform that stores no page contents, for the study of address space layouts.
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
    /// Returns true: there are no contents to compare, so KSM relies on its caller.
    fn same(&self, _: FrameId, _: FrameId) -> bool {
        true
    }
}
