//! State shared by the mover and the watcher: the addresses and the descriptors of a piece.
//!
//! The state is in shared memory, like all data that is used while pages are moved out; nothing
//! here allocates.
//!
//! # Locking
//! `lock` is held while pages are moved and while an event is read and handled, so no page moves
//! between the kernel's event and its handling. The methods of [`Locked`] are called with the lock
//! held; `site` is written with the lock held, only by the mover.

use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use vmarea_merge::types::VmRange;

use super::futex_lock::{FutexLock, Held};
use crate::piece::Room;
use crate::plan::PAGE;
use vmarea_linux_sys::calls::{self, Plain};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::uffd::{self, Event};
use vmarea_process::pagemap::FILLED;

/// Maximum number of attempts at a call that the kernel refuses temporarily. An example is moving a
/// page to which another part of the kernel holds a reference.
const MOST_ATTEMPTS: u32 = 1_000_000;

// ORDERING: all words are read and written under the lock, or by the only thread that writes them;
// the lock orders them, so they are Relaxed.
const UNDER_LOCK: Ordering = Ordering::Relaxed;

/// Descriptors that stay open and unchanged while the watcher runs.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Descriptors {
    /// The userfaultfd that reports events.
    pub(super) home: i32,
    /// Descriptor that becomes readable when the watcher must exit.
    pub(super) stop: i32,
    /// An open `/proc/self/pagemap`.
    pub(super) pagemap: i32,
}

/// The addresses of a piece and of its scratch area.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) piece: VmRange,
    /// Number of watched bytes directly before the piece.
    pub(super) left: u64,
    pub(super) room: Room,
    /// True if a forked child inherits the piece without its pages (`MADV_WIPEONFORK`).
    pub(super) wipes: bool,
}

/// The site of the current piece. Between two pieces, its piece is empty.
#[derive(Debug)]
#[repr(C)]
struct SiteWords {
    piece: [AtomicU64; 2],
    left: AtomicU64,
    room: [AtomicU64; 2],
    wipes: AtomicU64,
}

impl SiteWords {
    fn set(&self, site: Site) {
        let put = |words: &[AtomicU64; 2], range: VmRange| {
            words[0].store(range.start, UNDER_LOCK);
            words[1].store(range.end, UNDER_LOCK);
        };
        put(&self.piece, site.piece);
        put(&self.room, site.room.range);
        self.left.store(site.left, UNDER_LOCK);
        self.wipes.store(u64::from(site.wipes), UNDER_LOCK);
    }

    fn get(&self) -> Site {
        let range = |words: &[AtomicU64; 2]| {
            VmRange::new(words[0].load(UNDER_LOCK), words[1].load(UNDER_LOCK))
        };
        Site {
            piece: range(&self.piece),
            left: self.left.load(UNDER_LOCK),
            room: Room {
                range: range(&self.room),
            },
            wipes: self.wipes.load(UNDER_LOCK) != 0,
        }
    }
}

/// A spare descriptor, which is closed at the descriptor limit to make room for a child's
/// userfaultfd. The word holds the descriptor plus one, or 0 if there is none.
#[derive(Debug)]
#[repr(transparent)]
struct Spare(AtomicI32);

impl Spare {
    fn is_there(&self) -> bool {
        self.0.load(UNDER_LOCK) != 0
    }

    fn keep(&self, fd: i32) {
        self.0.store(fd + 1, UNDER_LOCK);
    }

    /// Closes the spare descriptor; returns false if there is none.
    fn give_up(&self) -> bool {
        match self.0.swap(0, UNDER_LOCK) {
            0 => false,
            number => {
                own_process::close(number - 1);
                true
            }
        }
    }
}

/// Memory shared by the watcher and the mover. Zeroed memory means that no page is moved out.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shared {
    lock: FutexLock,
    pub(super) descriptors: Descriptors,
    spare: Spare,
    site: SiteWords,
    /// Number of forks in which the child received the missing pages.
    forks: AtomicU64,
}

impl Plain for Shared {}

/// The shared state with the lock held: no other thread moves a page or handles an event.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    shared: &'a Shared,
    _held: Held<'a>,
}

impl Deref for Locked<'_> {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        self.shared
    }
}

impl Shared {
    /// Takes the lock.
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            shared: self,
            _held: self.lock.lock(),
        }
    }

    /// Begins a piece: from now on its pages may be moved out, and the `left` bytes before the
    /// piece are watched as well.
    pub(super) fn begin(&self, site: Site) {
        let locked = self.lock();
        locked.keep_spare();
        self.site.set(site);
    }

    /// Ends a piece after all of its pages have returned to their addresses.
    pub(super) fn end(&self) {
        let _locked = self.lock();
        let [start, end] = &self.site.piece;
        end.store(start.load(UNDER_LOCK), UNDER_LOCK);
    }

    /// Calls `each` with the byte offset and length of each run of filled pages in the temporary
    /// range. Stops as soon as `each` returns false.
    pub(super) fn pages_out(&self, each: &mut dyn FnMut(u64, u64) -> bool) {
        let site = self.site.get();
        self.filled(site.room.temporary(site.piece), each);
    }

    /// Calls `each` with the byte offset and length of each run of filled pages in `range`. Stops as
    /// soon as `each` returns false.
    pub(super) fn filled(&self, range: VmRange, each: &mut dyn FnMut(u64, u64) -> bool) {
        let (base, end) = (range.start, range.len_bytes());
        let mut words = [0u64; 256];
        let mut at = 0;
        while at < end {
            let want = ((end - at) / PAGE).min(256) as usize;
            let got = self.read_pages(base + at, &mut words[..want]);
            let mut page = 0;
            while page < got {
                let run = words[page..got]
                    .iter()
                    .take_while(|word| **word & FILLED != 0)
                    .count();
                if run > 0 && !each(at + page as u64 * PAGE, run as u64 * PAGE) {
                    return;
                }
                page += run.max(1);
            }
            at += got as u64 * PAGE;
        }
    }

    /// Reads one pagemap word for each page from `start` on, and returns how many words were read.
    /// If the pagemap cannot be read, every page is reported as filled.
    fn read_pages(&self, start: u64, words: &mut [u64]) -> usize {
        for round in 0..MOST_ATTEMPTS {
            match own_process::read_words(self.descriptors.pagemap, words, start / PAGE * 8) {
                Ok(got) => return got,
                Err(_) => own_process::rest(round),
            }
        }
        words.fill(FILLED);
        words.len()
    }

    /// Returns whether the page at `at` is filled; `None` if this cannot be determined now.
    pub(super) fn is_filled(&self, at: u64) -> Option<bool> {
        let mut word = [0];
        let read = own_process::read_words(self.descriptors.pagemap, &mut word, at / PAGE * 8);
        read.is_ok().then_some(word[0] & FILLED != 0)
    }

    /// Returns the start of the temporary range.
    pub(super) fn temporary(&self) -> u64 {
        let site = self.site.get();
        site.room.temporary(site.piece).start
    }

    /// Returns the range of the current piece; empty if there is none.
    pub(super) fn piece(&self) -> VmRange {
        self.site.get().piece
    }

    /// True if a forked child inherits the piece without its pages (`MADV_WIPEONFORK`).
    pub(super) fn wipes(&self) -> bool {
        self.site.get().wipes
    }

    /// Returns the number of forks in which the child received the missing pages.
    pub(super) fn forks(&self) -> u64 {
        self.forks.load(UNDER_LOCK)
    }

    /// Closes the spare descriptor after the watcher has ended.
    pub(super) fn close(&self) {
        self.spare.give_up();
    }
}

impl Locked<'_> {
    /// Counts a fork in which the child received the missing pages.
    pub(super) fn count_fork(&self) {
        self.forks.fetch_add(1, UNDER_LOCK);
    }

    /// Reads the next event of `fd`.
    pub(super) fn event(&self, fd: i32) -> Option<Event> {
        let mut event = uffd::event(fd);
        if event == Err(libc::EMFILE) && self.spare.give_up() {
            event = uffd::event(fd);
        }
        event.ok()
    }

    /// Unregisters the pages of `piece` in a child that has received them, and closes `fd`.
    ///
    /// Closing `fd` alone would not unregister the pages, because another forked child may have a
    /// copy of `fd`.
    pub(super) fn let_child_go(&self, fd: i32) {
        let (piece, site) = (self.piece(), self.site.get());
        let fresh = site.room.fresh(site.piece).start;
        let (watched, len) = (piece.start - site.left, piece.len_bytes() + site.left);
        self.cease_by(fd, watched, len);
        self.cease_by(fd, fresh, piece.len_bytes());
        // The spare descriptor takes the number of `fd`, so that the kernel cannot assign that
        // number to a file of the program.
        if !self.spare.is_there() && own_process::duplicate_to(self.descriptors.stop, fd) {
            self.spare.keep(fd);
        } else {
            own_process::close(fd);
        }
    }

    /// Opens a spare descriptor, if possible.
    fn keep_spare(&self) {
        if !self.spare.is_there()
            && let Some(fd) = own_process::duplicate(self.descriptors.stop)
        {
            self.spare.keep(fd);
        }
    }

    /// Unregisters a range from the userfaultfd `fd`; retries unless the process of `fd` has ended.
    /// A thread that touches a range that is still registered would wait forever.
    fn cease_by(&self, fd: i32, start: u64, len: u64) {
        for round in 0..MOST_ATTEMPTS {
            let mut call = uffd::unregister(0, fd, start, len);
            calls::run(&mut call);
            let is_refused = matches!(call.errno(), libc::ENOMEM | libc::EAGAIN | libc::EINTR);
            if !is_refused || uffd::has_ended(fd, start) {
                return;
            }
            own_process::rest(round);
        }
    }
}
