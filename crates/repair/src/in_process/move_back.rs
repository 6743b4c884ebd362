//! Moves pages back to their addresses, even if the kernel refuses some of the calls.
//!
//! The pagemap (`/proc/self/pagemap`) shows which pages are in the temporary range, so the
//! operation can be restarted at any point. A page that cannot be moved back is copied. If the
//! program has closed the userfaultfd, the page is written to its address through ordinary memory
//! access. Every other refusal is temporary: the call is repeated until it succeeds, because a
//! thread that needs the page waits for it. This module uses only the stack and shared memory.
//!
//! # Invariants
//! M1  A page in the temporary range is dropped only if its address holds another page or is not
//!     watched any more; all that is left there is discarded with the scratch area.

use super::shared::{Locked, Shared};
use crate::piece::{What, unshare};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::{self, Call};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::uffd;

/// Maximum number of attempts at a call that the kernel refuses temporarily. All attempts together
/// take minutes, long enough for a fork of a large process, which takes seconds.
pub(super) const MOST_ATTEMPTS: u32 = 1_000_000;
/// Maximum number of repetitions of a call that the kernel rejects because of the range.
const MOST_INVALID: u32 = 8;

/// Result of one attempt to move one page back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Try {
    /// The page is at its address.
    Done,
    /// The kernel reports that the address holds another page or is not watched.
    NoPlace,
    /// The kernel could not move the page yet.
    Again,
}

/// Moves a run of pages back with `call`, which is attempted up to [`MOST_ATTEMPTS`] times while
/// the kernel refuses it temporarily. Returns true if all pages of the run were moved. [`bring_all`]
/// handles the pages that remain.
pub(super) fn move_run(shared: &Shared, call: &mut Call) -> bool {
    for round in 0..MOST_ATTEMPTS {
        let locked = shared.lock();
        calls::run(call);
        let errno = next_step(call);
        drop(locked);
        if errno != libc::EAGAIN {
            return errno == 0;
        }
        own_process::rest(round);
    }
    false
}

/// Returns the result of a move and advances the call past the pages that were moved. The result is
/// 0 if the move is complete, `EAGAIN` if the call must be repeated, and the errno otherwise.
pub(super) fn next_step(call: &mut Call) -> i32 {
    match call.errno() {
        libc::EAGAIN if uffd::advance(call) && call.payload[2] == 0 => 0,
        errno => errno,
    }
}

/// Moves every page in the temporary range back to its address.
pub(super) fn bring_all(shared: &Shared) {
    shared.pages_out(&mut |off, len| {
        for off in (off..off + len).step_by(PAGE as usize) {
            bring(shared, off);
        }
        true
    });
}

fn bring(shared: &Shared, off: u64) {
    let mut invalid = 0;
    let mut round = 0;
    loop {
        let locked = shared.lock();
        let came = try_to_bring(&locked, off);
        drop(locked);
        match came {
            Try::Done => return,
            Try::NoPlace if invalid == MOST_INVALID => return,
            Try::NoPlace => invalid += 1,
            Try::Again => {}
        }
        own_process::rest(round);
        round = round.saturating_add(1);
    }
}

fn try_to_bring(shared: &Locked<'_>, off: u64) -> Try {
    let (fd, from) = (shared.descriptors.home, shared.temporary() + off);
    let home = shared.piece().start + off;
    let mut call = uffd::move_pages(What::Back as u64, fd, home, from, PAGE);
    calls::run(&mut call);
    match call.errno() {
        0 => return Try::Done,
        libc::EAGAIN => return Try::Again,
        libc::EBADF => return write(shared, from, home),
        // The page became shared in the temporary range (by KSM).
        libc::EBUSY => calls::run(&mut unshare(from)),
        _ => {}
    }
    // Copying from an empty page of the temporary range would wait for that page.
    match shared.is_filled(from) {
        None => return Try::Again,
        Some(false) => return Try::Done,
        Some(true) => {}
    }
    call = uffd::copy(What::Back as u64, fd, home, from, PAGE);
    calls::run(&mut call);
    match call.errno() {
        0 => Try::Done,
        libc::ENOENT | libc::EEXIST | libc::EINVAL => Try::NoPlace,
        _ => Try::Again,
    }
}

/// Writes a page to its address after the program has closed the userfaultfd.
///
/// Closing the userfaultfd ended the watch, so a thread may have created another page at that
/// address in the meantime. Such a page is kept.
fn write(shared: &Locked<'_>, from: u64, home: u64) -> Try {
    if shared.is_filled(from) == Some(true) && shared.is_filled(home) == Some(false) {
        // This fails only if the program has unmapped the address, contrary to the contract.
        let _ = own_process::copy_page(home, from);
    }
    Try::Done
}

/// Repeats a call until it succeeds. Gives up after too many attempts, or if the kernel keeps
/// reporting that the range is not mapped or not watched.
pub(super) fn insist(call: &Call) {
    let mut invalid = 0;
    for round in 0..MOST_ATTEMPTS {
        let mut now = *call;
        calls::run(&mut now);
        match now.errno() {
            0 => return,
            libc::EINVAL | libc::ENOENT | libc::EBADF if invalid == MOST_INVALID => return,
            libc::EINVAL | libc::ENOENT | libc::EBADF => invalid += 1,
            _ => {}
        }
        own_process::rest(round);
    }
}
