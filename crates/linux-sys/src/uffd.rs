//! userfaultfd: opening, features, and the requests that move pages.
//!
//! This module supports only what repairs need: registration of ranges for missing-page faults,
//! moving pages between mappings, and the events that report forks and changed mappings. The
//! requests are [`Call`]s, that is, table entries that consist of plain numbers, because both this
//! process and other processes execute them. A [`Uffd`] is a userfaultfd descriptor in this
//! process.
//!
//! # Linux
//! `include/uapi/linux/userfaultfd.h`; `UFFDIO_MOVE` and its feature bit since 6.8.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::calls::{self, Call};

/// `UFFD_API`.
pub const API: u64 = 0xaa;
/// `UFFD_FEATURE_EVENT_FORK`.
pub const EVENT_FORK: u64 = 1 << 1;
/// `UFFD_FEATURE_EVENT_REMAP`.
pub const EVENT_REMAP: u64 = 1 << 2;
/// `UFFD_FEATURE_EVENT_REMOVE`.
pub const EVENT_REMOVE: u64 = 1 << 3;
/// `UFFD_FEATURE_EVENT_UNMAP`.
pub const EVENT_UNMAP: u64 = 1 << 6;
/// `UFFD_FEATURE_MOVE`.
pub const FEATURE_MOVE: u64 = 1 << 16;

/// `UFFDIO_API`.
pub const UFFDIO_API: u64 = request(3, 0x3f, 24);
pub(crate) const UFFDIO_REGISTER: u64 = request(3, 0x00, 32);
const UFFDIO_UNREGISTER: u64 = request(2, 0x01, 16);
pub(crate) const UFFDIO_WAKE: u64 = request(2, 0x02, 16);
/// `UFFDIO_COPY`.
pub const UFFDIO_COPY: u64 = request(3, 0x03, 40);
const UFFDIO_WRITEPROTECT: u64 = request(3, 0x06, 24);
/// `UFFDIO_MOVE`.
pub const UFFDIO_MOVE: u64 = request(3, 0x05, 40);
const USERFAULTFD_IOC_NEW: u64 = 0xaa00;

pub(crate) const MODE_MISSING: u64 = 1;
pub(crate) const MODE_WRITE_PROTECT: u64 = 2;
const DONT_WAKE: u64 = 1;
/// Mode of `UFFDIO_MOVE` that skips pages that are missing.
pub const ALLOW_HOLES: u64 = 2;
const MESSAGE_BYTES: usize = 32;

const fn request(direction: u64, number: u64, bytes: u64) -> u64 {
    direction << 30 | bytes << 16 | API << 8 | number
}

/// Creates the call that registers a range for missing-page faults.
pub fn register(what: u64, fd: i32, start: u64, len: u64) -> Call {
    Call::ioctl(what, fd, UFFDIO_REGISTER, &[start, len, MODE_MISSING])
}

/// Creates the call that registers a range for write-protection faults as well. No page is
/// write-protected by it, but the kernel joins equal neighbours.
pub fn register_anew(what: u64, fd: i32, start: u64, len: u64) -> Call {
    let mode = MODE_MISSING | MODE_WRITE_PROTECT;
    Call::ioctl(what, fd, UFFDIO_REGISTER, &[start, len, mode])
}

/// Creates the call that unregisters a range and wakes the threads that wait in it.
pub fn unregister(what: u64, fd: i32, start: u64, len: u64) -> Call {
    Call::ioctl(what, fd, UFFDIO_UNREGISTER, &[start, len])
}

/// Creates the call that wakes the threads that wait in a range.
pub fn wake(what: u64, fd: i32, start: u64, len: u64) -> Call {
    Call::ioctl(what, fd, UFFDIO_WAKE, &[start, len])
}

/// Creates the call that moves the present pages from `from` to `to`. Skips holes and wakes no
/// thread.
pub fn move_pages(what: u64, fd: i32, to: u64, from: u64, len: u64) -> Call {
    Call::ioctl(
        what,
        fd,
        UFFDIO_MOVE,
        &[to, from, len, DONT_WAKE | ALLOW_HOLES],
    )
}

/// Creates the call that copies from this process's memory to an empty page of the watched process.
///
/// The copy wakes no thread.
pub fn copy(what: u64, fd: i32, to: u64, from: u64, len: u64) -> Call {
    Call::ioctl(what, fd, UFFDIO_COPY, &[to, from, len, DONT_WAKE])
}

/// True if mappings that `fd` watches are changing and the event has not yet been read.
///
/// During such a change, a mapping that appears to be missing may only have been moved.
pub fn is_changing(fd: i32) -> bool {
    // The probe moves nothing. The kernel rejects it, with EAGAIN if a change is in progress.
    let mut probe = move_pages(0, fd, 0, 0, 0);
    calls::run(&mut probe);
    probe.errno() == libc::EAGAIN
}

/// True if the process that `fd` watches has ended; `page` is any page.
///
/// After the process has ended, `UFFDIO_UNREGISTER` fails with `ENOMEM`, as if memory were
/// exhausted.
pub fn has_ended(fd: i32, page: u64) -> bool {
    // The probe would end a write protection that no one has requested, so it changes nothing.
    let mut probe = Call::ioctl(0, fd, UFFDIO_WRITEPROTECT, &[page, super::PAGE, 0]);
    calls::run(&mut probe);
    probe.errno() == libc::ESRCH
}

/// Reduces a partly executed move or copy to the part that remains.
///
/// Returns false if the call moved or copied nothing.
pub fn advance(call: &mut Call) -> bool {
    let done = call.payload[4].cast_signed();
    if done <= 0 {
        return false;
    }
    let done = done.unsigned_abs().min(call.payload[2]);
    call.payload[0] += done;
    call.payload[1] += done;
    call.payload[2] -= done;
    call.payload[4] = 0;
    true
}

/// An event that the kernel reports through a userfaultfd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A thread waits for a page.
    Fault,
    /// The process forked. The contained descriptor watches the child; the reader must close it.
    Fork(i32),
    /// A watched range was moved.
    Remap {
        /// Old address of the range.
        from: u64,
        /// New address of the range.
        to: u64,
        /// Length of the range in bytes.
        len: u64,
    },
    /// The pages of a range are about to be discarded.
    Remove {
        /// First address of the range.
        start: u64,
        /// First address after the range.
        end: u64,
    },
    /// A range was unmapped.
    Unmap {
        /// First address of the range.
        start: u64,
        /// First address after the range.
        end: u64,
    },
}

/// A userfaultfd descriptor in this process.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
}

impl Uffd {
    /// Opens a userfaultfd with `features`. Faults in kernel mode are handled as well.
    ///
    /// # Errors
    /// `EPERM` without permission; `EINVAL` if the kernel lacks a feature; `ENOSYS`.
    pub fn open(features: u64) -> io::Result<Uffd> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call takes a number only.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = if fd >= 0 {
            // SAFETY: the descriptor was just created and has no other owner.
            unsafe { OwnedFd::from_raw_fd(fd as i32) }
        } else {
            let refused = io::Error::last_os_error();
            if refused.raw_os_error() != Some(libc::EPERM) {
                return Err(refused);
            }
            open_device(flags).map_err(|error| match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => error,
                _ => refused,
            })?
        };
        let mut words = [API, features, 0];
        // SAFETY: the structure has three words and lives across the call.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API as _, words.as_mut_ptr()) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Uffd { fd })
    }

    /// Descriptor number of the userfaultfd.
    pub fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// Waits until `fd` has an event or `other` is readable. Returns true if `fd` has an event.
pub fn wait(fd: RawFd, other: RawFd) -> bool {
    let mut fds = [fd, other].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        // SAFETY: both entries live across the call.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        if ready > 0 {
            return fds[1].revents == 0;
        }
    }
}

/// Reads the next event of `fd`. This resumes the thread that caused the event, except after a
/// fault.
///
/// # Errors
/// `EAGAIN` if there is no event. `EMFILE` if the event is a fork and this process cannot open
/// another descriptor; the event then stays pending.
pub fn event(fd: RawFd) -> Result<Event, i32> {
    let mut words = [0u64; MESSAGE_BYTES / 8];
    let got = calls::read_into(libc::SYS_read, fd, &mut words, 0);
    if got != MESSAGE_BYTES as i64 {
        return Err(if got < 0 { -got as i32 } else { libc::EIO });
    }
    Ok(match words[0] & 0xff {
        0x13 => Event::Fork(words[1] as u32 as i32),
        0x14 => Event::Remap {
            from: words[1],
            to: words[2],
            len: words[3],
        },
        0x15 => Event::Remove {
            start: words[1],
            end: words[2],
        },
        0x16 => Event::Unmap {
            start: words[1],
            end: words[2],
        },
        _ => Event::Fault,
    })
}

fn open_device(flags: i32) -> io::Result<OwnedFd> {
    let device = std::fs::File::open("/dev/userfaultfd")?;
    // SAFETY: the request takes a number.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
