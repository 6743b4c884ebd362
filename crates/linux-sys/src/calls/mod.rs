//! A table of system calls in memory, executed by this thread or by an agent in another process.
//!
//! A repair is a fixed sequence of calls. While the sequence runs, vmarea must not allocate memory,
//! take a lock, or access memory that is being moved. The caller therefore first writes the
//! sequence to an [`Arena`], which is shared memory and therefore never part of the repaired
//! memory, and then executes it. A table entry also contains the structure that an `ioctl` points
//! to.
//!
//! # Picture
//! ```text
//! entry (128 bytes):  nr | six arguments | result | payload, five words | what | for the agent
//!                           argument 2 of an ioctl ──────▲
//! ```

use std::io;
use std::ptr::{self, NonNull};

/// Maximum number of words in an `ioctl` structure.
pub const PAYLOAD_WORDS: usize = 5;
/// Size of a table entry in bytes, hard-coded in the agent's assembly code.
pub const ENTRY_BYTES: u64 = 128;
/// Byte offset of the result in a table entry, hard-coded in the agent's assembly code.
#[cfg(test)]
const RESULT_OFFSET: usize = 56;
const PAYLOAD_OFFSET: u64 = 64;

/// One system call in a table.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// System call number.
    pub nr: i64,
    /// Arguments of the call.
    pub args: [u64; 6],
    /// Result of the call, or `-errno` on error.
    pub result: i64,
    /// Structure that the third argument of an `ioctl` points to; otherwise unused.
    pub payload: [u64; PAYLOAD_WORDS],
    /// Purpose of the call: a number that the creator of the table chooses.
    pub what: u64,
    /// Instructions for the agent: see [`Call::then`].
    pub(super) for_agent: [u64; 2],
}

const _: () = assert!(size_of::<Call>() as u64 == ENTRY_BYTES);

impl Call {
    /// Creates a call whose arguments are all numbers or addresses.
    pub fn plain(what: u64, nr: i64, args: &[u64]) -> Call {
        let mut call = Call {
            nr,
            what,
            ..Call::default()
        };
        call.args[..args.len()].copy_from_slice(args);
        call
    }

    /// Creates an `ioctl` on `fd` with `payload` as its structure.
    pub fn ioctl(what: u64, fd: i32, request: u64, payload: &[u64]) -> Call {
        let mut call = Call::plain(what, libc::SYS_ioctl, &[fd as u64, request]);
        call.payload[..payload.len()].copy_from_slice(payload);
        call
    }

    /// Creates the `clock_gettime` of `clock` that stores the time in its own payload.
    pub fn time_of(clock: libc::clockid_t) -> Call {
        Call::plain(0, libc::SYS_clock_gettime, &[clock as u64])
    }

    /// Returns the argument that points to the call's own payload, if there is one.
    fn points_at_itself(&mut self) -> Option<&mut u64> {
        match self.nr {
            libc::SYS_ioctl => Some(&mut self.args[2]),
            libc::SYS_clock_gettime => Some(&mut self.args[1]),
            _ => None,
        }
    }

    /// Returns the call as it must be stored at `address`, with the payload pointer adjusted.
    pub fn at(mut self, address: u64) -> Call {
        if let Some(argument) = self.points_at_itself() {
            *argument = address + PAYLOAD_OFFSET;
        }
        self
    }

    /// Returns the errno of the call, or 0 if the call succeeded.
    pub fn errno(&self) -> i32 {
        if (-4095..0).contains(&self.result) {
            -self.result as i32
        } else {
            0
        }
    }
}

/// Executes a call and stores the result in it.
pub fn run(call: &mut Call) {
    let payload = ptr::from_mut(&mut call.payload) as u64;
    if let Some(argument) = call.points_at_itself() {
        *argument = payload;
    }
    // SAFETY: `repair` builds the tables. It names only ranges that it was asked to repair and its
    // own memory. The contents of the repaired ranges do not change.
    call.result = unsafe { make(call.nr, call.args) };
}

#[cfg(not(any(test, feature = "testing")))]
use direct as make;
/// In tests, the system calls go through `refusals`, which can refuse some of them.
#[cfg(any(test, feature = "testing"))]
use refusals::make;

/// Makes a system call by number. Returns the result, or `-errno` on error.
///
/// # Safety
/// The safety requirements of the system call itself.
unsafe fn direct(nr: i64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller guarantees this.
    let answer = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if answer == -1 {
        let errno = io::Error::last_os_error().raw_os_error();
        return -i64::from(errno.unwrap_or(libc::EIO));
    }
    answer
}

/// Makes a system call that writes to `buffer`, whose address is the second argument.
///
/// Returns the result, or `-errno` on error.
pub fn read_into(nr: i64, fd: i32, buffer: &mut [u64], offset: u64) -> i64 {
    let args = [
        fd as u64,
        buffer.as_mut_ptr() as u64,
        size_of_val(buffer) as u64,
        offset,
        0,
        0,
    ];
    // SAFETY: `read` and `pread` write at most as many bytes as the given size of the buffer.
    unsafe { make(nr, args) }
}

/// Copies `len` bytes from the address `from` to the address `to` in this process.
///
/// # Errors
/// The errno of `process_vm_writev`. An address that cannot be accessed is reported this way and
/// raises no signal.
pub fn write_own(to: u64, from: u64, len: u64) -> Result<(), i32> {
    let [source, target] = [[from, len], [to, len]];
    let pid = u64::from(std::process::id());
    let args = [pid, source.as_ptr() as u64, 1, target.as_ptr() as u64, 1, 0];
    // SAFETY: both lists live across the call. `repair` only writes pages back to their addresses.
    match unsafe { make(libc::SYS_process_vm_writev, args) } {
        done if done.cast_unsigned() == len => Ok(()),
        done if done < 0 => Err(-done as i32),
        _ => Err(libc::EFAULT),
    }
}

/// Makes an `ioctl` with `argument` as its structure. Returns the result, or `-errno` on error.
///
/// # Safety
/// `argument` must be the structure that the request expects.
pub unsafe fn request<T>(fd: i32, number: u64, argument: &mut T) -> i64 {
    let argument = ptr::from_mut(argument) as u64;
    // SAFETY: the caller guarantees this; the structure lives across the call.
    unsafe { make(libc::SYS_ioctl, [fd as u64, number, argument, 0, 0, 0]) }
}

/// Zeroed shared anonymous memory that holds values of type `T`. vmarea never merges or moves it.
#[derive(Debug)]
pub struct Arena<T> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: an arena owns its memory like a `Box`.
unsafe impl<T: Send> Send for Arena<T> {}

/// Types for which all-zero memory is a valid value.
#[allow(dead_code, reason = "a bound, with nothing to call")]
pub trait Plain {}

impl Plain for Call {}

macro_rules! plain_atomics {
    ($($name:ident),*) => {$(impl Plain for std::sync::atomic::$name {})*};
}
plain_atomics!(AtomicI32, AtomicU32, AtomicU64);

impl<T: Plain> Arena<T> {
    /// Allocates an arena for `len` zeroed values.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(len: usize) -> io::Result<Arena<T>> {
        // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // Without this, a forked child would share the arena.
        // SAFETY: the mapping was just made.
        unsafe {
            libc::madvise(
                base.as_ptr().cast(),
                len * size_of::<T>(),
                libc::MADV_DONTFORK,
            )
        };
        Ok(Arena { base, len })
    }
}

impl<T> Arena<T> {
    /// Returns the arena's values, mutably.
    pub fn all(&mut self) -> &mut [T] {
        // SAFETY: the arena contains `len` values, initially zero, which `Plain` guarantees to be
        // valid; the arena is borrowed while the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    /// Returns the arena's values.
    pub fn get(&self) -> &[T] {
        // SAFETY: as in `all`; an arena that is shared contains only atomics.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: the arena owns the mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod refusals;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_agent_finds_what_it_looks_for() {
        assert_eq!(offset_of!(Call, result), RESULT_OFFSET);
        assert_eq!(offset_of!(Call, payload) as u64, PAYLOAD_OFFSET);
        assert_eq!(offset_of!(Call, args), 8);
    }

    #[test]
    fn results_and_errors_are_kept() {
        let mut arena: Arena<Call> = Arena::new(2).unwrap();
        let calls = arena.all();
        calls[0] = Call::plain(0, libc::SYS_getpid, &[]);
        calls[1] = Call::plain(0, libc::SYS_close, &[u64::MAX]);
        calls.iter_mut().for_each(run);
        assert_eq!(calls[0].result, i64::from(std::process::id()));
        assert_eq!(calls[0].errno(), 0);
        assert_eq!(calls[1].errno(), libc::EBADF);
    }
}
