//! The calls that make one piece of a run one mapping.
//!
//! The same sequence is made by a thread of the process itself and by an agent that works in a
//! stopped one. It is written down whole before the first call: see [`crate::sys::calls`].
//!
//! # Picture
//! ```text
//!             piece                temporary      fresh
//! before    |a|bb|ccc|             ---------      ---------
//! Out       | |  |   |             |abbccc |      |       |   pages go, in their order; watched
//! Swap      |        |             |abbccc |      ---------   mremap of the fresh mapping: one step
//! Back      |abbccc  |             ---------      ---------   pages come home; nobody is watched
//! ```
//! The fresh mapping has no page when it is moved, so it takes the page offset of its new place.
//! Where the range before the piece is done, the fresh mapping joins it.
//!
//! # Invariants
//! I1  between the first call of Out and the last of Back each page is in the piece or in the
//!     temporary range, never in both or in none
//! I2  Out taken back (its moves, from the last to the first, with source and target exchanged)
//!     leaves what was there before

use vmarea::values::{VmFlags, VmRange};

use super::plan::{HUGE, PAGE, Piece};
use crate::sys::calls::Call;
use crate::sys::uffd;

/// What a call of the sequence is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u64)]
pub(super) enum What {
    /// Making the temporary or the fresh mapping.
    Map,
    /// Giving it its flags.
    Advise,
    /// Watching.
    Watch,
    /// Moving pages out.
    Out,
    /// Putting the fresh mapping in place.
    Swap,
    /// Moving pages back.
    Back,
    /// Waking and ceasing to watch.
    Unwatch,
    /// Giving up temporary places.
    Release,
}

/// Whether other threads run meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Others {
    /// They run: the kernel tells of moved mappings, and keeps watching them.
    Run,
    /// They are stopped: a moved mapping is no longer watched.
    Stopped,
}

/// The descriptors that watch. They may be one and the same where nobody else runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fds {
    /// Where pages belong; tells of forks and changes.
    pub(super) home: i32,
    /// Where they wait; tells of nothing, so that we can do there what we like.
    pub(super) temporary: i32,
}

/// Address space that is kept for the two mappings of a piece.
///
/// ```text
/// | temporary, as far from a huge page as the piece is | one page | fresh |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// All of it.
    pub(super) range: VmRange,
}

impl Room {
    /// How much is needed for pieces of up to `bytes`.
    pub(super) fn bytes_for(bytes: u64) -> u64 {
        2 * bytes + HUGE + 2 * PAGE
    }

    /// The largest piece that fits.
    pub(super) fn piece_bytes(&self) -> u64 {
        (self.range.len_bytes() - HUGE - 2 * PAGE) / 2
    }

    /// Where the pages of `piece` wait.
    pub(super) fn temporary(&self, piece: VmRange) -> VmRange {
        let off = piece.start.wrapping_sub(self.range.start) % HUGE;
        let start = self.range.start + off;
        VmRange::new(start, start + piece.len_bytes())
    }

    /// Where the fresh mapping for `piece` is made. A page lies between it and the temporary one,
    /// or they would become one themselves.
    pub(super) fn fresh(&self, piece: VmRange) -> VmRange {
        let start = self.temporary(piece).end + PAGE;
        VmRange::new(start, start + piece.len_bytes())
    }
}

const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;

/// Makes the fresh and then the temporary mapping: where there is the second alone, the swap was done.
pub(super) fn make(piece: &Piece, room: Room, fds: Fds, others: Others, calls: &mut Vec<Call>) {
    let (temporary, fresh) = (room.temporary(piece.range), room.fresh(piece.range));
    let len = piece.range.len_bytes();
    calls.push(map(fresh, piece.flags));
    calls.extend(advices(piece.flags).map(|advice| advise(fresh, advice)));
    calls.push(map(temporary, piece.flags | VmFlags::NORESERVE));
    // A child of a fork does not get it, so that the pages in it stay this process's own.
    calls.push(advise(temporary, libc::MADV_DONTFORK));
    calls.push(uffd::register(
        What::Watch as u64,
        fds.temporary,
        temporary.start,
        len,
    ));
    if others == Others::Run {
        calls.push(uffd::register(
            What::Watch as u64,
            fds.home,
            fresh.start,
            len,
        ));
        let from = piece.range.start - piece.left;
        calls.push(uffd::register(
            What::Watch as u64,
            fds.home,
            from,
            len + piece.left,
        ));
    }
}

/// Everything up to the moment when all pages are out.
pub(super) fn out(piece: &Piece, room: Room, fds: Fds, others: Others, calls: &mut Vec<Call>) {
    make(piece, room, fds, others, calls);
    let temporary = room.temporary(piece.range);
    calls.extend(piece.parts.iter().map(|part| {
        let to = temporary.start + (part.start - piece.range.start);
        let len = part.len_bytes();
        let mut call = uffd::move_pages(What::Out as u64, fds.temporary, to, part.start, len);
        // The payload changes where a move is done by halves; this stays.
        (call.args[3], call.args[4]) = (part.start, len);
        call
    }));
}

/// The one step.
pub(super) fn swap(piece: VmRange, room: Room, calls: &mut Vec<Call>) {
    let (len, fresh) = (piece.len_bytes(), room.fresh(piece));
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    calls.push(Call::plain(
        What::Swap as u64,
        libc::SYS_mremap,
        &[fresh.start, len, len, flags, piece.start],
    ));
}

/// Everything after it.
pub(super) fn back(
    piece: VmRange,
    left: u64,
    room: Room,
    fds: Fds,
    others: Others,
    calls: &mut Vec<Call>,
) {
    let temporary = room.temporary(piece);
    let (start, len) = (piece.start, piece.len_bytes());
    if others == Others::Stopped {
        calls.push(uffd::register(What::Watch as u64, fds.home, start, len));
    }
    calls.push(uffd::move_pages(
        What::Back as u64,
        fds.home,
        start,
        temporary.start,
        len,
    ));
    calls.push(uffd::wake(What::Unwatch as u64, fds.home, start, len));
    calls.extend(unwatch(piece, left, room, fds, others));
}

/// Ceases to watch and gives the room back: the end of a piece, be it done or undone.
pub(super) fn unwatch(
    piece: VmRange,
    left: u64,
    room: Room,
    fds: Fds,
    others: Others,
) -> [Call; 2] {
    let left = if others == Others::Run { left } else { 0 };
    let (start, len) = (piece.start - left, piece.len_bytes() + left);
    [
        uffd::unregister(What::Unwatch as u64, fds.home, start, len),
        reserve(What::Release, room.range),
    ]
}

/// A place that nobody else gets and that costs nothing.
pub(super) fn reserve(what: What, range: VmRange) -> Call {
    Call::plain(
        what as u64,
        libc::SYS_mmap,
        &[
            range.start,
            range.len_bytes(),
            libc::PROT_NONE as u64,
            PRIVATE | libc::MAP_NORESERVE as u64,
            u64::MAX,
            0,
        ],
    )
}

fn map(range: VmRange, flags: VmFlags) -> Call {
    let kind = if flags.contains(VmFlags::NORESERVE) {
        PRIVATE | libc::MAP_NORESERVE as u64
    } else {
        PRIVATE
    };
    let prot = (flags & VmFlags::ACCESS).bits();
    Call::plain(
        What::Map as u64,
        libc::SYS_mmap,
        &[range.start, range.len_bytes(), prot, kind, u64::MAX, 0],
    )
}

fn advise(range: VmRange, advice: i32) -> Call {
    Call::plain(
        What::Advise as u64,
        libc::SYS_madvise,
        &[range.start, range.len_bytes(), advice as u64],
    )
}

/// Gives up what pages there are.
pub(super) fn drop_pages(range: VmRange) -> Call {
    advise(range, libc::MADV_DONTNEED)
}

/// The advices that give a fresh mapping its flags.
fn advices(flags: VmFlags) -> impl Iterator<Item = i32> {
    [
        (VmFlags::HUGEPAGE, libc::MADV_HUGEPAGE),
        (VmFlags::NOHUGEPAGE, libc::MADV_NOHUGEPAGE),
        (VmFlags::DONTCOPY, libc::MADV_DONTFORK),
        (VmFlags::DONTDUMP, libc::MADV_DONTDUMP),
        (VmFlags::WIPEONFORK, libc::MADV_WIPEONFORK),
        (VmFlags::SEQ_READ, libc::MADV_SEQUENTIAL),
        (VmFlags::RAND_READ, libc::MADV_RANDOM),
    ]
    .into_iter()
    .filter(move |(flag, _)| flags.contains(*flag))
    .map(|(_, advice)| advice)
}

/// Breaks the sharing of one page by a copy, without changing it.
pub(super) fn unshare(page: u64) -> Call {
    const MADV_POPULATE_WRITE: u64 = 23;
    Call::plain(
        What::Out as u64,
        libc::SYS_madvise,
        &[page, PAGE, MADV_POPULATE_WRITE],
    )
}
