//! Which writers of one address space may run at the same time.
//!
//! With [`OneWriter`], all calls that change mappings take `mmap_lock` for writing, as in Linux.
//! With [`Parted`], the address space is divided into parts of equal size. A call whose range, with
//! its neighbours, lies in one part takes only that part; all other calls take all parts.
//! `docs/writers.md` describes the protocol.

use super::{PMD_SIZE, VmRange};
use core::fmt::Debug;
use vmarea_sync::{
    AllGuard, AllReadGuard, CachePaddedLock, LockGuard, LockId, Nesting, PartedLock, Rank,
    ReadGuard, Wait, WriteGuard,
};

/// Binary logarithm of the size of an arena in bytes, and of a part of [`Regions`].
const ARENA_SHIFT: u32 = 42;

/// 32 parts of 4 TiB.
pub type Regions = Parted<32, ARENA_SHIFT>;

/// The kind of writers of [`Standard`](super::Standard).
#[cfg(not(vmarea_parted))]
pub type DefaultWriters = OneWriter;
/// The kind of writers of [`Standard`](super::Standard), for tests of the core with this kind.
#[cfg(vmarea_parted)]
pub type DefaultWriters = Regions;

/// A kind of lock for the writers of one address space.
///
/// The trait is implemented by the kinds in this module; an embedder only chooses one of them.
pub trait Writers: Debug + Default + Send + Sync + 'static {
    /// Name of the kind in printed tables.
    const NAME: &'static str;
    /// Number of parts; 0 if the address space is not divided.
    const PARTS: usize;
    /// The lock of an address space.
    type Lock<W: Wait + Debug>: Debug + Send + Sync;
    /// One value for each part.
    type Each<T: Debug + Send + Sync>: AsRef<[T]> + AsMut<[T]> + Debug + Send + Sync;
    /// Proof that all parts are held for reading.
    type Read<'a, W: Wait + Debug>: Token<'a, W> + Debug;
    /// Proof that all parts are held for writing.
    type Write<'a, W: Wait + Debug>: WriteToken<'a, W> + Debug;
    /// Proof that one part is held for reading.
    type ReadPart<'a, W: Wait + Debug>: Token<'a, W> + Debug;
    /// Proof that one part is held for writing.
    type WritePart<'a, W: Wait + Debug>: WriteToken<'a, W> + Debug;

    /// Creates an unlocked lock.
    fn lock<W: Wait + Debug>(rank: Rank) -> Self::Lock<W>;
    /// Creates one value for each part; `make` gets the id of the part's lock.
    fn each<W: Wait + Debug, T: Debug + Send + Sync>(
        lock: &Self::Lock<W>,
        make: impl Fn(LockId) -> T,
    ) -> Self::Each<T>;
    /// Returns the part that contains an address.
    fn part_of(addr: u64) -> usize;
    /// Returns the part that contains both addresses, of which the second is not lower; `None` if
    /// they are in different parts.
    fn part_of_both(low: u64, high: u64) -> Option<usize>;
    /// Returns the address range of a part.
    fn bounds(part: usize) -> VmRange;
    /// Returns the lock that owns the VMAs that start in a part.
    fn owner<W: Wait + Debug>(lock: &Self::Lock<W>, part: usize) -> &CachePaddedLock<W>;
    /// Returns the bitmap of the parts in use.
    fn active<W: Wait + Debug>(lock: &Self::Lock<W>) -> u64;
    /// Takes all parts for reading.
    fn read_all<W: Wait + Debug>(lock: &Self::Lock<W>, nesting: Nesting) -> Self::Read<'_, W>;
    /// Takes all parts for writing.
    fn write_all<W: Wait + Debug>(lock: &Self::Lock<W>, nesting: Nesting) -> Self::Write<'_, W>;
    /// Takes one part for reading; `None` if it is not in use.
    fn read_part<W: Wait + Debug>(
        lock: &Self::Lock<W>,
        part: usize,
    ) -> Option<Self::ReadPart<'_, W>>;
    /// Takes one part for writing; `None` if it is not in use.
    fn write_part<W: Wait + Debug>(
        lock: &Self::Lock<W>,
        part: usize,
    ) -> Option<Self::WritePart<'_, W>>;
    /// Turns a token for writing into one for reading.
    fn downgrade<'a, W: Wait + Debug>(token: Self::Write<'a, W>) -> Self::Read<'a, W>;

    /// Returns the address range of an arena; see
    /// [`Placement::Arena`](crate::syscall::mmap::Placement::Arena). Any number is valid.
    fn arena(number: usize) -> VmRange;
}

/// Proof that all parts, or one of them, are held.
///
/// Which of the two is known at compile time, so that a call that holds one part need not ask.
pub trait Token<'a, W: Wait + Debug> {
    /// Guard of one lock.
    type Guard: LockGuard;
    /// The kind of address space that the holder sees. One part is like an address space that is
    /// not divided.
    type Seen: Writers;
    /// A value of the type `P` if one part is held; nothing otherwise.
    type Only<P: Copy + Debug>: Copy + Debug;

    /// Returns what `of` returns for the only part.
    fn map_only<P: Copy + Debug>(&self, of: impl FnOnce(usize) -> P) -> Self::Only<P>;
    /// Returns the value for the only part; `None` if all parts are held.
    fn only<P: Copy + Debug>(value: Self::Only<P>) -> Option<P>;
    /// Returns the guard of the whole address space, or of the only part.
    fn whole(&self) -> &Self::Guard;
    /// Returns the guard of a part, or the only guard, which cells of other parts do not accept.
    ///
    /// # Panics
    /// If all parts are held and this one is not in use.
    fn part(&self, part: usize) -> &Self::Guard;
    /// Returns the guards of the whole and of each part in use; `None` unless all parts are held
    /// for writing.
    #[inline]
    fn all_mut(&mut self) -> Option<AllMut<'_, 'a, W>> {
        None
    }
}

/// The guards of the whole and of the parts; see [`Token::all_mut`].
pub type AllMut<'t, 'a, W> = (
    &'t mut WriteGuard<'a, W>,
    &'t mut [Option<WriteGuard<'a, W>>],
);

/// Proof that all parts, or one of them, are held for writing.
pub trait WriteToken<'a, W: Wait + Debug>: Token<'a, W, Guard = WriteGuard<'a, W>> {
    /// Like [`whole`](Token::whole), for writing.
    fn whole_mut(&mut self) -> &mut WriteGuard<'a, W>;
    /// Like [`part`](Token::part), for writing; puts the part to use if all parts are held.
    fn part_mut(&mut self, part: usize) -> &mut WriteGuard<'a, W>;
    /// Puts all parts out of use, when the address space ends.
    fn deactivate(&mut self) {}
}

/// One writer at a time, as in Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneWriter;

impl Writers for OneWriter {
    const NAME: &'static str = "mmap_lock";
    const PARTS: usize = 0;
    type Lock<W: Wait + Debug> = CachePaddedLock<W>;
    type Each<T: Debug + Send + Sync> = [T; 0];
    type Read<'a, W: Wait + Debug> = ReadGuard<'a, W>;
    type Write<'a, W: Wait + Debug> = WriteGuard<'a, W>;
    type ReadPart<'a, W: Wait + Debug> = ReadGuard<'a, W>;
    type WritePart<'a, W: Wait + Debug> = WriteGuard<'a, W>;

    fn lock<W: Wait + Debug>(rank: Rank) -> CachePaddedLock<W> {
        CachePaddedLock::with_rank(rank)
    }
    fn each<W: Wait + Debug, T: Debug + Send + Sync>(
        _lock: &CachePaddedLock<W>,
        _make: impl Fn(LockId) -> T,
    ) -> [T; 0] {
        []
    }
    #[inline]
    fn part_of(_addr: u64) -> usize {
        0
    }
    #[inline]
    fn part_of_both(_low: u64, _high: u64) -> Option<usize> {
        Some(0)
    }
    fn bounds(_part: usize) -> VmRange {
        VmRange::new(0, u64::MAX)
    }
    #[inline]
    fn owner<W: Wait + Debug>(lock: &CachePaddedLock<W>, _part: usize) -> &CachePaddedLock<W> {
        lock
    }
    fn active<W: Wait + Debug>(_lock: &CachePaddedLock<W>) -> u64 {
        0
    }
    #[inline]
    fn read_all<W: Wait + Debug>(lock: &CachePaddedLock<W>, nesting: Nesting) -> ReadGuard<'_, W> {
        match nesting {
            Nesting::First => lock.read(),
            Nesting::Nested => lock.read_nested(),
        }
    }
    #[inline]
    fn write_all<W: Wait + Debug>(
        lock: &CachePaddedLock<W>,
        nesting: Nesting,
    ) -> WriteGuard<'_, W> {
        match nesting {
            Nesting::First => lock.write(),
            Nesting::Nested => lock.write_nested(),
        }
    }
    fn read_part<W: Wait + Debug>(
        _lock: &CachePaddedLock<W>,
        _part: usize,
    ) -> Option<ReadGuard<'_, W>> {
        None
    }
    fn write_part<W: Wait + Debug>(
        _lock: &CachePaddedLock<W>,
        _part: usize,
    ) -> Option<WriteGuard<'_, W>> {
        None
    }
    fn downgrade<'a, W: Wait + Debug>(token: Self::Write<'a, W>) -> Self::Read<'a, W> {
        token.downgrade()
    }
    fn arena(number: usize) -> VmRange {
        Regions::arena(number)
    }
}

impl<'a, W: Wait + Debug> Token<'a, W> for ReadGuard<'a, W> {
    type Guard = Self;
    type Seen = OneWriter;
    type Only<P: Copy + Debug> = ();
    #[inline]
    fn map_only<P: Copy + Debug>(&self, _of: impl FnOnce(usize) -> P) {}
    #[inline]
    fn only<P: Copy + Debug>((): ()) -> Option<P> {
        None
    }
    #[inline]
    fn whole(&self) -> &Self {
        self
    }
    #[inline]
    fn part(&self, _part: usize) -> &Self {
        self
    }
}

impl<'a, W: Wait + Debug> Token<'a, W> for WriteGuard<'a, W> {
    type Guard = Self;
    type Seen = OneWriter;
    type Only<P: Copy + Debug> = ();
    #[inline]
    fn map_only<P: Copy + Debug>(&self, _of: impl FnOnce(usize) -> P) {}
    #[inline]
    fn only<P: Copy + Debug>((): ()) -> Option<P> {
        None
    }
    #[inline]
    fn whole(&self) -> &Self {
        self
    }
    #[inline]
    fn part(&self, _part: usize) -> &Self {
        self
    }
}

impl<'a, W: Wait + Debug> WriteToken<'a, W> for WriteGuard<'a, W> {
    #[inline]
    fn whole_mut(&mut self) -> &mut WriteGuard<'a, W> {
        self
    }
    #[inline]
    fn part_mut(&mut self, _part: usize) -> &mut WriteGuard<'a, W> {
        self
    }
}

/// `N` parts of 2^`SHIFT` bytes; the last part extends to the end of the address space.
///
/// A part must not be smaller than the range of one page table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parted<const N: usize, const SHIFT: u32>;

impl<const N: usize, const SHIFT: u32> Writers for Parted<N, SHIFT> {
    const NAME: &'static str = "parts";
    const PARTS: usize = {
        assert!(N >= 3 && N <= 64 && 1 << SHIFT >= PMD_SIZE);
        N
    };
    type Lock<W: Wait + Debug> = PartedLock<N, W>;
    type Each<T: Debug + Send + Sync> = [T; N];
    type Read<'a, W: Wait + Debug> = AllReads<'a, N, SHIFT, W>;
    type Write<'a, W: Wait + Debug> = AllWrites<'a, N, SHIFT, W>;
    type ReadPart<'a, W: Wait + Debug> = OnePart<ReadGuard<'a, W>>;
    type WritePart<'a, W: Wait + Debug> = OnePart<WriteGuard<'a, W>>;

    fn lock<W: Wait + Debug>(rank: Rank) -> PartedLock<N, W> {
        PartedLock::with_rank(rank)
    }
    fn each<W: Wait + Debug, T: Debug + Send + Sync>(
        lock: &PartedLock<N, W>,
        make: impl Fn(LockId) -> T,
    ) -> [T; N] {
        core::array::from_fn(|part| make(lock.part(part).id()))
    }
    #[inline]
    fn part_of(addr: u64) -> usize {
        ((addr >> SHIFT) as usize).min(N - 1)
    }
    #[inline]
    fn part_of_both(low: u64, high: u64) -> Option<usize> {
        let part = Self::part_of(low);
        ((high >> SHIFT) as usize == part || part == N - 1).then_some(part)
    }
    fn bounds(part: usize) -> VmRange {
        let start = (part as u64) << SHIFT;
        let end = match part + 1 == N {
            true => u64::MAX,
            false => start + (1 << SHIFT),
        };
        VmRange::new(start, end)
    }
    #[inline]
    fn owner<W: Wait + Debug>(lock: &PartedLock<N, W>, part: usize) -> &CachePaddedLock<W> {
        lock.part(part)
    }
    #[inline]
    fn active<W: Wait + Debug>(lock: &PartedLock<N, W>) -> u64 {
        lock.active()
    }
    fn read_all<W: Wait + Debug>(lock: &PartedLock<N, W>, nesting: Nesting) -> Self::Read<'_, W> {
        AllReads(lock.write_all(nesting).downgrade())
    }
    fn write_all<W: Wait + Debug>(lock: &PartedLock<N, W>, nesting: Nesting) -> Self::Write<'_, W> {
        AllWrites(lock.write_all(nesting))
    }
    #[inline]
    fn read_part<W: Wait + Debug>(
        lock: &PartedLock<N, W>,
        part: usize,
    ) -> Option<Self::ReadPart<'_, W>> {
        let guard = lock.read_part(part)?;
        Some(OnePart { part, guard })
    }
    #[inline]
    fn write_part<W: Wait + Debug>(
        lock: &PartedLock<N, W>,
        part: usize,
    ) -> Option<Self::WritePart<'_, W>> {
        let guard = lock.write_part(part)?;
        Some(OnePart { part, guard })
    }
    fn downgrade<'a, W: Wait + Debug>(token: Self::Write<'a, W>) -> Self::Read<'a, W> {
        AllReads(token.0.downgrade())
    }
    /// All parts but the first, in which nothing can be mapped at the lowest addresses, and the
    /// last, in which mappings with exact placement and the stack are.
    fn arena(number: usize) -> VmRange {
        Self::bounds(1 + number % (N - 2))
    }
}

/// All parts, held for reading.
#[derive(Debug)]
#[must_use = "the locks are released when the token is dropped"]
pub struct AllReads<'a, const N: usize, const SHIFT: u32, W: Wait + Debug>(AllReadGuard<'a, N, W>);

/// All parts, held for writing.
#[derive(Debug)]
#[must_use = "the locks are released when the token is dropped"]
pub struct AllWrites<'a, const N: usize, const SHIFT: u32, W: Wait + Debug>(AllGuard<'a, N, W>);

/// The part with a number, held by the guard of its lock.
#[derive(Debug)]
#[must_use = "the lock is released when the token is dropped"]
pub struct OnePart<G> {
    part: usize,
    guard: G,
}

impl<'a, const N: usize, const SHIFT: u32, W: Wait + Debug> Token<'a, W>
    for AllReads<'a, N, SHIFT, W>
{
    type Guard = ReadGuard<'a, W>;
    type Seen = Parted<N, SHIFT>;
    type Only<P: Copy + Debug> = ();
    #[inline]
    fn map_only<P: Copy + Debug>(&self, _of: impl FnOnce(usize) -> P) {}
    #[inline]
    fn only<P: Copy + Debug>((): ()) -> Option<P> {
        None
    }
    #[inline]
    fn whole(&self) -> &ReadGuard<'a, W> {
        self.0.whole()
    }
    #[inline]
    fn part(&self, part: usize) -> &ReadGuard<'a, W> {
        self.0.part(part)
    }
}

impl<'a, const N: usize, const SHIFT: u32, W: Wait + Debug> Token<'a, W>
    for AllWrites<'a, N, SHIFT, W>
{
    type Guard = WriteGuard<'a, W>;
    type Seen = Parted<N, SHIFT>;
    type Only<P: Copy + Debug> = ();
    #[inline]
    fn map_only<P: Copy + Debug>(&self, _of: impl FnOnce(usize) -> P) {}
    #[inline]
    fn only<P: Copy + Debug>((): ()) -> Option<P> {
        None
    }
    #[inline]
    fn whole(&self) -> &WriteGuard<'a, W> {
        self.0.whole()
    }
    #[inline]
    fn part(&self, part: usize) -> &WriteGuard<'a, W> {
        self.0.part(part)
    }
    fn all_mut(&mut self) -> Option<AllMut<'_, 'a, W>> {
        Some(self.0.split_mut())
    }
}

impl<'a, const N: usize, const SHIFT: u32, W: Wait + Debug> WriteToken<'a, W>
    for AllWrites<'a, N, SHIFT, W>
{
    #[inline]
    fn whole_mut(&mut self) -> &mut WriteGuard<'a, W> {
        self.0.whole_mut()
    }
    #[inline]
    fn part_mut(&mut self, part: usize) -> &mut WriteGuard<'a, W> {
        self.0.part_mut(part)
    }
    fn deactivate(&mut self) {
        self.0.deactivate();
    }
}

impl<'a, W: Wait + Debug, G: LockGuard> Token<'a, W> for OnePart<G> {
    type Guard = G;
    type Seen = OneWriter;
    type Only<P: Copy + Debug> = P;
    #[inline]
    fn map_only<P: Copy + Debug>(&self, of: impl FnOnce(usize) -> P) -> P {
        of(self.part)
    }
    #[inline]
    fn only<P: Copy + Debug>(value: P) -> Option<P> {
        Some(value)
    }
    #[inline]
    fn whole(&self) -> &G {
        &self.guard
    }
    #[inline]
    fn part(&self, _part: usize) -> &G {
        &self.guard
    }
}

impl<'a, W: Wait + Debug> WriteToken<'a, W> for OnePart<WriteGuard<'a, W>> {
    #[inline]
    fn whole_mut(&mut self) -> &mut WriteGuard<'a, W> {
        &mut self.guard
    }
    #[inline]
    fn part_mut(&mut self, _part: usize) -> &mut WriteGuard<'a, W> {
        &mut self.guard
    }
}
