//! Joins a piece in a stopped process by moving its pages, and recovers if a call is refused.
//!
//! No other thread of the process runs. If a call is refused, [`move_back`](mod@super::move_back)
//! returns the pages that are outside. If the fresh mapping had already replaced the piece, the
//! piece is joined then, and otherwise unchanged.

use vmarea_merge::types::VmRange;

use super::agent::MOST_CALLS;
use super::injector::Injector;
use super::move_back::move_back;
use super::pages::{Filled, Pages, reads_as_zeros};
use super::retries::{Next, Retries};
use crate::driver::Done;
use crate::journal::Agent;
use crate::piece::{self, Room, Watch, What};
use crate::plan::{PAGE, Piece};
use crate::{KeptReason, RepairError};
use vmarea_linux_sys::calls::Call;

/// Joins a piece by moving its pages; at most `copies` shared pages are copied. If a call is
/// refused, the piece is completed if the fresh mapping has replaced it, and restored otherwise.
pub(super) fn run_piece(
    by: &impl Injector,
    agent: &Agent,
    piece: &Piece,
    copies: u64,
) -> Result<Done, RepairError> {
    let (room, watch) = (Room { range: agent.room }, Watch::Stopped(agent.fd));
    let calls = &mut Vec::new();
    piece::out(piece, room, watch, calls);
    piece::swap(piece.range, room, watch, calls);
    piece::back(piece.range, 0, room, watch, calls);
    let mut owning = Owning::new(copies);
    let mut retries = Retries::default();
    let mut at = 0;
    let refused = loop {
        at = by.run(agent, calls, at)?;
        let Some(call) = calls.get_mut(at) else {
            return Ok(owning.done(None));
        };
        let is_out = call.what == What::Out as u64;
        match retries.after(call) {
            Next::Again => {}
            Next::Following => at += 1,
            Next::Refused(libc::EBUSY) if is_out => {
                match owning.make_own(by, agent, piece, call)? {
                    None => {}
                    Some(reason) => break (reason, call.payload[1]),
                }
            }
            Next::Refused(errno) => break reason(errno, call, piece),
        }
    };
    let joined = move_back(by, agent, piece.range)? || calls[at].what > What::Swap as u64;
    Ok(owning.done((!joined).then_some(refused)))
}

fn reason(errno: i32, call: &Call, piece: &Piece) -> (KeptReason, u64) {
    let (is_out, page, start) = (
        call.what == What::Out as u64,
        call.payload[1],
        piece.range.start,
    );
    match errno {
        libc::EBUSY => (KeptReason::Userfaultfd, start),
        libc::EFAULT if is_out => (KeptReason::Guard, page),
        libc::ENOMEM => (KeptReason::NoRoom, start),
        _ if is_out => (KeptReason::Changed, page),
        _ => (KeptReason::Changed, start),
    }
}

/// Handler for pages that the kernel refuses to move because they are, or once were, shared.
struct Owning {
    /// Maximum number of shared pages that may be copied.
    most: u64,
    copied: u64,
    /// True after write faults have made the formerly shared pages of the piece exclusive.
    claimed: bool,
    tried: u64,
}

impl Owning {
    fn new(most: u64) -> Owning {
        Owning {
            most,
            copied: 0,
            claimed: false,
            tried: u64::MAX,
        }
    }

    fn done(&self, refused: Option<(KeptReason, u64)>) -> Done {
        Done {
            refused,
            copied: self.copied,
            shared: self.copied,
            ..Done::default()
        }
    }

    /// Makes the page of a refused move exclusive to the process; returns the reason if this is not
    /// possible.
    fn make_own(
        &mut self,
        by: &impl Injector,
        agent: &Agent,
        piece: &Piece,
        call: &mut Call,
    ) -> Result<Option<KeptReason>, RepairError> {
        let page = call.payload[1];
        if self.tried == page {
            return Ok(Some(KeptReason::Pinned));
        }
        let pages = Pages::of(by.pid())?;
        let mut own = false;
        pages.each(VmRange::new(page, page + PAGE), |_, filled| {
            own = filled == Filled::Own;
            true
        })?;
        let mut calls = Vec::new();
        match (own, self.claimed) {
            // Pages that were shared with a child that has ended become exclusive again only by a
            // write fault, which copies nothing.
            (true, false) => {
                self.claimed = true;
                let rest = VmRange::new(page, piece.range.end);
                let runs = pages.runs(rest, |filled| filled == Filled::Own)?;
                calls.extend(runs.into_iter().map(piece::own));
            }
            (true, true) => return Ok(Some(KeptReason::Pinned)),
            // All shared pages of the piece are copied at once: each refused move costs more time
            // than a copy.
            (false, _) if self.copied < self.most => {
                self.tried = page;
                let rest = VmRange::new(page, piece.range.end);
                let mut copied = self.copied;
                pages.each(rest, |at, filled| {
                    // The kernel moves its zero page although that is shared.
                    let is_copied = filled == Filled::Shared
                        && (at == page || !reads_as_zeros(by.memory(), at));
                    if is_copied {
                        copied += 1;
                        calls.push(piece::unshare(at));
                    }
                    copied < self.most
                })?;
                self.copied = copied;
            }
            (false, _) => return Ok(Some(KeptReason::Shared)),
        }
        for calls in calls.chunks_mut(MOST_CALLS) {
            // If a page was not made exclusive, its move is refused again.
            by.run(agent, calls, 0)?;
        }
        call.payload[4] = 0;
        Ok(None)
    }
}
