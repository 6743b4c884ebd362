//! Pipes: bytes that one process writes and another process reads.
//!
//! As in Linux, the bytes are in buffers of up to a page. A transfer to or from memory that is not
//! mapped ends between two buffers, so the buffers show in what it returns.

use crate::failure::Failure;
use crate::scheduler::{self, Event};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::errno::{ENOMEM, EPIPE};
use linux_raw_sys::general::{POLLERR, POLLHUP, POLLIN, POLLOUT};
use spin::Mutex;

/// Number of buffers of a pipe.
const BUFFERS: usize = 16;
/// Number of bytes in a buffer.
pub const BUFFER: usize = 4096;

#[derive(Debug)]
struct State {
    buffers: VecDeque<Vec<u8>>,
    /// Number of bytes of the first buffer that have been read.
    read: usize,
    readers: usize,
    writers: usize,
}

impl State {
    /// Returns the bytes of the first buffer that have not been read.
    fn first(&self) -> Option<&[u8]> {
        self.buffers.front().map(|first| &first[self.read..])
    }

    /// Removes bytes of the first buffer.
    fn consume(&mut self, len: usize) {
        self.read += len;
        if self.first().is_some_and(<[u8]>::is_empty) {
            self.buffers.pop_front();
            self.read = 0;
        }
    }

    /// Adds bytes to the last buffer if those that fill no buffer of their own fit there; returns
    /// their number.
    fn append(&mut self, from: &[u8]) -> usize {
        let rest = from.len() % BUFFER;
        match self.buffers.back_mut() {
            Some(last) if last.len() + rest <= BUFFER => {
                // A buffer has room for a page.
                last.extend_from_slice(&from[..rest]);
                rest
            }
            _ => 0,
        }
    }

    /// Adds a buffer with bytes.
    fn add(&mut self, from: &[u8]) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(BUFFER).map_err(|_| ENOMEM)?;
        self.buffers.try_reserve(1).map_err(|_| ENOMEM)?;
        buffer.extend_from_slice(from);
        self.buffers.push_back(buffer);
        Ok(())
    }
}

#[derive(Debug)]
struct Pipe(Mutex<State>);

impl Pipe {
    fn event(&self) -> Event {
        Event::File(core::ptr::from_ref(self) as usize)
    }

    /// Wakes the threads that wait for the pipe's state to change.
    fn changed(&self) {
        scheduler::wake(self.event(), usize::MAX);
        scheduler::wake(Event::AnyFile, usize::MAX);
    }
}

/// The end from which a program reads; until it is dropped, it counts as a reader of the pipe.
#[derive(Debug)]
pub struct ReadEnd(Arc<Pipe>);

/// The end to which a program writes; until it is dropped, it counts as a writer of the pipe.
#[derive(Debug)]
pub struct WriteEnd(Arc<Pipe>);

/// Creates a pipe.
pub fn create() -> (ReadEnd, WriteEnd) {
    let pipe = Arc::new(Pipe(Mutex::new(State {
        buffers: VecDeque::new(),
        read: 0,
        readers: 1,
        writers: 1,
    })));
    (ReadEnd(Arc::clone(&pipe)), WriteEnd(pipe))
}

impl ReadEnd {
    /// Returns the event that a reader waits for.
    pub fn event(&self) -> Event {
        self.0.event()
    }

    /// Reads bytes from the first buffer; returns the number of bytes read.
    ///
    /// An empty pipe yields 0 if it has no writer, and `None` if it has one.
    pub fn read(&self, to: &mut [u8]) -> Option<Result<usize, Failure>> {
        let len = {
            let mut state = self.0.0.lock();
            let Some(first) = state.first().filter(|_| !to.is_empty()) else {
                return (state.writers == 0 || to.is_empty()).then_some(Ok(0));
            };
            let len = to.len().min(first.len());
            to[..len].copy_from_slice(&first[..len]);
            state.consume(len);
            len
        };
        self.0.changed();
        Some(Ok(len))
    }

    /// Puts back bytes that [`read`](Self::read) returned and the program could not take.
    ///
    /// # Errors
    /// ENOMEM; the bytes are lost.
    pub fn put_back(&self, bytes: &[u8]) -> Result<(), Failure> {
        {
            let mut state = self.0.0.lock();
            let read = state.read;
            if read >= bytes.len() {
                // The rest of their buffer is still there.
                state.read -= bytes.len();
            } else {
                if let Some(first) = state.buffers.front_mut() {
                    first.drain(..read);
                }
                state.add(bytes)?;
                state.buffers.rotate_right(1);
                state.read = 0;
            }
        }
        self.0.changed();
        Ok(())
    }

    /// Returns the operations that are possible now.
    pub fn poll(&self) -> u32 {
        let state = self.0.0.lock();
        let input = if state.buffers.is_empty() { 0 } else { POLLIN };
        input | if state.writers == 0 { POLLHUP } else { 0 }
    }
}

impl WriteEnd {
    /// Returns the event that a writer waits for.
    pub fn event(&self) -> Event {
        self.0.event()
    }

    /// Writes bytes to the pipe; returns the number written, or `None` if there is not enough room.
    ///
    /// A pipe without readers yields EPIPE, for which the caller sends SIGPIPE. Up to 4096 bytes are
    /// written at once.
    pub fn write(&self, from: &[u8]) -> Option<Result<usize, Failure>> {
        let len = {
            let mut state = self.0.0.lock();
            if state.readers == 0 {
                return Some(Err(EPIPE.into()));
            }
            let mut len = state.append(from);
            while len < from.len() && state.buffers.len() < BUFFERS {
                let part = &from[len..from.len().min(len + BUFFER)];
                match state.add(part) {
                    Ok(()) => len += part.len(),
                    Err(failure) if len == 0 => return Some(Err(failure)),
                    Err(_) => break,
                }
            }
            if len == 0 && !from.is_empty() {
                return None;
            }
            len
        };
        self.0.changed();
        Some(Ok(len))
    }

    /// Returns the operations that are possible now.
    pub fn poll(&self) -> u32 {
        let state = self.0.0.lock();
        let room = state.buffers.len() < BUFFERS;
        let output = if room { POLLOUT } else { 0 };
        output | if state.readers == 0 { POLLERR } else { 0 }
    }
}

impl Drop for ReadEnd {
    fn drop(&mut self) {
        self.0.0.lock().readers -= 1;
        self.0.changed();
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        self.0.0.lock().writers -= 1;
        self.0.changed();
    }
}
