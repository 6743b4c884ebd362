//! Read sections, and what is freed when they have ended.
//!
//! For what is replaced as a whole and read without a lock: a [`Published`] box. Most of the address
//! space needs none of this, since its slots and nodes keep their type and are checked by the
//! reader. It is an epoch scheme: readers write the epoch that they see to a record of their own;
//! what is retired in one epoch is freed when the epoch has moved twice.
//!
//! It is our own, in some 200 lines, and not crossbeam-epoch: that one cannot be run inside of our
//! loom models (it looks at another `cfg`), needs a looser Miri, and keeps a queue of bags per
//! thread, which pays where garbage is made at a rate that address spaces do not have.
//!
//! # Picture
//! ```text
//! epoch e        readers' records: e │ 0 (outside) │ e-1
//! retired:       (e-2, box) (e-1, box) (e, box)          all but the last two epochs can go
//! ```
//!
//! # Misuse from safe code
//! A section or a box of another [`Rcu`] panics. A section that never ends keeps everything retired
//! since then in memory; [`synchronize`](Rcu::synchronize) inside of a section waits for ever.

use crate::primitive::{AtomicPtr, AtomicU64, Ordering, fence, spin_loop};
use crate::{Exhausted, Key, Slots, SpinLock};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;

/// A reader's record: the epoch in which its section began, 0 outside of one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Record(AtomicU64);

/// Something that nobody new can reach; dropping it frees it.
trait Garbage: Send {}
impl<T: Send> Garbage for T {}

struct Retired {
    epoch: u64,
    garbage: Box<dyn Garbage>,
}

/// Readers and what they keep from being freed.
pub struct Rcu {
    epoch: AtomicU64,
    readers: Slots<Record>,
    retired: SpinLock<Vec<Retired>>,
}

impl Default for Rcu {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Rcu {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rcu")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl Rcu {
    /// A domain without readers.
    pub fn new() -> Self {
        Rcu {
            epoch: AtomicU64::new(1),
            readers: Slots::new(),
            retired: SpinLock::new(Vec::new()),
        }
    }

    /// A record for one reader, usually one per thread.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn register(&self) -> Result<Reader<'_>, Exhausted> {
        let key = self.readers.insert()?;
        let record = self.readers.get(key).ok_or(Exhausted)?;
        Ok(Reader {
            rcu: self,
            key,
            record,
        })
    }

    /// Frees what no reader can see any more, and says how many things that were.
    pub fn collect(&self) -> usize {
        self.advance();
        // ORDERING: Acquire, pairs with the AcqRel in `advance`, which may be another thread's.
        let epoch = self.epoch.load(Ordering::Acquire);
        let mut retired = self.retired.lock();
        let (gone, kept) = core::mem::take(&mut *retired)
            .into_iter()
            .partition(|r| r.epoch + 2 <= epoch);
        *retired = kept;
        drop(retired);
        // Dropped without the lock: it may run anything.
        let gone: Vec<Retired> = gone;
        gone.into_iter().map(|r| drop(r.garbage)).count()
    }

    /// Waits until every section that had begun before has ended. It asks again and again: the end
    /// of a section is a plain store and wakes nobody. Whoever must not wait calls
    /// [`collect`](Self::collect) from time to time instead.
    pub fn synchronize(&self) {
        // ORDERING: SeqCst fence, pairs with the one in `Reader::read`, as in `retire`.
        fence(Ordering::SeqCst);
        let target = self.epoch.load(Ordering::Relaxed) + 2;
        loop {
            self.advance();
            // ORDERING: Acquire, pairs with the AcqRel in `advance`, which may be another thread's.
            if self.epoch.load(Ordering::Acquire) >= target {
                return;
            }
            spin_loop();
        }
    }

    /// Moves the epoch on if all readers that are inside have seen it.
    fn advance(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        // ORDERING: SeqCst fence, pairs with the one in `Reader::read`: either we see the reader's
        // record, or the reader sees whatever was unlinked before.
        fence(Ordering::SeqCst);
        for key in self.readers.keys() {
            // ORDERING: Acquire, pairs with the Release in `Section::drop` and in `Reader::read`:
            // what the reader did in sections that are over is done before anything is freed.
            let epoch_of = |record: &Record| record.0.load(Ordering::Acquire);
            let seen = self.readers.get(key).map_or(0, epoch_of);
            if seen != 0 && seen != epoch {
                return;
            }
        }
        // ORDERING: Release, pairs with the Acquire in `Reader::read`.
        let _ = self
            .epoch
            .compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn retire(&self, garbage: Box<dyn Garbage>) {
        // ORDERING: SeqCst fence, pairs with the one in `Reader::read`: the epoch that we read is
        // not older than that of a reader who could still reach the garbage.
        fence(Ordering::SeqCst);
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.retired.lock().push(Retired { epoch, garbage });
    }
}

/// One reader's record. One section at a time.
#[derive(Debug)]
pub struct Reader<'r> {
    rcu: &'r Rcu,
    key: Key,
    record: &'r Record,
}

impl<'r> Reader<'r> {
    /// Begins a section: what is reached in it stays until it ends.
    #[inline]
    pub fn read<'s>(&'s mut self) -> Section<'s, 'r> {
        // ORDERING: Acquire, pairs with the Release in `advance`.
        let epoch = self.rcu.epoch.load(Ordering::Acquire);
        // ORDERING: Release, pairs with the Acquire in `advance`: it may find this and not the end of
        // our last section.
        self.record.0.store(epoch, Ordering::Release);
        // ORDERING: SeqCst fence, pairs with those in `advance` and `retire`.
        fence(Ordering::SeqCst);
        Section {
            rcu: self.rcu,
            record: self.record,
            reader: PhantomData,
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.rcu.readers.remove(self.key);
    }
}

/// What was reached stays while this lives.
#[derive(Debug)]
#[must_use = "the section ends when this is dropped"]
pub struct Section<'s, 'r> {
    rcu: &'r Rcu,
    record: &'r Record,
    reader: PhantomData<&'s mut Reader<'r>>,
}

impl Drop for Section<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release, pairs with the Acquire in `advance`.
        self.record.0.store(0, Ordering::Release);
    }
}

/// A box that is read without a lock and replaced as a whole; or nothing.
#[derive(Debug)]
pub struct Published<'r, T> {
    rcu: &'r Rcu,
    value: AtomicPtr<T>,
    owns: PhantomData<T>,
}

// SAFETY: readers get `&T`, and whoever replaces or frees the value gets `T`.
unsafe impl<T: Send + Sync> Sync for Published<'_, T> {}
// SAFETY: as for a box.
unsafe impl<T: Send + Sync> Send for Published<'_, T> {}

impl<'r, T: Send + Sync + 'static> Published<'r, T> {
    /// Nothing yet.
    pub fn new(rcu: &'r Rcu) -> Self {
        Published {
            rcu,
            value: AtomicPtr::new(core::ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// What is there now. It stays until the section ends.
    ///
    /// # Panics
    /// If the section is of another [`Rcu`].
    #[inline]
    pub fn get<'s>(&'s self, section: &'s Section<'_, '_>) -> Option<&'s T> {
        assert!(
            core::ptr::eq(self.rcu, section.rcu),
            "section of another Rcu"
        );
        // ORDERING: Acquire, pairs with the Release in `replace`.
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: made from a box by `replace`; if it has been replaced since our section began, its
        // epoch keeps it until the section has ended.
        unsafe { value.as_ref() }
    }

    /// Puts another box there, or nothing. What was there is freed by a later
    /// [`collect`](Rcu::collect), when no section can reach it.
    pub fn replace(&self, value: Option<Box<T>>) {
        let new = value.map_or(core::ptr::null_mut(), Box::into_raw);
        // ORDERING: AcqRel: Release pairs with the Acquire in `get`; Acquire, so that the last
        // writer's box is whole for us to free.
        let old = self.value.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: made from a box here, and the swap gave it to us alone.
            self.rcu.retire(unsafe { Box::from_raw(old) });
        }
    }
}

impl<T> Drop for Published<'_, T> {
    fn drop(&mut self) {
        let old = self.value.load(Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: made from a box by `replace`, and nobody borrows us.
            drop(unsafe { Box::from_raw(old) });
        }
    }
}
