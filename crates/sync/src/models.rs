//! Loom models of all locking protocols, which are run over all interleavings (see `ci/run loom`).
//!
//! The comment on each model names the error that makes the model fail. Guarded values are loom
//! cells, so an unsynchronized access also makes the model fail.

use crate::primitive::{AtomicU64, Ordering};
use crate::{
    AlignedRwLock, FlaggedVmaLock, Guarded, Lock, Refused, Slots, Spin, SpinLock, VmaCell, VmaLock,
    VmaLockKind, Wait,
};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A number whose accesses are all checked by loom.
#[derive(Debug)]
pub(crate) struct Checked(UnsafeCell<u64>);

// SAFETY: the models check that accesses are synchronized.
unsafe impl Sync for Checked {}

impl Default for Checked {
    fn default() -> Self {
        Checked(UnsafeCell::new(0))
    }
}

impl Checked {
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: loom checks the access.
        self.0.with(|value| unsafe { *value })
    }

    pub(crate) fn set(&mut self, to: u64) {
        // SAFETY: loom checks the access.
        self.0.with_mut(|value| unsafe { *value = to });
    }
}

/// Sleeps on a single condition variable, so wake-ups may be spurious but are never lost.
#[derive(Debug, Default)]
pub(crate) struct CondvarWait;

loom::lazy_static! {
    static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

impl Wait for CondvarWait {
    const SLEEPS: bool = true;

    fn wait(_key: usize, until: &mut dyn FnMut() -> bool) {
        let mut guard = SLEEPERS.0.lock().expect("no thread panicked");
        while !until() {
            guard = SLEEPERS.1.wait(guard).expect("no thread panicked");
        }
    }

    fn wake(_key: usize) {
        drop(SLEEPERS.0.lock());
        SLEEPERS.1.notify_all();
    }
}

struct Mm<W: Wait, K: VmaLockKind> {
    lock: Lock<W>,
    vma: VmaCell<Checked, K>,
}

impl<W: Wait, K: VmaLockKind> Mm<W, K> {
    fn with_vma() -> Arc<Self> {
        let mm = Mm {
            lock: Lock::default(),
            vma: VmaCell::default(),
        };
        let mut guard = mm.lock.write();
        mm.vma.claim(&mut guard);
        mm.vma.attach(&mut guard);
        drop(guard);
        Arc::new(mm)
    }
}

/// Fails if a writer and a reader both hold the lock, or a reader misses the writer's store.
fn readers_and_a_writer<W: Wait>() {
    loom::model(|| {
        let lock = Lock::<W>::default();
        let cell = Guarded::new(lock.id(), Checked::default());
        let shared = Arc::new((lock, cell));
        let other = shared.clone();
        let writer = thread::spawn(move || {
            let mut guard = other.0.write();
            other.1.get_mut(&mut guard).set(1);
            let guard = guard.downgrade();
            assert_eq!(other.1.get(&guard).get(), 1);
        });
        for _ in 0..2 {
            let guard = shared.0.read();
            assert!(shared.1.get(&guard).get() <= 1);
        }
        writer.join().expect("writer thread");
        assert_eq!(shared.1.get(&shared.0.read()).get(), 1);
    });
}

#[test]
fn lock_excludes_by_spinning() {
    readers_and_a_writer::<Spin>();
}

/// Also fails, with a deadlock, if a thread goes to sleep after the last wake-up.
#[test]
fn lock_excludes_and_wakes_sleepers() {
    readers_and_a_writer::<CondvarWait>();
}

/// Fails if two writers read the same count, or if a writer is never woken.
#[test]
fn writers_exclude_each_other() {
    loom::model(|| {
        let lock = Lock::<CondvarWait>::default();
        let cell = Guarded::new(lock.id(), Checked::default());
        let shared = Arc::new((lock, cell));
        let add = |shared: &(Lock<CondvarWait>, Guarded<Checked>)| {
            let mut guard = shared.0.write();
            let value = shared.1.get_mut(&mut guard);
            let now = value.get();
            value.set(now + 1);
        };
        let other = shared.clone();
        let writer = thread::spawn(move || add(&other));
        add(&shared);
        writer.join().expect("writer thread");
        assert_eq!(shared.1.get(&shared.0.read()).get(), 2);
    });
}

/// Fails if `unchanged` returns true although the reader has seen half of a change.
#[test]
fn speculation_detects_a_writer() {
    use crate::primitive::{AtomicU64, Ordering};
    loom::model(|| {
        let shared = Arc::new((Lock::new(), AtomicU64::new(0), AtomicU64::new(0)));
        let other = shared.clone();
        let writer = thread::spawn(move || {
            let _guard = other.0.write();
            other.1.store(1, Ordering::Relaxed);
            other.2.store(1, Ordering::Relaxed);
        });
        if let Some(since) = shared.0.speculate() {
            let both = (
                shared.1.load(Ordering::Relaxed),
                shared.2.load(Ordering::Relaxed),
            );
            assert!(both.0 == both.1 || !shared.0.unchanged(since), "{both:?}");
        }
        writer.join().expect("writer thread");
    });
}

/// Fails if a reader and a writer use a VMA at the same time.
///
/// Two errors are possible: the writer misses the reader's count while the reader misses the
/// writer's sequence number, or the reader sees the sequence number advance but misses the writer's
/// changes.
fn vma_reader_and_writer<W: Wait, K: VmaLockKind + 'static>() {
    loom::model(|| {
        let mm = Mm::<W, K>::with_vma();
        let other = mm.clone();
        let reader = thread::spawn(move || {
            if let Ok(vma) = other.vma.start_read(&other.lock) {
                let seen = vma.get();
                assert!(seen <= 2);
                assert_eq!(vma.get(), seen);
            }
        });
        for value in 1..=2 {
            let mut guard = mm.lock.write();
            mm.vma.start_write(&mut guard);
            mm.vma.get_mut(&mut guard).set(value);
        }
        reader.join().expect("reader thread");
    });
}

#[test]
fn vma_lock_excludes() {
    vma_reader_and_writer::<Spin, VmaLock>();
}

#[test]
fn vma_lock_wakes_its_writer() {
    vma_reader_and_writer::<CondvarWait, VmaLock>();
}

#[test]
fn flagged_vma_lock_excludes() {
    vma_reader_and_writer::<Spin, FlaggedVmaLock>();
}

#[test]
fn rwlock_in_vma_excludes() {
    vma_reader_and_writer::<Spin, FlaggedVmaLock<AlignedRwLock>>();
}

/// Fails if a reader reads a VMA that has moved to another address space.
///
/// The reader has looked up the VMA in its former address space. A writer in the new address space
/// changes the VMA.
fn vma_changes_owner<K: VmaLockKind + 'static>() {
    loom::model(|| {
        let mm = Mm::<Spin, K>::with_vma();
        let other = mm.clone();
        let reader = thread::spawn(move || {
            if let Ok(vma) = other.vma.start_read(&other.lock) {
                assert_eq!(vma.get(), 0, "body of another address space");
            }
        });
        let mut guard = mm.lock.write();
        mm.vma.detach(&mut guard);
        mm.vma.release(&mut guard);
        drop(guard);
        let second = Lock::new();
        let mut guard = second.write();
        mm.vma.claim(&mut guard);
        mm.vma.get_mut(&mut guard).set(7);
        mm.vma.attach(&mut guard);
        drop(guard);
        reader.join().expect("reader thread");
        assert_eq!(mm.vma.start_read(&second).map(|vma| vma.get()), Ok(7));
        assert_eq!(mm.vma.start_read(&mm.lock).map(|_| ()), Err(Refused::Gone));
    });
}

#[test]
fn vma_lock_follows_its_owner() {
    vma_changes_owner::<VmaLock>();
}

#[test]
fn flagged_vma_lock_follows_its_owner() {
    vma_changes_owner::<FlaggedVmaLock>();
}

/// Fails if a VMA is read before the write section that attaches it has ended.
fn vma_is_attached<K: VmaLockKind + 'static>() {
    loom::model(|| {
        let mm = Arc::new(Mm {
            lock: Lock::<Spin>::default(),
            vma: VmaCell::<Checked, K>::default(),
        });
        let other = mm.clone();
        let reader = thread::spawn(move || {
            if let Ok(vma) = other.vma.start_read(&other.lock) {
                assert_eq!(vma.get(), 3);
            }
        });
        let mut guard = mm.lock.write();
        mm.vma.claim(&mut guard);
        mm.vma.get_mut(&mut guard).set(1);
        mm.vma.attach(&mut guard);
        mm.vma.get_mut(&mut guard).set(3);
        drop(guard);
        reader.join().expect("reader thread");
    });
}

#[test]
fn vma_lock_opens_with_the_section() {
    vma_is_attached::<VmaLock>();
}

#[test]
fn flagged_vma_lock_opens_with_the_section() {
    vma_is_attached::<FlaggedVmaLock>();
}

/// Fails if a writer does not wait for a reader that has released `mmap_lock` but still holds the
/// VMA lock.
///
/// The reader has locked the VMA under `mmap_lock`. The model also runs with the last sequence
/// number, at which VMAs remain write-locked.
#[test]
fn read_locked_outlives_mmap_lock() {
    for sections in [0, 6] {
        loom::model(move || {
            let mm = Mm::<Spin, VmaLock>::with_vma();
            for _ in 0..sections {
                mm.vma.start_write(&mut mm.lock.write());
            }
            let other = mm.clone();
            let reader = thread::spawn(move || {
                let guard = other.lock.read();
                let vma = other.vma.start_read_locked(&guard);
                drop(guard);
                if let Ok(vma) = vma {
                    assert!(vma.get() <= 1);
                } else {
                    assert!(sections > 0);
                }
            });
            let mut guard = mm.lock.write();
            mm.vma.start_write(&mut guard);
            mm.vma.get_mut(&mut guard).set(1);
            drop(guard);
            reader.join().expect("reader thread");
        });
    }
}

/// Fails if two threads get the same slot, a slot is lost (ABA), or a stale key is accepted.
///
/// In the ABA case the free list loses a slot because its head is removed and inserted again during
/// another thread's `pop`.
#[test]
fn slots_are_taken_once() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Checked>::new());
        let first = slots.insert().expect("memory");
        let second = slots.insert().expect("memory");
        assert!(slots.remove(first) && slots.remove(second));
        let other = slots.clone();
        // This thread takes both slots and frees the first: the list then has the same head, but
        // another tail.
        let thread = thread::spawn(move || {
            let a = other.insert().expect("memory");
            let b = other.insert().expect("memory");
            other.remove(a);
            b
        });
        let a = slots.insert().expect("memory");
        let b = thread.join().expect("thread");
        let c = slots.insert().expect("memory");
        assert!(a.index() != b.index() && b.index() != c.index() && a.index() != c.index());
        assert!(slots.get(first).is_none() && slots.get(a).is_some() && slots.get(b).is_some());
        assert_eq!(slots.len(), 3);
    });
}

/// Fails if a reverse-map walk sees an outdated end of a VMA and misses a page above that end.
///
/// A writer moves the end up under the address space's lock, and a fault then maps a page below the
/// new end. The walk takes neither the address space's lock nor the VMA's lock.
#[test]
fn a_walk_sees_the_end_above_its_page() {
    loom::model(|| {
        let lock = Arc::new(Lock::<Spin>::default());
        let cell = Arc::new(VmaCell::<(), VmaLock>::default());
        let mut guard = lock.write();
        cell.claim(&mut guard);
        cell.attach(&mut guard);
        drop(guard);
        let (end, page) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
        let writer = {
            let (lock, cell, end) = (lock.clone(), cell.clone(), end.clone());
            thread::spawn(move || {
                let mut guard = lock.write();
                cell.start_write(&mut guard);
                end.store(2, Ordering::Relaxed);
            })
        };
        let fault = {
            let (lock, cell, end, page) = (lock.clone(), cell.clone(), end.clone(), page.clone());
            thread::spawn(move || {
                if let Ok(read) = cell.start_read(&*lock) {
                    if end.load(Ordering::Relaxed) == 2 {
                        page.store(1, Ordering::Release);
                    }
                    drop(read);
                }
            })
        };
        if page.load(Ordering::Acquire) == 1 {
            assert_eq!(end.load(Ordering::Relaxed), 2);
        }
        writer.join().expect("thread");
        fault.join().expect("thread");
    });
}

/// Fails if two lanes hand out the same slot, or one lane hands out a slot twice.
#[test]
fn slots_of_two_lanes_are_taken_once() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Checked>::new());
        let first = slots.insert_in(1).expect("memory");
        assert!(slots.remove_in(first, 1));
        let other = slots.clone();
        let thread = thread::spawn(move || other.insert().expect("memory"));
        let a = slots.insert_in(1).expect("memory");
        let b = thread.join().expect("thread");
        assert_ne!(a.index(), b.index());
        assert_eq!(slots.len(), 2);
    });
}

/// Fails if a lane publishes its new slots too early.
///
/// Slots with lower indices, which another lane initializes at the same time, must be published
/// first.
#[test]
fn lanes_grow_concurrently() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Checked>::new());
        let other = slots.clone();
        let thread = thread::spawn(move || {
            let key = other.insert().expect("memory");
            assert_eq!(other.get(key).map(Checked::get), Some(0));
            key
        });
        let a = slots.insert_in(0).expect("memory");
        for key in slots.keys() {
            assert_eq!(slots.get(key).map(Checked::get), Some(0));
        }
        let b = thread.join().expect("thread");
        assert_ne!(a.index(), b.index());
        assert_eq!(slots.len(), 2);
    });
}

/// Fails if both threads succeed in freeing the same slot, which is then in the free list twice.
#[test]
fn slots_are_freed_once() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Checked>::new());
        let key = slots.insert().expect("memory");
        let other = slots.clone();
        let thread = thread::spawn(move || other.remove(key));
        let here = slots.remove(key);
        let there = thread.join().expect("thread");
        assert!(here != there);
        let next = [(); 2].map(|()| slots.insert().expect("memory").index());
        assert_ne!(next[0], next[1]);
    });
}

/// Fails if two threads are in the critical section at the same time.
#[test]
fn spin_lock_excludes() {
    loom::model(|| {
        let lock = Arc::new(SpinLock::new(Checked::default()));
        let other = lock.clone();
        let add = |value: &mut Checked| value.set(value.get() + 1);
        let thread = thread::spawn(move || add(&mut other.lock()));
        add(&mut lock.lock());
        thread.join().expect("thread");
        assert_eq!(lock.lock().get(), 2);
    });
}
