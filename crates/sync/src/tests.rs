//! Tests of limits and refusals. The limits are small in tests, so that tests can reach them.

use crate::{
    AlignedRwLock, BoxedRwLock, FlaggedVmaLock, Guarded, Lock, MmapLockOnly, Refused, Slots,
    VmaCell, VmaLock, VmaLockKind, raw,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::vec::Vec;

fn panics(run: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

/// Lets other threads run until `done` returns true, for at most a minute: a lock that makes a test
/// wait for ever must make it fail.
#[track_caller]
fn wait_for(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waits for ever");
        thread::yield_now();
    }
}

fn attached<K: VmaLockKind>(lock: &Lock) -> VmaCell<u64, K> {
    let cell = VmaCell::default();
    let mut guard = lock.write();
    cell.claim(&mut guard);
    cell.attach(&mut guard);
    cell
}

#[test]
fn reader_beyond_the_limit_waits() {
    let lock = Lock::new();
    let mut guards: Vec<_> = (0..raw::MAX_READERS).map(|_| lock.read()).collect();
    assert!(lock.try_read().is_none() && lock.try_write().is_none());
    let got = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(lock.read());
            got.store(true, Ordering::SeqCst);
        });
        thread::yield_now();
        assert!(!got.load(Ordering::SeqCst));
        guards.pop();
    });
    assert!(got.into_inner());
    drop(guards);
    assert!(lock.try_write().is_some());
}

#[test]
fn a_waiting_writer_keeps_new_readers_out() {
    let lock = Lock::new();
    let reader = lock.read();
    thread::scope(|scope| {
        let writer = scope.spawn(|| drop(lock.write()));
        wait_for(|| lock.try_read().is_none());
        drop(reader);
        writer.join().expect("writer thread");
    });
    assert!(
        lock.try_read().is_some(),
        "the writer's PENDING bit is cleared"
    );
}

#[test]
fn downgrade_keeps_writers_out_and_advances_the_sequence() {
    let lock = Lock::new();
    let since = lock.speculate().expect("no writer");
    assert!(lock.unchanged(since));
    let guard = lock.write();
    assert!(lock.speculate().is_none() && !lock.unchanged(since));
    let guard = guard.downgrade();
    assert!(lock.try_write().is_none() && lock.try_read().is_some());
    assert!(lock.speculate().is_some_and(|now| now != since));
    drop(guard);
    assert!(lock.try_write().is_some());
}

#[test]
fn cells_reject_guards_of_other_locks() {
    let (a, b) = (Lock::new(), Lock::new());
    let cell = Guarded::new(a.id(), 1);
    assert!(panics(|| assert_eq!(*cell.get(&b.read()), 1)));
    assert_eq!(*cell.get(&a.read()), 1);
    let vma = attached::<VmaLock>(&a);
    assert!(panics(|| vma.start_write(&mut b.write())));
    assert!(panics(|| vma.claim(&mut b.write())));
    assert!(panics(|| vma.release(&mut a.write())), "attached");
    assert!(panics(|| vma.attach(&mut a.write())), "attached already");
    assert!(
        panics(|| *vma.get_mut(&mut a.write()) = 1),
        "no start_write"
    );
    assert!(panics(|| drop(vma.start_read_locked(&b.read()))));
    assert_eq!(vma.start_read(&b).map(|vma| *vma), Err(Refused::Gone));
    assert_eq!(vma.start_read(&a).map(|vma| *vma), Ok(0));
}

#[test]
fn too_many_readers_fall_back_to_mmap_lock() {
    let lock = Lock::new();
    let vma = attached::<VmaLock>(&lock);
    let readers = [
        vma.start_read(&lock).expect("free"),
        vma.start_read(&lock).expect("free"),
    ];
    assert_eq!(vma.start_read(&lock).map(|_| ()), Err(Refused::TooMany));
    let mmap_lock = lock.read();
    assert_eq!(
        vma.start_read_locked(&mmap_lock).map(|_| ()),
        Err(Refused::TooMany)
    );
    assert_eq!(*vma.get(&mmap_lock), 0, "fallback to mmap_lock");
    drop((readers, mmap_lock));
    assert!(vma.start_read(&lock).is_ok());
}

/// Runs one scenario for a kind of lock. A kind that has no readers must refuse every read.
fn life_of_a_vma<K: VmaLockKind>() {
    let lock = Lock::new();
    let vma = VmaCell::<u64, K>::default();
    let reads = |expected: Result<u64, Refused>| {
        let expected = if K::NAME == MmapLockOnly::NAME {
            Err(Refused::NoLock)
        } else {
            expected
        };
        assert_eq!(
            vma.start_read(&lock).map(|vma| *vma),
            expected,
            "{}",
            K::NAME
        );
    };
    let mut guard = lock.write();
    vma.claim(&mut guard);
    *vma.get_mut(&mut guard) = 1;
    vma.attach(&mut guard);
    assert!(
        vma.start_read(&lock).is_err(),
        "{}: before the section ends",
        K::NAME
    );
    drop(guard);
    reads(Ok(1));
    let mut guard = lock.write();
    reads(Ok(1));
    vma.start_write(&mut guard);
    vma.start_write(&mut guard);
    *vma.get_mut(&mut guard) = 2;
    assert!(vma.start_read(&lock).is_err());
    let guard = guard.downgrade();
    reads(Ok(2));
    assert_eq!(*vma.get(&guard), 2);
    let under = vma.start_read_locked(&guard);
    drop(guard);
    assert_eq!(
        under.as_deref().ok(),
        (K::NAME != MmapLockOnly::NAME).then_some(&2)
    );
    drop(under);
    let mut guard = lock.write();
    vma.detach(&mut guard);
    drop(guard);
    reads(Err(Refused::Gone));
    vma.release(&mut lock.write());
    reads(Err(Refused::Gone));
    let second = Lock::new();
    let mut guard = second.write();
    vma.claim(&mut guard);
    assert_eq!(*vma.get(&guard), 2, "the previous body is left in place");
    vma.attach(&mut guard);
    drop(guard);
    reads(Err(Refused::Gone));
}

#[test]
fn every_kind_of_vma_lock() {
    life_of_a_vma::<MmapLockOnly>();
    life_of_a_vma::<FlaggedVmaLock<BoxedRwLock>>();
    life_of_a_vma::<FlaggedVmaLock<AlignedRwLock>>();
    life_of_a_vma::<FlaggedVmaLock>();
    life_of_a_vma::<VmaLock>();
}

/// Checks that a writer waits while a reader keeps the VMA locked.
fn writer_waits_for_reader<K: VmaLockKind>() {
    let lock = Lock::new();
    let vma = attached::<K>(&lock);
    let reader = vma.start_read(&lock).expect("free");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            vma.detach(&mut lock.write());
            done.store(true, Ordering::SeqCst);
        });
        wait_for(|| done.load(Ordering::SeqCst) || lock.try_read().is_none());
        for _ in 0..100 {
            thread::yield_now();
        }
        assert!(!done.load(Ordering::SeqCst));
        wait_for(|| vma.start_read(&lock).is_err());
        assert_eq!(*reader, 0);
        drop(reader);
    });
    assert!(done.into_inner());
    assert_eq!(vma.start_read(&lock).map(|_| ()), Err(Refused::Gone));
}

#[test]
fn writers_wait_for_readers() {
    writer_waits_for_reader::<VmaLock>();
    writer_waits_for_reader::<FlaggedVmaLock>();
    writer_waits_for_reader::<FlaggedVmaLock<BoxedRwLock>>();
    writer_waits_for_reader::<FlaggedVmaLock<AlignedRwLock>>();
}

/// Checks a lock at its last sequence number, which is 9 in tests.
///
/// After the fourth write section, a locked VMA remains locked for readers without `mmap_lock`; all
/// other operations continue to work.
fn sequence_stops<K: VmaLockKind>() {
    let lock = Lock::new();
    let (locked, other) = (attached::<K>(&lock), attached::<K>(&lock));
    for value in 1..20 {
        let mut guard = lock.write();
        locked.start_write(&mut guard);
        *locked.get_mut(&mut guard) = value;
        assert!(locked.start_read(&lock).is_err());
    }
    assert_eq!(
        locked.start_read(&lock).map(|_| ()),
        Err(Refused::WriteLocked)
    );
    assert!(lock.speculate().is_none());
    let guard = lock.read();
    assert_eq!(*locked.get(&guard), 19);
    assert!(locked.start_read_locked(&guard).is_err());
    let reader = other.start_read(&lock).expect("not write-locked");
    drop(guard);
    thread::scope(|scope| {
        let writer = scope.spawn(|| other.start_write(&mut lock.write()));
        wait_for(|| writer.is_finished() || lock.try_read().is_none());
        assert!(!writer.is_finished(), "still waits for readers");
        drop(reader);
    });
    assert!(other.start_read(&lock).is_err());
}

#[test]
fn sequence_number_stops_at_its_last_value() {
    sequence_stops::<VmaLock>();
    sequence_stops::<FlaggedVmaLock>();
}

#[test]
fn slots_are_retired_after_their_last_generation() {
    let slots = Slots::<u64>::new();
    let keys: Vec<_> = (0..20)
        .map(|_| {
            let key = slots.insert().expect("memory");
            assert!(slots.remove(key) && !slots.remove(key));
            key
        })
        .collect();
    assert!(keys.iter().all(|key| slots.get(*key).is_none()));
    assert_eq!(
        keys.iter().filter(|key| key.index() == 0).count(),
        3,
        "three generations each"
    );
    assert!(
        (1..keys.len()).all(|i| !keys[..i].contains(&keys[i])),
        "no key is repeated"
    );
    assert!(slots.is_empty());
}

/// Checks that a lane without slots takes slots freed to other lanes before the table grows.
///
/// A slot can be freed to a lane other than the one from which it was taken.
#[test]
fn lanes_take_slots_from_each_other() {
    let slots = Slots::<u64>::new();
    let keys: Vec<_> = (0..100)
        .map(|lane| slots.insert_in(lane).expect("memory"))
        .collect();
    let mut indices: Vec<u32> = keys.iter().map(|key| key.index()).collect();
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), 100, "no slot twice");
    assert_eq!(slots.len(), 100);
    for (lane, key) in keys.into_iter().enumerate() {
        assert!(slots.remove_in(key, lane + 5));
    }
    assert!(slots.is_empty());
    // Each of the other lanes may have reserved one slot that has never been used.
    let highest = indices[99] + 31;
    for _ in 0..100 {
        assert!(slots.insert_in(3).expect("memory").index() <= highest);
    }
    assert_eq!(slots.len(), 100);
}

#[test]
fn keys_are_nonzero_and_convert_to_bits_and_back() {
    use crate::Key;
    let slots = Slots::<u64>::new();
    let keys: Vec<_> = (0..300).map(|_| slots.insert().expect("memory")).collect();
    assert_eq!(slots.len(), 300);
    assert!(slots.keys().eq(keys.iter().copied()));
    for key in keys {
        assert_eq!(Key::from_bits(key.to_bits()), Some(key));
        assert_eq!(slots.key_at(key.index()), Some(key));
        assert!(key.is_valid());
        let even = Key::from_bits(key.to_bits() + (1 << 32)).expect("not zero");
        assert!(
            !even.is_valid() && !slots.remove(even),
            "an even generation is not in use"
        );
    }
    assert_eq!(Key::from_bits(0), None);
    assert!(slots.key_at(u32::MAX).is_none());
}

#[test]
fn lock_sizes() {
    assert_eq!(size_of::<VmaLock>(), 16);
    assert_eq!(size_of::<VmaCell<[u64; 4]>>(), 48);
    assert_eq!(size_of::<VmaCell<[u64; 4], FlaggedVmaLock>>(), 56);
    assert!(size_of::<VmaCell<[u64; 4], FlaggedVmaLock<AlignedRwLock>>>() >= 128);
}

#[cfg(all(feature = "std", debug_assertions))]
mod ranks {
    use super::*;
    use crate::{Rank, Spin, Subclass};

    #[test]
    fn taking_locks_out_of_rank_order_panics() {
        let (outer, inner) = (
            Lock::<Spin>::with_rank(Rank(1)),
            Lock::<Spin>::with_rank(Rank(2)),
        );
        drop((outer.read(), inner.read()));
        let under = inner.read();
        assert!(panics(|| drop(outer.read())));
        assert!(
            outer.try_read().is_some(),
            "try_read cannot complete a deadlock"
        );
        drop(under);
        drop((outer.write(), inner.write()));
        let guard = outer.read();
        assert!(panics(|| drop(outer.read())), "the same rank twice");
        drop(guard);
        let other = Lock::<Spin>::with_rank(Rank(1));
        let guard = outer.write();
        drop((other.read_nested(), inner.read()));
        drop(other.write_nested());
        drop(guard);
        let under = inner.read();
        assert!(panics(|| drop(outer.read_nested())));
        assert!(panics(|| drop(outer.write_nested())));
        drop(under);
    }

    #[test]
    fn waiting_for_mmap_lock_while_reading_a_vma_panics() {
        let lock = Lock::<Spin>::with_rank(Rank(1));
        let cells: [VmaCell<u64>; 2] = Default::default();
        let mut guard = lock.write();
        for cell in &cells {
            cell.claim(&mut guard);
            cell.attach(&mut guard);
        }
        drop(guard);
        let reader = cells[0].start_read(&lock).expect("free");
        assert!(panics(|| drop(lock.read())));
        assert!(panics(|| drop(lock.write())));
        drop(reader);
        let guard = lock.read();
        let first = cells[0].start_read_locked(&guard).expect("free");
        let second = cells[1]
            .start_read_locked_nested(&guard, Subclass::SINGLE_DEPTH)
            .expect("free");
        assert!(
            panics(|| drop(cells[0].start_read_locked(&guard))),
            "NORMAL after SINGLE_DEPTH"
        );
        drop((first, second, guard));
        drop(lock.write());
    }
}
