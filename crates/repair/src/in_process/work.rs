//! Replacement of one piece of the calling process while its other threads run.
//!
//! While any page of the piece is moved out, the working thread uses only its stack and shared
//! memory. Moves are made under the watcher's lock.

use vmarea_merge::types::VmRange;

use super::move_back::{MOST_ATTEMPTS, bring_all, insist, move_run, next_step};
use super::shared::{Locked, Shared, Site};
use crate::KeptReason;
use crate::piece::{self, What};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::{self, Call};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::uffd;
use vmarea_process::pagemap::EXCLUSIVE;

/// All data used while pages are moved out, none of it on the heap.
pub(super) struct Work<'a> {
    pub(super) sequence: Sequence<'a>,
    pub(super) shared: &'a Shared,
    pub(super) site: Site,
    pub(super) copies: Copies,
    /// True if the scratch area may have a hole in which the program has mapped memory. Such an
    /// area must not be used again.
    pub(super) room_is_lost: bool,
}

/// The calls of a piece, in shared memory.
pub(super) struct Sequence<'a> {
    pub(super) calls: &'a mut [Call],
    /// Number of calls before the swap.
    pub(super) before: usize,
}

/// Counters of copied shared pages.
pub(super) struct Copies {
    pub(super) left: u64,
    pub(super) made: u64,
}

pub(super) enum End {
    Joined,
    /// The piece is unchanged: the reason, and the address of the obstacle.
    Refused(KeptReason, u64),
}

impl End {
    /// Returns why the piece was refused; `None` if it was joined.
    pub(super) fn refused(self) -> Option<(KeptReason, u64)> {
        match self {
            End::Joined => None,
            End::Refused(reason, place) => Some((reason, place)),
        }
    }
}

impl Work<'_> {
    /// Replaces the piece, or leaves it unchanged. From this call on, only the stack and shared
    /// memory are used.
    pub(super) fn join(&mut self) -> End {
        self.shared.begin(self.site);
        let end = match self.pages_out() {
            Ok(()) => match self.swap() {
                Ok(()) => {
                    self.pages_back();
                    End::Joined
                }
                Err(reason) => {
                    self.undo();
                    End::Refused(reason, self.site.piece.start)
                }
            },
            Err((reason, place)) => {
                self.undo();
                End::Refused(reason, place)
            }
        };
        self.wait_for_forks();
        self.give_room_back();
        self.shared.end();
        end
    }

    /// Empties the scratch area for the next piece. Before Linux 6.12, a failed `mmap` may have
    /// unmapped part of the area, and another thread may have mapped memory there; the area is
    /// abandoned in this case.
    fn give_room_back(&mut self) {
        let range = self.site.room.range;
        if !self.room_is_lost {
            let mut call = piece::reserve(What::Release, range);
            for round in 0..MOST_ATTEMPTS {
                calls::run(&mut call);
                if call.errno() == 0 || !own_process::is_mapped(range.start, range.len_bytes()) {
                    break;
                }
                own_process::rest(round);
            }
            self.room_is_lost = call.errno() != 0;
        }
    }

    /// Waits until every child that was forked during the piece has received its pages.
    fn wait_for_forks(&self) {
        for round in 0..u32::MAX {
            // The watcher reads and handles an event under the lock.
            let locked = self.shared.lock();
            let is_forking = uffd::is_changing(self.shared.descriptors.home);
            drop(locked);
            if !is_forking {
                return;
            }
            own_process::rest(round);
        }
    }

    fn pages_out(&mut self) -> Result<(), (KeptReason, u64)> {
        let is_out = |call: &Call| call.what == What::Out as u64;
        let before = self.sequence.before;
        let first = self.sequence.calls[..before].iter().position(is_out);
        let first = first.unwrap_or(before);
        for call in &mut self.sequence.calls[..first] {
            calls::run(call);
            let errno = call.errno();
            if errno != 0 {
                let (call, start) = (*call, self.site.piece.start);
                if call.what == What::Map as u64 {
                    let range = self.site.room.range;
                    self.room_is_lost = !own_process::is_mapped(range.start, range.len_bytes());
                }
                return Err((self.reason(&call, errno, start), start));
            }
        }
        if !self.is_fresh_empty() {
            return Err((KeptReason::Changed, self.site.piece.start));
        }
        let mut turn = Turn::take(self.shared);
        (first..before).try_for_each(|n| match self.move_out(n, &mut turn) {
            0 => Ok(()),
            errno => {
                let call = &self.sequence.calls[n];
                let place = call.payload[1];
                Err((self.reason(call, errno, place), place))
            }
        })
    }

    /// True if no page can be in the way when the pages return. Another process that reads the fresh
    /// mapping (`/proc/PID/mem`) before it is watched fills it with pages of zeros.
    fn is_fresh_empty(&self) -> bool {
        let mut is_empty = true;
        let fresh = self.site.room.fresh(self.site.piece);
        self.shared.filled(fresh, &mut |_, _| {
            is_empty = false;
            false
        });
        is_empty
    }

    /// Executes one move, after making its pages exclusive to the process if necessary.
    fn move_out(&mut self, n: usize, turn: &mut Turn<'_>) -> i32 {
        let mut tried = u64::MAX;
        loop {
            let call = &mut self.sequence.calls[n];
            let errno = turn.run(|| {
                calls::run(call);
                next_step(call)
            });
            let page = self.sequence.calls[n].payload[1];
            if errno != libc::EBUSY || tried == page {
                return errno;
            }
            tried = page;
            if !self.is_exclusive(page) {
                // Another process maps the page as well: this process gets a copy.
                if self.copies.left == 0 {
                    return errno;
                }
                self.copies.left -= 1;
                self.copies.made += 1;
            }
            let mut call = piece::unshare(page);
            calls::run(&mut call);
            self.sequence.calls[n].payload[4] = 0;
        }
    }

    fn is_exclusive(&self, page: u64) -> bool {
        let mut word = [0];
        // A page that cannot be inspected is considered shared.
        own_process::read_words(self.shared.descriptors.pagemap, &mut word, page / PAGE * 8)
            .is_ok_and(|_| word[0] & EXCLUSIVE != 0)
    }

    fn reason(&self, call: &Call, errno: i32, place: u64) -> KeptReason {
        match errno {
            libc::EBUSY if call.what != What::Out as u64 => KeptReason::Userfaultfd,
            libc::EBUSY if self.is_exclusive(place) => KeptReason::Pinned,
            libc::EBUSY => KeptReason::Shared,
            libc::EFAULT => KeptReason::Guard,
            libc::ENOMEM => KeptReason::NoRoom,
            _ => KeptReason::Changed,
        }
    }

    fn swap(&mut self) -> Result<(), KeptReason> {
        let call = &mut self.sequence.calls[self.sequence.before];
        run_swap(call, self.site.piece);
        match call.errno() {
            0 => Ok(()),
            libc::ENOMEM => Err(KeptReason::NoRoom),
            _ => Err(KeptReason::Changed),
        }
    }

    fn pages_back(&mut self) {
        let after = self.sequence.before + 1;
        let shared = self.shared;
        for call in &mut self.sequence.calls[after..] {
            if call.what == What::Back as u64 && !move_run(shared, call) {
                bring_all(shared);
            }
        }
        let rest = &self.sequence.calls[after..];
        let unwatch = rest.iter().filter(|call| call.what != What::Back as u64);
        unwatch.for_each(insist);
    }

    /// Moves the pages back, and restores the mappings.
    fn undo(&mut self) {
        let Site {
            piece, left, room, ..
        } = self.site;
        let (home, temporary) = (self.shared.descriptors.home, room.temporary(piece).start);
        for call in self.sequence.calls[..self.sequence.before].iter().rev() {
            if call.what != What::Out as u64 {
                continue;
            }
            let (start, len) = (call.args[3], call.args[4]);
            let from = temporary + (start - piece.start);
            let mut back = uffd::move_pages(What::Back as u64, home, start, from, len);
            move_run(self.shared, &mut back);
        }
        bring_all(self.shared);
        piece::unwatch(piece, left, room, home).for_each(|call| insist(&call));
    }
}

/// Executes the swap.
///
/// The kernel unmaps the piece before it moves the fresh mapping there, and may run out of memory
/// for the move. In this case the range is reserved again before another thread can map memory in
/// it, and the swap is repeated until it succeeds.
fn run_swap(swap: &mut Call, piece: VmRange) {
    let mut take = piece::reserve_free(What::Swap, piece);
    let mut was_taken = false;
    for round in 0..u32::MAX {
        calls::run(swap);
        if swap.errno() == 0 {
            return;
        }
        // This fails if the range is not completely unmapped: either the kernel has not begun the
        // swap, or the range is reserved already.
        calls::run(&mut take);
        was_taken |= take.errno() == 0;
        if !was_taken {
            return;
        }
        own_process::rest(round);
    }
}

/// Lock that is held for many moves and released only while an event is pending. If it were
/// released between moves, the watcher would wake up for each thread that waits for a page.
struct Turn<'a> {
    shared: &'a Shared,
    locked: Option<Locked<'a>>,
}

impl<'a> Turn<'a> {
    fn take(shared: &'a Shared) -> Turn<'a> {
        let locked = Some(shared.lock());
        Turn { shared, locked }
    }

    /// Repeats `step` while it returns `EAGAIN`, at most [`MOST_ATTEMPTS`] times. The lock is
    /// released between attempts and held on return.
    fn run(&mut self, mut step: impl FnMut() -> i32) -> i32 {
        for round in 0..MOST_ATTEMPTS {
            let errno = step();
            if errno != libc::EAGAIN {
                return errno;
            }
            drop(self.locked.take());
            own_process::rest(round);
            self.locked = Some(self.shared.lock());
        }
        libc::EAGAIN
    }
}
