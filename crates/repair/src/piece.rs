//! The system calls with which a process replaces one piece of a run with one mapping.
//!
//! The whole sequence is built before its first call is made: see [`vmarea_linux_sys::calls`]. The
//! other threads of the process run meanwhile. (The repair of another process is in
//! [`remote`](super::remote).)
//!
//! # Picture
//! ```text
//!             piece                temporary      fresh
//! before    |a|bb|ccc|             ---------      ---------
//! Out       | |  |   |             |abbccc |      |       |   pages move out, in order; watched
//! Swap      |        |             |abbccc |      ---------   one mremap of the fresh mapping
//! Back      |abbccc  |             ---------      ---------   pages move back; the watch ends
//! ```
//! The fresh mapping has no page when it is moved, so its page offset follows from its new address.
//! If the range before the piece was already replaced, the fresh mapping joins it. The old address of
//! the fresh mapping stays mapped (`MREMAP_DONTUNMAP`), because another thread's `mmap` could
//! otherwise be placed in the hole.
//!
//! # Invariants
//! I1  Between the first call of Out and the last of Back, each page that is moved is either in the
//!     piece or in the temporary range, never in both or in neither.
//! I2  All of the scratch area ([`Room`]) is mapped.
//! I3  Reversing Out (its moves from the last to the first, with source and target exchanged)
//!     restores the previous state.

use vmarea_merge::types::{VmFlags, VmRange};

use super::plan::{HUGE, PAGE, Piece};
use vmarea_linux_sys::calls::Call;
use vmarea_linux_sys::uffd;

/// The purpose of a call in the sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u64)]
pub(super) enum What {
    /// Creates the temporary or the fresh mapping.
    Map,
    /// Sets the flags of a new mapping.
    Advise,
    /// Registers a range with the userfaultfd.
    Watch,
    /// Moves pages out.
    Out,
    /// Puts the fresh mapping in place.
    Swap,
    /// Moves pages back.
    Back,
    /// Wakes waiting threads and unregisters a range from the userfaultfd.
    Unwatch,
    /// Releases the temporary mappings.
    Release,
}

/// The scratch area: address space reserved for the mappings of a piece.
///
/// ```text
/// | temporary, aligned in huge pages like the piece | page | fresh | page |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// Address range of the whole scratch area.
    pub(super) range: VmRange,
}

/// Total size in bytes of the pages that separate the mappings.
///
/// One of them lies between the fresh mapping and the mapping above the scratch area.
const SEPARATORS: u64 = 2 * PAGE;

impl Room {
    /// Returns the size of a scratch area for pieces of up to `bytes`.
    pub(super) fn bytes_for(bytes: u64) -> u64 {
        2 * bytes + HUGE + SEPARATORS
    }

    /// Returns the size of the largest piece that fits into the scratch area.
    pub(super) fn piece_bytes(&self) -> u64 {
        (self.range.len_bytes() - HUGE - SEPARATORS) / 2
    }

    /// Returns the temporary range, which holds the pages of `piece` during the swap.
    pub(super) fn temporary(&self, piece: VmRange) -> VmRange {
        let off = piece.start.wrapping_sub(self.range.start) % HUGE;
        let start = self.range.start + off;
        VmRange::new(start, start + piece.len_bytes())
    }

    /// Returns the range in which the fresh mapping for `piece` is created.
    ///
    /// A page separates this range from the temporary mapping; otherwise the two mappings would
    /// merge.
    pub(super) fn fresh(&self, piece: VmRange) -> VmRange {
        let start = self.temporary(piece).end + PAGE;
        VmRange::new(start, start + piece.len_bytes())
    }
}

const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;

/// Appends the calls that create the fresh and the temporary mapping, and register both and the
/// piece with the userfaultfd `home`.
///
/// While an event of `home` is unread, the kernel moves no page between the mappings that it
/// watches: a page that a child of a fork misses stays in the temporary range until the fork is
/// known.
fn make(piece: &Piece, room: Room, home: i32, calls: &mut Vec<Call>) {
    let (temporary, fresh) = (room.temporary(piece.range), room.fresh(piece.range));
    let len = piece.range.len_bytes();
    calls.extend(map(fresh, piece.flags));
    calls.extend(advice_of(piece.flags).map(|advice| advise(fresh, advice)));
    calls.extend(map(temporary, piece.flags | VmFlags::NORESERVE));
    // The children of a fork do not inherit this mapping, so its pages remain exclusive to this
    // process.
    calls.push(advise(temporary, libc::MADV_DONTFORK));
    let register = |start, len| uffd::register(What::Watch as u64, home, start, len);
    calls.push(register(temporary.start, len));
    calls.push(register(fresh.start, len));
    calls.push(register(piece.range.start - piece.left, len + piece.left));
}

/// Appends all calls up to and including the last one that moves pages out of the piece.
pub(super) fn out(piece: &Piece, room: Room, home: i32, calls: &mut Vec<Call>) {
    make(piece, room, home, calls);
    let temporary = room.temporary(piece.range);
    calls.extend(piece.parts.iter().map(|part| {
        let to = temporary.start + (part.start - piece.range.start);
        let len = part.len_bytes();
        let mut call = uffd::move_pages(What::Out as u64, home, to, part.start, len);
        // If a move is only partly done, its payload changes, but these two arguments do not.
        (call.args[3], call.args[4]) = (part.start, len);
        call
    }));
}

/// Appends the single call that performs the swap.
pub(super) fn swap(piece: VmRange, room: Room, calls: &mut Vec<Call>) {
    let (len, fresh) = (piece.len_bytes(), room.fresh(piece));
    // Without the last flag, the fresh mapping would leave a hole in which another thread could map
    // memory, and the release of the scratch area would replace that memory.
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let flags = flags as u64;
    calls.push(Call::plain(
        What::Swap as u64,
        libc::SYS_mremap,
        &[fresh.start, len, len, flags, piece.start],
    ));
}

/// Appends the calls that follow the swap.
pub(super) fn back(piece: VmRange, left: u64, room: Room, home: i32, calls: &mut Vec<Call>) {
    let temporary = room.temporary(piece);
    let (start, len) = (piece.start, piece.len_bytes());
    calls.push(uffd::move_pages(
        What::Back as u64,
        home,
        start,
        temporary.start,
        len,
    ));
    calls.push(uffd::wake(What::Unwatch as u64, home, start, len));
    calls.extend(unwatch(piece, left, room, home));
}

/// Returns the calls that end the watch after a piece has been joined or undone.
pub(super) fn unwatch(
    piece: VmRange,
    left: u64,
    room: Room,
    home: i32,
) -> impl Iterator<Item = Call> {
    let len = piece.len_bytes();
    let cease = |start, len| uffd::unregister(What::Unwatch as u64, home, start, len);
    [
        cease(piece.start - left, len + left),
        // Unregistering these ranges raises no event that would have to be read.
        cease(room.temporary(piece).start, len),
        cease(room.fresh(piece).start, len),
    ]
    .into_iter()
}

/// Returns the call that reserves a range by mapping it without access, which uses no memory.
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

/// Like [`reserve`], but the call fails with `EEXIST` if any page of the range is mapped.
pub(super) fn reserve_free(what: What, range: VmRange) -> Call {
    let mut call = reserve(what, range);
    call.args[3] = no_replace(call.args[3]);
    call
}

/// Changes the flags of an `mmap` so that the call fails if any page of its range is mapped.
fn no_replace(kind: u64) -> u64 {
    kind & !(libc::MAP_FIXED as u64) | libc::MAP_FIXED_NOREPLACE as u64
}

/// Returns the calls that create a mapping. After `mlockall(MCL_FUTURE)`, the kernel locks it, and
/// would fill it if it were accessible: an empty mapping has no anon_vma, and takes pages.
fn map(range: VmRange, flags: VmFlags) -> [Call; 3] {
    let kind = if flags.contains(VmFlags::NORESERVE) {
        PRIVATE | libc::MAP_NORESERVE as u64
    } else {
        PRIVATE
    };
    let (start, len) = (range.start, range.len_bytes());
    let (none, prot) = (libc::PROT_NONE as u64, (flags & VmFlags::ACCESS).bits());
    let change = |nr, arguments: &[u64]| Call::plain(What::Advise as u64, nr, arguments);
    [
        Call::plain(
            What::Map as u64,
            libc::SYS_mmap,
            &[start, len, none, kind, u64::MAX, 0],
        ),
        change(libc::SYS_munlock, &[start, len]),
        change(libc::SYS_mprotect, &[start, len, prot]),
    ]
}

fn advise(range: VmRange, advice: i32) -> Call {
    Call::plain(
        What::Advise as u64,
        libc::SYS_madvise,
        &[range.start, range.len_bytes(), advice as u64],
    )
}

/// Returns the `madvise` advice values that set the flags of a fresh mapping.
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

/// Returns the call that copies a page if it is shared, without changing its contents.
///
/// The call has the same effect as a write. A page that is no longer mapped by another process is
/// not copied.
pub(super) fn unshare(page: u64) -> Call {
    const MADV_POPULATE_WRITE: i32 = 23;
    advise(VmRange::new(page, page + PAGE), MADV_POPULATE_WRITE)
}
