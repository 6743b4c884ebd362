//! Open file descriptions that are mapped, and the ranges of memory that map them.
//!
//! Whether two mappings are of one description decides whether they merge, and no number of the
//! kernel names a description: a duplicate of its descriptor has to be compared. A duplicate
//! keeps the description alive, with its locks and leases, the space of a deleted file and the
//! mount that it lies on; but so does a mapping. So each duplicate is held only as long as a
//! mapping of the description exists, which is also as long as its identity matters.
//!
//! Descriptors are few, so that the oldest duplicates are given up where there are too many. The
//! pieces stay noted: in an address space that maps such a description it is not known whether the
//! next one of the same file is the same.
//!
//! What is mapped is followed from the calls. A call that takes away the last piece lets the
//! duplicate go before it is let in, so that the program and not the tracer does the work of a
//! last close. Whatever cannot be followed (a call that failed after it had begun) is asked of
//! the list of mappings: the caller of [`Held::keep_only`] does that.
//!
//! # Linux
//! A mapping on overlayfs keeps the file below alive and not the description that was mapped, so
//! there a lock of a description that was closed while mapped is held until it is unmapped.
//!
//! # Invariants
//! H1  A duplicate is held only while one piece at least is noted for it.
//! H2  Pieces of one address space do not overlap, and none is empty.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use vmarea_trace::event::{FileId, MmId};

/// Bytes from the first up to the one after the last.
pub(crate) type Range = std::ops::Range<u64>;

/// A piece of memory that maps a description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub end: u64,
    pub file: FileId,
    /// A child does not get it (`MADV_DONTFORK`).
    pub stays: bool,
}

#[derive(Debug)]
struct Description {
    /// None where it was given up.
    duplicate: Option<OwnedFd>,
    pieces: u64,
    /// Its inode number, which the list of mappings shows.
    ino: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Held {
    descriptions: HashMap<FileId, Description>,
    mapped: HashMap<MmId, BTreeMap<u64, Piece>>,
    /// How many duplicates there are.
    duplicates: usize,
    /// The descriptions by age, some of which have gone.
    by_age: VecDeque<FileId>,
}

impl Held {
    /// The duplicate of a description that is mapped, unless it was given up.
    pub(crate) fn duplicate(&self, file: FileId) -> Option<&OwnedFd> {
        self.descriptions.get(&file)?.duplicate.as_ref()
    }

    /// True while a description is mapped somewhere.
    pub(crate) fn is_mapped(&self, file: FileId) -> bool {
        self.descriptions.contains_key(&file)
    }

    /// True where an address space maps a description whose duplicate was given up.
    pub(crate) fn is_lost_in(&self, mm: MmId, file: FileId) -> bool {
        let lost = self.is_mapped(file) && self.duplicate(file).is_none();
        let pieces = || self.mapped.get(&mm).into_iter().flat_map(BTreeMap::values);
        lost && pieces().any(|piece| piece.file == file)
    }

    /// Gives the oldest duplicates up until there are fewer than `most`.
    pub(crate) fn make_room(&mut self, most: usize) {
        while self.duplicates >= most
            && let Some(oldest) = self.by_age.pop_front()
        {
            let description = self.descriptions.get_mut(&oldest);
            if description.and_then(|d| d.duplicate.take()).is_some() {
                self.duplicates -= 1;
            }
        }
    }

    /// A description is mapped at `range`, in the place of what was there. `duplicate` is taken
    /// where it is new.
    pub(crate) fn map(
        &mut self,
        mm: MmId,
        range: Range,
        file: FileId,
        duplicate: impl FnOnce() -> (OwnedFd, u64),
    ) {
        if range.is_empty() {
            return;
        }
        if !self.is_mapped(file) {
            let (duplicate, ino) = duplicate();
            let description = Description {
                duplicate: Some(duplicate),
                pieces: 0,
                ino,
            };
            self.descriptions.insert(file, description);
            self.duplicates += 1;
            self.by_age.push_back(file);
            if self.by_age.len() > 2 * self.descriptions.len() + 64 {
                self.by_age
                    .retain(|file| self.descriptions.contains_key(file));
            }
        }
        let stays = false;
        self.unmap_but(mm, &range, Some(file));
        let end = range.end;
        self.insert(mm, range.start, Piece { end, file, stays });
    }

    /// Nothing of what was noted is at `range` any more.
    pub(crate) fn unmap(&mut self, mm: MmId, range: &Range) {
        self.unmap_but(mm, range, None);
    }

    /// Lets go of what an unmapping of `range` is going to take away altogether.
    pub(crate) fn before_unmap(&mut self, mm: MmId, range: &Range) {
        let mut losses: HashMap<FileId, u64> = HashMap::new();
        for (start, piece) in self.pieces_in(mm, range) {
            if range.start <= start && piece.end <= range.end {
                *losses.entry(piece.file).or_default() += 1;
            }
        }
        losses.retain(|file, lost| self.descriptions.get(file).map(|d| d.pieces) == Some(*lost));
        if losses.is_empty() {
            return;
        }
        for (start, piece) in self.pieces_in(mm, range) {
            if losses.contains_key(&piece.file) {
                self.unmap(mm, &(start..piece.end));
            }
        }
    }

    /// What was at `from` has moved to `to`, or is there as well where it `remains`. A longer
    /// target continues the last piece.
    pub(crate) fn remap(&mut self, mm: MmId, from: &Range, to: &Range, remains: bool) {
        let pieces = self.pieces_in(mm, from);
        // Until the new pieces are there, the old ones hold the duplicates.
        let mut moved = Vec::with_capacity(pieces.len());
        for (start, piece) in pieces {
            let first = start.max(from.start);
            let mut last = piece.end.min(from.end.max(first + 1));
            if last == from.end || from.is_empty() {
                last = last.max(from.start.saturating_add(to.end - to.start));
            }
            let begin = to.start.saturating_add(first - from.start);
            let end = to.start.saturating_add(last - from.start).min(to.end);
            if begin < end {
                moved.push((begin, Piece { end, ..piece }));
            }
        }
        for (_, piece) in &moved {
            self.count(piece.file, 1);
        }
        if !remains {
            self.unmap(mm, from);
        }
        self.unmap(mm, to);
        for (begin, piece) in moved {
            self.insert(mm, begin, piece);
            self.count(piece.file, -1);
        }
    }

    /// Says whether children get what is at `range`.
    pub(crate) fn set_stays(&mut self, mm: MmId, range: &Range, stays: bool) {
        for (start, piece) in self.pieces_in(mm, range) {
            let part = start.max(range.start)..piece.end.min(range.end);
            self.count(piece.file, 1);
            self.unmap(mm, &part);
            let end = part.end;
            self.insert(
                mm,
                part.start,
                Piece {
                    end,
                    stays,
                    ..piece
                },
            );
            self.count(piece.file, -1);
        }
    }

    /// `child` is a copy of `parent`.
    pub(crate) fn fork(&mut self, parent: MmId, child: MmId) {
        let Some(pieces) = self.mapped.get(&parent) else {
            return;
        };
        let copied: BTreeMap<u64, Piece> = pieces
            .iter()
            .filter(|(_, piece)| !piece.stays)
            .map(|(start, piece)| (*start, *piece))
            .collect();
        for piece in copied.values() {
            self.count(piece.file, 1);
        }
        self.mapped.insert(child, copied);
    }

    /// Nobody uses an address space any more.
    pub(crate) fn ended(&mut self, mm: MmId) {
        for piece in self.mapped.remove(&mm).unwrap_or_default().into_values() {
            self.count(piece.file, -1);
        }
    }

    /// Asks of each piece that touches `range` whether it is still there, by its first address
    /// and the inode number of its file.
    pub(crate) fn keep_only(
        &mut self,
        mm: MmId,
        range: &Range,
        mut is_there: impl FnMut(u64, u64) -> bool,
    ) {
        for (start, piece) in self.pieces_in(mm, range) {
            let ino = self.descriptions.get(&piece.file).map_or(0, |d| d.ino);
            if !is_there(start, ino) {
                self.unmap(mm, &(start..piece.end));
            }
        }
    }

    /// The pieces that touch a range; of an empty one, the piece at its first byte.
    pub(crate) fn pieces_in(&self, mm: MmId, range: &Range) -> Vec<(u64, Piece)> {
        let Some(pieces) = self.mapped.get(&mm) else {
            return Vec::new();
        };
        let end = range.end.max(range.start.saturating_add(1));
        let mut found: Vec<(u64, Piece)> = pieces
            .range(..end)
            .rev()
            .take_while(|(_, piece)| piece.end > range.start)
            .map(|(start, piece)| (*start, *piece))
            .collect();
        found.reverse();
        found
    }

    fn insert(&mut self, mm: MmId, start: u64, mut piece: Piece) {
        let pieces = self.mapped.entry(mm).or_default();
        let like = |other: &Piece| other.file == piece.file && other.stays == piece.stays;
        let (mut first, mut joined) = (start, 0);
        if let Some((before, other)) = pieces.range(..start).next_back()
            && other.end == start
            && like(other)
        {
            first = *before;
            joined -= 1;
        }
        if let Some(next) = pieces.get(&piece.end).copied()
            && like(&next)
        {
            pieces.remove(&piece.end);
            piece.end = next.end;
            joined -= 1;
        }
        pieces.insert(first, piece);
        self.count(piece.file, 1 + joined);
    }

    /// Cuts `range` out. The description `but` is not let go of, as a piece of it follows.
    fn unmap_but(&mut self, mm: MmId, range: &Range, but: Option<FileId>) {
        if range.is_empty() {
            return;
        }
        for (start, piece) in self.pieces_in(mm, range) {
            let Some(pieces) = self.mapped.get_mut(&mm) else {
                return;
            };
            let mut left = -1;
            pieces.remove(&start);
            if start < range.start {
                let end = range.start;
                pieces.insert(start, Piece { end, ..piece });
                left += 1;
            }
            if range.end < piece.end {
                pieces.insert(range.end, piece);
                left += 1;
            }
            if but == Some(piece.file) {
                if let Some(d) = self.descriptions.get_mut(&piece.file) {
                    d.pieces = d.pieces.saturating_add_signed(left);
                }
            } else {
                self.count(piece.file, left);
            }
        }
    }

    /// So many pieces more; the duplicate goes with the last.
    fn count(&mut self, file: FileId, more: i64) {
        if let Some(d) = self.descriptions.get_mut(&file) {
            d.pieces = d.pieces.saturating_add_signed(more);
            if d.pieces == 0 {
                self.duplicates -= usize::from(d.duplicate.is_some());
                self.descriptions.remove(&file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);
    const MM: MmId = MmId(1);
    const CHILD: MmId = MmId(2);

    fn null() -> (OwnedFd, u64) {
        (File::open("/dev/null").unwrap().into(), 7)
    }

    fn held_with(pieces: &[(Range, FileId)]) -> Held {
        let mut held = Held::default();
        for (range, file) in pieces {
            held.map(MM, range.clone(), *file, null);
        }
        held
    }

    fn holds(held: &Held) -> Vec<u32> {
        let mut files: Vec<u32> = held.descriptions.keys().map(|f| f.0).collect();
        files.sort_unstable();
        for (file, d) in &held.descriptions {
            let all = held.mapped.values().flat_map(BTreeMap::values);
            let pieces = all.filter(|p| p.file == *file).count();
            assert_eq!(d.pieces, pieces as u64, "H1 for {file:?}");
        }
        let all = held.descriptions.values();
        let duplicates = all.filter(|d| d.duplicate.is_some()).count();
        assert_eq!(held.duplicates, duplicates);
        files
    }

    #[test]
    fn a_duplicate_goes_with_its_last_piece() {
        let mut held = held_with(&[(0..10, A), (20..30, A), (40..50, B)]);
        held.unmap(MM, &(5..25));
        assert_eq!(holds(&held), [1, 2]);
        held.unmap(MM, &(25..30));
        assert_eq!(holds(&held), [1, 2]);
        held.unmap(MM, &(0..5));
        assert_eq!(holds(&held), [2]);
        held.ended(MM);
        assert_eq!(holds(&held), []);
    }

    #[test]
    fn an_unmapping_of_all_of_it_lets_go_before() {
        let mut held = held_with(&[(0..10, A), (20..30, A), (40..50, B)]);
        held.before_unmap(MM, &(0..20));
        assert_eq!(holds(&held), [1, 2]);
        held.before_unmap(MM, &(0..45));
        assert_eq!(holds(&held), [2]);
        assert_eq!(held.pieces_in(MM, &(0..100)).len(), 1);
    }

    #[test]
    fn a_mapping_over_its_own_description_keeps_it() {
        let mut held = held_with(&[(0..10, A)]);
        held.map(MM, 0..10, A, || unreachable!());
        assert_eq!(holds(&held), [1]);
        held.map(MM, 3..5, B, null);
        assert_eq!(holds(&held), [1, 2]);
        held.map(MM, 0..10, B, || unreachable!());
        assert_eq!(holds(&held), [2]);
    }

    #[test]
    fn a_move_takes_its_pieces_along() {
        let mut held = held_with(&[(0..10, A), (10..20, B)]);
        held.remap(MM, &(5..15), &(105..115), false);
        let all = |held: &Held| -> Vec<(u64, u64, u32)> {
            let pieces = held.pieces_in(MM, &(0..1000));
            pieces.iter().map(|(s, p)| (*s, p.end, p.file.0)).collect()
        };
        let expected = [(0, 5, 1), (15, 20, 2), (105, 110, 1), (110, 115, 2)];
        assert_eq!(all(&held), expected);
        // Grown while it moves, shrunk while it moves, copied.
        held.remap(MM, &(15..20), &(200..208), false);
        assert!(all(&held).contains(&(200, 208, 2)));
        held.remap(MM, &(200..208), &(300..304), false);
        assert!(all(&held).contains(&(300, 304, 2)));
        held.remap(MM, &(300..300), &(400..404), true);
        assert!(all(&held).contains(&(400, 404, 2)) && all(&held).contains(&(300, 304, 2)));
        // In place.
        held.remap(MM, &(400..404), &(400..408), false);
        assert!(all(&held).contains(&(400, 408, 2)));
        assert_eq!(holds(&held), [1, 2]);
    }

    #[test]
    fn a_child_has_what_does_not_stay() {
        let mut held = held_with(&[(0..10, A), (10..20, B)]);
        held.set_stays(MM, &(5..15), true);
        held.fork(MM, CHILD);
        held.ended(MM);
        assert_eq!(holds(&held), [1, 2]);
        held.unmap(CHILD, &(0..5));
        assert_eq!(holds(&held), [2]);
        held.unmap(CHILD, &(15..20));
        assert_eq!(holds(&held), []);
    }

    #[test]
    fn the_oldest_duplicates_are_given_up() {
        let mut held = held_with(&[(0..10, A), (10..20, B)]);
        held.make_room(2);
        assert!(held.duplicate(A).is_none() && held.duplicate(B).is_some());
        assert!(held.is_lost_in(MM, A) && !held.is_lost_in(MM, B));
        assert!(!held.is_lost_in(CHILD, A));
        held.fork(MM, CHILD);
        held.unmap(MM, &(0..10));
        assert!(!held.is_lost_in(MM, A) && held.is_lost_in(CHILD, A));
        held.ended(CHILD);
        assert!(!held.is_mapped(A));
        assert_eq!(holds(&held), [2]);
        for file in 3..200 {
            held.map(MM, 30..40, FileId(file), null);
        }
        assert_eq!(holds(&held), [2, 199]);
        assert!(held.by_age.len() < 100);
    }

    #[test]
    fn pieces_that_are_not_there_are_forgotten() {
        let mut held = held_with(&[(0..10, A), (10..20, B)]);
        held.keep_only(MM, &(5..15), |start, ino| start == 10 && ino == 7);
        assert_eq!(holds(&held), [2]);
    }
}
