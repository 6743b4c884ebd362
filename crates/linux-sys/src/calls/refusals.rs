//! Injected failures of system calls, for tests.
//!
//! A plan selects which of the calls made through this module fail with an errno. A failing call is
//! executed only in part or not at all. A process that repairs itself makes the following kinds of
//! calls through this module: moves, copies, mappings, userfaultfd registrations, and reads of the
//! current state.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// `UFFDIO_MOVE`. The module `uffd`, which has it too, is above this one.
const UFFDIO_MOVE: u64 = 0xc028_aa05;
/// Remaining number of calls before the first refusal; if negative, no call is refused.
static BEFORE: AtomicI64 = AtomicI64::new(-1);
/// Number of calls that are still to be refused.
static TIMES: AtomicU32 = AtomicU32::new(0);
static ERRNO: AtomicI32 = AtomicI32::new(0);
/// Number of calls refused so far.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// 1 if refused `mremap` and `UFFDIO_MOVE` calls first take effect in part, otherwise 0.
static BY_HALF: AtomicU32 = AtomicU32::new(0);

/// A plan that determines which calls are refused and how they fail.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    /// Number of calls that are made before the first refusal.
    pub before: i64,
    /// Number of calls to refuse.
    pub times: u32,
    /// Errno that the refused calls return.
    pub errno: i32,
    /// True if each refused `mremap` and `UFFDIO_MOVE` first takes effect in part, as in the kernel
    /// when it runs out of memory during the call: the `mremap` unmaps the target range, and the
    /// `UFFDIO_MOVE` moves one page.
    pub by_half: bool,
}

impl Refusals {
    /// Starts refusing calls according to this plan, until [`Refusals::end`] is called.
    pub fn begin(self) {
        BEFORE.store(-1, SeqCst);
        TIMES.store(self.times, SeqCst);
        ERRNO.store(self.errno, SeqCst);
        REFUSED.store(0, SeqCst);
        BY_HALF.store(u32::from(self.by_half), SeqCst);
        BEFORE.store(self.before, SeqCst);
    }

    /// True if a call has been refused since [`Refusals::begin`].
    pub fn has_begun(self) -> bool {
        REFUSED.load(SeqCst) > 0
    }

    /// Stops refusing calls. Returns the number of refused calls.
    pub fn end(self) -> u64 {
        BEFORE.store(-1, SeqCst);
        REFUSED.load(SeqCst)
    }
}

fn is_refused() -> bool {
    let counted = BEFORE.fetch_update(SeqCst, SeqCst, |before| (before > 0).then(|| before - 1));
    // At zero, `BEFORE` no longer changes, and `TIMES` counts the remaining refusals.
    if counted != Err(0) {
        return false;
    }
    let last = TIMES.fetch_update(SeqCst, SeqCst, |times| times.checked_sub(1));
    if last.is_ok() {
        REFUSED.fetch_add(1, SeqCst);
    }
    last.is_ok()
}

/// Makes a system call unless the plan refuses it.
///
/// # Safety
/// The safety requirements of the system call itself.
pub unsafe fn make(nr: i64, args: [u64; 6]) -> i64 {
    if !is_refused() {
        // SAFETY: the caller guarantees this.
        return unsafe { super::direct(nr, args) };
    }
    if BY_HALF.load(SeqCst) != 0 {
        // SAFETY: the caller guarantees this; half of a call does nothing that the whole would not
        // do.
        unsafe { half(nr, args) };
    }
    -i64::from(ERRNO.load(SeqCst))
}

/// Executes the part of a call that the kernel may complete before it runs out of memory.
///
/// For an `mremap`, unmaps the target range; for a `UFFDIO_MOVE`, moves one page but reports none.
unsafe fn half(nr: i64, args: [u64; 6]) {
    if nr == libc::SYS_mremap {
        // SAFETY: the `mremap` would unmap the same range first.
        unsafe { super::direct(libc::SYS_munmap, [args[4], args[1], 0, 0, 0, 0]) };
    }
    if nr == libc::SYS_ioctl && args[1] == UFFDIO_MOVE {
        let payload = args[2] as *mut u64;
        // SAFETY: the structure of the request has five words; the third is the length.
        unsafe {
            let whole = payload.add(2).read();
            payload.add(2).write(whole.min(4096));
            super::direct(nr, args);
            payload.add(2).write(whole);
            payload.add(4).write(0);
        }
    }
}
