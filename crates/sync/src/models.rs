//! Models of every protocol, run by loom over all interleavings (see `ci/loom.sh`). Each says what
//! would go wrong. Bodies are loom's cells, so that a read beside a write ends the model.

use crate::primitive::{AtomicU64, Ordering};
use crate::{
    AlignedRwLock, FlaggedVmaLock, Guarded, Lock, Refused, Slots, Spin, SpinLock, VmaCell, VmaLock,
    VmaLockKind, Wait,
};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A number whose every access loom watches.
#[derive(Debug)]
struct Watched(UnsafeCell<u64>);

// SAFETY: that it is not is what the models would find.
unsafe impl Sync for Watched {}

impl Default for Watched {
    fn default() -> Self {
        Watched(UnsafeCell::new(0))
    }
}

impl Watched {
    fn get(&self) -> u64 {
        // SAFETY: loom checks it.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&mut self, to: u64) {
        // SAFETY: loom checks it.
        self.0.with_mut(|value| unsafe { *value = to });
    }
}

/// Sleeps under one condition variable, whatever the key: more wake-ups than needed, none fewer.
#[derive(Debug, Default)]
struct Sleep;

loom::lazy_static! {
    static ref BED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

impl Wait for Sleep {
    const SLEEPS: bool = true;

    fn wait(_key: usize, until: &mut dyn FnMut() -> bool) {
        let mut bed = BED.0.lock().expect("nobody panicked");
        while !until() {
            bed = BED.1.wait(bed).expect("nobody panicked");
        }
    }

    fn wake(_key: usize) {
        drop(BED.0.lock());
        BED.1.notify_all();
    }
}

struct Mm<W: Wait, K: VmaLockKind> {
    lock: Lock<W>,
    vma: VmaCell<Watched, K>,
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

/// Would go wrong: a writer beside a reader, or a reader who does not see what the writer left.
fn readers_and_a_writer<W: Wait>() {
    loom::model(|| {
        let lock = Lock::<W>::default();
        let cell = Guarded::new(lock.id(), Watched::default());
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
        writer.join().expect("the writer ends");
        assert_eq!(shared.1.get(&shared.0.read()).get(), 1);
    });
}

#[test]
fn lock_excludes_by_spinning() {
    readers_and_a_writer::<Spin>();
}

/// Would go wrong besides: a thread goes to sleep after the last wake-up, and the model deadlocks.
#[test]
fn lock_excludes_and_wakes_sleepers() {
    readers_and_a_writer::<Sleep>();
}

/// Would go wrong: two writers count the same, or one sleeps on.
#[test]
fn two_writers_take_turns() {
    loom::model(|| {
        let lock = Lock::<Sleep>::default();
        let cell = Guarded::new(lock.id(), Watched::default());
        let shared = Arc::new((lock, cell));
        let add = |shared: &(Lock<Sleep>, Guarded<Watched>)| {
            let mut guard = shared.0.write();
            let value = shared.1.get_mut(&mut guard);
            let now = value.get();
            value.set(now + 1);
        };
        let other = shared.clone();
        let writer = thread::spawn(move || add(&other));
        add(&shared);
        writer.join().expect("the writer ends");
        assert_eq!(shared.1.get(&shared.0.read()).get(), 2);
    });
}

/// Would go wrong: `unchanged` is true, and the reader has seen half of a change.
#[test]
fn speculation_sees_all_or_nothing() {
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
        writer.join().expect("the writer ends");
    });
}

/// Would go wrong: the writer does not see the reader's count and the reader not the writer's
/// number; or the number moves on, and the reader sees the number but not what the section did.
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
        reader.join().expect("the reader ends");
    });
}

#[test]
fn vma_lock_excludes() {
    vma_reader_and_writer::<Spin, VmaLock>();
}

#[test]
fn vma_lock_wakes_its_writer() {
    vma_reader_and_writer::<Sleep, VmaLock>();
}

#[test]
fn flagged_vma_lock_excludes() {
    vma_reader_and_writer::<Spin, FlaggedVmaLock>();
}

#[test]
fn rwlock_in_vma_excludes() {
    vma_reader_and_writer::<Spin, FlaggedVmaLock<AlignedRwLock>>();
}

/// Would go wrong: a reader that has found the VMA in one address space reads it while it belongs to
/// another, whose writer changes it.
fn vma_changes_hands<K: VmaLockKind + 'static>() {
    loom::model(|| {
        let mm = Mm::<Spin, K>::with_vma();
        let other = mm.clone();
        let reader = thread::spawn(move || {
            if let Ok(vma) = other.vma.start_read(&other.lock) {
                assert_eq!(vma.get(), 0, "the body of another address space");
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
        reader.join().expect("the reader ends");
        assert_eq!(mm.vma.start_read(&second).map(|vma| vma.get()), Ok(7));
        assert_eq!(mm.vma.start_read(&mm.lock).map(|_| ()), Err(Refused::Gone));
    });
}

#[test]
fn vma_lock_follows_its_owner() {
    vma_changes_hands::<VmaLock>();
}

#[test]
fn flagged_vma_lock_follows_its_owner() {
    vma_changes_hands::<FlaggedVmaLock>();
}

/// Would go wrong: a VMA is read before the section that made it has ended.
fn vma_appears<K: VmaLockKind + 'static>() {
    loom::model(|| {
        let mm = Arc::new(Mm {
            lock: Lock::<Spin>::default(),
            vma: VmaCell::<Watched, K>::default(),
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
        reader.join().expect("the reader ends");
    });
}

#[test]
fn vma_lock_opens_with_the_section() {
    vma_appears::<VmaLock>();
}

#[test]
fn flagged_vma_lock_opens_with_the_section() {
    vma_appears::<FlaggedVmaLock>();
}

/// Would go wrong: a reader got its lock under `mmap_lock`, lets that go, and a writer does not wait
/// for it; at the end of the numbers all the more, where "locked" is not taken back.
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
            reader.join().expect("the reader ends");
        });
    }
}

/// Would go wrong: two threads get one slot; the free list loses one when its head goes and comes
/// back between another thread's two looks; a key of an earlier life is good.
#[test]
fn slots_are_had_once() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Watched>::new());
        let first = slots.insert().expect("memory");
        let second = slots.insert().expect("memory");
        assert!(slots.remove(first) && slots.remove(second));
        let other = slots.clone();
        // Takes both and gives the first back: the list's head is what it was, the rest is not.
        let thread = thread::spawn(move || {
            let a = other.insert().expect("memory");
            let b = other.insert().expect("memory");
            other.remove(a);
            b
        });
        let a = slots.insert().expect("memory");
        let b = thread.join().expect("it ends");
        let c = slots.insert().expect("memory");
        assert!(a.index() != b.index() && b.index() != c.index() && a.index() != c.index());
        assert!(slots.get(first).is_none() && slots.get(a).is_some() && slots.get(b).is_some());
        assert_eq!(slots.len(), 3);
    });
}

/// A VMA's end moves with no lock but the mm's, a fault puts a page below the new end, and a walk of the
/// reverse map, which holds neither, is asked for that page. Would go wrong: the walk sees the old end
/// and leaves the page out.
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
        writer.join().expect("it ends");
        fault.join().expect("it ends");
    });
}

/// Would go wrong: a slot that one lane takes from another is had twice, or a lane hands out what it
/// has handed out.
#[test]
fn slots_of_two_lanes_are_had_once() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Watched>::new());
        let first = slots.insert_in(1).expect("memory");
        assert!(slots.remove_in(first, 1));
        let other = slots.clone();
        let thread = thread::spawn(move || other.insert().expect("memory"));
        let a = slots.insert_in(1).expect("memory");
        let b = thread.join().expect("it ends");
        assert_ne!(a.index(), b.index());
        assert_eq!(slots.len(), 2);
    });
}

/// Would go wrong: a lane shows its new slots before those of another, which are made at the same time
/// and come first, are there.
#[test]
fn two_lanes_grow_at_once() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Watched>::new());
        let other = slots.clone();
        let thread = thread::spawn(move || {
            let key = other.insert().expect("memory");
            assert_eq!(other.get(key).map(Watched::get), Some(0));
            key
        });
        let a = slots.insert_in(0).expect("memory");
        for key in slots.keys() {
            assert_eq!(slots.get(key).map(Watched::get), Some(0));
        }
        let b = thread.join().expect("it ends");
        assert_ne!(a.index(), b.index());
        assert_eq!(slots.len(), 2);
    });
}

/// Would go wrong: both threads end the same life, and the slot is twice in the free list.
#[test]
fn a_slot_ends_once() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Watched>::new());
        let key = slots.insert().expect("memory");
        let other = slots.clone();
        let thread = thread::spawn(move || other.remove(key));
        let here = slots.remove(key);
        let there = thread.join().expect("it ends");
        assert!(here != there);
        let next = [(); 2].map(|()| slots.insert().expect("memory").index());
        assert_ne!(next[0], next[1]);
    });
}

/// Would go wrong: two threads in the section.
#[test]
fn spin_lock_excludes() {
    loom::model(|| {
        let lock = Arc::new(SpinLock::new(Watched::default()));
        let other = lock.clone();
        let add = |value: &mut Watched| value.set(value.get() + 1);
        let thread = thread::spawn(move || add(&mut other.lock()));
        add(&mut lock.lock());
        thread.join().expect("it ends");
        assert_eq!(lock.lock().get(), 2);
    });
}
