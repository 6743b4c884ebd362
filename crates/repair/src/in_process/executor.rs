//! The executor for the calling process: its resources, and the preparation of a piece.
//!
//! All steps that can fail or allocate are done here, before the first page is moved out.
//! [`work`](super::work) executes the piece.

use std::io;
use std::time::{Duration, Instant};

use vmarea_merge::types::{VmFlags, VmRange};

use super::fork_gate::{self, Passage};
use super::page_locations::MOST_PAGES;
use super::shared::Site;
use super::watch::Watcher;
use super::work::{Copies, End, Sequence, Work};
use crate::attributes::Attributes;
use crate::driver::{Done, PieceExecutor};
use crate::piece::{self, Room};
use crate::plan::{PAGE, Piece, Run};
use crate::{Kept, KeptReason, MadviseFlags, RepairError};
use vmarea_linux_sys::calls::{Arena, Call};
use vmarea_linux_sys::own_process::{self, NoSignals};
use vmarea_linux_sys::uffd::{self, Uffd};

/// Size of the largest piece, in bytes.
const MOST_BYTES: u64 = MOST_PAGES as u64 * PAGE;
/// Capacity of the table of calls; a piece needs one call per part and a few more.
const MOST_CALLS: usize = 1_200;
/// Maximum number of parts in a piece.
pub(super) const TABLE_PARTS: usize = MOST_CALLS - 40;
/// The userfaultfd events for forks and for all changes of a child, which inherits them. With
/// `EVENT_REMAP`, the fresh mapping stays watched when it is moved.
const EVENTS: u64 = uffd::EVENT_REMAP | uffd::EVENT_FORK | uffd::EVENT_UNMAP | uffd::EVENT_REMOVE;

/// Executor that replaces pieces while the other threads run.
#[derive(Debug)]
pub(super) struct InProcess {
    /// The scratch area; `None` if it was abandoned (see [`InProcess::room`]).
    room: Option<Room>,
    watcher: Watcher,
    home: Uffd,
    table: Arena<Call>,
    /// Current attributes of the mappings; `None` if the caller guarantees that `madvise` has set
    /// no flags.
    attributes: Option<Attributes>,
}

impl InProcess {
    /// Opens the descriptors of a repair and starts the watcher thread.
    ///
    /// # Errors
    /// The errors of [`Merger::new`](super::Merger::new).
    pub(super) fn new() -> Result<InProcess, RepairError> {
        let home = open()?;
        let watcher =
            Watcher::start(home.raw()).map_err(RepairError::system("start the watcher"))?;
        fork_gate::guard_forks().map_err(RepairError::system("guard forks"))?;
        Ok(InProcess {
            watcher,
            home,
            table: Arena::new(MOST_CALLS).map_err(RepairError::system("make a table"))?,
            attributes: None,
            // The scratch area is reserved last, because an error in a later step would not release
            // it.
            room: Some(reserve_room()?),
        })
    }

    /// Begins a pass over the address space. The pieces of a pass must be in ascending order.
    ///
    /// # Errors
    /// Errors from opening `smaps`.
    pub(super) fn begin_pass(&mut self, madvise_flags: MadviseFlags) -> io::Result<()> {
        self.attributes = match madvise_flags {
            MadviseFlags::Unset => None,
            MadviseFlags::Read => Some(Attributes::open("thread-self")?),
        };
        Ok(())
    }

    /// Returns the scratch area, or reserves a new area if the old one was abandoned. An area is
    /// abandoned if it may have a hole, in which the program could map memory. A hole can arise if
    /// the kernel runs out of memory while it creates a mapping in the area.
    pub(super) fn room(&mut self) -> Result<Room, RepairError> {
        let room = match self.room {
            Some(room) => room,
            None => reserve_room()?,
        };
        self.room = Some(room);
        Ok(room)
    }

    /// Returns the number of forks so far in which the child received the missing pages.
    pub(super) fn forks(&self) -> u64 {
        self.watcher.shared().forks()
    }

    /// Returns the first address in the piece at which flags or names differ from the plan.
    fn changed(&mut self, piece: &Piece) -> Result<Option<u64>, RepairError> {
        let attributes = self.attributes.as_mut();
        let changed = attributes.map_or(Ok(None), |attributes| attributes.changed(piece));
        changed.map_err(RepairError::system("read /proc/thread-self/smaps"))
    }

    /// Fills the table with the calls for a piece. Returns the number of these calls, and how many
    /// of them precede the swap.
    fn fill_table(&mut self, piece: &Piece, room: Room) -> (usize, usize) {
        let home = self.home.raw();
        let mut list = Vec::with_capacity(piece.parts.len() + 16);
        piece::out(piece, room, home, &mut list);
        let before = list.len();
        piece::swap(piece.range, room, &mut list);
        piece::back(piece.range, piece.left, room, home, &mut list);
        self.table.all()[..list.len()].copy_from_slice(&list);
        (list.len(), before)
    }
}

impl PieceExecutor for InProcess {
    const REPLACES_SINGLE: bool = false;

    fn join(&mut self, piece: &Piece, copies: u64) -> Result<Done, RepairError> {
        let room = self.room()?;
        if piece.range.len_bytes() > room.piece_bytes() {
            return Ok(Done::refused(KeptReason::NoRoom, piece.range.start));
        }
        if let Some(place) = self.changed(piece)? {
            return Ok(Done::refused(KeptReason::Changed, place));
        }
        let (calls, before) = self.fill_table(piece, room);
        let mut work = Work {
            sequence: Sequence {
                calls: &mut self.table.all()[..calls],
                before,
            },
            shared: self.watcher.shared(),
            site: Site {
                piece: piece.range,
                left: piece.left,
                room,
                wipes: piece.flags.contains(VmFlags::WIPEONFORK),
            },
            copies: Copies {
                left: copies,
                made: 0,
            },
            room_is_lost: false,
        };
        let (end, pause) = run(&mut work);
        let (copied, room_is_lost) = (work.copies.made, work.room_is_lost);
        if room_is_lost {
            self.room = None;
        }
        Ok(Done {
            refused: end.refused(),
            copied,
            shared: copied,
            pause,
            work: pause,
            ..Done::default()
        })
    }

    /// Returns false if the program has changed the piece, because the plan may no longer describe
    /// it.
    fn retries_before(&self, reason: KeptReason) -> bool {
        reason != KeptReason::Changed
    }

    fn pass_over(&self, _: &Run, at: u64, _: KeptReason, _: u64, _: &mut Kept) -> u64 {
        at
    }
}

/// Executes a piece while forks and signals are blocked; returns the result and the time it took.
fn run(work: &mut Work<'_>) -> (End, Duration) {
    let _passage = Passage::wait();
    let _quiet = NoSignals::begin();
    let begun = Instant::now();
    let end = work.join();
    (end, begun.elapsed())
}

/// Checks whether this process can watch its memory with all the events that a repair needs.
///
/// # Errors
/// [`RepairError::Userfaultfd`], [`RepairError::TooOld`].
pub(super) fn can_watch() -> Result<(), RepairError> {
    open().map(|_| ())
}

fn open() -> Result<Uffd, RepairError> {
    Uffd::open(uffd::FEATURE_MOVE | EVENTS).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RepairError::Userfaultfd,
        Some(libc::EINVAL | libc::ENOSYS) => RepairError::TooOld,
        _ => RepairError::System {
            what: "open a userfaultfd",
            cause: error,
        },
    })
}

/// Reserves a scratch area for the largest pieces, or for smaller pieces if address space is
/// limited.
fn reserve_room() -> Result<Room, RepairError> {
    let mut bytes = MOST_BYTES;
    loop {
        let len = Room::bytes_for(bytes);
        match own_process::reserve(len) {
            Ok(start) => {
                return Ok(Room {
                    range: VmRange::new(start, start + len),
                });
            }
            Err(_) if bytes > 1 << 20 => bytes /= 4,
            Err(cause) => {
                return Err(RepairError::System {
                    what: "reserve address space",
                    cause,
                });
            }
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if let Some(Room { range }) = self.room {
            own_process::release(range.start, range.len_bytes());
        }
    }
}
