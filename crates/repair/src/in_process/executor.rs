//! The executor of pieces in the calling process: what it needs, and how a piece is prepared.
//!
//! Everything that can fail or allocate is done here, before the first page is out; the work itself is
//! in [`work`](super::work).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use vmarea::types::{VmFlags, VmRange};

use super::fork_gate::{self, Passage};
use super::page_locations::MOST_PAGES;
use super::shared::Site;
use super::watch::Watcher;
use super::work::{Copies, End, Files, Sequence, Stopper, Work};
use crate::driver::{Done, PieceExecutor};
use crate::piece::{self, Room, Watch};
use crate::plan::{PAGE, Piece, Run};
use crate::{Kept, Options, Owner, Reason, RepairError};
use vmarea_linux_sys::calls::{Arena, Call};
use vmarea_linux_sys::own_process::{self, NoSignals};
use vmarea_linux_sys::procmap;
use vmarea_linux_sys::sidecar;
use vmarea_linux_sys::uffd::{self, Uffd};

/// The largest piece, bytes.
const MOST_BYTES: u64 = MOST_PAGES as u64 * PAGE;
/// Calls that a table holds; a piece takes one for each part and some more.
const MOST_CALLS: usize = 1_200;
/// Parts of the largest piece.
pub(super) const MOST_PARTS: usize = MOST_CALLS - 40;
/// How long the other threads may take to stop, at the least: on a busy machine each has to get a
/// processor first.
const PATIENCE: Duration = Duration::from_secs(1);
/// All that can happen to pages on their way.
const EVENTS: u64 = uffd::EVENT_REMAP | uffd::EVENT_FORK | uffd::EVENT_UNMAP | uffd::EVENT_REMOVE;

/// Moves the pages of a piece while the other threads run.
#[derive(Debug)]
pub(super) struct InProcess {
    /// How long the other threads may take to stop.
    patience: Duration,
    /// None where it was given up: see [`InProcess::room`].
    room: Option<Room>,
    watcher: Watcher,
    home: Uffd,
    silent: Uffd,
    table: Arena<Call>,
    sidecar: Option<(Arena<sidecar::Memory>, File)>,
    pagemap: File,
    maps: File,
}

impl InProcess {
    /// Opens what a repair needs, and starts the thread that watches.
    ///
    /// # Errors
    /// As [`Merger::new`](super::Merger::new).
    pub(super) fn new(options: &Options) -> Result<InProcess, RepairError> {
        let home = open(EVENTS)?;
        let silent = open(0)?;
        let watcher = Watcher::start(home.raw(), silent.raw())
            .map_err(RepairError::system("starting the watcher"))?;
        let sidecar = match options.owner {
            Owner::Caller => None,
            Owner::Anybody => Some((
                Arena::new(1).map_err(RepairError::system("making a stack"))?,
                File::open("/proc/self/task")
                    .map_err(RepairError::system("opening /proc/self/task"))?,
            )),
        };
        let maps = File::open("/proc/self/maps")
            .map_err(RepairError::system("opening /proc/self/maps"))?;
        if options.owner == Owner::Anybody {
            // What others do to protections is seen by this request alone.
            procmap::query(&maps, 0, &mut [])
                .map_err(RepairError::system("asking for one mapping (Linux 6.11)"))?;
        }
        fork_gate::guard_forks().map_err(RepairError::system("guarding forks"))?;
        Ok(InProcess {
            patience: options
                .max_pause
                .map_or(PATIENCE, |pause| pause.max(PATIENCE)),
            watcher,
            home,
            silent,
            table: Arena::new(MOST_CALLS).map_err(RepairError::system("making a table"))?,
            sidecar,
            pagemap: File::open("/proc/self/pagemap")
                .map_err(RepairError::system("opening /proc/self/pagemap"))?,
            maps,
            // Last, as nothing gives it back where another cannot be had.
            room: Some(reserve_room()?),
        })
    }

    /// The address space to work with. After the kernel had no memory for a mapping in it, another may be
    /// needed: who was given a hole in the old one keeps that.
    pub(super) fn room(&mut self) -> Result<Room, RepairError> {
        let room = match self.room {
            Some(room) => room,
            None => reserve_room()?,
        };
        self.room = Some(room);
        Ok(room)
    }

    /// Forks that were completed so far.
    pub(super) fn forks(&self) -> u64 {
        self.watcher.shared().forks()
    }

    /// Writes down the calls of a piece; how many of them there are, and how many come before the swap.
    fn fill_table(&mut self, piece: &Piece, room: Room, watch: Watch) -> (usize, usize) {
        let mut list = Vec::with_capacity(piece.parts.len() + 16);
        piece::out(piece, room, watch, &mut list);
        let before = list.len();
        piece::swap(piece.range, room, watch, &mut list);
        piece::back(piece.range, piece.left, room, watch, &mut list);
        self.table.all()[..list.len()].copy_from_slice(&list);
        (list.len(), before)
    }
}

impl PieceExecutor for InProcess {
    const REPLACES_SINGLE: bool = false;

    fn join(&mut self, piece: &Piece, copies: u64) -> Result<Done, RepairError> {
        let room = self.room()?;
        if piece.range.len_bytes() > room.piece_bytes() {
            return Ok(Done::refused(Reason::NoRoom, piece.range.start));
        }
        let watch = Watch::Running {
            home: self.home.raw(),
            silent: self.silent.raw(),
        };
        let (calls, before) = self.fill_table(piece, room, watch);
        let keep = [own_process::thread_id(), self.watcher.thread_id()];
        let patience = self.patience;
        let stopper = self.sidecar.as_mut().map(|(memory, tasks)| Stopper {
            memory,
            tasks: tasks.as_raw_fd(),
            keep,
            patience,
        });
        let mut work = Work {
            sequence: Sequence {
                calls: &mut self.table.all()[..calls],
                before,
            },
            shared: self.watcher.shared(),
            stopper,
            watch,
            site: Site {
                piece: piece.range,
                left: piece.left,
                room,
                wipes: piece.flags.contains(VmFlags::WIPEONFORK),
            },
            access: access(piece.flags),
            files: Files {
                pagemap: self.pagemap.as_raw_fd(),
                maps: self.maps.as_raw_fd(),
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
            refused: match end {
                End::Joined => None,
                End::Refused(reason, place) => Some((reason, place)),
            },
            copied,
            shared: copied,
            pause,
        })
    }

    /// Not where somebody changed it: what it drops may go a moment later.
    fn retries_before(&self, reason: Reason) -> bool {
        reason != Reason::Changed
    }

    fn pass_over(&self, _: &Run, at: u64, _: Reason, _: u64, _: &mut Kept) -> u64 {
        at
    }
}

/// Does the work while no fork and no signal comes; says how it ended and how long it took.
fn run(work: &mut Work<'_>) -> (End, Duration) {
    let _passage = Passage::wait();
    let _quiet = NoSignals::begin();
    // Nothing is out meanwhile: it is no part of the pause.
    let drops = work.let_drops_end();
    let begun = Instant::now();
    let end = match drops {
        Ok(()) => work.join(),
        Err(reason) => End::Refused(reason, work.site.piece.start),
    };
    (end, begun.elapsed())
}

/// Whether this process may watch its memory with all the events that a repair needs.
///
/// # Errors
/// [`RepairError::Userfaultfd`], [`RepairError::TooOld`].
pub(super) fn can_watch() -> Result<(), RepairError> {
    open(EVENTS).map(|_| ())
}

/// What a mapping with these flags permits, as [`procmap`] says it.
fn access(flags: VmFlags) -> u64 {
    let bits = [
        (VmFlags::READ, procmap::VMA_READABLE),
        (VmFlags::WRITE, procmap::VMA_WRITABLE),
        (VmFlags::EXEC, procmap::VMA_EXECUTABLE),
    ];
    let set = bits.iter().filter(|(flag, _)| flags.contains(*flag));
    set.map(|(_, bit)| bit).sum()
}

fn open(events: u64) -> Result<Uffd, RepairError> {
    Uffd::open(uffd::FEATURE_MOVE | events).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RepairError::Userfaultfd,
        Some(libc::EINVAL | libc::ENOSYS) => RepairError::TooOld,
        _ => RepairError::System {
            what: "opening a userfaultfd",
            cause: error,
        },
    })
}

/// Room for the largest pieces, or for smaller ones where address space is limited.
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
                    what: "reserving address space",
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
