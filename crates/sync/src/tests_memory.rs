//! Tests of memory that is given back.

use crate::{BigReaderLock, Key, Slots};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::vec::Vec;

/// A value that owns memory, and counts how many of its kind exist.
#[derive(Debug)]
struct Counted(#[expect(dead_code, reason = "Miri reports it if it leaks")] std::string::String);

static EXIST: AtomicUsize = AtomicUsize::new(0);

impl Default for Counted {
    fn default() -> Self {
        EXIST.fetch_add(1, Ordering::Relaxed);
        Counted(std::string::String::from("a value on the heap"))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        EXIST.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Chunks have two slots in tests.
#[test]
fn chunks_without_slots_in_use_are_freed() {
    let exist = || EXIST.load(Ordering::Relaxed);
    let mut slots = Slots::<Counted>::new();
    let keys: Vec<Key> = (0..40)
        .map(|lane| match lane % 3 {
            0 => slots.insert(),
            _ => slots.insert_in(lane),
        })
        .map(|key| key.expect("memory"))
        .collect();
    let kept: Vec<Key> = keys.iter().copied().step_by(9).collect();
    for key in keys.iter().filter(|key| !kept.contains(key)) {
        assert!(slots.remove(*key));
    }
    let bound = slots.bound();
    let mut in_use = 0;
    slots.shrink(|_| in_use += 1);
    assert_eq!(in_use, kept.len());
    let mut chunks: Vec<u32> = kept.iter().map(|key| key.index() / 2).collect();
    chunks.sort_unstable();
    chunks.dedup();
    // One more stands for those that were freed.
    assert_eq!(exist(), 2 * (chunks.len() + 1));
    assert_eq!(slots.bound(), bound);
    for key in &keys {
        assert_eq!(slots.get(*key).is_some(), kept.contains(key), "{key:?}");
    }

    // The free slots of the chunks that were kept come first, then the lowest chunks.
    let more: Vec<Key> = (0..30).map(|_| slots.insert().expect("memory")).collect();
    assert!(more.iter().all(|key| !keys.contains(key)), "a key twice");
    let mut indices: Vec<u32> = kept.iter().chain(&more).map(|key| key.index()).collect();
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), kept.len() + 30, "no slot twice");
    assert!(more.iter().all(|key| key.index() < bound), "holes are left");
    drop(slots);
    assert_eq!(exist(), 0);
}

#[test]
fn no_key_is_repeated_after_its_chunk_was_freed() {
    let mut slots = Slots::<u64>::new();
    let mut keys: Vec<Key> = Vec::new();
    for _ in 0..20 {
        let key = slots.insert().expect("memory");
        assert!(!keys.contains(&key), "{key:?} twice");
        keys.push(key);
        assert!(slots.remove(key));
        slots.shrink(|_| unreachable!("no slot is in use"));
        assert!(keys.iter().all(|key| slots.get(*key).is_none()));
    }
    // A slot has three generations; both slots of a chunk go on from the last one of either.
    assert!(keys.iter().all(|key| key.index() < 10), "{keys:?}");
}

/// Miri reports a use of freed memory.
#[test]
fn threads_share_slots_that_are_given_back() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 2000 };
    let slots = BigReaderLock::<_, 2>::new(Slots::<AtomicUsize>::new());
    thread::scope(|scope| {
        for lane in 0..2 {
            let slots = &slots;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let inside = slots.read(lane);
                    let keys = [(); 5].map(|()| inside.insert_in(lane).expect("memory"));
                    for (at, key) in keys.iter().enumerate() {
                        let value = inside.get(*key).expect("in use");
                        value.store(round + at, Ordering::Relaxed);
                    }
                    drop(inside);
                    if round % 7 == lane {
                        slots.write().shrink(|_| ());
                    }
                    let inside = slots.read(lane);
                    for (at, key) in keys.iter().enumerate() {
                        let value = inside.get(*key).expect("in use");
                        assert_eq!(value.load(Ordering::Relaxed), round + at);
                        assert!(inside.remove_in(*key, lane));
                    }
                }
            });
        }
    });
    assert!(slots.read(0).is_empty());
}
