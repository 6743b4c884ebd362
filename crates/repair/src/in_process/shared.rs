//! What the mover and the watcher share: where a piece is, how far it is, and by what it is watched.
//!
//! It lies in shared memory, as all that is used while pages are out; nothing here allocates.
//!
//! # Locking
//! `lock` is held while pages are moved and while an event is read and answered: between the
//! kernel's word that something changed and our answer no page moves. What [`Locked`] offers is asked
//! under it; `site` and `progress` are written under it, by the mover alone but for a disturbance.

use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use vmarea::types::VmRange;

use super::futex_lock::{FutexLock, Held};
use super::page_locations::PageLocations;
use super::phase::{Phase, Progress};
use crate::piece::{self, Room};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::{self, Plain};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::uffd::{self, Event};
use vmarea_process::pagemap::FILLED;

/// How often the move of a page is tried again that is dropped: the kernel puts it off for a moment
/// where somebody else looks at it.
const PATIENCE: u32 = 1_000_000;

// ORDERING: the lock orders all words but `thread`, which are read and written under it, or by the only
// thread that writes them: they are Relaxed.
const UNDER_LOCK: Ordering = Ordering::Relaxed;

/// Descriptors that stay open, and the same, for as long as the watcher runs.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Descriptors {
    /// The userfaultfd that tells of events.
    pub(super) home: i32,
    /// The one that tells of none, to drop pages by.
    pub(super) silent: i32,
    /// Readable when the watcher is to end.
    pub(super) stop: i32,
    /// `/proc/self/pagemap`.
    pub(super) pagemap: i32,
}

/// Where a piece and the places for it are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) piece: VmRange,
    /// How many bytes before the piece are watched as well.
    pub(super) left: u64,
    pub(super) room: Room,
    /// Children of a fork get the piece empty.
    pub(super) wipes: bool,
}

/// The site of the piece at hand, or of the last one.
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

/// A descriptor that makes room for that of a child where the program has used up all it may have: its
/// number and one, or 0 while there is none.
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

    /// Closes it; false where there is none.
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

/// What the watcher and the mover share. Zeroed, nothing is out.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shared {
    lock: FutexLock,
    pub(super) descriptors: Descriptors,
    spare: Spare,
    site: SiteWords,
    progress: Progress,
    /// Forks that were completed.
    forks: AtomicU64,
    /// The watcher's own thread; 0 until it runs.
    thread: AtomicI32,
    /// Where the pages of the piece belong.
    locations: PageLocations,
}

impl Plain for Shared {}

/// It, with the lock held: nobody else moves a page or answers an event.
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

    /// From now on pages of the piece may be out, and what is left of it is watched as well.
    pub(super) fn begin(&self, site: Site) {
        let locked = self.lock();
        locked.keep_spare();
        self.site.set(site);
        self.progress.begin();
    }

    /// All pages are home.
    pub(super) fn end(&self) {
        let locked = self.lock();
        if locked.is_disturbed() {
            self.locations.reset(self.piece());
        }
        self.progress.enter(Phase::Idle);
    }

    /// Our own swap begins.
    pub(super) fn begin_swap(&self) {
        let _locked = self.lock();
        self.progress.enter(Phase::Swapping);
    }

    /// Our own swap has ended.
    pub(super) fn end_swap(&self) {
        let _locked = self.lock();
        self.progress.enter(Phase::Away);
    }

    /// Calls `each` with runs of the temporary range that hold pages: offset and length in bytes.
    /// Only what lies in `within` (offsets) is looked at. Returns false where `each` did.
    pub(super) fn pages_out(
        &self,
        within: VmRange,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> bool {
        let base = self.temporary();
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
            match own_process::read_words(self.descriptors.pagemap, words, start / PAGE * 8) {
                Ok(got) => return got,
                Err(_) => own_process::rest(round),
            }
        }
        words.fill(FILLED);
        words.len()
    }

    /// Whether there is a page at `at`; none where that cannot be seen now.
    pub(super) fn is_filled(&self, at: u64) -> Option<bool> {
        let mut word = [0];
        let read = own_process::read_words(self.descriptors.pagemap, &mut word, at / PAGE * 8);
        read.is_ok().then_some(word[0] & FILLED != 0)
    }

    /// A page that holds nothing, in a mapping that permits what the piece does.
    pub(super) fn bin(&self) -> u64 {
        let site = self.site.get();
        site.room.bin(site.piece).start
    }

    /// Where the pages of the piece wait.
    pub(super) fn temporary(&self) -> u64 {
        let site = self.site.get();
        site.room.temporary(site.piece).start
    }

    /// The piece; nothing where none is on its way.
    pub(super) fn piece(&self) -> VmRange {
        let piece = self.site.get().piece;
        match self.progress.phase() {
            Phase::Idle => VmRange::new(piece.start, piece.start),
            _ => piece,
        }
    }

    /// True where a child of a fork gets the piece empty.
    pub(super) fn wipes(&self) -> bool {
        self.site.get().wipes
    }

    /// Forks that were completed.
    pub(super) fn forks(&self) -> u64 {
        self.forks.load(UNDER_LOCK)
    }

    /// The kernel's id of the watcher's thread; 0 until it runs.
    pub(super) fn thread_id(&self) -> i32 {
        // ORDERING: Acquire, pairs with the Release in `set_thread_id`.
        self.thread.load(Ordering::Acquire)
    }

    /// The watcher runs, in the calling thread.
    pub(super) fn set_thread_id(&self) {
        // ORDERING: Release, pairs with the Acquire in `thread_id`.
        self.thread
            .store(own_process::thread_id(), Ordering::Release);
    }

    /// Closes what the watcher has kept; it has ended.
    pub(super) fn close(&self) {
        self.spare.give_up();
    }
}

impl Locked<'_> {
    /// How far the piece is.
    pub(super) fn phase(&self) -> Phase {
        self.progress.phase()
    }

    /// No more pages go out.
    pub(super) fn all_left(&self) {
        self.progress.enter(Phase::Away);
    }

    /// The program has unmapped or moved some of the piece, or dropped what was not out yet.
    pub(super) fn disturb(&self) {
        self.progress.disturb();
    }

    /// True where the program has done so.
    pub(super) fn is_disturbed(&self) -> bool {
        self.progress.is_disturbed()
    }

    /// Where the pages of the piece belong.
    pub(super) fn locations(&self) -> &PageLocations {
        &self.shared.locations
    }

    /// Where the page `off` bytes into the piece belongs now.
    pub(super) fn home_of(&self, off: u64) -> Option<u64> {
        self.locations.of(self.piece(), off)
    }

    /// One more fork was completed.
    pub(super) fn count_fork(&self) {
        self.forks.fetch_add(1, UNDER_LOCK);
    }

    /// Drops a page that waits: the program has dropped it where it belongs.
    pub(super) fn drop_out(&self, off: u64) {
        let (from, bin) = (self.temporary() + off, self.bin());
        let silent = self.descriptors.silent;
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
                _ => own_process::rest(round),
            }
        }
        calls::run(&mut empty);
    }

    /// The next event of `fd`.
    pub(super) fn event(&self, fd: i32) -> Option<Event> {
        let mut event = uffd::event(fd);
        if event == Err(libc::EMFILE) && self.spare.give_up() {
            event = uffd::event(fd);
        }
        event.ok()
    }

    /// Ceases to watch over a child that has all of `piece` there is for it, and closes `fd`. To close
    /// it would not be enough: another child may have been forked with it.
    pub(super) fn let_child_go(&self, fd: i32) {
        let (piece, site) = (self.piece(), self.site.get());
        let fresh = site.room.fresh(site.piece).start;
        self.cease_by(fd, piece.start - site.left, piece.len_bytes() + site.left);
        self.cease_by(fd, fresh, piece.len_bytes());
        // The spare one takes its number, so that nobody else does.
        if !self.spare.is_there() && own_process::duplicate_to(self.descriptors.stop, fd) {
            self.spare.keep(fd);
        } else {
            own_process::close(fd);
        }
    }

    /// Has a spare descriptor, where there can be one.
    fn keep_spare(&self) {
        if !self.spare.is_there()
            && let Some(fd) = own_process::duplicate(self.descriptors.stop)
        {
            self.spare.keep(fd);
        }
    }

    /// Ceases to watch `start..start + len` by our own descriptor.
    pub(super) fn cease(&self, start: u64, len: u64) {
        self.cease_by(self.descriptors.home, start, len);
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
            own_process::rest(round);
        }
    }
}
