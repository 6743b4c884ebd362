//! Joins a piece in a stopped process by copying, for kernels that cannot move pages (before 6.8).
//!
//! The process's own userfaultfd copies bytes to addresses without a page (`UFFDIO_COPY`). Shared
//! pages that contain only zeros are not copied; other shared pages are copied up to a limit. If a
//! device writes to a page, its writes after the copy would be lost. The kernel does not report
//! such pages, so a process that may have them is left unchanged.
//!
//! # Picture
//! ```text
//!             piece                temporary      fresh
//! before    |a|bb|ccc|             ---------      ---------
//! Out       |a|bb|ccc|             |abbccc |      |       |   copied
//! Swap      |        |             |abbccc |      ---------   one mremap of the fresh mapping
//! Back      |abbccc  |             |abbccc |      ---------   copied
//! ```
//!
//! # Invariants
//! C1  Until the swap the piece is unchanged; from the swap on all of it is in the temporary range.
//! C2  If the temporary range exists without the fresh mapping, the swap was done; if both exist
//!     but the piece is unmapped, the swap was half done.

use vmarea_merge::types::VmRange;

use super::agent::MOST_CALLS;
use super::injector::Injector;
use super::move_back::move_back;
use super::pages::{self, Filled, Pages, reads_as_zeros};
use super::retries::{Next, Retries};
use crate::driver::Done;
use crate::journal::Agent;
use crate::piece::{self, Room, Watch, What};
use crate::plan::Piece;
use crate::proc_status;
use crate::{KeptReason, RepairError};
use vmarea_linux_sys::calls::Call;
use vmarea_linux_sys::uffd;

/// Joins a piece by copying its pages, of which at most `copies` may be shared.
pub(super) fn copy_piece(
    by: &impl Injector,
    agent: &Agent,
    piece: &Piece,
    copies: u64,
) -> Result<Done, RepairError> {
    let range = piece.range;
    if proc_status::may_be_pinned(by.pid()) {
        return Ok(Done::refused(KeptReason::Pinned, range.start));
    }
    let found = match to_copy(by, range, copies)? {
        Ok(found) => found,
        Err(page) => return Ok(Done::refused(KeptReason::Shared, page)),
    };
    let (room, watch) = (Room { range: agent.room }, Watch::Stopped(agent.fd));
    let temporary = room.temporary(range);

    let mut calls = Vec::new();
    piece::make(piece, room, watch, &mut calls);
    calls.extend(found.copies(What::Out, agent, range.start, temporary.start));
    piece::swap(range, room, watch, &mut calls);
    calls.push(uffd::register(
        What::Watch as u64,
        agent.fd,
        range.start,
        range.len_bytes(),
    ));
    calls.extend(found.copies(What::Back, agent, temporary.start, range.start));
    calls.extend(piece::unwatch(range, 0, room, watch));

    if let Some((call, errno)) = make(by, agent, &mut calls)? {
        let joined = move_back(by, agent, range)? || call.what > What::Swap as u64;
        if !joined {
            return Ok(match errno {
                libc::EFAULT => Done::refused(KeptReason::Guard, call.payload[1]),
                libc::ENOMEM => Done::refused(KeptReason::NoRoom, range.start),
                libc::EBUSY => Done::refused(KeptReason::Userfaultfd, range.start),
                _ => Done::refused(KeptReason::Changed, range.start),
            });
        }
    }
    Ok(Done {
        refused: None,
        copied: found.pages,
        shared: found.shared,
        ..Done::default()
    })
}

/// The pages of a range that must be copied.
#[derive(Debug, Default)]
struct ToCopy {
    /// Runs of pages to copy, as offsets from the start of the range.
    extents: Vec<VmRange>,
    pages: u64,
    /// Number of shared pages among the pages to copy.
    shared: u64,
}

impl ToCopy {
    fn copies(&self, what: What, agent: &Agent, from: u64, to: u64) -> impl Iterator<Item = Call> {
        self.extents.iter().map(move |extent| {
            let (at, len) = (extent.start, extent.len_bytes());
            uffd::copy(what as u64, agent.fd, to + at, from + at, len)
        })
    }
}

/// Finds the pages of a range that must be copied, or returns the first shared page beyond the
/// limit.
fn to_copy(
    by: &impl Injector,
    range: VmRange,
    copies: u64,
) -> Result<Result<ToCopy, u64>, RepairError> {
    let mut found = ToCopy::default();
    let mut too_many = None;
    Pages::of(by.pid())?.each(range, |page, filled| {
        if filled == Filled::Shared {
            // An address without a page reads as zeros too.
            if reads_as_zeros(by.memory(), page) {
                return true;
            }
            if found.shared == copies {
                too_many = Some(page);
                return false;
            }
            found.shared += 1;
        }
        found.pages += 1;
        pages::extend(&mut found.extents, page - range.start);
        true
    })?;
    Ok(too_many.map_or(Ok(found), Err))
}

/// Makes the calls in order. Returns the first call that fails repeatedly, and its errno.
fn make(
    by: &impl Injector,
    agent: &Agent,
    calls: &mut [Call],
) -> Result<Option<(Call, i32)>, RepairError> {
    let mut retries = Retries::default();
    for calls in calls.chunks_mut(MOST_CALLS) {
        let mut at = 0;
        loop {
            at = by.run(agent, calls, at)?;
            let Some(call) = calls.get_mut(at) else {
                break;
            };
            match retries.after(call) {
                Next::Again => {}
                Next::Following => at += 1,
                Next::Refused(errno) => return Ok(Some((*call, errno))),
            }
        }
    }
    Ok(None)
}
