//! Copies between kernel memory and program memory.
//!
//! The kernel never accesses a program's address directly. The core faults the page in as if the
//! program accessed it, and the platform copies through the direct map.

use super::mm::{Mm, complete};
use super::space;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::errno::{EFAULT, EINVAL, ENAMETOOLONG};

use crate::failure::Failure;

/// Maximum length of a path in bytes, including the terminating zero byte.
pub const PATH_MAX: usize = 4096;
const PAGE: usize = 4096;
/// A second in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// A type without padding for which every bit pattern of the right size is valid.
///
/// # Safety
/// The type has no padding, and every bit pattern of its size is valid.
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

/// Returns plain values as bytes.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: plain values have no padding.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are valid values.
    unsafe { core::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

impl Mm {
    /// Copies bytes from the program.
    ///
    /// # Errors
    /// EFAULT if the program itself could not read the bytes.
    pub fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), Failure> {
        match self.read_some(addr, to) == to.len() {
            true => Ok(()),
            false => Err(EFAULT.into()),
        }
    }

    /// Copies bytes from the program up to the first that the program itself could not read; returns
    /// their number.
    pub fn read_some(&self, addr: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        let copy = || {
            let copied = space().copy_from_user(self.id(), addr + done as u64, &mut to[done..]);
            copied.map_err(|stopped| {
                done = to.len() - stopped.not_copied;
                stopped.faulted
            })
        };
        match complete(copy) {
            Ok(()) => to.len(),
            Err(_) => done,
        }
    }

    /// Copies bytes to the program.
    ///
    /// # Errors
    /// EFAULT if the program itself could not write to an address; the bytes before that address
    /// have been written.
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), Failure> {
        let mut done = 0;
        let copy = || {
            let copied = space().copy_to_user(self.id(), addr + done as u64, &from[done..]);
            copied.map_err(|stopped| {
                done = from.len() - stopped.not_copied;
                stopped.faulted
            })
        };
        complete(copy).map_err(|_| EFAULT.into())
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

    /// Writes values to `addr`, or nothing if `addr` is 0.
    ///
    /// # Errors
    /// EFAULT.
    pub fn write_if_wanted<T: Plain>(&self, addr: u64, values: &[T]) -> Result<(), Failure> {
        match addr {
            0 => Ok(()),
            _ => self.write_values(addr, values),
        }
    }

    /// Reads a zero-terminated string that is shorter than `limit` bytes.
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

    /// Reads a `struct timespec` and converts it to nanoseconds.
    ///
    /// # Errors
    /// EINVAL for an invalid time; EFAULT.
    pub fn read_time(&self, addr: u64) -> Result<u64, Failure> {
        let [seconds, nanoseconds]: [u64; 2] = self.read_array(addr)?;
        match nanoseconds < SECOND && seconds >> 63 == 0 {
            true => Ok(seconds.saturating_mul(SECOND).saturating_add(nanoseconds)),
            false => Err(EINVAL.into()),
        }
    }

    /// Like [`read_time`](Self::read_time), but returns `None` if the address is 0.
    ///
    /// # Errors
    /// EINVAL; EFAULT.
    pub fn read_time_if_given(&self, addr: u64) -> Result<Option<u64>, Failure> {
        match addr {
            0 => Ok(None),
            _ => self.read_time(addr).map(Some),
        }
    }

    /// Atomically changes a word in the program's memory; returns the old value.
    ///
    /// # Errors
    /// EFAULT; EINVAL if the address is not a multiple of 4.
    pub fn update_word(&self, addr: u64, f: impl Fn(u32) -> u32) -> Result<u32, Failure> {
        if !addr.is_multiple_of(4) {
            return Err(EINVAL.into());
        }
        let mut seen = 0;
        let exchange = || {
            loop {
                let words = (seen, f(seen));
                let old = space().compare_exchange_user_word(self.id(), addr, words)?;
                if old == seen {
                    return Ok(old);
                }
                seen = old;
            }
        };
        complete(exchange).map_err(|_| EFAULT.into())
    }
}
