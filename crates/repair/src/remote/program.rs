//! What the agent does for one piece, or for some small repairs: written before the threads stop,
//! read when the agent has ended.
//!
//! Everything is decided beforehand, because the agent must be able to finish alone. What the kernel
//! refuses goes back as it was: [`Outcome`] says what became of the piece.
//!
//! # Picture
//! ```text
//! table   | header | prepare | join | finish | parts | extents |
//! ```

use std::time::Duration;

use vmarea_linux_sys::agent::{
    self, CLONE_FLAGS, EXTENT_BYTES, Extent, FOLLOW, GO, HEADER_BYTES, Header, OnFailure, WATCH,
};
use vmarea_linux_sys::calls::{Call, ENTRY_BYTES};
use vmarea_linux_sys::{inject, uffd};
use vmarea_merge::types::VmRange;

use super::scratch::Scratch;
use super::target::Target;
use crate::plan::Piece;
use crate::{KeptReason, RepairError, Way};

const CLOSE_RANGE_UNSHARE: u64 = 2;
const NONBLOCK_CLOEXEC: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
const USER_MODE_ONLY: u64 = 1;
/// Number of attempts at a call that must not be left undone.
const TRIES: u32 = 100;
/// Time for which the reader of events waits before it looks whether it is needed.
const READER_WAITS_NS: u64 = 1_000_000;
/// Offset of the lists in the table.
const LISTS: u64 = 512;

const _: () = assert!(HEADER_BYTES <= LISTS);

/// The lists and numbers that the agent executes.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    header: Header,
    prepare: Vec<Call>,
    join: Vec<Call>,
    finish: Vec<Call>,
    parts: Vec<Extent>,
    extents: Vec<Extent>,
}

/// How pages return, and which.
#[derive(Clone, Debug)]
pub(super) enum Pages {
    /// All pages are moved. These pages, which are shared, are made the process's own before.
    Move { copied_before: Vec<u64> },
    /// These runs of pages are copied.
    Copy { extents: Vec<VmRange> },
}

impl Program {
    /// Returns the program that joins a piece.
    pub(super) fn of_piece(piece: &Piece, scratch: &Scratch, pages: &Pages) -> Program {
        let range = piece.range;
        let (temporary, fresh) = (scratch.temporary(range), scratch.fresh(range));
        let ready = scratch.ready(range);
        let extent = |range: &VmRange| Extent {
            start: range.start,
            len: range.len_bytes(),
            ..Extent::default()
        };
        let parts: Vec<Extent> = piece.parts.iter().map(extent).collect();
        let extents = match pages {
            Pages::Move { .. } => parts.clone(),
            Pages::Copy { extents } => {
                let inside = clipped(extents, &piece.parts);
                inside.map(|range| extent(&range)).collect()
            }
        };
        let mut header = Header::default();
        header.count = parts.len() as u64;
        header.to_temporary = temporary.start.wrapping_sub(range.start);
        if !piece.in_place {
            header.to_fresh = fresh.start.wrapping_sub(range.start);
        }
        header.out_end = range.start;
        (header.request, header.mode, header.makes_own) = match pages {
            Pages::Move { .. } => (uffd::UFFDIO_MOVE, uffd::ALLOW_HOLES, 1),
            Pages::Copy { .. } => (uffd::UFFDIO_COPY, 0, 0),
        };
        Program {
            header,
            prepare: prepare(piece, pages),
            join: join(piece, fresh, ready),
            finish: finish(piece, VmRange::new(temporary.start, ready.end)),
            parts,
            extents,
        }
    }

    /// Returns the program that only opens what a piece needs.
    pub(super) fn of_nothing(way: Way) -> Program {
        Program {
            prepare: open_descriptors(way, 2),
            finish: vec![time_spent()],
            ..Program::default()
        }
    }

    /// Returns the program that makes calls, which say themselves what follows a failure.
    pub(super) fn of_calls(mut calls: Vec<Call>) -> Program {
        // A call that is not made counts as failed.
        let not_made = -i64::from(libc::EINPROGRESS);
        calls.iter_mut().for_each(|call| call.result = not_made);
        Program {
            prepare: calls,
            ..Program::default()
        }
    }

    /// Writes the program to the table in the process. The agent does not begin before [`go`].
    ///
    /// # Errors
    /// [`RepairError::System`] if the memory cannot be written.
    pub(super) fn write(&mut self, target: &Target, scratch: &Scratch) -> Result<(), RepairError> {
        let table = scratch.table.start;
        let mut at = table + LISTS;
        let mut bytes = vec![0; LISTS as usize];
        for (list, place) in [
            (&mut self.prepare, &mut self.header.prepare),
            (&mut self.join, &mut self.header.join),
            (&mut self.finish, &mut self.header.finish),
        ] {
            *place = [at, at + list.len() as u64 * ENTRY_BYTES];
            for (n, call) in list.iter_mut().enumerate() {
                *call = call.at(at + n as u64 * ENTRY_BYTES);
            }
            bytes.extend_from_slice(inject::bytes_of(list));
            at = place[1];
        }
        self.header.parts = at;
        at += self.parts.len() as u64 * EXTENT_BYTES;
        self.header.extents = [at, at + self.extents.len() as u64 * EXTENT_BYTES];
        bytes.extend_from_slice(agent::bytes_of(&self.parts));
        bytes.extend_from_slice(agent::bytes_of(&self.extents));
        self.header.clone_flags = CLONE_FLAGS;
        self.header.reader_waits = [0, READER_WAITS_NS, 0, 0];
        bytes[..HEADER_BYTES as usize].copy_from_slice(self.header.bytes());
        assert!(
            bytes.len() as u64 <= scratch.table.len_bytes(),
            "the table is too small"
        );
        target.write(&bytes, table).map_err(failed(target))
    }

    /// Reads back what the agent has noted.
    ///
    /// # Errors
    /// [`RepairError::Ended`], [`RepairError::Replaced`]: the process may have been let go.
    pub(super) fn read(&mut self, target: &Target, scratch: &Scratch) -> Result<(), RepairError> {
        use std::os::unix::fs::FileExt;
        let memory = &target.memory;
        let read = |bytes: &mut [u8], at| {
            let read = memory.read_exact_at(bytes, at);
            read.map_err(|_| target.gone())
        };
        read(self.header.bytes_mut(), scratch.table.start)?;
        read(
            agent::bytes_of_mut(&mut self.extents),
            self.header.extents[0],
        )?;
        read(
            inject::bytes_of_mut(&mut self.prepare),
            self.header.prepare[0],
        )?;
        read(
            inject::bytes_of_mut(&mut self.finish),
            self.header.finish[0],
        )
    }

    /// Returns what became of the piece.
    ///
    /// # Errors
    /// [`RepairError::TargetUserfaultfd`], [`RepairError::TooOld`], [`RepairError::NoRoom`] if the
    /// agent could not begin.
    pub(super) fn outcome(&self, target: &Target) -> Result<Outcome, RepairError> {
        let start = self.parts.first().map_or(0, |part| part.start);
        if let Some(refused) = self.not_prepared(target)? {
            return Ok(Outcome::Unchanged(refused, start));
        }
        let header = &self.header;
        if header.out_error != 0 {
            return Ok(Outcome::Unchanged(
                reason(-header.out_error),
                header.out_end,
            ));
        }
        if !header.is_joined() {
            let cause = match header.join_error {
                0 if header.reader == -i64::from(libc::EAGAIN) => {
                    let cause = std::io::Error::from_raw_os_error(libc::EAGAIN);
                    let pid = target.pid;
                    return Err(RepairError::NoThread { pid, cause });
                }
                0 => header.reader,
                errno => errno,
            };
            return Ok(Outcome::Unchanged(reason(-cause), start));
        }
        let refused = self
            .extents
            .iter()
            .filter(|extent| extent.done < extent.len);
        let refused = refused.map(|extent| match -extent.error as i32 {
            libc::EFAULT => (KeptReason::Guard, extent.start + extent.done),
            errno => (reason(errno.into()), extent.start + extent.done),
        });
        Ok(Outcome::Joined(refused.collect()))
    }

    /// Returns why the agent could not begin with a piece; `None` if it could.
    fn not_prepared(&self, target: &Target) -> Result<Option<KeptReason>, RepairError> {
        let at = self.header.not_prepared;
        if at == 0 {
            return Ok(None);
        }
        let index = (at - self.header.prepare[0]) / ENTRY_BYTES;
        let Some(call) = self.prepare.get(index as usize) else {
            return Ok(Some(KeptReason::Changed));
        };
        let opens = call.nr != libc::SYS_ioctl || call.args[1] == uffd::UFFDIO_API;
        match call.errno() {
            libc::ENOMEM => Ok(Some(KeptReason::NoRoom)),
            libc::EBUSY if !opens => Ok(Some(KeptReason::Userfaultfd)),
            _ if !opens => Ok(Some(KeptReason::Changed)),
            libc::EPERM | libc::EACCES => Err(RepairError::TargetUserfaultfd(target.pid)),
            libc::EINVAL | libc::ENOSYS => Err(RepairError::TooOld),
            errno => Err(RepairError::System {
                what: "open a userfaultfd in the process",
                cause: std::io::Error::from_raw_os_error(errno),
            }),
        }
    }

    /// Returns the temporary ranges if the kernel has refused to unmap them. They are empty.
    pub(super) fn not_unmapped(&self) -> Option<VmRange> {
        let is_refused = |call: &&Call| call.nr == libc::SYS_munmap && call.errno() != 0;
        let [start, len, ..] = self.finish.iter().find(is_refused)?.args;
        Some(VmRange::new(start, start + len))
    }

    /// Returns the calls of [`Program::of_calls`] with their results.
    pub(super) fn calls(&self) -> &[Call] {
        &self.prepare
    }

    /// Returns the processor time of the agent.
    pub(super) fn time(&self) -> Duration {
        let spent = self
            .finish
            .last()
            .map_or([0; 2], |call| [call.payload[0], call.payload[1]]);
        Duration::new(spent[0], spent[1] as u32 % 1_000_000_000)
    }
}

/// What became of a piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Nothing has changed, for this reason, which was found at this address.
    Unchanged(KeptReason, u64),
    /// The piece is one mapping, except for what the kernel has refused at these addresses, for these
    /// reasons.
    Joined(Vec<(KeptReason, u64)>),
}

/// Lets the agent begin. All threads must be parked.
///
/// # Errors
/// [`RepairError::System`] if the memory cannot be written.
pub(super) fn go(target: &Target, scratch: &Scratch) -> Result<(), RepairError> {
    let word = GO.to_ne_bytes();
    target
        .write(&word, scratch.table.start)
        .map_err(failed(target))
}

/// Returns the address of the word for which parked threads wait.
pub(super) fn free_word(scratch: &Scratch) -> u64 {
    scratch.table.start + 4
}

fn failed(target: &Target) -> impl Fn(std::io::Error) -> RepairError {
    let pid = target.pid;
    move |cause| {
        let what = "write to the memory of the process";
        crate::proc_status::ended_or(pid, RepairError::System { what, cause })
    }
}

fn reason(errno: i64) -> KeptReason {
    match i32::try_from(errno).unwrap_or(0) {
        libc::ENOMEM | libc::EAGAIN => KeptReason::NoRoom,
        libc::EBUSY => KeptReason::Pinned,
        libc::EPERM => KeptReason::Differ(vmarea_merge::Refusal::Sealed),
        _ => KeptReason::Changed,
    }
}

/// Returns the calls before pages leave a piece: its pages are made the process's own where that is
/// permitted, and it is registered, with the end of what it will join.
fn prepare(piece: &Piece, pages: &Pages) -> Vec<Call> {
    let (way, copied) = match pages {
        Pages::Move { copied_before } => (Way::Move, &copied_before[..]),
        Pages::Copy { .. } => (Way::Copy, &[][..]),
    };
    let mut calls = open_descriptors(way, if piece.in_place { 1 } else { 2 });
    calls.extend(copied.iter().map(|&page| crate::piece::unshare(page)));
    let (from, len) = (piece.range.start - piece.left, piece.range.len_bytes());
    calls.push(uffd::register(0, WATCH, from, len + piece.left).must());
    calls
}

/// Returns the calls with which the emptied mappings of a piece become one.
///
/// A fresh range that the kernel has not joined, because its mappings are not equal (any more), is not
/// moved. Before Linux 6.17, the kernel notices this only after it has unmapped what is there, so the
/// first move, to free addresses, finds out. The second one has nothing to find.
fn join(piece: &Piece, fresh: VmRange, ready: VmRange) -> Vec<Call> {
    let (range, len) = (piece.range, piece.range.len_bytes());
    if piece.in_place {
        let from = range.start - piece.left;
        return vec![uffd::register_anew(0, WATCH, from, len + piece.left).must()];
    }
    let over = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let move_to = |from: VmRange, to: VmRange| {
        let args = [from.start, len, len, over, to.start];
        Call::plain(0, libc::SYS_mremap, &args).must()
    };
    vec![
        move_to(fresh, ready),
        uffd::register(0, FOLLOW, ready.start, len).must(),
        move_to(ready, range),
        // What waits for the old mappings finds the new one.
        uffd::wake(0, WATCH, range.start, len),
    ]
}

/// Returns the calls after the pages have returned: the watch ends, with which the kernel joins the
/// piece and its neighbours, and the temporary ranges `used` are unmapped.
fn finish(piece: &Piece, used: VmRange) -> Vec<Call> {
    let (range, len) = (piece.range, piece.range.len_bytes());
    let end_watch =
        |fd, start, len| uffd::unregister(0, fd, start, len).then(0, OnFailure::Continue, 3);
    let mut calls = Vec::new();
    if !piece.in_place {
        calls.push(end_watch(FOLLOW, range.start, len));
    }
    calls.push(end_watch(WATCH, range.start, len));
    if piece.left > 0 {
        calls.push(end_watch(WATCH, range.start - piece.left, piece.left));
    }
    let unmap = Call::plain(0, libc::SYS_munmap, &[used.start, used.len_bytes()]);
    calls.push(unmap.then(0, OnFailure::Continue, TRIES));
    calls.push(time_spent());
    calls
}

/// Cuts extents where parts begin, so that an extent is in a part that is out, or in none. Both lists
/// are in address order.
fn clipped(extents: &[VmRange], parts: &[VmRange]) -> impl Iterator<Item = VmRange> {
    extents.iter().flat_map(move |extent| {
        let first = parts.partition_point(|part| part.end <= extent.start);
        let inside = parts[first..]
            .iter()
            .take_while(|part| part.start < extent.end);
        inside.map(|part| part.clip(*extent))
    })
}

/// Opens the first `count` userfaultfds in a descriptor table of the agent's own.
fn open_descriptors(way: Way, count: usize) -> Vec<Call> {
    let everything = [0, u64::from(u32::MAX), CLOSE_RANGE_UNSHARE];
    let mut calls = vec![Call::plain(0, libc::SYS_close_range, &everything).must()];
    let features = match way {
        Way::Move => uffd::FEATURE_MOVE,
        Way::Copy => 0,
    };
    let descriptors = [(WATCH, features), (FOLLOW, features | uffd::EVENT_REMAP)];
    for (fd, features) in &descriptors[..count] {
        let open = |flags| Call::plain(0, libc::SYS_userfaultfd, &[flags]);
        // A process without the right to handle faults in the kernel may handle its own.
        calls.push(open(NONBLOCK_CLOEXEC).then(1, OnFailure::Continue, 1));
        calls.push(open(NONBLOCK_CLOEXEC | USER_MODE_ONLY).must());
        let api = [uffd::API, *features, 0];
        calls.push(Call::ioctl(0, *fd, uffd::UFFDIO_API, &api).must());
    }
    calls
}

/// Returns the call that stores the processor time of the thread in its own payload.
fn time_spent() -> Call {
    Call::time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}
