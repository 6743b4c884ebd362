//! Access to the bytes of pages, for kernels that read and write user memory.

use crate::types::Platform;
use crate::types::mmu::MappedPage;

/// A platform whose pages a kernel can read and write.
///
/// Every method is called with `mmap_lock` held for reading and with the page-table lock held.
/// Therefore the page stays mapped, but programs may write to it at the same time. A method must
/// not sleep or call back into the [`Space`](crate::Space). `offset` is in bytes, and the accessed
/// bytes lie within the page. The zero page is never written.
///
/// # Examples
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use vmarea::prelude::*;
/// use vmarea::types::mmu::MappedPage;
/// # use vmarea::types::mmu::NoMmu;
/// # use vmarea::types::platform::Spin;
/// # use vmarea::types::writers::OneWriter;
/// # use vmarea::vma::lock::VmaLock;
///
/// /// Frames by number. The zero page, and the pages of files, read as zeros.
/// #[derive(Default)]
/// struct Ram(Mutex<HashMap<FrameId, [u8; PAGE_SIZE as usize]>>);
///
/// impl Ram {
///     fn page<R>(&self, page: MappedPage, f: impl FnOnce(&mut [u8]) -> R) -> R {
///         let mut frames = self.0.lock().unwrap();
///         match page {
///             MappedPage::Frame(frame) => f(frames.get_mut(&frame).expect("in use")),
///             MappedPage::Zero | MappedPage::File { .. } => f(&mut [0; PAGE_SIZE as usize]),
///         }
///     }
/// }
/// # impl Platform for Ram {
/// #     fn zero(&self, frame: FrameId) -> Result<(), Errno> {
/// #         self.0.lock().unwrap().insert(frame, [0; PAGE_SIZE as usize]);
/// #         Ok(())
/// #     }
/// #     fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
/// #         let mut frames = self.0.lock().unwrap();
/// #         let bytes = frames[&from];
/// #         frames.insert(to, bytes);
/// #         Ok(())
/// #     }
/// #     fn copy_file(&self, to: FrameId, _: u64, _: u64) -> Result<(), Errno> {
/// #         self.zero(to)
/// #     }
/// #     fn free(&self, frame: FrameId) {
/// #         self.0.lock().unwrap().remove(&frame);
/// #     }
/// # }
///
/// impl PageBytes for Ram {
///     fn read(&self, page: MappedPage, offset: usize, to: &mut [u8]) {
///         self.page(page, |bytes| to.copy_from_slice(&bytes[offset..offset + to.len()]));
///     }
///     fn write(&self, page: MappedPage, offset: usize, from: &[u8]) {
///         self.page(page, |bytes| bytes[offset..offset + from.len()].copy_from_slice(from));
///     }
///     fn load(&self, page: MappedPage, offset: usize) -> u32 {
///         let mut word = [0; 4];
///         self.read(page, offset, &mut word);
///         u32::from_ne_bytes(word)
///     }
///     fn compare_exchange(&self, page: MappedPage, offset: usize, current: u32, new: u32) -> u32 {
///         self.page(page, |bytes| {
///             let word = &mut bytes[offset..offset + 4];
///             let old = u32::from_ne_bytes(word.try_into().expect("four bytes"));
///             if old == current {
///                 word.copy_from_slice(&new.to_ne_bytes());
///             }
///             old
///         })
///     }
/// }
/// # #[derive(Debug, Default)]
/// # struct Kernel;
/// # impl Environment for Kernel {
/// #     type VmaLock = VmaLock;
/// #     type Platform = Ram;
/// #     type Mmu = NoMmu;
/// #     type Wait = Spin;
/// #     type Writers = OneWriter;
/// # }
///
/// # let space = Space::<Kernel>::in_environment(Policy::LINUX, System::default(), Ram::default());
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
/// // `read(2)` stores bytes in the program's buffer, which crosses a page here.
/// let buffer = at + PAGE_SIZE - 2;
/// space.copy_to_user(mm, buffer, b"text")?;
/// let mut bytes = [0; 4];
/// space.copy_from_user(mm, buffer, &mut bytes)?;
/// assert_eq!(&bytes, b"text");
/// // A futex is a word that the kernel compares with the value that the program expects.
/// let word = space.compare_exchange_user_word(mm, at, (0, 5));
/// assert_eq!((word, space.load_user_word(mm, at)), (Ok(0), Ok(5)));
/// // What is not mapped is EFAULT, with the number of bytes that are missing.
/// let stopped = space.copy_to_user(mm, at + 2 * PAGE_SIZE - 1, b"ab").unwrap_err();
/// assert_eq!((stopped.not_copied, Errno::from(stopped)), (1, Errno::EFAULT));
/// # Ok::<(), Errno>(())
/// ```
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
