//! What an embedder provides: frames and what is in them, and the types that a machine is made of.
//!
//! The core decides which frame holds which page; the platform is told when a frame is taken, given
//! back, filled or copied. Replay needs no bytes at all ([`NoBytes`]); the software platform keeps
//! real ones, so that data can be checked.

use crate::types::{FrameId, SwapId};
use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use vmarea_sync::{VmaLock, VmaLockKind};

pub use vmarea_sync::{Spin, Wait};

/// What a machine is made of: the choices of an embedder that are types.
///
/// [`Standard`] takes any platform behind a box. An embedder that wants static calls of its platform, or another
/// kind of lock, implements this for a type of its own.
pub trait Environment: fmt::Debug + Default + Send + Sync + 'static {
    /// The lock in each VMA.
    type VmaLock: VmaLockKind;
    /// Where pages live.
    type Platform: Platform;
    /// How a thread waits for `mmap_lock` and for the reverse map's locks.
    type Wait: Wait + fmt::Debug;
}

/// Any platform, spinning, and a lock of the kind `L` in each VMA, so that kinds can be compared in one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithVmaLock<L>(PhantomData<L>);

/// Any platform, spinning, and the lock that Linux has in each VMA since 6.15.
pub type Standard = WithVmaLock<VmaLock>;

impl<L: VmaLockKind> Environment for WithVmaLock<L> {
    type VmaLock = L;
    type Platform = Box<dyn Platform>;
    type Wait = Spin;
}

/// Where pages live.
///
/// Every method but [`wait_on_migration`](Platform::wait_on_migration) is called with the page-table
/// lock of the page held: it must not call back into the address space.
pub trait Platform: Send + Sync {
    /// A frame comes into use, filled with zeros.
    fn zero(&self, frame: FrameId);
    /// A frame comes into use as a copy of another.
    fn copy(&self, to: FrameId, from: FrameId);
    /// A frame comes into use as a private copy of page `index` of the file `inode`.
    fn copy_file(&self, to: FrameId, inode: u64, index: u64);
    /// A frame is no longer in use.
    fn free(&self, frame: FrameId);
    /// Do two frames hold equal bytes? KSM asks. What does not know says no.
    fn same(&self, one: FrameId, other: FrameId) -> bool {
        let _ = (one, other);
        false
    }
    /// The bytes of a frame go to a slot of the swap device. Called where
    /// [`System::swap`](crate::System::swap) is set, and so are the next two.
    fn swap_out(&self, slot: SwapId, frame: FrameId) {
        let _ = (slot, frame);
    }
    /// A frame comes into use with the bytes of a slot, which keeps them.
    fn swap_in(&self, frame: FrameId, slot: SwapId) {
        let _ = (frame, slot);
    }
    /// A slot is no longer in use.
    fn swap_free(&self, slot: SwapId) {
        let _ = slot;
    }
    /// Somebody needs a page that migrates: waits until its migration may have ended, with no
    /// page-table lock held, and is asked again where it has not. False: this platform does not wait,
    /// and the access answers [`MustWait`](crate::fault::Faulted::MustWait).
    fn wait_on_migration(&self, frame: FrameId) -> bool {
        let _ = frame;
        false
    }
    /// The nameless file of a shared anonymous mapping comes into being with this size; the core numbers
    /// it, from [`FileId::NAMELESS`](crate::types::FileId::NAMELESS) on.
    fn shared_anon(&self, inode: u64, pages: u64) {
        let _ = (inode, pages);
    }
    /// The pages from `first` to before `end` of a file become zeros (`MADV_REMOVE`).
    fn punch_hole(&self, inode: u64, first: u64, end: u64) {
        let _ = (inode, first, end);
    }
    /// Has the page cache the page, so that nobody who watches for missing pages is asked?
    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        let _ = (inode, index);
        true
    }
    /// A page of a file is about to be mapped.
    fn file_bring(&self, inode: u64, index: u64) {
        let _ = (inode, index);
    }
    /// Is there a page `index` in the file? An access beyond its end is SIGBUS.
    fn file_holds(&self, inode: u64, index: u64) -> bool {
        let _ = (inode, index);
        true
    }
}

impl<P: Platform + ?Sized> Platform for Box<P> {
    fn zero(&self, frame: FrameId) {
        (**self).zero(frame);
    }
    fn copy(&self, to: FrameId, from: FrameId) {
        (**self).copy(to, from);
    }
    fn copy_file(&self, to: FrameId, inode: u64, index: u64) {
        (**self).copy_file(to, inode, index);
    }
    fn free(&self, frame: FrameId) {
        (**self).free(frame);
    }
    fn same(&self, one: FrameId, other: FrameId) -> bool {
        (**self).same(one, other)
    }
    fn swap_out(&self, slot: SwapId, frame: FrameId) {
        (**self).swap_out(slot, frame);
    }
    fn swap_in(&self, frame: FrameId, slot: SwapId) {
        (**self).swap_in(frame, slot);
    }
    fn swap_free(&self, slot: SwapId) {
        (**self).swap_free(slot);
    }
    fn wait_on_migration(&self, frame: FrameId) -> bool {
        (**self).wait_on_migration(frame)
    }
    fn shared_anon(&self, inode: u64, pages: u64) {
        (**self).shared_anon(inode, pages);
    }
    fn punch_hole(&self, inode: u64, first: u64, end: u64) {
        (**self).punch_hole(inode, first, end);
    }
    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        (**self).file_is_cached(inode, index)
    }
    fn file_bring(&self, inode: u64, index: u64) {
        (**self).file_bring(inode, index);
    }
    fn file_holds(&self, inode: u64, index: u64) -> bool {
        (**self).file_holds(inode, index)
    }
}

/// A platform without memory behind it: for layout alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBytes;

impl Platform for NoBytes {
    fn zero(&self, _: FrameId) {}
    fn copy(&self, _: FrameId, _: FrameId) {}
    fn copy_file(&self, _: FrameId, _: u64, _: u64) {}
    fn free(&self, _: FrameId) {}
    /// The caller's word is taken for it.
    fn same(&self, _: FrameId, _: FrameId) -> bool {
        true
    }
}
