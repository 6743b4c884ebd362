//! Stress tests with threads: the halves of a body stay equal, and no slot is taken twice.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use vmarea_sync::{
    AlignedRwLock, BoxedRwLock, FlaggedVmaLock, Guarded, Key, Lock, Slots, VmaCell, VmaLock,
    VmaLockKind, Wait,
};

const ROUNDS: u64 = if cfg!(miri) { 40 } else { 200_000 };

/// Sleeps on a single mutex and condition variable for all keys.
#[derive(Debug)]
struct CondvarWait;

static SLEEPERS: (Mutex<()>, std::sync::Condvar) = (Mutex::new(()), std::sync::Condvar::new());

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

#[test]
fn lock_keeps_halves_equal() {
    let lock = Lock::<CondvarWait>::default();
    let cell = Guarded::new(lock.id(), [0; 2]);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let mut guard = lock.write();
                    let halves = cell.get_mut(&mut guard);
                    *halves = halves.map(|half| half + 1);
                    let now = halves[0];
                    let guard = guard.downgrade();
                    assert_eq!(*cell.get(&guard), [now; 2]);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let guard = lock.read();
                    let [a, b] = *cell.get(&guard);
                    assert_eq!(a, b);
                }
            });
        }
    });
    assert_eq!(*cell.get(&lock.read()), [2 * ROUNDS; 2]);
}

/// A writer changes, unmaps and maps a VMA; readers take its lock, or `mmap_lock` if that lock is
/// refused.
fn vma_keeps_halves_equal<K: VmaLockKind>() {
    let locks = [
        Lock::<CondvarWait>::default(),
        Lock::<CondvarWait>::default(),
    ];
    let vma = VmaCell::<[u64; 3], K>::default();
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (i, lock) in locks.iter().enumerate() {
                        if let Ok(body) = vma.start_read(lock) {
                            let [owner, a, b] = *body;
                            assert_eq!((owner, a), (i as u64, b));
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                        let guard = lock.read();
                        if let Ok(body) =
                            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                                *vma.get(&guard)
                            }))
                        {
                            assert_eq!(body[1], body[2]);
                        }
                    }
                }
            });
        }
        for round in 0..ROUNDS / 4 {
            let owner = round % 2;
            let lock = &locks[owner as usize];
            let mut guard = lock.write();
            vma.claim(&mut guard);
            *vma.get_mut(&mut guard) = [owner, round, round];
            vma.attach(&mut guard);
            drop(guard);
            for step in 0..4 {
                let mut guard = lock.write();
                vma.start_write(&mut guard);
                let body = vma.get_mut(&mut guard);
                body[1] = round + step;
                body[2] = round + step;
            }
            let mut guard = lock.write();
            vma.detach(&mut guard);
            vma.release(&mut guard);
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!(
        "{}: {} reads by the VMA's lock",
        K::NAME,
        reads.into_inner()
    );
}

#[test]
fn vma_lock() {
    silence_expected_panics();
    vma_keeps_halves_equal::<VmaLock>();
}

#[test]
fn flagged_vma_lock() {
    silence_expected_panics();
    vma_keeps_halves_equal::<FlaggedVmaLock>();
}

#[test]
fn rwlocks() {
    silence_expected_panics();
    vma_keeps_halves_equal::<FlaggedVmaLock<AlignedRwLock>>();
    vma_keeps_halves_equal::<FlaggedVmaLock<BoxedRwLock>>();
}

/// Silences the expected panics of `get`, which occur while another lock owns the cell.
fn silence_expected_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>()
                != Some(&"guard of a lock that does not own the cell")
            {
                hook(info);
            }
        }));
    });
}

#[derive(Debug, Default)]
struct Taken(AtomicBool);

#[test]
fn slots_are_taken_once() {
    let slots = Slots::<Taken>::new();
    thread::scope(|scope| {
        for seed in 0..3 {
            let slots = &slots;
            scope.spawn(move || {
                let mut mine: Vec<Key> = Vec::new();
                for i in 0..ROUNDS {
                    if (i * 7 + seed) % 5 < 3 {
                        let key = slots.insert().expect("memory");
                        let was = slots
                            .get(key)
                            .expect("in use")
                            .0
                            .swap(true, Ordering::Relaxed);
                        assert!(!was, "two threads have the slot");
                        mine.push(key);
                    } else if let Some(key) = mine.pop() {
                        slots
                            .get(key)
                            .expect("in use")
                            .0
                            .store(false, Ordering::Relaxed);
                        assert!(slots.remove(key));
                        assert!(slots.get(key).is_none());
                    }
                }
                mine.into_iter().for_each(|key| {
                    slots
                        .get(key)
                        .expect("in use")
                        .0
                        .store(false, Ordering::Relaxed);
                    slots.remove(key);
                });
            });
        }
    });
    assert!(slots.is_empty());
}
