//! Replacement of one piece of the calling process while its other threads run.
//!
//! While any page of the piece is moved out, the working thread uses only its stack and shared
//! memory. Moves are made under the watcher's lock. The watcher reports pages that the program
//! discards or moves in the meantime; these changes are preserved.

use std::time::Duration;

use vmarea_merge::types::VmRange;

use super::fork_gate;
use super::move_back::{MOST_ATTEMPTS, bring_all, insist, move_run, next_step};
use super::shared::{Locked, Shared, Site};
use super::unwatch::Watched;
use crate::KeptReason;
use crate::piece::{self, Watch, What};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::{self, Arena, Call};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::procmap;
use vmarea_linux_sys::sidecar;
use vmarea_linux_sys::uffd;
use vmarea_process::pagemap::{EXCLUSIVE, FILLED, GUARD};

/// All data used while pages are moved out, none of it on the heap.
pub(super) struct Work<'a> {
    pub(super) sequence: Sequence<'a>,
    pub(super) shared: &'a Shared,
    /// Resources for stopping the other threads; `None` if the caller owns the range, so that no
    /// other thread changes it.
    pub(super) stopper: Option<Stopper<'a>>,
    pub(super) watch: Watch,
    pub(super) site: Site,
    /// Protection that the piece must still have, as bits of [`procmap`].
    pub(super) access: u64,
    pub(super) files: Files,
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

pub(super) struct Stopper<'a> {
    pub(super) memory: &'a mut Arena<sidecar::Memory>,
    /// An open `/proc/self/task`.
    pub(super) tasks: i32,
    /// The threads that are not stopped: the working thread and the watcher.
    pub(super) keep: [i32; 2],
    /// Maximum time for the other threads to stop.
    pub(super) stop_timeout: Duration,
}

/// Files through which the process inspects itself.
#[derive(Clone, Copy)]
pub(super) struct Files {
    /// An open `/proc/self/pagemap`.
    pub(super) pagemap: i32,
    /// An open `/proc/self/maps`.
    pub(super) maps: i32,
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
        self.answer_all();
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

    /// Waits until every event has been read, and ends the watch of changed mappings.
    ///
    /// Gives up after [`MOST_ATTEMPTS`] attempts to end the watch. Closing the descriptors would
    /// not end it, because a forked child may have copies of them.
    fn answer_all(&self) {
        let is_changing = || uffd::is_changing(self.watch.home);
        for round in 0..u32::MAX {
            let locked = self.shared.lock();
            // Checks again after unregistering: a change in between may have moved a mapping that
            // was still watched.
            let all =
                !is_changing() && (self.cease(&locked) || round > MOST_ATTEMPTS) && !is_changing();
            drop(locked);
            if all {
                return;
            }
            own_process::rest(round);
        }
    }

    /// Unregisters mappings that other threads may have moved or extended during the piece. Returns
    /// false if the kernel cannot unregister them yet.
    fn cease(&self, locked: &Locked<'_>) -> bool {
        let is_disturbed = locked.is_disturbed();
        if self.stopper.is_none() && !is_disturbed {
            return true;
        }
        let Site { piece, left, .. } = self.site;
        let range = VmRange::new(piece.start - left, piece.end);
        let places = is_disturbed.then(|| locked.places());
        self.watched().cease_all(range, places)
    }

    fn watched(&self) -> Watched {
        Watched {
            home: self.watch.home,
            maps: self.files.maps,
            empty: self.site.room.bin(self.site.piece).start,
        }
    }

    /// Makes the calls that unregister the piece from the userfaultfd. If the kernel refuses a
    /// whole range because the range contains mappings that cannot be watched, each mapping is
    /// unregistered separately.
    fn end_watch(&self, calls: impl Iterator<Item = Call>) {
        let mut all = true;
        for call in calls {
            all &= insist(&call);
        }
        if !all {
            let Site { piece, left, .. } = self.site;
            let (start, end) = (piece.start - left, piece.end);
            for round in 0..MOST_ATTEMPTS {
                if self.watched().cease_between(start, end) {
                    break;
                }
                own_process::rest(round);
            }
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
        let mut turn = Turn::take(self.shared);
        let gone = (first..before).try_for_each(|n| match self.move_out(n, &mut turn) {
            0 => Ok(()),
            errno => {
                let call = &self.sequence.calls[n];
                let place = call.payload[1];
                Err((self.reason(call, errno, place), place))
            }
        });
        turn.locked().all_left();
        gone
    }

    /// Executes one move, after making its pages exclusive to the process if necessary.
    ///
    /// Returns `ECANCELED` if the program has changed the piece, because the range may then contain
    /// a mapping that is not watched. The kernel refuses the move while an event is unread.
    /// However, a new mapping in a hole that existed before the watch raises no event, so the
    /// source is checked before each attempt.
    fn move_out(&mut self, n: usize, turn: &mut Turn<'_>) -> i32 {
        let mut tried = u64::MAX;
        let (home, may_change) = (self.watch.home, self.stopper.is_some());
        loop {
            let call = &mut self.sequence.calls[n];
            let errno = turn.run(|locked| {
                if locked.is_disturbed() {
                    return libc::ECANCELED;
                }
                if may_change {
                    let [to, from, ..] = call.payload;
                    match uffd::watches(home, from, to) {
                        Ok(true) => {}
                        Ok(false) => return libc::ECANCELED,
                        Err(errno) => return errno,
                    }
                }
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
        own_process::read_words(self.files.pagemap, &mut word, page / PAGE * 8)
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

    /// Waits for the end of `MADV_DONTNEED` calls whose events were read during earlier pieces.
    ///
    /// Stopping all other threads for a moment completes their calls. Does nothing if the caller
    /// owns the range.
    pub(super) fn let_drops_end(&mut self) -> Result<(), KeptReason> {
        if self.stopper.is_none() || !fork_gate::is_dropping() {
            return Ok(());
        }
        self.with_others_stopped(&mut || 0).map(|_| ())
    }

    /// Executes the swap. If other threads may change mappings, all of them are stopped during the
    /// swap.
    fn swap(&mut self) -> Result<(), KeptReason> {
        let shared = self.shared;
        let (mut call, piece) = (self.sequence.calls[self.sequence.before], self.site.piece);
        // No other thread changes mappings now, so any event is caused by the swap.
        let mut swap = || {
            shared.begin_swap();
            run_swap(&mut call, piece);
            shared.end_swap();
        };
        if self.stopper.is_none() {
            swap();
        } else {
            let (Files { maps, pagemap }, access) = (self.files, self.access);
            let mut step = || {
                // Installing a guard marker during the piece raises no event, so the piece is
                // checked for markers.
                let is_as_it_was = is_undisturbed(shared)
                    && is_as_planned(maps, piece, access)
                    && is_empty(pagemap, piece);
                if is_as_it_was {
                    swap();
                }
                i32::from(!is_as_it_was)
            };
            if self.with_others_stopped(&mut step)? != 0 {
                return Err(KeptReason::Changed);
            }
        }
        match call.errno() {
            0 => Ok(()),
            libc::ENOMEM => Err(KeptReason::NoRoom),
            _ => Err(KeptReason::Changed),
        }
    }

    /// Runs `step` while all other threads of the program are stopped; returns the result of
    /// `step`.
    fn with_others_stopped(&mut self, step: &mut dyn FnMut() -> i32) -> Result<i32, KeptReason> {
        let Some(stopper) = &mut self.stopper else {
            return Err(KeptReason::CannotStop);
        };
        let mut step = || {
            fork_gate::all_dropped();
            step()
        };
        let Stopper {
            memory,
            tasks,
            keep,
            stop_timeout,
        } = stopper;
        sidecar::with_others_stopped(memory, *tasks, *keep, *stop_timeout, &mut step)
            .map_err(|_| KeptReason::CannotStop)
    }

    fn pages_back(&mut self) {
        let after = self.sequence.before + 1;
        let shared = self.shared;
        for call in &mut self.sequence.calls[after..] {
            if call.what == What::Back as u64 && !move_run(shared, call) {
                bring_all(shared);
            }
        }
        let rest = self.sequence.calls[after..].iter().copied();
        self.end_watch(rest.filter(|call| call.what != What::Back as u64));
    }

    /// Moves the pages back, and restores the mappings.
    fn undo(&mut self) {
        let Site {
            piece, left, room, ..
        } = self.site;
        let temporary = room.temporary(piece).start;
        for call in self.sequence.calls[..self.sequence.before].iter().rev() {
            if call.what != What::Out as u64 {
                continue;
            }
            let (start, len) = (call.args[3], call.args[4]);
            let from = temporary + (start - piece.start);
            let mut home = uffd::move_pages(What::Back as u64, self.watch.home, start, from, len);
            move_run(self.shared, &mut home);
        }
        bring_all(self.shared);
        self.end_watch(piece::unwatch(piece, left, room, self.watch));
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

/// Lock that is held for many moves and released only while a change is pending. If it were
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

    fn locked(&mut self) -> &Locked<'a> {
        self.locked.get_or_insert_with(|| self.shared.lock())
    }

    /// Repeats `step` while it returns `EAGAIN`, at most [`MOST_ATTEMPTS`] times. The lock is
    /// released between attempts and held on return.
    fn run(&mut self, mut step: impl FnMut(&Locked<'_>) -> i32) -> i32 {
        for round in 0..MOST_ATTEMPTS {
            let errno = step(self.locked());
            if errno != libc::EAGAIN {
                return errno;
            }
            self.locked = None;
            own_process::rest(round);
            self.locked = Some(self.shared.lock());
        }
        libc::EAGAIN
    }
}

/// True if the whole piece has the planned protection. A change of protection raises no event.
fn is_as_planned(maps: i32, piece: VmRange, access: u64) -> bool {
    let mut at = piece.start;
    while at < piece.end {
        match procmap::query_fd(maps, at, &mut []) {
            Ok(found) if found.start <= at && found.flags == access && found.ino == 0 => {
                at = found.end;
            }
            _ => return false,
        }
    }
    true
}

/// True if the piece contains no page and no guard marker.
fn is_empty(pagemap: i32, piece: VmRange) -> bool {
    let mut words = [0u64; 256];
    let mut at = piece.start;
    while at < piece.end {
        let want = ((piece.end - at) / PAGE).min(256) as usize;
        let Ok(got) = own_process::read_words(pagemap, &mut words[..want], at / PAGE * 8) else {
            return false;
        };
        if words[..got].iter().any(|word| word & (FILLED | GUARD) != 0) {
            return false;
        }
        at += got as u64 * PAGE;
    }
    true
}

/// True if the program has not changed the piece and no change is pending. All threads that could
/// change the piece must be stopped.
fn is_undisturbed(shared: &Shared) -> bool {
    for round in 0..MOST_ATTEMPTS {
        let locked = shared.lock();
        let changing = uffd::is_changing(shared.descriptors.home);
        let disturbed = locked.is_disturbed();
        drop(locked);
        if disturbed {
            return false;
        }
        if !changing {
            return true;
        }
        own_process::rest(round);
    }
    false
}
