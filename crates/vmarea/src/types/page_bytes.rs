//! Access to the bytes of pages, for kernels that read and write user memory.

use crate::types::Platform;
use crate::types::mmu::MappedPage;

/// A platform whose pages a kernel can read and write.
///
/// Every method is called with `mmap_lock` held for reading and with the page-table lock held.
/// Therefore the page stays mapped, but programs may write to it at the same time. A method must
/// not sleep or call back into the [`Space`](crate::Space). `offset` is in bytes, and the accessed
/// bytes lie within the page. The zero page is never written.
pub trait PageBytes: Platform {
    /// Copies bytes from a page, starting at `offset`.
    fn read(&self, page: MappedPage, offset: usize, to: &mut [u8]);
    /// Copies bytes to a page, starting at `offset`. If the page belongs to a file that is written
    /// back, `write` and [`compare_exchange`](Self::compare_exchange) must mark it as dirty,
    /// because [`set_entry`](crate::types::mmu::Mmu::set_entry) has not necessarily mapped it as
    /// writable.
    fn write(&self, page: MappedPage, offset: usize, from: &[u8]);
    /// Atomically reads the aligned word at `offset`.
    fn load(&self, page: MappedPage, offset: usize) -> u32;
    /// Atomically replaces the aligned word at `offset` with `new` if the word equals `current`;
    /// returns the previous value.
    fn compare_exchange(&self, page: MappedPage, offset: usize, current: u32, new: u32) -> u32;
}
