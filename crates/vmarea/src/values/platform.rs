//! What an embedder provides: frames, and what is in them.
//!
//! The core decides which frame holds which page; the platform is told when a frame is taken, given
//! back, filled or copied. Replay needs no bytes at all ([`NoBytes`]); the software platform keeps
//! real ones, so that data can be checked.

use crate::values::{FrameId, SwapId};

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
    /// it, from [`FileId::NAMELESS`](crate::values::FileId::NAMELESS) on.
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
