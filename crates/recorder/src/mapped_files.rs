//! Mapped open file descriptions, and the ranges of memory that map them.
//!
//! Two mappings merge only if they map the same open file description. The kernel does not number
//! open file descriptions, so the recorder compares duplicates of descriptors (`kcmp`). A duplicate
//! keeps the description alive, together with its locks, its leases, the disk space of a deleted
//! file, and its mount; a mapping does the same. The recorder therefore keeps each duplicate only
//! while a mapping of the description exists. After that, the description's identity is irrelevant.
//!
//! The number of descriptors is limited, so the recorder closes the oldest duplicates if there are
//! too many, but remembers the ranges that map their descriptions. If a call in an address space
//! with such a range maps the same file again, the recorder cannot tell whether both ranges map the
//! same description.
//!
//! The recorder derives the mapped ranges from the calls. Before a call removes the last range of a
//! description, the recorder closes the duplicate, so that the program and not the tracer performs
//! the last close. If a call failed midway, its effect is uncertain; the recorder then reads the
//! list of mappings and passes it to [`MappedFiles::keep_only`].
//!
//! # Linux
//! A mapping on overlayfs keeps the lower file alive, not the description that was mapped. The
//! recorder's duplicate, however, keeps the description alive. A lock on a description that was
//! closed while it was mapped therefore lasts until the description is unmapped.
//!
//! # Invariants
//! H1  A duplicate exists only while at least one range is recorded for its description.
//! H2  Ranges of one address space do not overlap, and none is empty.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use vmarea_trace::event::{FileId, MmId};

/// A half-open range of addresses in bytes.
pub(crate) type Range = std::ops::Range<u64>;

/// A range of memory that maps a description; the range's first address is the key in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub end: u64,
    pub file: FileId,
    /// True if a forked child does not inherit the range (`MADV_DONTFORK`).
    pub stays: bool,
}

#[derive(Debug)]
struct Description {
    /// Duplicate of the program's descriptor; `None` if the duplicate was closed early, or if the
    /// description was mapped before the recording.
    duplicate: Option<OwnedFd>,
    pieces: u64,
    /// Inode number of the file, as shown in the list of mappings.
    ino: u64,
}

/// The mapped descriptions of all address spaces; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct MappedFiles {
    descriptions: HashMap<FileId, Description>,
    mapped: HashMap<MmId, BTreeMap<u64, Piece>>,
    /// Number of open duplicates.
    duplicates: usize,
    /// Descriptions ordered by age, including some that are no longer mapped.
    by_age: VecDeque<FileId>,
}

impl MappedFiles {
    /// Returns the duplicate of a mapped description, unless it was closed early.
    pub(crate) fn duplicate(&self, file: FileId) -> Option<&OwnedFd> {
        self.descriptions.get(&file)?.duplicate.as_ref()
    }

    /// True if any address space maps the description.
    pub(crate) fn is_mapped(&self, file: FileId) -> bool {
        self.descriptions.contains_key(&file)
    }

    /// True if `mm` maps the description `file` and the duplicate of that description was closed
    /// early.
    pub(crate) fn is_lost_in(&self, mm: MmId, file: FileId) -> bool {
        let lost = self.is_mapped(file) && self.duplicate(file).is_none();
        let pieces = || self.mapped.get(&mm).into_iter().flat_map(BTreeMap::values);
        lost && pieces().any(|piece| piece.file == file)
    }

    /// True if an address space maps any description.
    pub(crate) fn has_ranges(&self, mm: MmId) -> bool {
        self.mapped
            .get(&mm)
            .is_some_and(|pieces| !pieces.is_empty())
    }

    /// Closes the oldest duplicates until there are fewer than `most`.
    pub(crate) fn make_room(&mut self, most: usize) {
        while self.duplicates >= most
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.close_duplicate(oldest);
        }
    }

    fn close_duplicate(&mut self, file: FileId) {
        let description = self.descriptions.get_mut(&file);
        if description.and_then(|d| d.duplicate.take()).is_some() {
            self.duplicates -= 1;
        }
    }

    /// Records that a description is mapped at `range`, in place of any earlier mapping.
    ///
    /// If the description is new, it is created with `duplicate`.
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
            self.add(file, Some(duplicate), ino);
        }
        self.put(mm, range, file);
    }

    /// Records that a description without a duplicate is mapped at `range`.
    pub(crate) fn adopt(&mut self, mm: MmId, range: Range, file: FileId, ino: u64) {
        if !self.is_mapped(file) {
            self.add(file, None, ino);
        }
        self.put(mm, range, file);
    }

    fn add(&mut self, file: FileId, duplicate: Option<OwnedFd>, ino: u64) {
        if duplicate.is_some() {
            self.duplicates += 1;
            self.by_age.push_back(file);
            if self.by_age.len() > 2 * self.descriptions.len() + 64 {
                self.by_age
                    .retain(|file| self.descriptions.contains_key(file));
            }
        }
        let description = Description {
            duplicate,
            pieces: 0,
            ino,
        };
        self.descriptions.insert(file, description);
    }

    fn put(&mut self, mm: MmId, range: Range, file: FileId) {
        let stays = false;
        self.unmap_but(mm, &range, Some(file));
        let end = range.end;
        self.insert(mm, range.start, Piece { end, file, stays });
    }

    /// Forgets all mappings recorded at `range`.
    pub(crate) fn unmap(&mut self, mm: MmId, range: &Range) {
        self.unmap_but(mm, range, None);
    }

    /// Forgets each description whose ranges would all disappear if `range` were unmapped.
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

    /// Moves the mappings at `from` to `to`, or copies them if `remains` is true.
    ///
    /// If `to` is longer than `from`, the last range is extended.
    pub(crate) fn remap(&mut self, mm: MmId, from: &Range, to: &Range, remains: bool) {
        let pieces = self.pieces_in(mm, from);
        // While the new ranges are created, the old ones keep the duplicates open.
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

    /// Sets whether children inherit the mappings at `range`.
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

    /// Copies the ranges of `parent` to `child`.
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

    /// Forgets an address space that has no users any more.
    pub(crate) fn ended(&mut self, mm: MmId) {
        for piece in self.mapped.remove(&mm).unwrap_or_default().into_values() {
            self.count(piece.file, -1);
        }
    }

    /// Forgets the ranges overlapping `range` for which `is_there` returns false.
    ///
    /// `is_there` receives the first address of each range and its file's inode number.
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

    /// Returns the ranges that overlap `range`, or the one at its start if `range` is empty.
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

    /// Removes all mappings in `range`.
    ///
    /// Keeps the description `but`, because the caller then adds a new range to it.
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

    /// Changes the number of ranges that map a description; closes the duplicate if none remains.
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

    fn held_with(pieces: &[(Range, FileId)]) -> MappedFiles {
        let mut held = MappedFiles::default();
        for (range, file) in pieces {
            held.map(MM, range.clone(), *file, null);
        }
        held
    }

    fn holds(held: &MappedFiles) -> Vec<u32> {
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
        assert!(holds(&held).is_empty());
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
        let all = |held: &MappedFiles| -> Vec<(u64, u64, u32)> {
            let pieces = held.pieces_in(MM, &(0..1000));
            pieces.iter().map(|(s, p)| (*s, p.end, p.file.0)).collect()
        };
        let expected = [(0, 5, 1), (15, 20, 2), (105, 110, 1), (110, 115, 2)];
        assert_eq!(all(&held), expected);
        // Ranges that are extended while they move, shrunk while they move, and copied.
        held.remap(MM, &(15..20), &(200..208), false);
        assert!(all(&held).contains(&(200, 208, 2)));
        held.remap(MM, &(200..208), &(300..304), false);
        assert!(all(&held).contains(&(300, 304, 2)));
        held.remap(MM, &(300..300), &(400..404), true);
        assert!(all(&held).contains(&(400, 404, 2)) && all(&held).contains(&(300, 304, 2)));
        // A range that is resized in place.
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
        assert!(holds(&held).is_empty());
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
