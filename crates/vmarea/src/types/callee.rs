//! The embedder's methods as the core calls them: none may call back into the core.
//!
//! Most are called under a lock, for which a call of the core would wait for ever. In debug builds in
//! which locks check their order, taking one in such a method panics with the method's name; other
//! builds compile to the method alone.

use crate::types::mmu::{MappedPage, Mmu, Translation};
use crate::types::page_bytes::PageBytes;
use crate::types::platform::Platform;
use crate::types::{Errno, FrameId, MmId, SwapId, VmFlags, VmRange};
use vmarea_sync::Callback;

/// A part of the embedder that the core calls.
#[derive(Debug)]
pub(crate) struct Callee<T>(pub T);

/// Forwards each method, and those after `may call back` without a check.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*
     $(may call back: $(fn $free:ident($given:ident: $kind:ty);)*)?) => {
        $(
            #[inline]
            fn $name(&self, $($argument: $type),*) $(-> $result)? {
                let _inside = Callback::enter(stringify!($name));
                self.0.$name($($argument),*)
            }
        )*
        $($(
            #[inline]
            fn $free(&self, $given: $kind) {
                self.0.$free($given);
            }
        )*)?
    };
}

impl<P: Platform> Platform for Callee<P> {
    forward! {
        fn zero(frame: FrameId) -> Result<(), Errno>;
        fn copy(to: FrameId, from: FrameId) -> Result<(), Errno>;
        fn copy_file(to: FrameId, inode: u64, index: u64) -> Result<(), Errno>;
        fn free(frame: FrameId);
        fn same(one: FrameId, other: FrameId) -> bool;
        fn swap_out(slot: SwapId, frame: FrameId) -> Result<(), Errno>;
        fn swap_in(frame: FrameId, slot: SwapId) -> Result<(), Errno>;
        fn swap_free(slot: SwapId);
        fn wait_on_migration(frame: FrameId) -> bool;
        fn shared_anon(inode: u64, pages: u64) -> Result<(), Errno>;
        fn punch_hole(inode: u64, first: u64, end: u64) -> Result<(), Errno>;
        fn file_is_cached(inode: u64, index: u64) -> bool;
        fn file_bring(inode: u64, index: u64) -> Result<(), Errno>;
        fn file_holds(inode: u64, index: u64) -> bool;
        may call back:
        fn file_unwritable(inode: u64);
        fn file_released(inode: u64);
    }
}

impl<P: PageBytes> PageBytes for Callee<P> {
    forward! {
        fn read(page: MappedPage, offset: usize, to: &mut [u8]);
        fn write(page: MappedPage, offset: usize, from: &[u8]);
        fn load(page: MappedPage, offset: usize) -> u32;
        fn compare_exchange(page: MappedPage, offset: usize, current: u32, new: u32) -> u32;
    }
}

impl<M: Mmu> Mmu for Callee<M> {
    const PRESENT: bool = M::PRESENT;

    forward! {
        fn mm_created(mm: MmId) -> Result<(), Errno>;
        fn mm_gone(mm: MmId);
        fn set_entry(mm: MmId, addr: u64, to: Translation) -> Result<(), Errno>;
        fn clear(mm: MmId, range: VmRange);
        fn restrict(mm: MmId, range: VmRange, allowed: VmFlags);
        fn allow_writes(mm: MmId, range: VmRange);
        fn move_entries(mm: MmId, range: VmRange, to: u64);
        fn flush(mm: MmId, range: VmRange);
        fn accessed(mm: MmId, range: VmRange) -> bool;
        fn free_tables(mm: MmId, range: VmRange);
    }
}
