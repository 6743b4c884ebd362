//! `OpenFile`: the open file description behind a descriptor, with its position and flags.

use super::inode::Device;
use super::pipe::{ReadEnd, WriteEnd};
use super::{Inode, terminal};
use crate::cpu::clock;
use crate::failure::{Failure, RESTART};
use crate::memory::mapped;
use crate::scheduler::task::Woken;
use crate::scheduler::{self, Event};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt::Debug;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::errno::{EACCES, EAGAIN, EBADF, EINVAL, EISDIR, ESPIPE};
use linux_raw_sys::general::{
    O_ACCMODE, O_APPEND, O_NONBLOCK, O_PATH, O_RDONLY, O_WRONLY, POLLHUP, POLLIN, POLLOUT,
};
use spin::Mutex;
use vmarea::types::FileId;

/// A file whose contents the kernel generates, such as a file of `/proc`.
pub trait Generated: Debug + Send + Sync {
    /// Reads bytes at an offset; returns the number of bytes read.
    ///
    /// # Errors
    /// Those of the file.
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, Failure>;

    /// Writes bytes at an offset; returns the number of bytes written.
    ///
    /// # Errors
    /// Those of the file.
    fn write(&self, offset: u64, from: &[u8]) -> Result<usize, Failure>;
}

/// Object that an open file refers to.
#[derive(Debug)]
pub enum Object {
    /// A file, a directory or a device.
    Inode(Arc<Inode>),
    /// The end of a pipe from which a program reads.
    PipeOut(ReadEnd),
    /// The end of a pipe to which a program writes.
    PipeIn(WriteEnd),
    /// A socket of a connected pair: the pipe that it receives from, and the pipe that it sends to.
    Socket(ReadEnd, WriteEnd),
    /// A file whose contents the kernel generates.
    Generated(Box<dyn Generated>),
    /// A pidfd, which refers to the process with this number and cannot be read.
    PidFd(u32),
}

/// An open file description.
#[derive(Debug)]
pub struct OpenFile {
    /// Id by which the core identifies the open file.
    pub id: FileId,
    /// The object that was opened.
    pub object: Object,
    /// Path with which the object was opened.
    pub path: String,
    flags: AtomicU32,
    position: Mutex<u64>,
}

/// File offset at which a read or write happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The current position, which advances by the number of bytes transferred.
    Position,
    /// The given offset; the position does not change.
    Offset(u64),
}

impl OpenFile {
    /// Opens an object with the given `O_...` flags.
    pub fn new(object: Object, path: String, flags: u32) -> Arc<OpenFile> {
        Arc::new(OpenFile {
            id: mapped::new_id(),
            object,
            path,
            flags: AtomicU32::new(flags),
            position: Mutex::new(0),
        })
    }

    /// Returns the flags.
    pub fn flags(&self) -> u32 {
        // ORDERING: Relaxed; one word.
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the flags that may be changed after the file has been opened.
    pub fn set_status_flags(&self, flags: u32) {
        const CHANGEABLE: u32 = O_APPEND | O_NONBLOCK;
        let flags = self.flags() & !CHANGEABLE | flags & CHANGEABLE;
        // ORDERING: Relaxed; one word.
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// True if the file was opened for reading.
    pub fn is_readable(&self) -> bool {
        self.flags() & (O_ACCMODE | O_PATH) != O_WRONLY && self.flags() & O_PATH == 0
    }

    /// True if the file was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.flags() & O_ACCMODE != O_RDONLY && self.flags() & O_PATH == 0
    }

    /// Returns the inode, if the open object is an inode.
    pub fn inode(&self) -> Option<&Arc<Inode>> {
        match &self.object {
            Object::Inode(inode) => Some(inode),
            _ => None,
        }
    }

    /// Returns the pipe that the file reads from, if it is a pipe or a socket.
    pub fn incoming(&self) -> Option<&ReadEnd> {
        match &self.object {
            Object::PipeOut(end) | Object::Socket(end, _) => Some(end),
            _ => None,
        }
    }

    /// True if the file writes to a pipe, of which it can be said how it ends at unmapped memory.
    pub fn is_pipe_in(&self) -> bool {
        matches!(self.object, Object::PipeIn(_) | Object::Socket(..))
    }

    /// Calls `f` with the offset of a transfer; advances the position by the bytes transferred.
    fn at(
        &self,
        place: Place,
        f: impl FnOnce(u64) -> Result<usize, Failure>,
    ) -> Result<usize, Failure> {
        match place {
            Place::Offset(offset) => f(offset),
            Place::Position => {
                let mut position = self.position.lock();
                let done = f(*position)?;
                *position += done as u64;
                Ok(done)
            }
        }
    }

    /// Reads bytes; returns the number of bytes read.
    ///
    /// # Errors
    /// EBADF if the file was not opened for reading; EISDIR; EAGAIN if there is nothing to read and
    /// the file is non-blocking; errors of the object.
    pub fn read(&self, place: Place, to: &mut [u8]) -> Result<usize, Failure> {
        if !self.is_readable() {
            return Err(EBADF.into());
        }
        match &self.object {
            Object::PipeOut(end) | Object::Socket(end, _) => {
                self.wait(end.event(), || end.read(to))
            }
            Object::PipeIn(_) => Err(EBADF.into()),
            Object::Generated(file) => self.at(place, |offset| file.read(offset, to)),
            Object::PidFd(_) => Err(EINVAL.into()),
            Object::Inode(inode) => match inode.as_device() {
                None if inode.is_directory() => Err(EISDIR.into()),
                None => self.at(place, |offset| inode.read(offset, to)),
                Some(Device::Terminal) => self.wait(terminal::event(), || terminal::read(to)),
                Some(Device::Null) => Ok(0),
                Some(Device::Zero) => {
                    to.fill(0);
                    Ok(to.len())
                }
                Some(Device::Random) => {
                    fill_randomly(to);
                    Ok(to.len())
                }
            },
        }
    }

    /// Writes bytes; returns the number of bytes written.
    ///
    /// # Errors
    /// EBADF if the file was not opened for writing; EPIPE; EAGAIN; errors of the object.
    pub fn write(&self, place: Place, from: &[u8]) -> Result<usize, Failure> {
        if !self.is_writable() {
            return Err(EBADF.into());
        }
        match &self.object {
            Object::PipeIn(end) | Object::Socket(_, end) => {
                self.wait(end.event(), || end.write(from))
            }
            Object::PipeOut(_) => Err(EBADF.into()),
            Object::Generated(file) => self.at(place, |offset| file.write(offset, from)),
            Object::PidFd(_) => Err(EACCES.into()),
            Object::Inode(inode) => match inode.as_device() {
                None => {
                    if place == Place::Position && self.flags() & O_APPEND != 0 {
                        *self.position.lock() = inode.size();
                    }
                    self.at(place, |offset| inode.write(offset, from))
                }
                Some(Device::Terminal) => {
                    crate::console::CONSOLE.lock().send_text(from);
                    Ok(from.len())
                }
                Some(_) => Ok(from.len()),
            },
        }
    }

    /// Waits until a transfer is possible.
    fn wait(
        &self,
        event: Event,
        mut transfer: impl FnMut() -> Option<Result<usize, Failure>>,
    ) -> Result<usize, Failure> {
        if self.flags() & O_NONBLOCK != 0 {
            return transfer().unwrap_or(Err(EAGAIN.into()));
        }
        match scheduler::wait(event, None, transfer) {
            Ok(result) => result,
            Err(Woken::Signal) => Err(RESTART.into()),
            Err(_) => Err(EAGAIN.into()),
        }
    }

    /// Sets the position; returns the new position.
    ///
    /// # Errors
    /// ESPIPE for a pipe or the terminal; EINVAL.
    pub fn seek(&self, offset: i64, whence: u32) -> Result<u64, Failure> {
        let size = match &self.object {
            Object::Inode(inode) if inode.as_device() != Some(Device::Terminal) => inode.size(),
            Object::Generated(_) | Object::PidFd(_) => 0,
            _ => return Err(ESPIPE.into()),
        };
        let mut position = self.position.lock();
        let base = match whence {
            0 => 0,
            1 => *position,
            2 => size,
            _ => return Err(EINVAL.into()),
        };
        *position = base
            .checked_add_signed(offset)
            .filter(|at| at >> 63 == 0)
            .ok_or(EINVAL)?;
        Ok(*position)
    }

    /// Calls `f` with the position; used for a directory that is listed in several parts.
    pub fn with_position<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.position.lock())
    }

    /// Returns the operations that are possible now (`POLLIN`, `POLLOUT`, `POLLHUP`).
    pub fn poll(&self) -> u32 {
        match &self.object {
            Object::PipeOut(end) => end.poll(),
            Object::PipeIn(end) => end.poll(),
            Object::Socket(out, into) => out.poll() | into.poll(),
            Object::Inode(inode) if inode.as_device() == Some(Device::Terminal) => {
                POLLOUT | if terminal::has_input() { POLLIN } else { 0 }
            }
            _ => (POLLIN | POLLOUT) & !POLLHUP,
        }
    }
}

/// Fills a buffer with pseudorandom, predictable bytes.
pub fn fill_randomly(to: &mut [u8]) {
    let mut state = clock::now() | 1;
    for byte in to {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
}
