//! The executor for the calling process: its resources, and the preparation of a piece.
//!
//! All steps that can fail or allocate are done here, before the first page is moved out.
//! [`work`](super::work) executes the piece.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use vmarea_merge::types::{VmFlags, VmRange};

use super::fork_gate::{self, Passage};
use super::page_locations::MOST_PAGES;
use super::shared::Site;
use super::watch::Watcher;
use super::work::{Copies, End, Files, Sequence, Stopper, Work};
use crate::attributes::Attributes;
use crate::driver::{Done, PieceExecutor};
use crate::piece::{self, Room, Watch};
use crate::plan::{PAGE, Piece, Run};
use crate::{Kept, KeptReason, MadviseFlags, Options, Owner, RepairError};
use vmarea_linux_sys::calls::{Arena, Call};
use vmarea_linux_sys::own_process::{self, NoSignals};
use vmarea_linux_sys::procmap;
use vmarea_linux_sys::sidecar;
use vmarea_linux_sys::uffd::{self, Uffd};

/// Size of the largest piece, in bytes.
const MOST_BYTES: u64 = MOST_PAGES as u64 * PAGE;
/// Capacity of the table of calls; a piece needs one call per part and a few more.
const MOST_CALLS: usize = 1_200;
/// Maximum number of parts in a piece.
pub(super) const TABLE_PARTS: usize = MOST_CALLS - 40;
/// Minimum time limit for stopping the other threads. On a busy machine, each thread must first be
/// scheduled before it can stop.
const SHORTEST_STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// The userfaultfd events for all operations that can affect pages while they are moved.
pub(super) const EVENTS: u64 =
    uffd::EVENT_REMAP | uffd::EVENT_FORK | uffd::EVENT_UNMAP | uffd::EVENT_REMOVE;

/// Executor that replaces pieces while the other threads run.
#[derive(Debug)]
pub(super) struct InProcess {
    /// Maximum time for the other threads to stop.
    stop_timeout: Duration,
    /// The scratch area; `None` if it was abandoned (see [`InProcess::room`]).
    room: Option<Room>,
    watcher: Watcher,
    home: Uffd,
    silent: Uffd,
    table: Arena<Call>,
    sidecar: Option<(Arena<sidecar::Memory>, File)>,
    pagemap: File,
    maps: File,
    /// Current attributes of the mappings; `None` if the caller guarantees that `madvise` has set
    /// no flags.
    attributes: Option<Attributes>,
}

impl InProcess {
    /// Opens the descriptors of a repair and starts the watcher thread.
    ///
    /// # Errors
    /// The errors of [`Merger::new`](super::Merger::new).
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
            // Only this query reveals that another thread has changed the protection of a mapping.
            procmap::query(&maps, 0, &mut [])
                .map_err(RepairError::system("asking for one mapping (Linux 6.11)"))?;
        }
        fork_gate::guard_forks().map_err(RepairError::system("guarding forks"))?;
        Ok(InProcess {
            stop_timeout: options.max_pause.map_or(SHORTEST_STOP_TIMEOUT, |pause| {
                pause.max(SHORTEST_STOP_TIMEOUT)
            }),
            watcher,
            home,
            silent,
            table: Arena::new(MOST_CALLS).map_err(RepairError::system("making a table"))?,
            sidecar,
            pagemap: File::open("/proc/self/pagemap")
                .map_err(RepairError::system("opening /proc/self/pagemap"))?,
            maps,
            attributes: None,
            // The scratch area is reserved last, because an error in a later step would not release
            // it.
            room: Some(reserve_room()?),
        })
    }

    /// Begins a pass over the address space. The pieces of a pass must be in ascending order.
    ///
    /// # Errors
    /// Errors from opening `/proc/self/smaps`.
    pub(super) fn begin_pass(&mut self, madvise_flags: MadviseFlags) -> io::Result<()> {
        self.attributes = match madvise_flags {
            MadviseFlags::Unset => None,
            MadviseFlags::Read => Some(Attributes::open("self")?),
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
        changed.map_err(RepairError::system("reading /proc/self/smaps"))
    }

    /// Fills the table with the calls for a piece. Returns the number of these calls, and how many
    /// of them precede the swap.
    fn fill_table(&mut self, piece: &Piece, room: Room, watch: Watch) -> (usize, usize) {
        let mut list = Vec::with_capacity(piece.parts.len() + 16);
        piece::out(piece, room, watch, &mut list);
        let before = list.len();
        piece::swap(piece.range, room, &mut list);
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
            return Ok(Done::refused(KeptReason::NoRoom, piece.range.start));
        }
        if let Some(place) = self.changed(piece)? {
            return Ok(Done::refused(KeptReason::Changed, place));
        }
        let watch = Watch {
            home: self.home.raw(),
            silent: self.silent.raw(),
        };
        let (calls, before) = self.fill_table(piece, room, watch);
        let keep = [own_process::thread_id(), self.watcher.thread_id()];
        let stop_timeout = self.stop_timeout;
        let stopper = self.sidecar.as_mut().map(|(memory, tasks)| Stopper {
            memory,
            tasks: tasks.as_raw_fd(),
            keep,
            stop_timeout,
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
    // No page is moved out during this wait, so it does not count as a pause.
    let drops = work.let_drops_end();
    let begun = Instant::now();
    let end = match drops {
        Ok(()) => work.join(),
        Err(reason) => End::Refused(reason, work.site.piece.start),
    };
    (end, begun.elapsed())
}

/// Checks whether this process can watch its memory with all the events that a repair needs.
///
/// # Errors
/// [`RepairError::Userfaultfd`], [`RepairError::TooOld`].
pub(super) fn can_watch() -> Result<(), RepairError> {
    open(EVENTS).map(|_| ())
}

/// Converts the protection of a mapping to the bits of [`procmap`].
fn access(flags: VmFlags) -> u64 {
    let bits = [
        (VmFlags::READ, procmap::VMA_READABLE),
        (VmFlags::WRITE, procmap::VMA_WRITABLE),
        (VmFlags::EXEC, procmap::VMA_EXECUTABLE),
    ];
    let set = bits.iter().filter(|(flag, _)| flags.contains(*flag));
    set.map(|(_, bit)| bit).sum()
}

pub(super) fn open(events: u64) -> Result<Uffd, RepairError> {
    Uffd::open(uffd::FEATURE_MOVE | events).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RepairError::Userfaultfd,
        Some(libc::EINVAL | libc::ENOSYS) => RepairError::TooOld,
        _ => RepairError::System {
            what: "opening a userfaultfd",
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
