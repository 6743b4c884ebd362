//! A table of system calls in memory, which this thread or an agent in another process executes.
//!
//! A repair is a fixed sequence of calls that nothing of vmarea may interrupt: no allocation, no
//! lock, no access to memory being moved. So the caller first writes the sequence to an [`Arena`],
//! which is shared memory and therefore never part of the repaired memory, and then executes it.
//! Structures for `ioctl` are part of the entry.
//!
//! # Picture
//! ```text
//! entry (128 bytes):  nr | six arguments | result | payload, five words | what | unused
//!                           argument 2 of an ioctl ──────▲
//! ```

use std::io;
use std::ptr::{self, NonNull};

/// Most words of an `ioctl` structure.
pub const PAYLOAD_WORDS: usize = 5;
/// Size of an entry in bytes, which the agent's code knows.
pub const ENTRY_BYTES: u64 = 128;
/// Offset of the result in an entry, which the agent's code knows.
#[cfg(any(test, feature = "testing"))]
pub const RESULT_OFFSET: usize = 56;
const PAYLOAD_OFFSET: u64 = 64;

/// One call.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// Its number.
    pub nr: i64,
    /// Its arguments.
    pub args: [u64; 6],
    /// Its result, `-errno` for an error.
    pub result: i64,
    /// The structure that its third argument points to, if any.
    pub payload: [u64; PAYLOAD_WORDS],
    /// Its purpose, as a number chosen by the creator of the table.
    pub what: u64,
    unused: [u64; 2],
}

const _: () = assert!(size_of::<Call>() as u64 == ENTRY_BYTES);

impl Call {
    /// A call whose arguments are all numbers or addresses.
    pub fn plain(what: u64, nr: i64, args: &[u64]) -> Call {
        let mut call = Call {
            nr,
            what,
            ..Call::default()
        };
        call.args[..args.len()].copy_from_slice(args);
        call
    }

    /// An `ioctl` on `fd`, whose structure is `payload`.
    pub fn ioctl(what: u64, fd: i32, request: u64, payload: &[u64]) -> Call {
        let mut call = Call::plain(what, libc::SYS_ioctl, &[fd as u64, request]);
        call.payload[..payload.len()].copy_from_slice(payload);
        call
    }

    /// True for a call whose third argument is its own payload.
    fn points_at_itself(&self) -> bool {
        self.nr == libc::SYS_ioctl
    }

    /// The call in the form that it must have at `address`.
    pub fn at(mut self, address: u64) -> Call {
        if self.points_at_itself() {
            self.args[2] = address + PAYLOAD_OFFSET;
        }
        self
    }

    /// The errno of its result, 0 for success.
    pub fn errno(&self) -> i32 {
        if (-4095..0).contains(&self.result) {
            -self.result as i32
        } else {
            0
        }
    }
}

/// Makes the call at `call`, and stores the result there.
pub fn run(call: &mut Call) {
    if call.points_at_itself() {
        call.args[2] = ptr::from_mut(&mut call.payload) as u64;
    }
    // SAFETY: the tables are made by `repair`, which names only ranges that it was told to repair
    // and memory of its own. What is there afterwards is what was there before.
    call.result = unsafe { make(call.nr, call.args) };
}

#[cfg(not(any(test, feature = "testing")))]
use direct as make;
/// Tests stand between a repair and the kernel here, and refuse calls.
#[cfg(any(test, feature = "testing"))]
use refusals::make;

/// Makes a call by its number. Returns its result, `-errno` for an error.
///
/// # Safety
/// Those of the call itself.
unsafe fn direct(nr: i64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller's.
    let answer = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if answer == -1 {
        let errno = io::Error::last_os_error().raw_os_error();
        return -i64::from(errno.unwrap_or(libc::EIO));
    }
    answer
}

/// Makes a call that writes to `buffer`, whose address is the second argument.
///
/// Returns its result, `-errno` for an error.
pub fn read_into(nr: i64, fd: i32, buffer: &mut [u64], offset: u64) -> i64 {
    let args = [
        fd as u64,
        buffer.as_mut_ptr() as u64,
        size_of_val(buffer) as u64,
        offset,
        0,
        0,
    ];
    // SAFETY: `read` and `pread` write at most as many bytes as they are told the buffer has.
    unsafe { make(nr, args) }
}

/// Makes an `ioctl` whose structure is `argument`. Returns its result, `-errno` for an error.
///
/// # Safety
/// The request fits the structure.
pub unsafe fn request<T>(fd: i32, number: u64, argument: &mut T) -> i64 {
    let argument = ptr::from_mut(argument) as u64;
    // SAFETY: the caller's; the structure lives across the call.
    unsafe { make(libc::SYS_ioctl, [fd as u64, number, argument, 0, 0, 0]) }
}

/// Zeroed shared anonymous memory for `T`s: never a candidate for merging, never moved.
#[derive(Debug)]
pub struct Arena<T> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: an arena owns its memory as a box does.
unsafe impl<T: Send> Send for Arena<T> {}

/// Types for which zeroed memory is a valid value.
#[allow(dead_code, reason = "a bound, with nothing to call")]
pub trait Plain {}

impl Plain for Call {}

macro_rules! plain_atomics {
    ($($name:ident),*) => {$(impl Plain for std::sync::atomic::$name {})*};
}
plain_atomics!(AtomicI32, AtomicU32, AtomicU64);

impl<T: Plain> Arena<T> {
    /// Allocates `len` values.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(len: usize) -> io::Result<Arena<T>> {
        // SAFETY: a new mapping at a place of the kernel's choice disturbs no other memory.
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
        // A forked child would share it, and must not.
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
    /// Its values.
    pub fn all(&mut self) -> &mut [T] {
        // SAFETY: `len` values lie there, zeroed at first, which `Plain` says is a value; the
        // arena is borrowed as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    /// Its values, for reading.
    pub fn get(&self) -> &[T] {
        // SAFETY: as above; whoever shares an arena has only atomics in it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody borrows from it any more.
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
