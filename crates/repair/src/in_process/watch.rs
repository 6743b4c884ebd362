//! The watcher: a thread that answers the kernel's events while pages are out.
//!
//! Some changes to watched mappings wait until somebody has read of them; a thread that waits for
//! its own change cannot. So a second thread reads: it completes the child of a fork, drops pages
//! that the program dropped, and remembers where a mapping went that was moved. It works on shared
//! memory alone.
//!
//! # Locking
//! `lock` is held while pages are moved and while an event is read and answered: between the
//! kernel's word that something changed and our answer no page moves.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use vmarea::types::VmRange;

use super::children;
use super::fork_gate;
use super::futex_lock::{FutexLock, Held};
use super::page_locations::PageLocations;
use crate::piece::{self, Room};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::{self, Arena, Plain};
use vmarea_linux_sys::own::{self, Aside};
use vmarea_linux_sys::uffd::{self, Event};
use vmarea_process::pagemap::FILLED;

/// How often the move of a page is tried again that is dropped: the kernel puts it off for a moment
/// where somebody else looks at it.
const PATIENCE: u32 = 1_000_000;

/// What the watcher and the mover share.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shared {
    lock: FutexLock,
    home: AtomicI32,
    silent: AtomicI32,
    stop: AtomicI32,
    pagemap: AtomicI32,
    /// A descriptor that makes room for that of a child where the program has used up all it may have;
    /// -1 while it does.
    spare: AtomicI32,
    /// Where the piece lies; length 0 while nothing is out.
    start: AtomicU64,
    len: AtomicU64,
    left: AtomicU64,
    /// Set where children of a fork get the piece empty.
    wipes: AtomicU32,
    temporary: AtomicU64,
    fresh: AtomicU64,
    bin: AtomicU64,
    /// Set while our own swap makes events.
    swapping: AtomicU32,
    /// Set while pages are on their way out.
    leaving: AtomicU32,
    /// Set where a range of the piece was unmapped or moved by the program, or dropped before it
    /// was out.
    disturbed: AtomicU32,
    /// Forks that were completed.
    pub(super) forks: AtomicU64,
    /// The watcher's own thread.
    thread: AtomicI32,
    /// Where the pages of the piece belong.
    locations: PageLocations,
}

impl Plain for Shared {}

// ORDERING: all other words are read and written under the lock, or while nothing is out; the lock
// orders them, so they are Relaxed.
const UNDER_LOCK: Ordering = Ordering::Relaxed;

impl Shared {
    /// Takes the lock.
    pub(super) fn lock(&self) -> Held<'_> {
        self.lock.lock()
    }

    /// From now on pages of `piece` may be out, and `left` bytes before it are watched as well.
    pub(super) fn begin(&self, piece: VmRange, left: u64, wipes: bool, room: Room) {
        let _held = self.lock();
        self.keep_spare();
        self.left.store(left, UNDER_LOCK);
        self.wipes.store(u32::from(wipes), UNDER_LOCK);
        self.fresh.store(room.fresh(piece).start, UNDER_LOCK);
        self.start.store(piece.start, UNDER_LOCK);
        self.len.store(piece.len_bytes(), UNDER_LOCK);
        self.temporary
            .store(room.temporary(piece).start, UNDER_LOCK);
        self.bin.store(room.bin(piece).start, UNDER_LOCK);
        self.disturbed.store(0, UNDER_LOCK);
        self.leaving.store(1, UNDER_LOCK);
    }

    /// No more pages go out. Say it under the lock.
    pub(super) fn all_left(&self) {
        self.leaving.store(0, UNDER_LOCK);
    }

    /// All pages are home.
    pub(super) fn end(&self) {
        let _held = self.lock();
        if self.is_disturbed() {
            self.locations.reset(self.piece());
        }
        self.len.store(0, UNDER_LOCK);
    }

    /// Our own swap begins or has ended.
    pub(super) fn swapping(&self, now: bool) {
        let _held = self.lock();
        self.swapping.store(u32::from(now), UNDER_LOCK);
    }

    /// True where the program has unmapped or moved some of the piece, or dropped what was not out
    /// yet. Ask under the lock.
    pub(super) fn is_disturbed(&self) -> bool {
        self.disturbed.load(UNDER_LOCK) != 0
    }

    /// The descriptor that watches over the piece.
    pub(super) fn home_fd(&self) -> i32 {
        self.home.load(UNDER_LOCK)
    }

    /// Calls `each` with runs of the temporary range that hold pages: offset and length in bytes.
    /// Only what lies in `within` (offsets) is looked at. Returns false where `each` did.
    pub(super) fn pages_out(
        &self,
        within: VmRange,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> bool {
        let base = self.temporary.load(UNDER_LOCK);
        let mut words = [0u64; 256];
        let mut at = within.start;
        while at < within.end {
            let want = ((within.end - at) / PAGE).min(256) as usize;
            let got = self.read_pages(base + at, &mut words[..want]);
            let mut page = 0;
            while page < got {
                let run = words[page..got]
                    .iter()
                    .take_while(|word| **word & FILLED != 0)
                    .count();
                if run > 0 && !each(at + page as u64 * PAGE, run as u64 * PAGE) {
                    return false;
                }
                page += run.max(1);
            }
            at += got as u64 * PAGE;
        }
        true
    }

    /// Reads what is at `start` and behind it, a word for each page; how many it is. What cannot be seen
    /// may be there.
    fn read_pages(&self, start: u64, words: &mut [u64]) -> usize {
        for round in 0..PATIENCE {
            match own::read_words(self.pagemap.load(UNDER_LOCK), words, start / PAGE * 8) {
                Ok(got) => return got,
                Err(_) => own::rest(round),
            }
        }
        words.fill(FILLED);
        words.len()
    }

    /// Whether there is a page at `at`; none where that cannot be seen now.
    pub(super) fn is_filled(&self, at: u64) -> Option<bool> {
        let mut word = [0];
        let read = own::read_words(self.pagemap.load(UNDER_LOCK), &mut word, at / PAGE * 8);
        read.is_ok().then_some(word[0] & FILLED != 0)
    }

    /// A page that holds nothing, in a mapping that permits what the piece does.
    pub(super) fn bin(&self) -> u64 {
        self.bin.load(UNDER_LOCK)
    }

    /// Drops a page that waits: the program has dropped it where it belongs.
    pub(super) fn drop_out(&self, off: u64) {
        let (from, bin) = (self.temporary() + off, self.bin.load(UNDER_LOCK));
        let silent = self.silent.load(UNDER_LOCK);
        let mut empty = piece::drop_pages(VmRange::new(bin, bin + PAGE));
        for round in 0..PATIENCE {
            let mut call = uffd::move_pages(0, silent, bin, from, PAGE);
            calls::run(&mut call);
            match call.errno() {
                0 => break,
                libc::EBADF => return,
                libc::EBUSY => calls::run(&mut piece::unshare(from)),
                // What was dropped before is there yet.
                libc::EEXIST => calls::run(&mut empty),
                _ => own::rest(round),
            }
        }
        calls::run(&mut empty);
    }

    /// Where the pages of the piece wait.
    pub(super) fn temporary(&self) -> u64 {
        self.temporary.load(UNDER_LOCK)
    }

    /// The piece; nothing where none is on its way.
    pub(super) fn piece(&self) -> VmRange {
        let (start, len) = (self.start.load(UNDER_LOCK), self.len.load(UNDER_LOCK));
        VmRange::new(start, start + len)
    }
    /// Where the page `off` bytes into the piece belongs now. Ask under the lock.
    pub(super) fn home_of(&self, off: u64) -> Option<u64> {
        self.locations.of(self.piece(), off)
    }

    /// Calls `each` with every place that a page was moved to. Call it under the lock.
    pub(super) fn moved_to(&self, each: impl FnMut(u64)) {
        self.locations.moved_to(self.piece(), each);
    }

    /// True where a child of a fork gets the piece empty.
    pub(super) fn wipes(&self) -> bool {
        self.wipes.load(UNDER_LOCK) != 0
    }

    /// The next event of `fd`.
    pub(super) fn event(&self, fd: i32) -> Option<Event> {
        let mut event = uffd::event(fd);
        if event == Err(libc::EMFILE) {
            let spare = self.spare.swap(-1, UNDER_LOCK);
            if spare >= 0 {
                own::close(spare);
                event = uffd::event(fd);
            }
        }
        event.ok()
    }

    /// Ceases to watch over a child that has all of `piece` there is for it, and closes `fd`. To close
    /// it would not be enough: another child may have been forked with it.
    pub(super) fn let_child_go(&self, fd: i32) {
        let (piece, left) = (self.piece(), self.left.load(UNDER_LOCK));
        for (start, len) in [
            (piece.start - left, piece.len_bytes() + left),
            (self.fresh.load(UNDER_LOCK), piece.len_bytes()),
        ] {
            self.cease_by(fd, start, len);
        }
        // The spare one takes its number, so that nobody else does.
        if self.spare.load(UNDER_LOCK) < 0 && own::duplicate_to(self.stop.load(UNDER_LOCK), fd) {
            self.spare.store(fd, UNDER_LOCK);
        } else {
            own::close(fd);
        }
    }

    /// Has a spare descriptor, where there can be one.
    fn keep_spare(&self) {
        if self.spare.load(UNDER_LOCK) < 0 {
            let other = own::duplicate(self.stop.load(UNDER_LOCK));
            self.spare.store(other.unwrap_or(-1), UNDER_LOCK);
        }
    }

    fn cease(&self, start: u64, len: u64) {
        self.cease_by(self.home_fd(), start, len);
    }

    /// Ceases to watch by `fd`, where there is anything that it watches. What stayed watched would be
    /// waited for for ever.
    fn cease_by(&self, fd: i32, start: u64, len: u64) {
        for round in 0..PATIENCE {
            let mut call = uffd::unregister(0, fd, start, len);
            calls::run(&mut call);
            if !matches!(call.errno(), libc::ENOMEM | libc::EAGAIN | libc::EINTR) {
                return;
            }
            own::rest(round);
        }
    }

    /// The program drops `start..end`; the part of the piece in it goes with it.
    fn dropped(&self, start: u64, end: u64) {
        let piece = self.piece();
        self.pages_out(VmRange::new(0, piece.len_bytes()), &mut |off, len| {
            for page in (off..off + len).step_by(PAGE as usize) {
                let home = self.locations.of(piece, page);
                if home.is_some_and(|home| (start..end).contains(&home)) {
                    self.drop_out(page);
                }
            }
            true
        });
    }

    fn answer(&self, event: Event) {
        let piece = self.piece();
        let ours = self.swapping.load(UNDER_LOCK) != 0;
        match event {
            Event::Fault => {}
            Event::Fork(child) => {
                children::complete(self, child, &self.locations);
                self.forks.fetch_add(1, UNDER_LOCK);
            }
            // All others are stopped: it is our swap.
            Event::Remap { .. } | Event::Unmap { .. } if ours => {}
            Event::Remap { from, to, len } => {
                self.disturbed.store(1, UNDER_LOCK);
                self.locations.moved(piece, from, to, len);
                // What lies before the piece is watched as well, and what has grown behind it; nothing
                // of it is out.
                let before = match piece.start.saturating_sub(from) {
                    0 => len,
                    before => before.min(len),
                };
                if !self.locations.any_within(piece, to..to + before) {
                    self.cease(to, before);
                }
            }
            Event::Unmap { start, end } => {
                self.disturbed.store(1, UNDER_LOCK);
                self.dropped(start, end);
            }
            Event::Remove { start, end } => {
                fork_gate::begin_drop();
                // The pages go a moment after this: one that went out before would come back.
                if self.leaving.load(UNDER_LOCK) != 0 {
                    self.disturbed.store(1, UNDER_LOCK);
                }
                self.dropped(start, end);
            }
        }
    }

    /// What the thread does.
    fn watch(&self) {
        // ORDERING: Release, pairs with the Acquire in `Watcher::thread_id`.
        self.thread.store(own::thread_id(), Ordering::Release);
        let (home, stop) = (self.home.load(UNDER_LOCK), self.stop.load(UNDER_LOCK));
        while uffd::wait(home, stop) {
            let held = self.lock();
            while let Some(event) = self.event(home) {
                self.answer(event);
            }
            drop(held);
        }
    }
}

/// The thread, and what it works on.
#[derive(Debug)]
pub(super) struct Watcher {
    shared: Arena<Shared>,
    thread: Option<Aside>,
    stop: OwnedFd,
    _pagemap: File,
}

impl Watcher {
    /// Starts it on the descriptor `home`, and with `silent` to drop pages by. Both must stay open
    /// until it is dropped.
    ///
    /// # Errors
    /// Those of starting a thread and of opening `/proc/self/pagemap`.
    pub(super) fn start(home: i32, silent: i32) -> io::Result<Watcher> {
        let pagemap = File::open("/proc/self/pagemap")?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut watcher = Watcher {
            shared: Arena::new(1)?,
            thread: None,
            stop,
            _pagemap: pagemap,
        };
        let shared = watcher.shared();
        shared.home.store(home, UNDER_LOCK);
        shared.silent.store(silent, UNDER_LOCK);
        shared.stop.store(watcher.stop.as_raw_fd(), UNDER_LOCK);
        shared
            .pagemap
            .store(watcher._pagemap.as_raw_fd(), UNDER_LOCK);
        shared.spare.store(-1, UNDER_LOCK);
        watcher.thread = Some(Aside::start(Shared::watch, watcher.shared())?);
        while watcher.thread_id() == 0 {
            own::breathe();
        }
        Ok(watcher)
    }

    /// The kernel's id of the thread.
    pub(super) fn thread_id(&self) -> i32 {
        // ORDERING: Acquire, pairs with the Release in `Shared::watch`.
        self.shared().thread.load(Ordering::Acquire)
    }

    /// What it works on.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared.get()[0]
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(mut thread) = self.thread.take() {
            let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
            thread.join();
        }
        let spare = self.shared().spare.load(UNDER_LOCK);
        if spare >= 0 {
            own::close(spare);
        }
    }
}
