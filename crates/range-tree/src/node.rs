//! Tree node: up to `N` rows, stored in columns, with a version that readers check.
//!
//! Each row covers a part of the map. It stores the start, the end and a word: the caller's word in
//! a leaf, a pointer to the child in an inner node. A row of an inner node also stores the largest
//! gap within the child. Every field is atomic, so a reader that is concurrent with the writer
//! reads old or new words and nothing else. The version shows the reader whether the words belong
//! together.
//!
//! # Picture
//! ```text
//! line 0:  head │ pivots[0..7]        every STRIDE-th end
//! then:    ends[0..N] │ starts[0..N] │ words[0..N] │ inner only: gaps[0..N], rooms[0..N]
//! head:    version : 55 │ BUSY : 1 │ len : 8
//! ```
//! The pivots select which eight ends to compare, so a search reads two cache lines and has no
//! data-dependent branch. Rows beyond `len` have `u64::MAX` in `ends` and `starts`, so the search
//! does not need the length either.
//!
//! # Locking
//! There is one writer at a time ([`begin_write`](Node::begin_write) …
//! [`end_write`](Node::end_write)). A reader loads the head with [`begin_read`](Node::begin_read),
//! reads, and then checks [`is_unchanged`](Node::is_unchanged).

use vmarea_sync::primitive::{AtomicPtr, AtomicU64, Ordering, fence};

/// Number of rows in a leaf; small in tests, so that splits and merges are common.
pub(crate) const LEAF: usize = if SMALL { 3 } else { 40 };
pub(crate) const INNER: usize = if SMALL { 3 } else { 64 };
const PIVOTS: usize = if SMALL { 1 } else { 7 };
const SMALL: bool = cfg!(any(test, loom));

/// Minimum number of free rows in an inner node after a split.
pub(crate) const SPARE: usize = if INNER < 16 { 1 } else { INNER / 8 };

const LEN: u64 = 0xff;
const BUSY: u64 = 0x100;
/// Value added to a node's head at the end of a change, which increments the version.
const VERSION: u64 = 0x200;

/// Bounds of a range or of a node, and the largest gap within them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub start: u64,
    pub end: u64,
    pub gap: u64,
}

/// One row of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<V> {
    pub span: Span,
    pub word: V,
}

/// A word that can be read while it is being written.
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
        // ORDERING: Relaxed; the accesses to the node's head order this one.
        self.load(Ordering::Relaxed)
    }
    #[inline]
    fn store(&self, value: u64) {
        // ORDERING: Relaxed; the accesses to the node's head order this one.
        self.store(value, Ordering::Relaxed)
    }
}

/// Tagged pointer to a node; the lowest bit is set for a leaf. May be null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodePtr(pub *mut ());

impl Word for AtomicPtr<()> {
    type Value = NodePtr;
    fn empty() -> Self {
        AtomicPtr::new(core::ptr::null_mut())
    }
    #[inline]
    fn load(&self) -> NodePtr {
        // ORDERING: Acquire, pairs with the Release in `store`: a reader that finds a new node sees
        // it initialized, even before it checks the head.
        NodePtr(self.load(Ordering::Acquire))
    }
    #[inline]
    fn store(&self, value: NodePtr) {
        // ORDERING: Release, pairs with the Acquire in `load`.
        self.store(value.0, Ordering::Release)
    }
}

/// Head of a node as loaded by a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head(u64);

impl Head {
    #[inline]
    pub fn len(self) -> usize {
        (self.0 & LEN) as usize
    }
}

/// Tree node; see the picture in the module documentation.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Node<W, const N: usize, const G: usize> {
    head: AtomicU64,
    /// End of the last row in each block of rows, except for the last block.
    pivots: [AtomicU64; PIVOTS],
    ends: [AtomicU64; N],
    starts: [AtomicU64; N],
    words: [W; N],
    gaps: [AtomicU64; G],
    /// For each row, the larger of its gap and the gap before it. A search scans only this column.
    rooms: [AtomicU64; G],
}

/// Node whose words belong to the caller.
pub(crate) type Leaf = Node<AtomicU64, LEAF, 0>;
/// Node whose words are pointers to its children.
pub(crate) type Inner = Node<AtomicPtr<()>, INNER, INNER>;

/// Returns how many of `keys` are at most `key`. Compares `key` with all of them, without a branch.
#[inline]
fn count(keys: &[AtomicU64], key: u64) -> usize {
    keys.iter()
        .map(|k| usize::from(k.load(Ordering::Relaxed) <= key))
        .sum()
}

/// Like [`count`], but uses binary search and requires ascending keys.
#[inline]
fn rank(keys: &[AtomicU64], key: u64) -> usize {
    keys.partition_point(|k| k.load(Ordering::Relaxed) <= key)
}

/// Moves all words of a column up by one; discards the last word.
fn shift_up<W: Word>(column: &[W]) {
    let mut rest = column;
    // Four words at a time, because the compiler does not unroll loops of atomic accesses.
    while let [.., a, b, c, d, e] = rest {
        e.store(d.load());
        d.store(c.load());
        c.store(b.load());
        b.store(a.load());
        rest = &rest[..rest.len() - 4];
    }
    for pair in rest.windows(2).rev() {
        pair[1].store(pair[0].load());
    }
}

/// Moves all words of a column down by `count`; discards the first `count` words.
fn shift_down<W: Word>(column: &[W], count: usize) {
    for (to, from) in column.iter().zip(&column[count..]) {
        to.store(from.load());
    }
}

impl<W: Word, const N: usize, const G: usize> Node<W, N, G> {
    /// Number of rows in a block.
    const STRIDE: usize = N.div_ceil(PIVOTS + 1);

    /// Creates an empty node.
    pub fn new() -> Self {
        Node {
            head: AtomicU64::new(0),
            pivots: core::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            ends: core::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            starts: core::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            words: core::array::from_fn(|_| W::empty()),
            gaps: core::array::from_fn(|_| AtomicU64::new(0)),
            rooms: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    // Methods for readers. They may run concurrently with the writer.

    /// Starts a read. Returns the head, or `None` while a writer is changing the node.
    #[inline]
    pub fn begin_read(&self) -> Option<Head> {
        // ORDERING: Acquire, pairs with the Release in `end_write`.
        let head = self.head.load(Ordering::Acquire);
        (head & BUSY == 0).then_some(Head(head))
    }

    /// Returns true if the node has not changed since `begin_read` returned `seen`.
    #[inline]
    pub fn is_unchanged(&self, seen: Head) -> bool {
        // ORDERING: Acquire fence, pairs with the Release fence in `begin_write`: a reader that has
        // read a word of a change loads the head of that change or a later one.
        fence(Ordering::Acquire);
        self.head.load(Ordering::Relaxed) == seen.0
    }

    /// Returns the first row that ends after `addr`; `len` or more if there is none.
    #[inline]
    pub fn first_ending_after(&self, addr: u64) -> usize {
        let from = count(&self.pivots, addr) * Self::STRIDE;
        let block = &self.ends[from..N.min(from + Self::STRIDE)];
        from + count(block, addr)
    }

    /// Returns the number of rows that start below `addr`.
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

    /// Returns the largest gap within the row's child; 0 in a leaf.
    #[inline]
    pub fn gap(&self, row: usize) -> u64 {
        self.gaps
            .get(row)
            .map_or(0, |gap| gap.load(Ordering::Relaxed))
    }

    /// Returns the first row in `from..len` with a gap of at least `size` in or before its child.
    #[inline]
    pub fn next_room(&self, from: usize, len: usize, size: u64) -> Option<usize> {
        let rooms = self.rooms.get(from..len)?;
        rooms
            .iter()
            .position(|r| r.load(Ordering::Relaxed) >= size)
            .map(|i| from + i)
    }

    /// Returns the last row below `below` with a gap of at least `size` in or before its child.
    #[inline]
    pub fn last_room(&self, below: usize, size: u64) -> Option<usize> {
        self.rooms
            .get(..below)?
            .iter()
            .rposition(|r| r.load(Ordering::Relaxed) >= size)
    }

    /// Returns a row. In a leaf the gap is 0.
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

    // Methods for the writer. Only the tree's single writer may call them.

    /// Returns the number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        (self.head.load(Ordering::Relaxed) & LEN) as usize
    }

    /// Starts a change: new readers fail, and current readers retry.
    #[inline]
    pub fn begin_write(&self) {
        let head = self.head.load(Ordering::Relaxed);
        debug_assert_eq!(head & BUSY, 0, "nested change of a node");
        self.head.store(head | BUSY, Ordering::Relaxed);
        // ORDERING: Release fence, pairs with the Acquire fence in `is_unchanged`.
        fence(Ordering::Release);
    }

    /// Returns true between `begin_write` and `end_write`.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.head.load(Ordering::Relaxed) & BUSY != 0
    }

    /// Ends a change, after which the node has `len` rows. Admits readers again.
    #[inline]
    pub fn end_write(&self, len: usize) {
        self.end_write_from(len, 0);
    }

    /// Like [`end_write`](Self::end_write), for a change that left the rows below `from` alone.
    #[inline]
    pub fn end_write_from(&self, len: usize, from: usize) {
        debug_assert!(len <= N);
        let head = self.head.load(Ordering::Relaxed);
        debug_assert_ne!(head & BUSY, 0);
        (from..if G > 0 { len } else { 0 }).for_each(|row| self.set_room(row));
        for block in from / Self::STRIDE..PIVOTS {
            let end = self.end_of((block + 1) * Self::STRIDE - 1);
            self.pivots[block].store(end, Ordering::Relaxed);
        }
        // ORDERING: Release, pairs with the Acquire in `begin_read`.
        self.head.store(
            (head & !(LEN | BUSY)) + VERSION + len as u64,
            Ordering::Release,
        );
    }

    /// Like [`end_write`](Self::end_write), for a change of the bounds or the gap of one row.
    #[inline]
    pub fn end_write_row(&self, len: usize, row: usize) {
        (row..len.min(row + 2)).for_each(|near| self.set_room(near));
        let block = row / Self::STRIDE;
        if let Some(pivot) = self.pivots.get(block) {
            let end = self.end_of((block + 1) * Self::STRIDE - 1);
            pivot.store(end, Ordering::Relaxed);
        }
        let head = self.head.load(Ordering::Relaxed);
        debug_assert_ne!(head & BUSY, 0);
        // ORDERING: Release, pairs with the Acquire in `begin_read`.
        self.head.store((head & !BUSY) + VERSION, Ordering::Release);
    }

    /// Writes the bounds of a row. The node must be busy, unless the bounds do not change.
    #[inline]
    pub fn set_span(&self, row: usize, span: Span) {
        self.starts[row].store(span.start, Ordering::Relaxed);
        self.ends[row].store(span.end, Ordering::Relaxed);
        self.set_gap(row, span.gap);
    }

    /// Writes the gap of a row. Lookups do not read gaps, so the node need not be busy.
    #[inline]
    pub fn set_gap(&self, row: usize, size: u64) {
        if let Some(gap) = self.gaps.get(row) {
            gap.store(size, Ordering::Relaxed);
        }
    }

    /// Recomputes a row's entry in `rooms`.
    #[inline]
    pub fn set_room(&self, row: usize) {
        let before = self.gap_before(row);
        if let Some(room) = self.rooms.get(row) {
            room.store(before.max(self.gap(row)), Ordering::Relaxed);
        }
    }

    /// Returns a row's entry in `rooms`.
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

    /// Inserts a row at position `row` into a node of `len` rows.
    pub fn insert(&self, row: usize, len: usize, content: Row<W::Value>) {
        shift_up(&self.ends[row..=len]);
        shift_up(&self.starts[row..=len]);
        shift_up(&self.words[row..=len]);
        if G > 0 {
            shift_up(&self.gaps[row..=len]);
        }
        self.set(row, content);
    }

    /// Moves the rows from `row` on up by `count`, in a node of `len` rows.
    pub fn open(&self, row: usize, count: usize, len: usize) {
        for from in (row..len).rev() {
            self.set(from + count, self.row(from));
        }
    }

    /// Removes `count` of `len` rows, starting at `row`.
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

    /// Copies `count` rows, starting at row `from` of `source`, to this node, starting at row `to`.
    pub fn copy(&self, to: usize, source: &Self, from: usize, count: usize) {
        for i in 0..count {
            self.set(to + i, source.row(from + i));
        }
    }

    /// Returns the gap between `row` and the row after it.
    #[inline]
    fn gap_after(&self, row: usize) -> u64 {
        self.start(row + 1) - self.end_of(row)
    }

    /// Returns the gap before `row`; 0 for the first row.
    #[inline]
    pub fn gap_before(&self, row: usize) -> u64 {
        if row > 0 { self.gap_after(row - 1) } else { 0 }
    }

    /// Returns the largest of the gaps within, before and after `row` in a node of `len` rows.
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

    /// Returns the span to be stored in this node's row in the parent. The node must not be empty.
    pub fn span(&self, len: usize) -> Span {
        let mut gap = self.gap(0);
        if G > 0 {
            // The rooms of a node that is being changed are not up to date.
            (1..len).for_each(|row| gap = gap.max(self.gap(row)));
        }
        let (starts, ends) = (&self.starts[1..len], &self.ends[..len - 1]);
        for (start, end) in starts.iter().zip(ends) {
            let between = start.load(Ordering::Relaxed) - end.load(Ordering::Relaxed);
            gap = gap.max(between);
        }
        Span {
            start: self.start(0),
            end: self.end_of(len - 1),
            gap,
        }
    }
}
