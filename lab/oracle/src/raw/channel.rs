//! Memory shared by the tester and its children: one slot for each process.
//!
//! # Picture
//! ```text
//! tester: write command, turn = CHILD, wake ──▶ child: do it, write answer, turn = TESTER, wake
//! ```
//! Both sides may read and write all of this memory, so all fields are atomic. The tester treats
//! the contents as arbitrary numbers.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::raw_call;

/// Maximum number of processes at one time.
pub const SLOTS: usize = 4;
/// Number of scratch words that a command may point to.
pub const SCRATCH_WORDS: usize = 64;

/// Scratch-memory index of the increments for a series of calls, one word per argument.
pub const STEPS: usize = 0;
/// Scratch-memory index of the requested number of calls.
pub const TIMES: usize = 6;
/// Scratch-memory index of the number of calls made.
pub const WENT: usize = 7;
/// Scratch-memory index of the duration in nanoseconds.
pub const TOOK: usize = 8;
/// Scratch-memory index of the two words that hold the clock's time.
pub const CLOCK: usize = 9;

/// Turn value: the tester may write a command.
pub const TESTER: u32 = 0;
/// Turn value: the child has a command to execute.
pub const CHILD: u32 = 1;

/// Commands for a child process.
pub mod command {
    /// Makes one system call.
    pub const CALL: u32 = 1;
    /// Reads one word of memory.
    pub const READ: u32 = 2;
    /// Writes one word of memory.
    pub const WRITE: u32 = 3;
    /// Forks; the new process serves the slot whose index is the first argument.
    pub const FORK: u32 = 4;
    /// Makes a series of calls whose arguments change by a fixed increment each time.
    pub const CALLS: u32 = 5;
    /// Makes a series of writes whose address changes by a fixed increment each time.
    pub const WRITES: u32 = 6;
}

/// The mailbox of one process.
#[repr(C, align(1024))]
#[derive(Debug)]
pub struct Slot {
    turn: AtomicU32,
    /// One of the constants in [`command`].
    pub command: AtomicU32,
    /// Number of the system call.
    pub number: AtomicU64,
    /// Arguments of the call; for a read or a write, the address and the value.
    pub args: [AtomicU64; 6],
    /// Result of the command, or `-errno` if the call failed.
    pub result: AtomicI64,
    /// Signal and its code (`signal << 8 | code`), or 0 if no signal was raised.
    pub signal: AtomicU64,
    /// Memory for arguments that are passed by address.
    pub scratch: [AtomicU64; SCRATCH_WORDS],
}

/// The shared mapping that contains all slots.
#[derive(Debug)]
pub struct Channel {
    slots: *mut [Slot; SLOTS],
}

// SAFETY: the mapping lives as long as the value and holds atomics only.
unsafe impl Send for Channel {}

impl Channel {
    /// Maps a channel whose slots are all zero.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn new() -> io::Result<Channel> {
        // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<[Slot; SLOTS]>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Channel { slots: at.cast() })
    }

    /// Returns the slots, one for each process.
    pub fn slots(&self) -> &[Slot; SLOTS] {
        // SAFETY: the memory is mapped until drop and page-aligned, and zeros are valid atomics.
        unsafe { &*self.slots }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: `new` created the mapping, and no reference outlives the value.
        unsafe { libc::munmap(self.slots.cast(), size_of::<[Slot; SLOTS]>()) };
    }
}

impl Slot {
    /// Returns the address of the scratch memory, which is the same in all processes.
    pub fn scratch_address(&self) -> u64 {
        self.scratch.as_ptr() as u64
    }

    /// Marks the slot as busy. Wakes no process, because the slot's process does not exist yet.
    pub fn expect_child(&self) {
        // ORDERING: Relaxed; the process that will answer is created later by system calls.
        self.turn.store(CHILD, Ordering::Relaxed);
    }

    /// Gives the turn to the other process, which then sees all earlier writes by this process.
    pub fn hand_over(&self, to: u32) {
        // ORDERING: Release, pairs with the Acquire in `has_turn`.
        self.turn.store(to, Ordering::Release);
        let args = [
            self.turn.as_ptr() as u64,
            libc::FUTEX_WAKE as u64,
            1,
            0,
            0,
            0,
        ];
        // SAFETY: the call wakes waiters of a word in this channel.
        unsafe { raw_call(libc::SYS_futex as u64, args) };
    }

    /// True if it is the turn of `who`.
    pub fn has_turn(&self, who: u32) -> bool {
        // ORDERING: Acquire, pairs with the Release in `hand_over`.
        self.turn.load(Ordering::Acquire) == who
    }

    /// Sleeps until it is the turn of `who`. Returns false if the optional timeout expires first.
    pub fn wait(&self, who: u32, timeout: Option<&libc::timespec>) -> bool {
        let other = if who == TESTER { CHILD } else { TESTER };
        let timeout_at = timeout.map_or(0, |t| ptr::from_ref(t) as u64);
        while !self.has_turn(who) {
            let args = [
                self.turn.as_ptr() as u64,
                libc::FUTEX_WAIT as u64,
                u64::from(other),
                timeout_at,
                0,
                0,
            ];
            // SAFETY: the word and the time live across the call.
            let result = unsafe { raw_call(libc::SYS_futex as u64, args) };
            if result == -i64::from(libc::ETIMEDOUT) {
                return self.has_turn(who);
            }
        }
        true
    }
}
