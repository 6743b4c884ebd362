//! Pipes: bytes that one process writes and another process reads.

use crate::failure::Failure;
use crate::scheduler::{self, Event};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use linux_raw_sys::errno::{ENOMEM, EPIPE};
use linux_raw_sys::general::{POLLERR, POLLHUP, POLLIN, POLLOUT};
use spin::Mutex;

/// Number of bytes that fit in a pipe.
const CAPACITY: usize = 65536;
/// Maximum size of a write that does not interleave with other writes.
const ATOMIC: usize = 4096;

#[derive(Debug)]
struct State {
    bytes: VecDeque<u8>,
    readers: usize,
    writers: usize,
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
        bytes: VecDeque::new(),
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

    /// Reads bytes from the pipe; returns the number of bytes read.
    ///
    /// An empty pipe yields 0 if it has no writer, and `None` if it has one.
    pub fn read(&self, to: &mut [u8]) -> Option<Result<usize, Failure>> {
        let len = {
            let mut state = self.0.0.lock();
            let len = to.len().min(state.bytes.len());
            if len == 0 {
                return (state.writers == 0 || to.is_empty()).then_some(Ok(0));
            }
            for (to, from) in to.iter_mut().zip(state.bytes.drain(..len)) {
                *to = from;
            }
            len
        };
        self.0.changed();
        Some(Ok(len))
    }

    /// Returns the operations that are possible now.
    pub fn poll(&self) -> u32 {
        let state = self.0.0.lock();
        let input = if state.bytes.is_empty() { 0 } else { POLLIN };
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
    /// A pipe without readers yields EPIPE, for which the caller sends SIGPIPE.
    pub fn write(&self, from: &[u8]) -> Option<Result<usize, Failure>> {
        let len = {
            let mut state = self.0.0.lock();
            if state.readers == 0 {
                return Some(Err(EPIPE.into()));
            }
            let room = CAPACITY - state.bytes.len();
            let len = from.len().min(room);
            if from.len() <= ATOMIC && len < from.len() || len == 0 && !from.is_empty() {
                return None;
            }
            if state.bytes.try_reserve(len).is_err() {
                return Some(Err(ENOMEM.into()));
            }
            state.bytes.extend(&from[..len]);
            len
        };
        self.0.changed();
        Some(Ok(len))
    }

    /// Returns the operations that are possible now.
    pub fn poll(&self) -> u32 {
        let state = self.0.0.lock();
        let room = CAPACITY - state.bytes.len() >= ATOMIC;
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
