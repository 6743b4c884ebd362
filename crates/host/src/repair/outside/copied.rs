//! A piece in a process that stands, by copying: for kernels that cannot move pages (before 6.8).
//!
//! The process's own userfaultfd copies bytes into places where no page is (`UFFDIO_COPY`). What is
//! read as zeros and is nobody's own stays away; what is shared is copied within a budget. A page
//! that a device writes to would be lost in this way, and nothing tells which are: a process that may
//! have such pages is left as it is.
//!
//! # Picture
//! ```text
//!             piece                temporary      fresh
//! before    |a|bb|ccc|             ---------      ---------
//! Out       |a|bb|ccc|             |abbccc |      |       |   copied
//! Swap      |        |             |abbccc |      ---------   mremap of the fresh mapping: one step
//! Back      |abbccc  |             |abbccc |      ---------   copied
//! ```
//!
//! # Invariants
//! C1  until the swap the piece is as it was; from the swap on all of it is in the temporary range
//! C2  a temporary range without a fresh mapping beside it says that the swap was done; with one, but
//!     with nothing where the piece was, that it was done by half

use std::fs::File;
use std::os::unix::fs::FileExt;

use vmarea::values::VmRange;

use super::stopped::{Done, is_writable, run_all};
use super::tools::MOST_CALLS;
use crate::maps::{self, Mapping};
use crate::repair::journal::Tools;
use crate::repair::lent::Held;
use crate::repair::look;
use crate::repair::piece::{self, Room, Watch, What};
use crate::repair::plan::{PAGE, Piece};
use crate::repair::{Reason, RepairError};
use crate::sys::calls::Call;
use crate::sys::uffd;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Mapped nowhere else, where it is present.
const OWN: u64 = 1 << 56;

/// Copies a piece, in which `copies` pages may be shared ones.
pub(super) fn copy_piece(
    held: &Held<'_>,
    tools: &Tools,
    piece: &Piece,
    copies: u64,
) -> Result<Done, RepairError> {
    let refused = |reason, place| Done {
        refused: Some((reason, place)),
        ..Done::default()
    };
    let range = piece.range;
    if look::may_be_pinned(held.pid()) {
        return Ok(refused(Reason::Pinned, range.start));
    }
    let found = match filled(held, range, copies)? {
        Ok(found) => found,
        Err(page) => return Ok(refused(Reason::Shared, page)),
    };
    let (room, by) = (Room { range: tools.room }, Watch::Stopped(tools.fd));
    let temporary = room.temporary(range);

    let mut calls = Vec::new();
    piece::make(piece, room, by, &mut calls);
    calls.extend(found.copies(What::Out, tools, range.start, temporary.start));
    piece::swap(range, room, by, &mut calls);
    calls.push(watch(tools, range));
    calls.extend(found.copies(What::Back, tools, temporary.start, range.start));
    calls.extend(piece::unwatch(range, 0, room, by));

    if let Some(call) = make(held, tools, &mut calls)? {
        if call.what > What::Swap as u64 || !is_covered(&read(held.pid())?, range) {
            finish_piece(held, tools, range, held.pid())?;
        } else {
            make(
                held,
                tools,
                &mut [piece::reserve(What::Release, room.range)],
            )?;
            return Ok(match call.errno() {
                libc::EFAULT => refused(Reason::Guard, call.payload[1]),
                libc::ENOMEM => refused(Reason::NoRoom, range.start),
                libc::EBUSY => refused(Reason::Userfaultfd, range.start),
                _ => refused(Reason::Changed, range.start),
            });
        }
    }
    Ok(Done {
        refused: None,
        copied: found.pages,
        shared: found.shared,
    })
}

/// Finishes a piece that another run has begun, from what the process shows.
pub(super) fn finish_piece(
    held: &Held<'_>,
    tools: &Tools,
    piece: VmRange,
    pid: i32,
) -> Result<(), RepairError> {
    let room = Room { range: tools.room };
    let temporary = room.temporary(piece);
    let mappings = read(pid)?;
    let mut calls = Vec::new();
    let was_swapped = !is_writable(&mappings, room.fresh(piece));
    let was_unmapped = !is_covered(&mappings, piece);
    if is_writable(&mappings, temporary) && (was_swapped || was_unmapped) {
        if !was_swapped {
            piece::swap(piece, room, Watch::Stopped(tools.fd), &mut calls);
        }
        // What has come back already is copied once more: nobody has written to it.
        let found = filled(held, temporary, u64::MAX)?.unwrap_or_default();
        calls.push(watch(tools, piece));
        calls.push(piece::drop_pages(piece));
        calls.extend(found.copies(What::Back, tools, temporary.start, piece.start));
    }
    calls.extend(piece::unwatch(piece, 0, room, Watch::Stopped(tools.fd)));
    for calls in calls.chunks(MOST_CALLS) {
        run_all(held, tools, piece, calls.to_vec())?;
    }
    Ok(())
}

fn read(pid: i32) -> Result<Vec<Mapping>, RepairError> {
    maps::read(pid).map_err(RepairError::maps(pid))
}

/// True where no part of the range is without a mapping.
fn is_covered(mappings: &[Mapping], range: VmRange) -> bool {
    let parts = mappings
        .iter()
        .map(|m| VmRange::new(m.start, m.end).clip(range));
    let covered: u64 = parts.map(|part| part.end.saturating_sub(part.start)).sum();
    covered == range.len_bytes()
}

/// The pages of a range that have to be copied.
#[derive(Debug, Default)]
struct Filled {
    /// Where they lie, from its start.
    extents: Vec<VmRange>,
    pages: u64,
    /// Those that others have as well.
    shared: u64,
}

impl Filled {
    fn copies(&self, what: What, tools: &Tools, from: u64, to: u64) -> impl Iterator<Item = Call> {
        self.extents.iter().map(move |extent| {
            let (at, len) = (extent.start, extent.len_bytes());
            uffd::copy(what as u64, tools.fd, to + at, from + at, len)
        })
    }
}

/// What has to be copied of a range; or the page that is one shared page too many.
fn filled(
    held: &Held<'_>,
    range: VmRange,
    copies: u64,
) -> Result<Result<Filled, u64>, RepairError> {
    let failed = RepairError::maps(held.pid());
    let pagemap = File::open(format!("/proc/{}/pagemap", held.pid())).map_err(&failed)?;
    let mut bytes = vec![0; (range.len_bytes() / PAGE * 8) as usize];
    pagemap
        .read_exact_at(&mut bytes, range.start / PAGE * 8)
        .map_err(&failed)?;
    let (words, _) = bytes.as_chunks::<8>();
    let mut found = Filled::default();
    for (n, word) in words.iter().enumerate() {
        let (word, at) = (u64::from_ne_bytes(*word), n as u64 * PAGE);
        if word & (PRESENT | SWAPPED) == 0 {
            continue;
        }
        if word & PRESENT != 0 && word & OWN == 0 {
            // The page of zeros is read in its absence as well.
            if reads_as_zeros(held, range.start + at) {
                continue;
            }
            if found.shared == copies {
                return Ok(Err(range.start + at));
            }
            found.shared += 1;
        }
        found.pages += 1;
        match found.extents.last_mut() {
            Some(last) if last.end == at => last.end += PAGE,
            _ => found.extents.push(VmRange::new(at, at + PAGE)),
        }
    }
    Ok(Ok(found))
}

fn reads_as_zeros(held: &Held<'_>, page: u64) -> bool {
    let mut bytes = [0; PAGE as usize];
    let read = held.target.memory.read_exact_at(&mut bytes, page);
    read.is_ok() && bytes.iter().all(|&byte| byte == 0)
}

fn watch(tools: &Tools, range: VmRange) -> Call {
    let (start, len) = (range.start, range.len_bytes());
    uffd::register(What::Watch as u64, tools.fd, start, len)
}

/// Makes the calls, however many; returns the first that was refused.
fn make(held: &Held<'_>, tools: &Tools, calls: &mut [Call]) -> Result<Option<Call>, RepairError> {
    for calls in calls.chunks_mut(MOST_CALLS) {
        let mut at = 0;
        loop {
            at = held.run(tools, calls, at)?;
            let Some(call) = calls.get_mut(at) else {
                break;
            };
            let copies = call.what == What::Out as u64 || call.what == What::Back as u64;
            if call.errno() != libc::EAGAIN || !copies {
                return Ok(Some(*call));
            }
            if uffd::advance(call) && call.payload[2] == 0 {
                at += 1;
            }
        }
    }
    Ok(None)
}
