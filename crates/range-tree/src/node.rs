//! What all nodes have in common, and inner nodes.
//!
//! Every field of a node is atomic, so a reader that is concurrent with the writer reads old or new
//! words and nothing else. The version in the node's head shows the reader whether the words belong
//! together.
//!
//! A row of an inner node covers one child. It stores the child's end, which is the end of the last
//! range below it, a pointer to the child, and its room: at least the largest gap before a range
//! below it. The gap before a range begins at the end of the previous range, even if that range is
//! in another node. The gap before the first range of the map does not count.
//!
//! # Picture
//! ```text
//! keys:    head │ pivots[1..16]                end of the last row of each block but the last
//! ends:    16 blocks of 4 rows
//! then:    children[0..64] │ rooms[0..64]
//! head:    version : 55 │ BUSY : 1 │ len : 8   (len is 0 in a leaf)
//! ```
//! A search makes three comparisons that select four pivots, three that select a block, and three
//! that select a row. It has no data-dependent branch. Rows beyond `len` have `u64::MAX` as their
//! end and a null pointer, so the search does not need the length either.
//!
//! # Locking
//! There is one writer at a time ([`begin_write`](Versioned::begin_write) …
//! [`end_write`](Versioned::end_write)). A reader loads the head with
//! [`begin_read`](Versioned::begin_read), reads, and then checks
//! [`is_unchanged`](Versioned::is_unchanged). Lookups do not read rooms, so the writer changes a
//! room without marking the node as busy.

use vmarea_sync::primitive::{AtomicPtr, AtomicU64, Ordering, fence};

/// Number of rows in an inner node; small in tests, so that splits and merges are common.
pub(crate) const INNER: usize = BLOCKS * STRIDE;
/// Number of blocks of rows, of which the pivots select one.
const BLOCKS: usize = if cfg!(any(test, loom)) { 1 } else { 16 };
/// Number of rows in a block.
const STRIDE: usize = 4;

/// Minimum number of free rows in an inner node after a split.
pub(crate) const SPARE: usize = if INNER < 16 { 1 } else { INNER / 8 };

const LEN: u64 = 0xff;
/// Set during a change. Adding it again clears it and increments the version.
const BUSY: u64 = 0x100;

/// Head of a node as loaded by a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head(u64);

/// A node with a version that readers check.
pub(crate) trait Versioned {
    fn head(&self) -> &AtomicU64;

    /// Starts a read. Returns the head, or `None` while a writer is changing the node.
    #[inline]
    fn begin_read(&self) -> Option<Head> {
        // ORDERING: Acquire, pairs with the Release in `end_write`.
        let head = self.head().load(Ordering::Acquire);
        (head & BUSY == 0).then_some(Head(head))
    }

    /// Returns true if the node has not changed since `begin_read` returned `seen`.
    #[inline]
    fn is_unchanged(&self, seen: Head) -> bool {
        // ORDERING: Acquire fence, pairs with the Release fence in `begin_write`: a reader that has
        // read a word of a change loads the head of that change or a later one.
        fence(Ordering::Acquire);
        self.head().load(Ordering::Relaxed) == seen.0
    }

    // Methods for the writer. Only the tree's single writer may call them.

    /// Starts a change: new readers fail, and current readers retry.
    #[inline]
    fn begin_write(&self) {
        let head = self.head().load(Ordering::Relaxed);
        debug_assert_eq!(head & BUSY, 0, "nested change of a node");
        self.head().store(head + BUSY, Ordering::Relaxed);
        // ORDERING: Release fence, pairs with the Acquire fence in `is_unchanged`.
        fence(Ordering::Release);
    }

    /// Returns true between `begin_write` and `end_write`.
    fn is_busy(&self) -> bool {
        self.head().load(Ordering::Relaxed) & BUSY != 0
    }

    /// Ends a change. Admits readers again.
    #[inline]
    fn end_write(&self) {
        let head = self.head().load(Ordering::Relaxed);
        debug_assert_ne!(head & BUSY, 0);
        // ORDERING: Release, pairs with the Acquire in `begin_read`.
        self.head().store(head + BUSY, Ordering::Release);
    }
}

/// Tagged pointer to a node; the lowest bit is set for a leaf. May be null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodePtr(pub *mut ());

impl NodePtr {
    pub const NULL: NodePtr = NodePtr(core::ptr::null_mut());
}

/// One row of an inner node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// End of the last range in the child.
    pub end: u64,
    pub child: NodePtr,
    /// At least the largest gap before a range in the child.
    pub room: u64,
}

/// Node whose rows are its children; see the picture in the module documentation.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Inner {
    /// The head and the pivots.
    keys: [AtomicU64; BLOCKS],
    ends: [[AtomicU64; STRIDE]; BLOCKS],
    children: [AtomicPtr<()>; INNER],
    rooms: [AtomicU64; INNER],
}

impl Versioned for Inner {
    #[inline]
    fn head(&self) -> &AtomicU64 {
        &self.keys[0]
    }
}

/// Returns how many keys, not counting the first, are at most `key`. The keys other than the first
/// are in ascending order, and `N` is a power of 4.
#[inline]
pub(crate) fn rank<const N: usize>(keys: &[AtomicU64; N], key: u64) -> usize {
    let (mut at, mut step) = (0, N / 4);
    while step > 0 {
        let quarters = [&keys[at + step], &keys[at + 2 * step], &keys[at + 3 * step]];
        at += passed(quarters, key) * step;
        step /= 4;
    }
    at
}

/// Returns how many of three keys are at most `key`. Has no branch.
#[inline]
fn passed([first, second, third]: [&AtomicU64; 3], key: u64) -> usize {
    let is_below = |k: &AtomicU64| usize::from(key < k.load(Ordering::Relaxed));
    // Subtracting from three is an instruction shorter than adding.
    let passed = 3 - is_below(first) - is_below(second) - is_below(third);
    // The mask tells the compiler that the number is small.
    passed & 3
}

/// Moves all words up by one; discards the last word.
///
/// If there are more than four to move, moves four at a time, and the lowest four even if fewer are
/// left: the processor would often guess wrong how many are left. The compiler does not unroll loops
/// of atomic accesses.
#[inline]
pub(crate) fn shift_up(words: &[AtomicU64]) {
    match words {
        [a, b, c, d, e, ..] => {
            let low = [a, b, c, d].map(|word| word.load(Ordering::Relaxed));
            let mut rest = words;
            while let [.., _, a, b, c, d, e] = rest {
                copy_word(e, d);
                copy_word(d, c);
                copy_word(c, b);
                copy_word(b, a);
                rest = &rest[..rest.len() - 4];
            }
            // ORDERING: Relaxed; the accesses to the node's head order these.
            let moved = [b, c, d, e].into_iter().zip(low);
            moved.for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        }
        [a, b, c, d] => {
            copy_word(d, c);
            copy_word(c, b);
            copy_word(b, a);
        }
        [a, b, c] => {
            copy_word(c, b);
            copy_word(b, a);
        }
        [a, b] => copy_word(b, a),
        _ => {}
    }
}

/// Moves all words down by one; discards the first word. What [`shift_up`] does would cost 22
/// instructions here, for 5 % of the time.
#[inline]
pub(crate) fn shift_down(words: &[AtomicU64]) {
    let mut rest = words;
    while let [a, b, c, d, e, ..] = rest {
        copy_word(a, b);
        copy_word(b, c);
        copy_word(c, d);
        copy_word(d, e);
        rest = &rest[4..];
    }
    if let [a, b, c, ..] = rest {
        copy_word(a, b);
        copy_word(b, c);
        rest = &rest[2..];
    }
    if let [a, b] = rest {
        copy_word(a, b);
    }
}

#[inline]
fn copy_word(to: &AtomicU64, from: &AtomicU64) {
    // ORDERING: Relaxed; the accesses to the node's head order this one.
    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
}

fn copy_child(to: &AtomicPtr<()>, from: &AtomicPtr<()>) {
    // ORDERING: Release, pairs with the Acquire in `child`.
    to.store(from.load(Ordering::Relaxed), Ordering::Release);
}

impl Inner {
    /// Creates an empty node.
    pub fn new() -> Self {
        Inner {
            keys: core::array::from_fn(|at| AtomicU64::new(if at == 0 { 0 } else { u64::MAX })),
            ends: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(u64::MAX))),
            children: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            rooms: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    // Methods for readers. They may run concurrently with the writer.

    /// Returns the first row that ends after `addr`. If there is none, returns `len`, or the last
    /// row of a full node.
    #[inline]
    pub fn first_ending_after(&self, addr: u64) -> usize {
        let block = rank(&self.keys, addr);
        let [first, second, third, _] = &self.ends[block];
        block * STRIDE + passed([first, second, third], addr)
    }

    /// Returns the number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        (self.head().load(Ordering::Relaxed) & LEN) as usize
    }

    #[inline]
    pub fn end_of(&self, row: usize) -> u64 {
        self.ends.as_flattened()[row].load(Ordering::Relaxed)
    }

    /// Returns the child of a row; null if there is no such row.
    #[inline]
    pub fn child(&self, row: usize) -> NodePtr {
        // ORDERING: Acquire, pairs with the Release in `set` and `copy_child`: a reader that finds
        // a new node sees it initialized, even before it checks the head.
        let child = self.children.get(row);
        child.map_or(NodePtr::NULL, |child| {
            NodePtr(child.load(Ordering::Acquire))
        })
    }

    #[inline]
    pub fn room(&self, row: usize) -> u64 {
        self.rooms[row % INNER].load(Ordering::Relaxed)
    }

    /// Returns the end of the row before `row`, or `floor` for the first row.
    #[inline]
    pub fn end_below(&self, row: usize, floor: u64) -> u64 {
        row.checked_sub(1).map_or(floor, |left| self.end_of(left))
    }

    /// Returns the first row in `from..len` with a room of at least `size`.
    #[inline]
    pub fn next_room(&self, from: usize, len: usize, size: u64) -> Option<usize> {
        let rooms = self.rooms.get(from..len)?;
        rooms
            .iter()
            .position(|r| r.load(Ordering::Relaxed) >= size)
            .map(|i| from + i)
    }

    /// Returns the last row below `below` with a room of at least `size`.
    #[inline]
    pub fn last_room(&self, below: usize, size: u64) -> Option<usize> {
        self.rooms
            .get(..below)?
            .iter()
            .rposition(|r| r.load(Ordering::Relaxed) >= size)
    }

    // Methods for the writer. Only the tree's single writer may call them. The node must be busy,
    // except for a change of a room.

    pub fn row(&self, row: usize) -> Row {
        Row {
            end: self.end_of(row),
            child: self.child(row),
            room: self.room(row),
        }
    }

    /// Returns the largest of all rooms.
    pub fn largest_room(&self) -> u64 {
        (0..self.len()).fold(0, |most, row| most.max(self.room(row)))
    }

    #[inline]
    pub fn set_room(&self, row: usize, room: u64) {
        self.rooms[row % INNER].store(room, Ordering::Relaxed);
    }

    pub fn set_end(&self, row: usize, end: u64) {
        self.ends.as_flattened()[row].store(end, Ordering::Relaxed);
        if row % STRIDE == STRIDE - 1
            && let Some(pivot) = self.keys.get(row / STRIDE + 1)
        {
            pivot.store(end, Ordering::Relaxed);
        }
    }

    fn set(&self, row: usize, content: Row) {
        // ORDERING: Release, pairs with the Acquire in `child`.
        self.children[row].store(content.child.0, Ordering::Release);
        self.set_room(row, content.room);
        self.set_end(row, content.end);
    }

    fn set_len(&self, len: usize) {
        debug_assert!(len <= INNER && self.is_busy());
        let head = self.head().load(Ordering::Relaxed);
        self.head()
            .store(head & !LEN | len as u64, Ordering::Relaxed);
    }

    /// Copies the ends of the blocks from the one that contains `row` on to the pivots.
    fn set_pivots(&self, row: usize) {
        let blocks = self.keys[1..].iter().zip(&self.ends);
        blocks
            .skip(row / STRIDE)
            .for_each(|(pivot, block)| copy_word(pivot, &block[STRIDE - 1]));
    }

    /// Adds a row at the end.
    pub fn push(&self, content: Row) {
        let len = self.len();
        self.set(len, content);
        self.set_len(len + 1);
    }

    /// Inserts a row at position `row`.
    pub fn insert(&self, row: usize, content: Row) {
        let len = self.len();
        shift_up(&self.ends.as_flattened()[row..=len]);
        shift_up(&self.rooms[row..=len]);
        for at in (row..len).rev() {
            copy_child(&self.children[at + 1], &self.children[at]);
        }
        self.set(row, content);
        self.set_pivots(row);
        self.set_len(len + 1);
    }

    /// Removes a row.
    pub fn remove(&self, row: usize) {
        let (len, ends) = (self.len(), self.ends.as_flattened());
        shift_down(&ends[row..len]);
        shift_down(&self.rooms[row..len]);
        for at in row + 1..len {
            copy_child(&self.children[at - 1], &self.children[at]);
        }
        self.set_pivots(row);
        self.truncate(len - 1);
    }

    /// Removes the rows from `len` on.
    fn truncate(&self, len: usize) {
        for gone in len..self.len() {
            self.ends.as_flattened()[gone].store(u64::MAX, Ordering::Relaxed);
            self.children[gone].store(core::ptr::null_mut(), Ordering::Relaxed);
        }
        self.set_pivots(len);
        self.set_len(len);
    }

    /// Moves the rows of `source` from `from` on to the end of this node.
    pub fn take(&self, source: &Self, from: usize) {
        (from..source.len()).for_each(|row| self.push(source.row(row)));
        source.truncate(from);
    }

    /// Returns true if each pivot is the end that it stands for, and unused rows are empty.
    pub fn is_tidy(&self) -> bool {
        let blocks = self.keys[1..].iter().zip(&self.ends);
        let last = |block: &[AtomicU64; STRIDE]| block[STRIDE - 1].load(Ordering::Relaxed);
        blocks
            .map(|(pivot, block)| (pivot.load(Ordering::Relaxed), last(block)))
            .all(|(pivot, end)| pivot == end)
            && (self.len()..INNER)
                .all(|row| self.end_of(row) == u64::MAX && self.child(row) == NodePtr::NULL)
    }
}
