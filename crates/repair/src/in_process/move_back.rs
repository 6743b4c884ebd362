//! Bringing pages home, whatever the kernel answers.
//!
//! What is out, the kernel says page by page (`/proc/self/pagemap`), so that to begin anew is always
//! right. A page that cannot be moved home is copied there; one whose place the program has given up,
//! or has put something else in, is dropped. Every other refusal passes: it is tried again for as long
//! as it lasts, because a thread that needs the page waits for it. Nothing is used but the stack and
//! shared memory.
//!
//! # Invariants
//! M1  a page that waits is dropped only where its place holds another page or is not watched any more

use vmarea::types::VmRange;

use super::shared::{Locked, Shared};
use crate::piece::{What, unshare};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::{self, Call};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::uffd;

/// How often a call is made again that the kernel put off, before something else is tried: for minutes,
/// as a fork of a large process takes seconds.
pub(super) const PATIENCE: u32 = 1_000_000;
/// How often a call is made again that the kernel says to be wrong.
const DOUBT: u32 = 8;

/// What came of one try with one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Try {
    /// It is where it belongs, or belongs nowhere.
    Done,
    /// The kernel could not now.
    Again,
}

/// A move home, as far as it goes; true where it is whole. Not where somebody has changed the piece: pages
/// may belong elsewhere then, each of its own. What it leaves is for [`bring_all`].
pub(super) fn move_run(shared: &Shared, call: &mut Call) -> bool {
    for round in 0..PATIENCE {
        let locked = shared.lock();
        if locked.is_disturbed() {
            return false;
        }
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

/// What a move came to: 0 where it is whole, `EAGAIN` where it is to go on.
pub(super) fn next_step(call: &mut Call) -> i32 {
    match call.errno() {
        libc::EAGAIN if uffd::advance(call) && call.payload[2] == 0 => 0,
        errno => errno,
    }
}

/// Brings every page home that is out, wherever that is now.
pub(super) fn bring_all(shared: &Shared) {
    let whole = VmRange::new(0, shared.piece().len_bytes());
    shared.pages_out(whole, &mut |off, len| {
        for off in (off..off + len).step_by(PAGE as usize) {
            bring(shared, off);
        }
        true
    });
}

fn bring(shared: &Shared, off: u64) {
    let mut round = 0;
    loop {
        // Under the lock: where its home is does not change meanwhile.
        let locked = shared.lock();
        let came = try_to_bring(&locked, off);
        drop(locked);
        if came == Try::Done {
            return;
        }
        own_process::rest(round);
        round = round.saturating_add(1);
    }
}

fn try_to_bring(shared: &Locked<'_>, off: u64) -> Try {
    let (fd, from) = (shared.descriptors.home, shared.temporary() + off);
    let Some(home) = shared.home_of(off) else {
        shared.drop_out(off);
        return Try::Done;
    };
    let mut call = uffd::move_pages(What::Back as u64, fd, home, from, PAGE);
    calls::run(&mut call);
    match call.errno() {
        0 => return Try::Done,
        libc::EAGAIN => return Try::Again,
        // Nobody watches any more: the program has closed the descriptor, and its pages are its own.
        libc::EBADF => return Try::Done,
        // It was shared while it waited (by KSM).
        libc::EBUSY => calls::run(&mut unshare(from)),
        _ => {}
    }
    // To copy what does not wait would be to wait for it.
    match shared.is_filled(from) {
        None => return Try::Again,
        Some(false) => return Try::Done,
        Some(true) => {}
    }
    // Its place may be protected now, so that nothing can be moved there.
    call = uffd::copy(What::Back as u64, fd, home, from, PAGE);
    calls::run(&mut call);
    match call.errno() {
        0 => {
            shared.drop_out(off);
            Try::Done
        }
        // The kernel looks for the place before it looks whether changes are under way: what is not
        // there may be on its way to another place.
        libc::ENOENT | libc::EEXIST | libc::EINVAL if uffd::is_changing(fd) => Try::Again,
        libc::ENOENT | libc::EEXIST | libc::EINVAL => give_up(shared, off, home),
        _ => Try::Again,
    }
}

/// The kernel says that a page has no place any more: drops it where that is so.
fn give_up(shared: &Locked<'_>, off: u64, home: u64) -> Try {
    let watched = uffd::watches(shared.descriptors.home, home, shared.bin());
    let has_no_place = match watched {
        Ok(true) => shared.is_filled(home) == Some(true),
        Ok(false) => true,
        Err(_) => false,
    };
    if !has_no_place {
        return Try::Again;
    }
    // The program has unmapped it, or has something else there.
    shared.drop_out(off);
    Try::Done
}

/// Makes a call that must be made, again and again; false where the kernel says that there is nothing to
/// do it to.
pub(super) fn insist(call: &Call) -> bool {
    let mut doubts = 0;
    for round in 0..PATIENCE {
        let mut now = *call;
        calls::run(&mut now);
        match now.errno() {
            0 => return true,
            libc::EINVAL | libc::ENOENT | libc::EBADF if doubts == DOUBT => return false,
            libc::EINVAL | libc::ENOENT | libc::EBADF => doubts += 1,
            _ => {}
        }
        own_process::rest(round);
    }
    false
}
