//! A node: up to `N` rows in columns, behind a version that readers check.
//!
//! A row says where its part of the map begins and ends; its word is the caller's (in a leaf) or a
//! child (in an inner node, where a row also keeps the largest gap inside of the child). Every
//! field is an atomic, so a reader that looks while a writer works reads old or new words, never
//! anything else; the version tells it that they may not belong together.
//!
//! # Picture
//! ```text
//! line 0:  head │ signs[0..7]         every STRIDE-th of the ends
//! then:    ends[0..N] │ starts[0..N] │ words[0..N] │ inner only: gaps[0..N], rooms[0..N]
//! head:    version : 55 │ BUSY : 1 │ len : 8
//! ```
//! The signs tell which eight of the ends to look at, so a search reads two cache lines and makes
//! no jump that depends on data. Rows beyond `len` have `u64::MAX` in `ends` and `starts`, so that it
//! needs no length either.
//!
//! # Locking
//! One writer at a time ([`begin`](Node::begin) … [`end`](Node::end)). A reader takes the head with
//! [`enter`](Node::enter), reads, and asks [`holds`](Node::holds).

use vmarea_sync::primitive::{AtomicPtr, AtomicU64, Ordering, fence};

/// Rows of a leaf and of an inner node. Small in tests, so that splits and merges are common.
pub(crate) const LEAF: usize = if SMALL { 3 } else { 64 };
pub(crate) const INNER: usize = if SMALL { 3 } else { 64 };
const SIGNS: usize = if SMALL { 1 } else { 7 };
const SMALL: bool = cfg!(any(test, loom));

/// Rows that an inner node has room for after a split, at least.
pub(crate) const SPARE: usize = if INNER < 16 { 1 } else { INNER / 8 };

const LEN: u64 = 0xff;
const BUSY: u64 = 0x100;
/// Added by a whole change: the version moves by one, and BUSY goes out.
const VERSION: u64 = 0x200;

/// Where a child or leaf begins and ends, and the largest gap between its ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub start: u64,
    pub end: u64,
    pub gap: u64,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<V> {
    pub span: Span,
    pub word: V,
}

/// A word that can be read while it is written.
pub(crate) trait Word {
    type Value: Copy;
    fn empty() -> Self;
    fn load(&self) -> Self::Value;
    fn store(&self, value: Self::Value);
}

impl Word for AtomicU64 {
    type Value = u64;
    fn empty() -> Self {
        AtomicU64::new(0)
    }
    #[inline]
    fn load(&self) -> u64 {
        // ORDERING: Relaxed; the node's head orders it.
        self.load(Ordering::Relaxed)
    }
    #[inline]
    fn store(&self, value: u64) {
        // ORDERING: Relaxed; the node's head orders it.
        self.store(value, Ordering::Relaxed)
    }
}

/// Names a node: its address, with the lowest bit set for a leaf. Null names none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child(pub *mut ());

impl Word for AtomicPtr<()> {
    type Value = Child;
    fn empty() -> Self {
        AtomicPtr::new(core::ptr::null_mut())
    }
    #[inline]
    fn load(&self) -> Child {
        // ORDERING: Acquire, pairs with the Release in `store`: a node's first content is visible
        // to whoever finds it, even before its head is checked.
        Child(self.load(Ordering::Acquire))
    }
    #[inline]
    fn store(&self, value: Child) {
        // ORDERING: Release, pairs with the Acquire in `load`.
        self.store(value.0, Ordering::Release)
    }
}

/// The head that a reader found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen(u64);

impl Seen {
    #[inline]
    pub fn len(self) -> usize {
        (self.0 & LEN) as usize
    }
}

/// See the module's picture.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Node<W, const N: usize, const G: usize> {
    head: AtomicU64,
    /// The last end of each block of rows but the last.
    signs: [AtomicU64; SIGNS],
    ends: [AtomicU64; N],
    starts: [AtomicU64; N],
    words: [W; N],
    gaps: [AtomicU64; G],
    /// The larger of a row's gap and of the gap before it: one column for a search to run along.
    rooms: [AtomicU64; G],
}

/// A node whose words are the caller's.
pub(crate) type Leaf = Node<AtomicU64, LEAF, 0>;
/// A node whose words are nodes.
pub(crate) type Inner = Node<AtomicPtr<()>, INNER, INNER>;

/// How many of `keys` are at most `key`. Without a branch: all of them are looked at.
#[inline]
fn count(keys: &[AtomicU64], key: u64) -> usize {
    keys.iter()
        .map(|k| usize::from(k.load(Ordering::Relaxed) <= key))
        .sum()
}

/// As [`count`], over ascending keys, by halving.
#[inline]
fn rank(keys: &[AtomicU64], key: u64) -> usize {
    keys.partition_point(|k| k.load(Ordering::Relaxed) <= key)
}

/// Moves all words of a column one place up; the last is lost.
fn shift_up<W: Word>(column: &[W]) {
    for pair in column.windows(2).rev() {
        pair[1].store(pair[0].load());
    }
}

/// Moves all words of a column down; the first `count` are lost.
fn shift_down<W: Word>(column: &[W], count: usize) {
    for (to, from) in column.iter().zip(&column[count..]) {
        to.store(from.load());
    }
}

impl<W: Word, const N: usize, const G: usize> Node<W, N, G> {
    /// Rows in a block.
    const STRIDE: usize = N.div_ceil(SIGNS + 1);

    /// An empty node.
    pub fn new() -> Self {
        Node {
            head: AtomicU64::new(0),
            signs: core::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            ends: core::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            starts: core::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            words: core::array::from_fn(|_| W::empty()),
            gaps: core::array::from_fn(|_| AtomicU64::new(0)),
            rooms: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    // Reading.

    /// The head, unless a writer is at work.
    #[inline]
    pub fn enter(&self) -> Option<Seen> {
        // ORDERING: Acquire, pairs with the Release in `end`.
        let head = self.head.load(Ordering::Acquire);
        (head & BUSY == 0).then_some(Seen(head))
    }

    /// True if all that was read since `enter` belongs together.
    #[inline]
    pub fn holds(&self, seen: Seen) -> bool {
        // ORDERING: Acquire fence, pairs with the Release fence in `begin`: whoever read a word of
        // a change finds the head of that change, or a later one.
        fence(Ordering::Acquire);
        self.head.load(Ordering::Relaxed) == seen.0
    }

    /// First row that ends after `addr`; `len` or more if there is none.
    #[inline]
    pub fn first_ending_after(&self, addr: u64) -> usize {
        let from = count(&self.signs, addr) * Self::STRIDE;
        let block = &self.ends[from..N.min(from + Self::STRIDE)];
        from + count(block, addr)
    }

    /// Number of rows that start below `addr`.
    #[inline]
    pub fn starting_below(&self, addr: u64) -> usize {
        addr.checked_sub(1)
            .map_or(0, |last| rank(&self.starts, last))
    }

    #[inline]
    pub fn start(&self, row: usize) -> u64 {
        self.starts[row].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn end_of(&self, row: usize) -> u64 {
        self.ends[row].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn word(&self, row: usize) -> W::Value {
        self.words[row].load()
    }

    /// Largest gap inside of the row's child; 0 in a leaf.
    #[inline]
    pub fn gap(&self, row: usize) -> u64 {
        self.gaps
            .get(row)
            .map_or(0, |gap| gap.load(Ordering::Relaxed))
    }

    /// The first row from `from` on, below `len`, whose child or whose left side has room.
    #[inline]
    pub fn next_room(&self, from: usize, len: usize, size: u64) -> Option<usize> {
        let rooms = self.rooms.get(from..len)?;
        rooms
            .iter()
            .position(|r| r.load(Ordering::Relaxed) >= size)
            .map(|i| from + i)
    }

    /// The last row below `below` whose child or whose left side has room.
    #[inline]
    pub fn last_room(&self, below: usize, size: u64) -> Option<usize> {
        self.rooms
            .get(..below)?
            .iter()
            .rposition(|r| r.load(Ordering::Relaxed) >= size)
    }

    /// A row. Of a leaf, with gap 0.
    #[inline]
    pub fn row(&self, row: usize) -> Row<W::Value> {
        let span = Span {
            start: self.start(row),
            end: self.end_of(row),
            gap: self.gap(row),
        };
        Row {
            span,
            word: self.word(row),
        }
    }

    // Writing. Only the tree's one writer calls what follows.

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        (self.head.load(Ordering::Relaxed) & LEN) as usize
    }

    /// Keeps readers out, or makes them come again.
    #[inline]
    pub fn begin(&self) {
        let head = self.head.load(Ordering::Relaxed);
        debug_assert_eq!(head & BUSY, 0, "a change within a change");
        self.head.store(head | BUSY, Ordering::Relaxed);
        // ORDERING: Release fence, pairs with the Acquire fence in `holds`.
        fence(Ordering::Release);
    }

    /// True between `begin` and `end`.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.head.load(Ordering::Relaxed) & BUSY != 0
    }

    /// Lets readers in again. The node has `len` rows now.
    #[inline]
    pub fn end(&self, len: usize) {
        debug_assert!(len <= N);
        let head = self.head.load(Ordering::Relaxed);
        debug_assert_ne!(head & BUSY, 0);
        (0..if G > 0 { len } else { 0 }).for_each(|row| self.set_room(row));
        for (block, sign) in self.signs.iter().enumerate() {
            let end = self.end_of((block + 1) * Self::STRIDE - 1);
            sign.store(end, Ordering::Relaxed);
        }
        // ORDERING: Release, pairs with the Acquire in `enter`.
        self.head.store(
            (head & !(LEN | BUSY)) + VERSION + len as u64,
            Ordering::Release,
        );
    }

    /// Writes a row's bounds. The node is busy, or they do not change.
    #[inline]
    pub fn set_span(&self, row: usize, span: Span) {
        self.starts[row].store(span.start, Ordering::Relaxed);
        self.ends[row].store(span.end, Ordering::Relaxed);
        self.set_gap(row, span.gap);
    }

    /// Writes a row's gap: what a search for a range does not read, so the node need not be busy.
    #[inline]
    pub fn set_gap(&self, row: usize, size: u64) {
        if let Some(gap) = self.gaps.get(row) {
            gap.store(size, Ordering::Relaxed);
        }
    }

    /// Brings a row's room up to date.
    #[inline]
    pub fn set_room(&self, row: usize) {
        let before = self.gap_before(row);
        if let Some(room) = self.rooms.get(row) {
            room.store(before.max(self.gap(row)), Ordering::Relaxed);
        }
    }

    /// The room that the row is written down with.
    pub fn room(&self, row: usize) -> u64 {
        self.rooms
            .get(row)
            .map_or(0, |room| room.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn set(&self, row: usize, content: Row<W::Value>) {
        self.words[row].store(content.word);
        self.set_span(row, content.span);
    }

    /// Makes room at `row` of `len` rows and writes it.
    pub fn insert(&self, row: usize, len: usize, content: Row<W::Value>) {
        shift_up(&self.ends[row..=len]);
        shift_up(&self.starts[row..=len]);
        shift_up(&self.words[row..=len]);
        if G > 0 {
            shift_up(&self.gaps[row..=len]);
        }
        self.set(row, content);
    }

    /// Takes `count` rows from `row` on away, of `len`.
    pub fn remove(&self, row: usize, count: usize, len: usize) {
        shift_down(&self.ends[row..len], count);
        shift_down(&self.starts[row..len], count);
        shift_down(&self.words[row..len], count);
        if G > 0 {
            shift_down(&self.gaps[row..len], count);
        }
        for i in len - count..len {
            self.starts[i].store(u64::MAX, Ordering::Relaxed);
            self.ends[i].store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Copies `count` rows of another node, from its row `from` on, to `to`.
    pub fn copy(&self, to: usize, source: &Self, from: usize, count: usize) {
        for i in 0..count {
            self.set(to + i, source.row(from + i));
        }
    }

    /// The gap between two neighbouring rows, the first of which is `row`.
    #[inline]
    fn gap_after(&self, row: usize) -> u64 {
        self.start(row + 1) - self.end_of(row)
    }

    /// The gap between a row and the one before it; 0 for the first.
    #[inline]
    pub fn gap_before(&self, row: usize) -> u64 {
        if row > 0 { self.gap_after(row - 1) } else { 0 }
    }

    /// The largest gap that `row` of `len` has a part in: inside of it, and on both sides.
    #[inline]
    pub fn gap_around(&self, row: usize, len: usize) -> u64 {
        let before = self.gap_before(row);
        let after = if row + 1 < len {
            self.gap_after(row)
        } else {
            0
        };
        before.max(after).max(self.gap(row))
    }

    /// What the parent's row says of this node. It has a row.
    pub fn span(&self, len: usize) -> Span {
        let between = (0..len - 1).map(|row| self.gap_after(row).max(self.gap(row)));
        let gap = between.max().unwrap_or(0).max(self.gap(len - 1));
        Span {
            start: self.start(0),
            end: self.end_of(len - 1),
            gap,
        }
    }
}
