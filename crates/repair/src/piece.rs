//! The calls that make one piece of a run one mapping.
//!
//! The same sequence is made by a thread of the process itself and by an agent that works in a
//! stopped one. It is written down whole before the first call: see [`vmarea_linux_sys::calls`].
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
//! Where the range before the piece is done, the fresh mapping joins it. Where other threads run, its
//! first place stays mapped (`MREMAP_DONTUNMAP`): `mmap` could give them the hole.
//!
//! # Invariants
//! I1  between the first call of Out and the last of Back each page is in the piece or in the
//!     temporary range, never in both or in none
//! I2  the room is mapped from its reservation to its release, even while other threads run
//! I3  Out taken back (its moves, from the last to the first, with source and target exchanged)
//!     leaves what was there before

use vmarea::types::{VmFlags, VmRange};

use super::plan::{HUGE, PAGE, Piece};
use vmarea_linux_sys::calls::Call;
use vmarea_linux_sys::uffd;

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

/// The descriptors that watch, and whether other threads run meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watch {
    /// They run. `home` tells of forks and changes, and keeps watching a mapping that is moved. It
    /// watches where pages belong and where they wait: so the kernel moves none of them, in either
    /// direction, while there is a change that nobody has read of. `silent` tells of nothing; pages
    /// that the program has dropped are moved there, for to drop them where they wait would be a
    /// change as well.
    Running { home: i32, silent: i32 },
    /// They are stopped. A moved mapping is no longer watched.
    Stopped(i32),
}

impl Watch {
    /// What watches over the places where pages belong.
    pub(super) fn home(self) -> i32 {
        match self {
            Watch::Running { home, .. } | Watch::Stopped(home) => home,
        }
    }

    /// How much before the piece is watched as well.
    fn left(self, left: u64) -> u64 {
        match self {
            Watch::Running { .. } => left,
            Watch::Stopped(_) => 0,
        }
    }
}

/// Address space that is kept for the mappings of a piece.
///
/// ```text
/// | temporary, as far from a huge page as the piece is | one page | fresh | one page | bin, one page |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// All of it.
    pub(super) range: VmRange,
}

/// The bin and the pages between; one more keeps the bin away from what lies behind.
const SMALL: u64 = 4 * PAGE;

impl Room {
    /// How much is needed for pieces of up to `bytes`.
    pub(super) fn bytes_for(bytes: u64) -> u64 {
        2 * bytes + HUGE + SMALL
    }

    /// The largest piece that fits.
    pub(super) fn piece_bytes(&self) -> u64 {
        (self.range.len_bytes() - HUGE - SMALL) / 2
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

    /// Where a page is moved that nobody wants any more.
    pub(super) fn bin(&self, piece: VmRange) -> VmRange {
        let start = self.fresh(piece).end + PAGE;
        VmRange::new(start, start + PAGE)
    }
}

const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;

/// Makes the fresh and then the temporary mapping: where there is the second alone, the swap was done.
pub(super) fn make(piece: &Piece, room: Room, watch: Watch, calls: &mut Vec<Call>) {
    let (temporary, fresh) = (room.temporary(piece.range), room.fresh(piece.range));
    let len = piece.range.len_bytes();
    calls.push(map(fresh, piece.flags));
    calls.extend(advice_of(piece.flags).map(|advice| advise(fresh, advice)));
    let register = |fd, start, len| uffd::register(What::Watch as u64, fd, start, len);
    // A child of a fork does not get it, so that the pages in it stay this process's own.
    let apart = |range| {
        let flags = piece.flags | VmFlags::NORESERVE;
        [map(range, flags), advise(range, libc::MADV_DONTFORK)]
    };
    calls.extend(apart(temporary));
    calls.push(register(watch.home(), temporary.start, len));
    if let Watch::Running { home, silent } = watch {
        let bin = room.bin(piece.range);
        calls.extend(apart(bin));
        calls.push(register(silent, bin.start, PAGE));
        calls.push(register(home, fresh.start, len));
        let from = piece.range.start - piece.left;
        calls.push(register(home, from, len + piece.left));
    }
}

/// Everything up to the moment when all pages are out.
pub(super) fn out(piece: &Piece, room: Room, watch: Watch, calls: &mut Vec<Call>) {
    make(piece, room, watch, calls);
    let temporary = room.temporary(piece.range);
    calls.extend(piece.parts.iter().map(|part| {
        let to = temporary.start + (part.start - piece.range.start);
        let len = part.len_bytes();
        let mut call = uffd::move_pages(What::Out as u64, watch.home(), to, part.start, len);
        // The payload changes where a move is done by halves; this stays.
        (call.args[3], call.args[4]) = (part.start, len);
        call
    }));
}

/// The one step.
pub(super) fn swap(piece: VmRange, room: Room, watch: Watch, calls: &mut Vec<Call>) {
    let (len, fresh) = (piece.len_bytes(), room.fresh(piece));
    let stays = match watch {
        // Another thread could be given the place, and the release of the room would map over it.
        Watch::Running { .. } => libc::MREMAP_DONTUNMAP,
        // That the place is empty tells `finish_piece` that the swap was done.
        Watch::Stopped(_) => 0,
    };
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | stays) as u64;
    calls.push(Call::plain(
        What::Swap as u64,
        libc::SYS_mremap,
        &[fresh.start, len, len, flags, piece.start],
    ));
}

/// Everything after it.
pub(super) fn back(piece: VmRange, left: u64, room: Room, watch: Watch, calls: &mut Vec<Call>) {
    let temporary = room.temporary(piece);
    let (home, start, len) = (watch.home(), piece.start, piece.len_bytes());
    if matches!(watch, Watch::Stopped(_)) {
        calls.push(uffd::register(What::Watch as u64, home, start, len));
    }
    calls.push(uffd::move_pages(
        What::Back as u64,
        home,
        start,
        temporary.start,
        len,
    ));
    calls.push(uffd::wake(What::Unwatch as u64, home, start, len));
    calls.extend(unwatch(piece, left, room, watch));
}

/// Ceases to watch: the end of a piece, be it done or undone. Where others are stopped it gives the
/// room back as well.
pub(super) fn unwatch(
    piece: VmRange,
    left: u64,
    room: Room,
    watch: Watch,
) -> impl Iterator<Item = Call> {
    let (home, left, len) = (watch.home(), watch.left(left), piece.len_bytes());
    let cease = |start, len| uffd::unregister(What::Unwatch as u64, home, start, len);
    let (start, all) = (piece.start - left, len + left);
    let then = match watch {
        Watch::Running { .. } => [
            // Who waits where something else was mapped meanwhile is woken by nobody else.
            Some(uffd::wake(What::Unwatch as u64, home, start, all)),
            // To give these up is no change that somebody would have to read of.
            Some(cease(room.temporary(piece).start, len)),
            Some(cease(room.fresh(piece).start, len)),
        ],
        Watch::Stopped(_) => [Some(reserve(What::Release, room.range)), None, None],
    };
    std::iter::once(cease(start, all)).chain(then.into_iter().flatten())
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

/// The same where there is nothing; `EEXIST` where there is something.
pub(super) fn reserve_free(what: What, range: VmRange) -> Call {
    let mut call = reserve(what, range);
    call.args[3] = call.args[3] & !(libc::MAP_FIXED as u64) | libc::MAP_FIXED_NOREPLACE as u64;
    call
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

/// The `madvise` values that give a fresh mapping its flags.
fn advice_of(flags: VmFlags) -> impl Iterator<Item = i32> {
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
    own(VmRange::new(page, page + PAGE))
}

/// Makes filled pages the process's own, as writing to them would, without changing them. What nobody
/// else has any more is not copied.
pub(super) fn own(range: VmRange) -> Call {
    const MADV_POPULATE_WRITE: i32 = 23;
    advise(range, MADV_POPULATE_WRITE)
}

/// Memory at a place where nothing is mapped.
pub(super) fn fill(range: VmRange, prot: u64) -> Call {
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    Call::plain(
        What::Map as u64,
        libc::SYS_mmap,
        &[range.start, range.len_bytes(), prot, kind, u64::MAX, 0],
    )
}
