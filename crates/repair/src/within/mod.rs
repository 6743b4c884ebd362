//! Repairing the calling process while its other threads run.
//!
//! A thread that touches a page on its way waits for it; one that touches a hole waits for the end
//! of the piece. The work on a piece is done by one thread that meanwhile uses nothing but its own
//! stack, registers and shared memory: whatever else it touched could be on its way. A second one
//! answers the kernel's events ([`watch`](super::watch)).
//!
//! # Invariants
//! W1  between `Shared::begin` and `Shared::end` no allocation, no lock of the program, no signal
//! W2  a piece ends joined or as it was, and not before every page is home; what the program itself
//!     dropped or moved meanwhile stays dropped or moved
//! W3  the room is ours from its reservation to its release: where that is in doubt it is left as it is

mod home;
#[cfg(test)]
mod tests;
mod unwatch;
mod work;

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use vmarea::types::{VmFlags, VmRange};

use super::gate::{self, Passage};
use super::homes::MOST_PAGES;
use super::pace::Pace;
use super::piece::{self, Room, Watch};
use super::plan::{self, Knowledge, Limits, PAGE, Piece, Run};
use super::watch::Watcher;
use super::{Hidden, Options, Owner, Reason, RepairError, Report, Way};
use vmarea_linux_sys::calls::{Arena, Call};
use vmarea_linux_sys::own::{self, NoSignals};
use vmarea_linux_sys::procmap;
use vmarea_linux_sys::sidecar;
use vmarea_linux_sys::uffd::{self, Uffd};
use vmarea_process::maps;
use vmarea_process::view::KernelView;

use work::{End, Work};

/// The largest piece, bytes.
const MOST_BYTES: u64 = MOST_PAGES as u64 * PAGE;
/// Calls that a table holds; a piece takes one for each part and some more.
const MOST_CALLS: usize = 1_200;
/// How long the other threads may take to stop, at the least: on a busy machine each has to get a
/// processor first.
const PATIENCE: Duration = Duration::from_secs(1);
/// All that can happen to pages on their way.
const EVENTS: u64 = uffd::EVENT_REMAP | uffd::EVENT_FORK | uffd::EVENT_UNMAP | uffd::EVENT_REMOVE;

/// Joins neighbours in `range` of the calling process that need not be apart.
///
/// For one repair; who repairs again and again keeps a [`Merger`].
///
/// # Errors
/// See [`Merger::new`] and [`Merger::merge`].
pub fn merge_range(range: Range<u64>, options: Options) -> Result<Report, RepairError> {
    Merger::new(options)?.merge(range)
}

/// Tells whether this process (and a program that it becomes) may be repaired from within.
///
/// # Errors
/// [`RepairError::Userfaultfd`], [`RepairError::TooOld`].
pub fn can_repair_itself() -> Result<(), RepairError> {
    open(EVENTS).map(|_| ())
}

/// Repairs the calling process, as often as it is asked to.
#[derive(Debug)]
pub struct Merger {
    options: Options,
    kernel: Option<KernelView>,
    /// None where it was given up: see [`Merger::room`].
    room: Option<Room>,
    watcher: Watcher,
    home: Uffd,
    silent: Uffd,
    table: Arena<Call>,
    sidecar: Option<(Arena<sidecar::Memory>, File)>,
    pagemap: File,
    maps: File,
}

impl Merger {
    /// Opens what a repair needs, and starts the thread that watches.
    ///
    /// # Errors
    /// [`RepairError::Userfaultfd`], [`RepairError::TooOld`], or a [`RepairError::System`] that
    /// says what could not be had.
    pub fn new(options: Options) -> Result<Merger, RepairError> {
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
        gate::guard_forks().map_err(RepairError::system("guarding forks"))?;
        let kernel = match options.hidden {
            Hidden::Plain => None,
            // Without the permission for it, `smaps` says what is needed.
            Hidden::Read => KernelView::open().ok(),
        };
        Ok(Merger {
            options,
            kernel,
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
    fn room(&mut self) -> Result<Room, RepairError> {
        let room = match self.room {
            Some(room) => room,
            None => reserve_room()?,
        };
        self.room = Some(room);
        Ok(room)
    }

    /// Joins neighbours in `range` (addresses) that need not be apart.
    ///
    /// # Errors
    /// [`RepairError::BadRange`], [`RepairError::PauseTooShort`], [`RepairError::Maps`], and a
    /// [`RepairError::System`] where no address space can be had. What merely stays apart is in the
    /// report. It does not return while a page is away from its place, however long the kernel has no
    /// memory to bring it back.
    pub fn merge(&mut self, range: Range<u64>) -> Result<Report, RepairError> {
        if range.is_empty() || !range.start.is_multiple_of(PAGE) || !range.end.is_multiple_of(PAGE)
        {
            return Err(RepairError::BadRange(range.start, range.end));
        }
        let begun = Instant::now();
        let pid = std::process::id() as i32;
        let failed = |cause| RepairError::Maps { pid, cause };
        let knowledge = match self.options.hidden {
            Hidden::Plain => Knowledge::Plain,
            Hidden::Read => Knowledge::read(self.kernel.as_ref(), pid).map_err(failed)?,
        };
        let [stack, local] = own::places();
        let exclude = [stack, local, gate::address()];
        let (runs, kept) = plan::runs(pid, &knowledge, &range, &exclude).map_err(failed)?;
        let mut report = Report {
            before: kept.mappings,
            runs: runs.len() as u64,
            kept,
            ..Report::default()
        };
        let mut pace = Pace::new(
            self.options.max_pause,
            Limits {
                parts: MOST_CALLS - 40,
                bytes: self.room()?.piece_bytes(),
                part_bytes: 0,
            },
            Way::Move,
        );
        let (needed, possible) = pace.smallest();
        if let (Some(asked), false) = (self.options.max_pause, possible) {
            return Err(RepairError::PauseTooShort { asked, needed });
        }
        let forks = &self.watcher.shared().forks;
        // ORDERING: Relaxed, a count.
        let forks_before = forks.load(std::sync::atomic::Ordering::Relaxed);
        for run in &runs {
            self.merge_run(run, &mut pace, &mut report)?;
        }
        let forks = &self.watcher.shared().forks;
        // ORDERING: Relaxed, a count.
        report.forks = forks.load(std::sync::atomic::Ordering::Relaxed) - forks_before;
        report.after = count(pid, &range).map_err(failed)?;
        report.total = begun.elapsed();
        Ok(report)
    }

    fn merge_run(
        &mut self,
        run: &Run,
        pace: &mut Pace,
        report: &mut Report,
    ) -> Result<(), RepairError> {
        let mut at = run.begin();
        let mut joined = run.range.start;
        while at < run.range.end {
            let piece = run.piece(at, joined, pace.limits());
            if piece.parts.len() < 2 && piece.range.end == run.range.end && joined == at {
                // One mapping with nothing before or after it.
                break;
            }
            let (end, time) = self.merge_piece(&piece, report)?;
            let bytes = piece.range.len_bytes();
            match end {
                End::Joined => {
                    pace.took(piece.parts.len(), bytes, time);
                    report.pieces += 1;
                    report.bytes += bytes;
                    report.longest_pause = report.longest_pause.max(time);
                    at = piece.range.end;
                }
                End::Refused(reason, place) => {
                    report.kept.add(reason);
                    report.longest_pause = report.longest_pause.max(time);
                    let part = piece.parts.partition_point(|part| part.end <= place);
                    at = match piece.parts.get(part) {
                        // What lies before it can be joined without it.
                        // Not where somebody changed it: what it drops may go a moment later.
                        Some(part)
                            if part.start > piece.range.start && reason != Reason::Changed =>
                        {
                            let before = Run {
                                range: VmRange::new(at, part.start),
                                parts: run.parts_within(at, part.start),
                                flags: run.flags,
                                anchored: false,
                            };
                            self.merge_before(&before, joined, pace, report)?;
                            run.part_end(part.start)
                        }
                        _ => run.part_end(piece.range.start),
                    };
                    joined = at;
                }
            }
        }
        Ok(())
    }

    /// The part of a run before a mapping that refused: once more, and not again.
    fn merge_before(
        &mut self,
        run: &Run,
        joined: u64,
        pace: &mut Pace,
        report: &mut Report,
    ) -> Result<(), RepairError> {
        if run.parts.len() < 2 && joined == run.range.start {
            return Ok(());
        }
        let piece = run.piece(run.range.start, joined, pace.limits());
        let (end, time) = self.merge_piece(&piece, report)?;
        report.longest_pause = report.longest_pause.max(time);
        match end {
            End::Joined => {
                report.pieces += 1;
                report.bytes += piece.range.len_bytes();
            }
            End::Refused(reason, _) => report.kept.add(reason),
        }
        Ok(())
    }

    fn merge_piece(
        &mut self,
        piece: &Piece,
        report: &mut Report,
    ) -> Result<(End, Duration), RepairError> {
        let room = self.room()?;
        if piece.range.len_bytes() > room.piece_bytes() {
            let refused = End::Refused(Reason::NoRoom, piece.range.start);
            return Ok((refused, Duration::ZERO));
        }
        let watch = Watch::Running {
            home: self.home.raw(),
            silent: self.silent.raw(),
        };
        let mut list = Vec::with_capacity(piece.parts.len() + 16);
        piece::out(piece, room, watch, &mut list);
        let before = list.len();
        piece::swap(piece.range, room, watch, &mut list);
        piece::back(piece.range, piece.left, room, watch, &mut list);
        let calls = &mut self.table.all()[..list.len()];
        calls.copy_from_slice(&list);
        let watcher_id = self.watcher.thread_id();
        let mut work = Work {
            calls,
            before,
            shared: self.watcher.shared(),
            sidecar: self
                .sidecar
                .as_mut()
                .map(|(memory, tasks)| (memory, tasks.as_raw_fd())),
            keep: [own::thread_id(), watcher_id],
            patience: self
                .options
                .max_pause
                .map_or(PATIENCE, |pause| pause.max(PATIENCE)),
            watch,
            room,
            piece: piece.range,
            left: piece.left,
            pagemap: self.pagemap.as_raw_fd(),
            maps: self.maps.as_raw_fd(),
            flags: piece.flags,
            access: access(piece.flags),
            copies_left: self.options.copy_pages.saturating_sub(report.copied),
            copied: 0,
            room_is_lost: false,
        };
        let passage = Passage::wait();
        let quiet = NoSignals::begin();
        // Nothing is out meanwhile: it is no part of the pause.
        let drops = work.let_drops_end();
        let begun = Instant::now();
        let end = match drops {
            Ok(()) => work.join(),
            Err(reason) => End::Refused(reason, piece.range.start),
        };
        let time = begun.elapsed();
        drop(quiet);
        drop(passage);
        report.copied += work.copied;
        if work.room_is_lost {
            self.room = None;
        }
        Ok((end, time))
    }
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
        match own::reserve(len) {
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

/// Mappings of a process that touch `range`.
pub(super) fn count(pid: i32, range: &Range<u64>) -> std::io::Result<u64> {
    let within = |mapping: &&maps::Mapping| mapping.start < range.end && range.start < mapping.end;
    Ok(maps::read(pid)?.iter().filter(within).count() as u64)
}

impl Drop for Merger {
    fn drop(&mut self) {
        if let Some(Room { range }) = self.room {
            own::release(range.start, range.len_bytes());
        }
    }
}
