//! The bytes of pages, which a kernel needs for its own accesses to the memory of its programs.

use crate::types::Platform;
use crate::types::mmu::MappedPage;

/// A platform whose pages the kernel can read and write.
///
/// Every method is called with `mmap_lock` held for reading and with the page's entry locked, so the
/// page stays in place, but programs may write to it at the same time. A method must not sleep or
/// call back into the [`Space`](crate::Space). `offset` is in bytes, and the access lies within the
/// page. The zero page is never written.
pub trait PageBytes: Platform {
    /// Copies bytes from a page, from `offset` on.
    fn read(&self, page: MappedPage, offset: usize, to: &mut [u8]);
    /// Copies bytes to a page, from `offset` on. A page of a file that is written back must be
    /// marked as dirty here and in [`compare_exchange`](Self::compare_exchange):
    /// [`set_entry`](crate::types::mmu::Mmu::set_entry) need not have mapped it writable.
    fn write(&self, page: MappedPage, offset: usize, from: &[u8]);
    /// Returns the aligned word at `offset`, read in one atomic step.
    fn load(&self, page: MappedPage, offset: usize) -> u32;
    /// Replaces the aligned word at `offset` by `new` if it is `current`, in one atomic step;
    /// returns the word as it was.
    fn compare_exchange(&self, page: MappedPage, offset: usize, current: u32, new: u32) -> u32;
}
