//! Copies between the kernel's memory and the memory of programs.
//!
//! The kernel never accesses a program's address directly. It faults the page in as an access by
//! the program would, and copies through the direct map while the page-table entry is locked.

use super::frames::pointer_to;
use super::mm::{Mm, TASK_SIZE, page_of};
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::errno::{EFAULT, ENAMETOOLONG};
use vmarea::fault::Access;

use crate::syscall::Failure;

/// Maximum length of a path in bytes, including the zero at its end.
pub const PATH_MAX: usize = 4096;
const PAGE: usize = 4096;

/// A type for which any bytes of the right size are a valid value, and that has no padding.
///
/// # Safety
/// The type has both properties.
pub unsafe trait Plain: Copy + Default {}
// SAFETY: any bytes are a valid integer, and integers have no padding.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

/// Returns the bytes of plain values.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: plain values have no padding.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are valid values.
    unsafe { core::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

impl Mm {
    /// Calls `f` with a pointer to, and the length of, each part of `len` bytes at `addr`, by page.
    fn for_parts(
        &self,
        addr: u64,
        len: usize,
        access: Access,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result<(), Failure> {
        // As in Linux, nothing is copied if the range reaches beyond user memory.
        let end = addr.checked_add(len as u64);
        let end = end.filter(|&end| end <= TASK_SIZE).ok_or(EFAULT)?;
        let mut at = addr;
        while at < end {
            let offset = at as usize % PAGE;
            let part = (PAGE - offset).min((end - at) as usize);
            self.fault(at, access).map_err(|_| EFAULT)?;
            let copied = self.with_entry(at, |vma, entry| {
                let page = page_of(vma, at, entry).filter(|to| to.address != 0);
                let page = page.filter(|to| to.writable || access != Access::Write);
                if let Some(to) = page {
                    // SAFETY: within the page, which stays in place while its entry is locked.
                    f(unsafe { pointer_to::<u8>(to.address).add(offset) }, part);
                }
                page.is_some()
            });
            // If nothing was copied, another thread has changed the mapping: fault again.
            if copied == Some(true) {
                at += part as u64;
            }
        }
        Ok(())
    }

    /// Copies bytes from the program.
    ///
    /// # Errors
    /// EFAULT if the program itself could not read the bytes.
    pub fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), Failure> {
        let mut at = 0;
        self.for_parts(addr, to.len(), Access::Read, |from, len| {
            // SAFETY: `for_parts` passes `len` bytes of a page, and in sum `to.len()`.
            unsafe { core::ptr::copy(from, to[at..at + len].as_mut_ptr(), len) };
            at += len;
        })
    }

    /// Copies bytes to the program.
    ///
    /// # Errors
    /// EFAULT if the program itself could not write there; bytes before that address are written.
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), Failure> {
        let mut at = 0;
        self.for_parts(addr, from.len(), Access::Write, |to, len| {
            // SAFETY: as in `read`.
            unsafe { core::ptr::copy(from[at..at + len].as_ptr(), to, len) };
            at += len;
        })
    }

    /// Reads `N` values.
    ///
    /// # Errors
    /// EFAULT.
    pub fn read_array<T: Plain, const N: usize>(&self, addr: u64) -> Result<[T; N], Failure> {
        let mut values = [T::default(); N];
        self.read(addr, bytes_of_mut(&mut values))?;
        Ok(values)
    }

    /// Reads one value.
    ///
    /// # Errors
    /// EFAULT.
    pub fn read_value<T: Plain>(&self, addr: u64) -> Result<T, Failure> {
        self.read_array::<T, 1>(addr).map(|[value]| value)
    }

    /// Writes values.
    ///
    /// # Errors
    /// EFAULT.
    pub fn write_values<T: Plain>(&self, addr: u64, values: &[T]) -> Result<(), Failure> {
        self.write(addr, bytes_of(values))
    }

    /// Writes values, unless `addr` is 0.
    ///
    /// # Errors
    /// EFAULT.
    pub fn write_if_wanted<T: Plain>(&self, addr: u64, values: &[T]) -> Result<(), Failure> {
        match addr {
            0 => Ok(()),
            _ => self.write_values(addr, values),
        }
    }

    /// Reads a string that ends with a zero byte and has fewer than `limit` bytes.
    ///
    /// # Errors
    /// EFAULT; ENAMETOOLONG.
    pub fn read_string(&self, addr: u64, limit: usize) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        let mut part = [0; 64];
        while bytes.len() < limit {
            let at = addr.checked_add(bytes.len() as u64).ok_or(EFAULT)?;
            // Does not read beyond the page, because the next page may be missing.
            let len = part.len().min(PAGE - at as usize % PAGE);
            self.read(at, &mut part[..len])?;
            let end = part[..len].iter().position(|&byte| byte == 0);
            bytes.extend_from_slice(&part[..end.unwrap_or(len)]);
            if end.is_some() {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Err(ENAMETOOLONG.into())
    }

    /// Reads a path.
    ///
    /// # Errors
    /// EFAULT; ENAMETOOLONG.
    pub fn read_path(&self, addr: u64) -> Result<String, Failure> {
        self.read_string(addr, PATH_MAX)
    }

    /// Changes a word of the program in one atomic step; returns the value that the word had.
    ///
    /// The word stays as it is if `f` returns `None` for its value.
    ///
    /// # Errors
    /// EFAULT; EINVAL if the address is not a multiple of 4.
    pub fn update_word(
        &self,
        addr: u64,
        mut f: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, Failure> {
        use core::sync::atomic::{AtomicU32, Ordering};
        if !addr.is_multiple_of(4) {
            return Err(linux_raw_sys::errno::EINVAL.into());
        }
        let mut seen = 0;
        self.for_parts(addr, 4, Access::Write, |word, _| {
            // SAFETY: an aligned word in a page that stays in place while its entry is locked.
            let word = unsafe { &*word.cast::<AtomicU32>() };
            // ORDERING: SeqCst, as programs expect of a futex.
            seen = match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, &mut f) {
                Ok(old) | Err(old) => old,
            };
        })?;
        Ok(seen)
    }
}
