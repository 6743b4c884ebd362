//! A piece in a process that stands: run, taken back, finished by another.
//!
//! Nobody touches the memory meanwhile, so a call that is refused is answered by moving home what is
//! out. What is out, the process itself shows: the temporary range is writable then.

use vmarea::values::{VmFlags, VmRange};

use crate::maps::{self, Mapping, Query};
use crate::repair::journal::Tools;
use crate::repair::lent::Held;
use crate::repair::piece::{self, Room, Watch, What};
use crate::repair::plan::Piece;
use crate::repair::{Reason, RepairError};
use crate::sys::calls::Call;
use crate::sys::uffd;

/// What came of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Done {
    /// Why it is as it was, and where that is so.
    pub(super) refused: Option<(Reason, u64)>,
    /// Pages that were copied.
    pub(super) copied: u64,
    /// Those of them that were shared.
    pub(super) shared: u64,
}

/// Moves a piece, in which `copies` shared pages may be copied; where a call is refused, takes back
/// what was done.
pub(super) fn run_piece(
    held: &Held<'_>,
    tools: &Tools,
    piece: &Piece,
    copies: u64,
) -> Result<Done, RepairError> {
    let (room, watch) = (Room { range: tools.room }, Watch::Stopped(tools.fd));
    let calls = &mut Vec::new();
    piece::out(piece, room, watch, calls);
    piece::swap(piece.range, room, watch, calls);
    piece::back(piece.range, 0, room, watch, calls);
    let (mut at, mut copied, mut tried) = (0, 0, u64::MAX);
    let done = |refused, copied| Done {
        refused,
        copied,
        shared: copied,
    };
    loop {
        at = held.run(tools, calls, at)?;
        let Some(call) = calls.get_mut(at) else {
            return Ok(done(None, copied));
        };
        let (errno, page) = (call.errno(), call.payload[1]);
        let is_out = call.what == What::Out as u64;
        if errno == libc::EAGAIN && (is_out || call.what == What::Back as u64) {
            if uffd::advance(call) && call.payload[2] == 0 {
                at += 1;
            }
            continue;
        }
        if is_out && errno == libc::EBUSY && tried != page && copied < copies {
            (tried, copied) = (page, copied + 1);
            call.payload[4] = 0;
            held.run(tools, &mut [piece::unshare(page)], 0)?;
            continue;
        }
        if call.what > What::Swap as u64 {
            // All is in place but pages; what remains is tried once more from the start.
            finish_piece_calls(held, tools, piece.range)?;
            return Ok(done(None, copied));
        }
        let (reason, place) = match errno {
            libc::EBUSY if is_out && tried == page => (Reason::Pinned, page),
            libc::EBUSY if is_out => (Reason::Shared, page),
            libc::EBUSY => (Reason::Userfaultfd, piece.range.start),
            libc::EFAULT if is_out => (Reason::Guard, page),
            libc::ENOMEM => (Reason::NoRoom, piece.range.start),
            _ if is_out => (Reason::Changed, page),
            _ => (Reason::Changed, piece.range.start),
        };
        undo(held, tools, piece.range, &piece.parts)?;
        return Ok(done(Some((reason, place)), copied));
    }
}

/// Moves what is out back into the mappings as they were, and gives the room back.
fn undo(
    held: &Held<'_>,
    tools: &Tools,
    piece: VmRange,
    parts: &[VmRange],
) -> Result<(), RepairError> {
    let room = Room { range: tools.room };
    let from = room.temporary(piece).start;
    let len = piece.len_bytes();
    // After the swap it is not watched; before, this changes nothing.
    let mut calls = vec![uffd::register(
        What::Watch as u64,
        tools.fd,
        piece.start,
        len,
    )];
    calls.extend(parts.iter().map(|part| {
        let at = from + (part.start - piece.start);
        uffd::move_pages(
            What::Back as u64,
            tools.fd,
            part.start,
            at,
            part.len_bytes(),
        )
    }));
    calls.extend(piece::unwatch(piece, 0, room, Watch::Stopped(tools.fd)));
    run_all(held, tools, piece, calls)
}

/// The end of a piece after the swap.
fn finish_piece_calls(held: &Held<'_>, tools: &Tools, piece: VmRange) -> Result<(), RepairError> {
    let room = Room { range: tools.room };
    let mut calls = Vec::new();
    piece::back(piece, 0, room, Watch::Stopped(tools.fd), &mut calls);
    run_all(held, tools, piece, calls)
}

/// Runs calls that must not fail; moves from places that are not there any more may.
pub(super) fn run_all(
    held: &Held<'_>,
    tools: &Tools,
    piece: VmRange,
    mut calls: Vec<Call>,
) -> Result<(), RepairError> {
    let mut at = 0;
    loop {
        at = held.run(tools, &mut calls, at)?;
        let Some(call) = calls.get_mut(at) else {
            return Ok(());
        };
        match call.errno() {
            libc::EAGAIN => {
                if uffd::advance(call) && call.payload[2] == 0 {
                    at += 1;
                }
            }
            // The temporary mapping was not made yet, so nothing is out.
            libc::ENOENT | libc::EINVAL
                if call.what == What::Back as u64 && !is_out(tools, piece, held) =>
            {
                at += 1;
            }
            // Nothing is watched that we could cease to watch.
            libc::EINVAL if call.what == What::Unwatch as u64 => at += 1,
            errno => {
                return Err(RepairError::Stranded {
                    start: piece.start,
                    end: piece.end,
                    temporary: Room { range: tools.room }.temporary(piece).start,
                    cause: std::io::Error::from_raw_os_error(errno),
                });
            }
        }
    }
}

/// True where there is a temporary mapping with something in it.
fn is_out(tools: &Tools, piece: VmRange, held: &Held<'_>) -> bool {
    let temporary = Room { range: tools.room }.temporary(piece);
    maps::read(held.pid()).is_ok_and(|mappings| is_writable(&mappings, temporary))
}

/// True where something in the range may be written.
pub(super) fn is_writable(mappings: &[Mapping], range: VmRange) -> bool {
    let touches = |m: &Mapping| m.start < range.end && range.start < m.end && m.perms.write;
    mappings.iter().any(touches)
}

/// Finishes a piece that another run has begun, from what the process shows.
pub(super) fn finish_piece(
    held: &Held<'_>,
    tools: &Tools,
    piece: VmRange,
    pid: i32,
) -> Result<(), RepairError> {
    let room = Room { range: tools.room };
    let mappings = maps::read(pid).map_err(RepairError::maps(pid))?;
    if !is_writable(&mappings, room.temporary(piece)) {
        // Nothing was begun, or all was done and the room given back; watched it may be still.
        let calls = piece::unwatch(piece, 0, room, Watch::Stopped(tools.fd));
        return run_all(held, tools, piece, calls.collect());
    }
    let parts: Vec<VmRange> = mappings
        .iter()
        .map(|m| VmRange::new(m.start, m.end).clip(piece))
        .filter(|part| part.start < part.end)
        .collect();
    // Before the swap and after it alike: what is out goes into what is there now.
    undo(held, tools, piece, &parts)
}

/// True where the mappings are what was planned with.
pub(super) fn is_as_planned(pid: i32, query: Option<&mut Query>, piece: &Piece) -> bool {
    let fits = |mapping: &Mapping, part: &VmRange| {
        let perms = mapping.perms;
        mapping.start <= part.start
            && part.end <= mapping.end
            && mapping.ino == 0
            && !perms.shared
            && perms.read == piece.flags.contains(VmFlags::READ)
            && perms.write == piece.flags.contains(VmFlags::WRITE)
            && perms.exec == piece.flags.contains(VmFlags::EXEC)
    };
    match query {
        Some(query) => piece.parts.iter().all(
            |part| matches!(query.covering_or_next(part.start), Ok(Some(m)) if fits(&m, part)),
        ),
        None => {
            let Ok(mappings) = maps::read(pid) else {
                return false;
            };
            piece.parts.iter().all(|part| {
                let at = mappings.partition_point(|m| m.end <= part.start);
                mappings.get(at).is_some_and(|m| fits(m, part))
            })
        }
    }
}
