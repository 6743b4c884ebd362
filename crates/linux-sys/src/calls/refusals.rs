//! Injected failures of calls, for tests: the kernel is not called, or does only half of the work.
//!
//! A plan says which of the calls made through this module fail with an errno. A repair of the own
//! process makes these calls: moves, copies, mappings, watches, and reads of the current state.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::uffd;

/// Calls before the first refused one; below zero no call is refused.
static BEFORE: AtomicI64 = AtomicI64::new(-1);
/// Number of consecutive refusals.
static TIMES: AtomicU32 = AtomicU32::new(0);
static ERRNO: AtomicI32 = AtomicI32::new(0);
/// Number of refusals so far.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// 1 if a refused call does half of its work.
static BY_HALF: AtomicU32 = AtomicU32::new(0);

/// Which calls are refused, and how.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    /// How many are made before.
    pub before: i64,
    /// How many are refused.
    pub times: u32,
    /// What they answer.
    pub errno: i32,
    /// Whether moves and swaps do half of their work before.
    pub by_half: bool,
}

impl Refusals {
    /// From now on, until [`Refusals::end`].
    pub fn begin(self) {
        BEFORE.store(-1, SeqCst);
        TIMES.store(self.times, SeqCst);
        ERRNO.store(self.errno, SeqCst);
        REFUSED.store(0, SeqCst);
        BY_HALF.store(u32::from(self.by_half), SeqCst);
        BEFORE.store(self.before, SeqCst);
    }

    /// No more; how many there were.
    pub fn end(self) -> u64 {
        BEFORE.store(-1, SeqCst);
        REFUSED.load(SeqCst)
    }
}

fn is_refused() -> bool {
    let counted = BEFORE.fetch_update(SeqCst, SeqCst, |before| (before > 0).then(|| before - 1));
    // At zero it stays until as many have been refused as are to be.
    if counted != Err(0) {
        return false;
    }
    let last = TIMES.fetch_update(SeqCst, SeqCst, |times| times.checked_sub(1));
    if last.is_ok() {
        REFUSED.fetch_add(1, SeqCst);
    }
    last.is_ok()
}

/// Makes a call unless it is refused.
///
/// # Safety
/// As the call itself.
pub unsafe fn make(nr: i64, args: [u64; 6]) -> i64 {
    if !is_refused() {
        // SAFETY: the caller's.
        return unsafe { super::direct(nr, args) };
    }
    if BY_HALF.load(SeqCst) != 0 {
        // SAFETY: the caller's, as half of a call does nothing else than the call.
        unsafe { half(nr, args) };
    }
    -i64::from(ERRNO.load(SeqCst))
}

/// Does the part of a call that the kernel may have done before it ran out of memory.
///
/// A swap has unmapped its target; a move has moved a page and does not report it.
unsafe fn half(nr: i64, args: [u64; 6]) {
    if nr == libc::SYS_mremap {
        // SAFETY: as the call, which unmaps the same range first.
        unsafe { super::direct(libc::SYS_munmap, [args[4], args[1], 0, 0, 0, 0]) };
    }
    if nr == libc::SYS_ioctl && args[1] == uffd::UFFDIO_MOVE {
        let payload = args[2] as *mut u64;
        // SAFETY: the request's structure is five words; the third is the length.
        unsafe {
            let whole = payload.add(2).read();
            payload.add(2).write(whole.min(4096));
            super::direct(nr, args);
            payload.add(2).write(whole);
            payload.add(4).write(0);
        }
    }
}
