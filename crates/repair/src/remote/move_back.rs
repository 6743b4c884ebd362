//! Moves the pages of a piece back to their addresses, from any state of the piece.
//!
//! Any call may be refused, and an earlier run may have been interrupted at any point. This module
//! therefore makes no assumption about the state: the pagemap shows which pages are in the
//! temporary range, the list of mappings shows whether the swap was done, and both are read again
//! after each attempt. The operation is idempotent.
//!
//! # Picture
//! ```text
//! pages in the temporary range     move │ make exclusive, drop the target, move │ copy │ write
//! no pages left                    unregister, release the scratch area
//! ```
//! Each attempt handles the pages that remain after the previous one. Copies are made by the
//! userfaultfd; if it cannot copy a page, the bytes are written through `/proc/PID/mem`, which
//! needs no system call in the process.
//!
//! # Invariants
//! B1  When pages are moved, and in any case after the swap, a page in the temporary range is
//!     authoritative: only the repair fills the temporary range, and the kernel fills no missing
//!     page in a watched range. If the page's address is filled as well, that page was created by
//!     something else (`khugepaged`, a process that reads the memory) and is dropped.
//! B2  A page leaves the temporary range only by being moved, or after its bytes were copied to its
//!     address.

use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use vmarea_merge::types::{VmFlags, VmRange};
use vmarea_trace::event::Perms;

use super::agent::MOST_CALLS;
use super::descriptor;
use super::injector::Injector;
use super::pages::Pages;
use super::retries::{Next, Retries};
use crate::journal::Agent;
use crate::piece::{self, Room, Watch, What};
use crate::plan::PAGE;
use crate::proc_status;
use crate::{RepairError, Way};
use vmarea_linux_sys::calls::Call;
use vmarea_linux_sys::uffd;
use vmarea_process::maps::{self, MapsEntry, SmapsEntry};

/// A method of moving pages back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// The pages are moved, in the same way as they were moved out.
    Move,
    /// Each run of pages is made exclusive to the process, and is moved after its target is
    /// emptied.
    MoveOwn,
    /// The bytes are copied by the userfaultfd.
    Copy,
    /// The bytes are written through `/proc/PID/mem`.
    Write,
}

/// Order of the attempts. Each method is tried more than once, because a refusal may be temporary.
const BY_MOVE: [Attempt; 9] = {
    use Attempt::{Copy, Move, MoveOwn, Write};
    [Move, Move, Move, MoveOwn, MoveOwn, Copy, Copy, Write, Write]
};
const BY_COPY: [Attempt; 5] = {
    use Attempt::{Copy, Write};
    [Copy, Copy, Copy, Write, Write]
};
/// Maximum number of attempts at a call that must succeed, with a pause after each.
const TRIES: u32 = 8;
const REST: Duration = Duration::from_millis(1);

/// Moves all pages of `piece` back, ends the watch and releases the scratch area.
///
/// Works both before and after the swap, and without the userfaultfd. Returns true if the swap was
/// done.
///
/// # Errors
/// [`RepairError::LeftStopped`] if the process must not run in its current state;
/// [`RepairError::LeftBehind`] if it may run, but the scratch area was not released;
/// [`RepairError::Ended`].
pub(super) fn move_back(
    by: &impl Injector,
    agent: &Agent,
    piece: VmRange,
) -> Result<bool, RepairError> {
    let agent = &descriptor::without_closed(by, *agent);
    try_to_move_back(by, agent, piece).map_err(|error| must_stand(by.pid(), error))
}

/// Returns `error`, or [`RepairError::LeftStopped`] if some pages might not be at their addresses.
pub(super) fn must_stand(pid: i32, error: RepairError) -> RepairError {
    let what = "it cannot be seen what of a piece is where".to_owned();
    match error {
        RepairError::Maps { cause, .. } | RepairError::System { cause, .. } => {
            RepairError::LeftStopped { pid, what, cause }
        }
        RepairError::CannotStop { tid, .. } => RepairError::LeftStopped {
            pid,
            what: format!("its thread {tid} does not come back from a call"),
            cause: io::Error::from_raw_os_error(libc::ETIMEDOUT),
        },
        RepairError::Ended(_) => {
            let what = "its threads do not answer".to_owned();
            let cause = io::Error::from_raw_os_error(libc::ESRCH);
            proc_status::ended_or(pid, RepairError::LeftStopped { pid, what, cause })
        }
        error => error,
    }
}

fn try_to_move_back(
    by: &impl Injector,
    agent: &Agent,
    piece: VmRange,
) -> Result<bool, RepairError> {
    let room = Room { range: agent.room };
    let recovery = Recovery {
        by,
        agent,
        piece,
        room,
        temporary: room.temporary(piece),
    };
    let mappings = recovery.mappings()?;
    let begun = is_writable(&mappings, recovery.temporary);
    let mut swapped = begun && !is_writable(&mappings, room.fresh(piece));
    if begun && !is_covered(&mappings, piece) {
        recovery.cover(swapped)?;
        swapped = true;
    }
    // Before the swap, pages that were copied to the temporary range are only copies.
    if begun && (swapped || agent.way == Way::Move) {
        recovery.bring_pages()?;
    }
    recovery.close()?;
    Ok(swapped)
}

struct Recovery<'a, I> {
    by: &'a I,
    agent: &'a Agent,
    piece: VmRange,
    room: Room,
    temporary: VmRange,
}

impl<I: Injector> Recovery<'_, I> {
    fn mappings(&self) -> Result<Vec<MapsEntry>, RepairError> {
        maps::read(self.by.pid()).map_err(RepairError::maps(self.by.pid()))
    }

    fn left_stopped(&self, what: String, errno: i32) -> RepairError {
        RepairError::LeftStopped {
            pid: self.by.pid(),
            what,
            cause: io::Error::from_raw_os_error(errno),
        }
    }

    /// Completes a swap that unmapped the old mappings but did not put the fresh mapping in place.
    /// No call other than the swap unmaps any part of the piece. If the swap keeps failing, new
    /// memory is mapped instead.
    fn cover(&self, swapped: bool) -> Result<(), RepairError> {
        if !swapped {
            let mut calls = Vec::new();
            piece::swap(
                self.piece,
                self.room,
                Watch::Stopped(self.agent.fd),
                &mut calls,
            );
            if self.must(&mut calls)? == 0 {
                return Ok(());
            }
        }
        let flags = self.flags()?;
        let mut errno = 0;
        for gap in gaps(&self.mappings()?, self.piece) {
            errno = self.must(&mut piece::fill(gap, flags).collect::<Vec<_>>())?;
        }
        if is_covered(&self.mappings()?, self.piece) {
            return Ok(());
        }
        let (piece, temporary) = (self.piece, self.temporary);
        let what = format!(
            "nothing is mapped at {:#x}-{:#x}, the pages of which wait at {:#x}",
            piece.start, piece.end, temporary.start
        );
        Err(self.left_stopped(what, errno))
    }

    /// Returns the flags that the piece should have. These are the flags of the fresh mapping if it
    /// still exists, otherwise those of the temporary mapping.
    fn flags(&self) -> Result<VmFlags, RepairError> {
        let (fresh, entries) = (self.room.fresh(self.piece), self.smaps()?);
        let start = |entry: &SmapsEntry| entry.mapping.start;
        let at = |place: u64| entries.iter().find(|entry| start(entry) == place);
        // A fork would not copy the temporary mapping.
        let (found, without) = match at(fresh.start).filter(|entry| entry.mapping.perms.write) {
            Some(entry) => (Some(entry), VmFlags::empty()),
            None => (at(self.temporary.start), VmFlags::DONTCOPY),
        };
        let flags = found
            .map(|entry| maps::flags_of(&entry.flags))
            .unwrap_or_default();
        Ok(flags - without)
    }

    fn perms(&self, mappings: &[MapsEntry]) -> Option<Perms> {
        let at = mappings.partition_point(|m| m.end <= self.temporary.start);
        mappings.get(at).map(|m| m.perms)
    }

    fn bring_pages(&self) -> Result<(), RepairError> {
        let attempts: &[Attempt] = match self.agent.way {
            Way::Move => &BY_MOVE,
            Way::Copy => &BY_COPY,
        };
        let mut errno = 0;
        for (round, &attempt) in attempts.iter().enumerate() {
            let out = self.out()?;
            if out.is_empty() {
                break;
            }
            if round > 0 {
                std::thread::sleep(REST);
            }
            errno = match self.attempt(attempt, &out)? {
                0 => errno,
                refused => refused,
            };
        }
        let out = Pages::of(self.by.pid())?.runs(self.temporary, |_| true)?;
        let Some(first) = out.first() else {
            return Ok(());
        };
        let pages: u64 = out.iter().map(|run| run.pages()).sum();
        let what = format!(
            "{pages} pages of {:#x}-{:#x} wait at {:#x}-{:#x}, the first at {:#x}",
            self.piece.start, self.piece.end, self.temporary.start, self.temporary.end, first.start
        );
        Err(self.left_stopped(what, errno))
    }

    /// Returns the runs of pages in the temporary range, as offsets from the start of the piece.
    /// Each run lies within one mapping.
    fn out(&self) -> Result<Vec<VmRange>, RepairError> {
        let mappings = self.mappings()?;
        let perms = self.perms(&mappings);
        let from = self.temporary.start;
        let mut waiting = Pages::of(self.by.pid())?.runs(self.temporary, |_| true)?;
        for run in &mut waiting {
            *run = VmRange::new(run.start - from, run.end - from);
        }
        let fits = |m: &&MapsEntry| m.ino == 0 && !m.perms.shared && Some(m.perms) == perms;
        let homes = mappings.iter().filter(fits).filter_map(|m| {
            let home = VmRange::new(m.start, m.end).clip(self.piece);
            let at = |address: u64| address - self.piece.start;
            (home.start < home.end).then(|| VmRange::new(at(home.start), at(home.end)))
        });
        let mut out = Vec::new();
        for home in homes {
            let first = waiting.partition_point(|run| run.end <= home.start);
            let inside = waiting[first..]
                .iter()
                .take_while(|run| run.start < home.end);
            out.extend(inside.map(|run| run.clip(home)));
        }
        Ok(out)
    }

    /// Makes one attempt to move all runs back. Returns the errno of the last refusal, or 0.
    fn attempt(&self, attempt: Attempt, out: &[VmRange]) -> Result<i32, RepairError> {
        let (home, from) = (self.piece.start, self.temporary.start);
        let fd = self.agent.fd;
        let back = What::Back as u64;
        let at = |run: &VmRange, start: u64| VmRange::new(start + run.start, start + run.end);
        let moves = |run: &VmRange| {
            uffd::move_pages(
                back,
                fd,
                home + run.start,
                from + run.start,
                run.len_bytes(),
            )
        };
        if attempt == Attempt::Write {
            return self.write(out);
        }
        let watched = self.each(&mut [self.watch()])?;
        let mut errno = match attempt {
            Attempt::Move => self.each(&mut out.iter().map(moves).collect::<Vec<_>>())?,
            _ => 0,
        };
        for run in out.iter().filter(|_| attempt != Attempt::Move) {
            let empty = piece::drop_pages(at(run, home));
            let refused = match attempt {
                Attempt::MoveOwn => {
                    self.each(&mut [piece::own(at(run, from))])?;
                    self.group(&mut [empty, moves(run)])?
                }
                _ => self.group(&mut [
                    empty,
                    uffd::copy(
                        back,
                        fd,
                        home + run.start,
                        from + run.start,
                        run.len_bytes(),
                    ),
                    piece::drop_pages(at(run, from)),
                ])?,
            };
            errno = if refused == 0 { errno } else { refused };
        }
        Ok(if errno == 0 { watched } else { errno })
    }

    fn watch(&self) -> Call {
        let (start, len) = (self.piece.start, self.piece.len_bytes());
        uffd::register(What::Watch as u64, self.agent.fd, start, len)
    }

    fn unwatch(&self) -> Call {
        let (start, len) = (self.piece.start, self.piece.len_bytes());
        uffd::unregister(What::Unwatch as u64, self.agent.fd, start, len)
    }

    /// Writes the bytes of the pages in the temporary range to their addresses. The watch must have
    /// ended: a watched range cannot be written from outside the process.
    fn write(&self, out: &[VmRange]) -> Result<i32, RepairError> {
        let mut errno = self.must(&mut [self.unwatch()])?;
        let mut bytes = [0; PAGE as usize];
        for run in out {
            let mut placed = true;
            for off in (run.start..run.end).step_by(PAGE as usize) {
                let memory = self.by.memory();
                let done = memory
                    .read_exact_at(&mut bytes, self.temporary.start + off)
                    .and_then(|()| memory.write_all_at(&bytes, self.piece.start + off));
                if let Err(error) = done {
                    (placed, errno) = (false, error.raw_os_error().unwrap_or(libc::EIO));
                }
            }
            if placed {
                let start = self.temporary.start;
                let waits = VmRange::new(start + run.start, start + run.end);
                let refused = self.must(&mut [piece::drop_pages(waits)])?;
                errno = if refused == 0 { errno } else { refused };
            }
        }
        Ok(errno)
    }

    /// Ends the watch and releases the scratch area.
    fn close(&self) -> Result<(), RepairError> {
        let errno = self.must(&mut [self.unwatch()])?;
        if errno != 0 && self.is_watched()? {
            let (start, end) = (self.piece.start, self.piece.end);
            let what = format!(
                "descriptor {} still watches {start:#x}-{end:#x}",
                self.agent.fd
            );
            return Err(self.left_stopped(what, errno));
        }
        match self.must(&mut [piece::reserve(What::Release, self.room.range)])? {
            0 => Ok(()),
            errno => Err(RepairError::LeftBehind {
                pid: self.by.pid(),
                cause: io::Error::from_raw_os_error(errno),
            }),
        }
    }

    /// True if `smaps` shows that a userfaultfd watches a mapping of the piece.
    fn is_watched(&self) -> Result<bool, RepairError> {
        let (start, end) = (self.piece.start, self.piece.end);
        let is_inside = |e: &SmapsEntry| e.mapping.start < end && start < e.mapping.end;
        let entries = self.smaps()?;
        Ok(entries.iter().any(|e| is_inside(e) && e.has(b"um")))
    }

    fn smaps(&self) -> Result<Vec<SmapsEntry>, RepairError> {
        let pid = self.by.pid();
        let failed = RepairError::maps(pid);
        let text = std::fs::read(format!("/proc/{pid}/smaps")).map_err(&failed)?;
        maps::parse_smaps(&text).map_err(|error| failed(error.into()))
    }

    /// Makes all calls, even if some of them fail. Returns the errno of the last failure, or 0.
    fn each(&self, calls: &mut [Call]) -> Result<i32, RepairError> {
        let mut last = 0;
        for calls in calls.chunks_mut(MOST_CALLS) {
            let mut at = 0;
            while at < calls.len() {
                match self.run_on(calls, at)? {
                    (stopped, 0) => at = stopped,
                    (stopped, errno) => (at, last) = (stopped + 1, errno),
                }
            }
        }
        Ok(last)
    }

    /// Makes calls until one is refused. Returns the errno of the refused call, or 0.
    fn group(&self, calls: &mut [Call]) -> Result<i32, RepairError> {
        Ok(self.run_on(calls, 0)?.1)
    }

    /// Makes calls in order until one is refused; a call that is refused temporarily is repeated.
    /// Returns the index of the refused call and its errno.
    fn run_on(&self, calls: &mut [Call], first: usize) -> Result<(usize, i32), RepairError> {
        let mut retries = Retries::default();
        let mut at = first;
        loop {
            at = self.by.run(self.agent, calls, at)?;
            let Some(call) = calls.get_mut(at) else {
                return Ok((at, 0));
            };
            match retries.after(call) {
                Next::Again => {}
                Next::Following => at += 1,
                Next::Refused(errno) => return Ok((at, errno)),
            }
        }
    }

    /// Makes calls that should succeed, with several attempts. Returns the errno of the last
    /// attempt, or 0 on success.
    fn must(&self, calls: &mut [Call]) -> Result<i32, RepairError> {
        let mut at = 0;
        let mut errno = 0;
        for round in 0..TRIES {
            if round > 0 {
                std::thread::sleep(REST);
            }
            (at, errno) = self.run_on(calls, at)?;
            if errno == 0 {
                break;
            }
        }
        Ok(errno)
    }
}

/// True if any part of the range is writable.
pub(super) fn is_writable(mappings: &[MapsEntry], range: VmRange) -> bool {
    let touches = |m: &MapsEntry| m.start < range.end && range.start < m.end && m.perms.write;
    mappings.iter().any(touches)
}

/// True if the whole range is mapped.
pub(super) fn is_covered(mappings: &[MapsEntry], range: VmRange) -> bool {
    gaps(mappings, range).is_empty()
}

/// Returns the unmapped parts of `range`.
fn gaps(mappings: &[MapsEntry], range: VmRange) -> Vec<VmRange> {
    let mut gaps = Vec::new();
    let mut at = range.start;
    let inside = mappings
        .iter()
        .filter(|m| range.start < m.end && m.start < range.end);
    for mapping in inside {
        if at < mapping.start {
            gaps.push(VmRange::new(at, mapping.start));
        }
        at = mapping.end;
    }
    if at < range.end {
        gaps.push(VmRange::new(at, range.end));
    }
    gaps
}
