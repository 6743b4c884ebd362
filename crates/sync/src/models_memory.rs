//! Loom models of memory that is allocated on first use, and of memory that is given back.
//!
//! The comment on each model names the error that makes the model fail.

use crate::models::{Checked, CondvarWait};
use crate::{BigReaderLock, OnceBox, Slots};
use loom::sync::Arc;
use loom::thread;

/// Fails if two threads get different values, or a thread gets one that is not initialized.
#[test]
fn a_value_is_made_once() {
    loom::model(|| {
        let cell = Arc::new(OnceBox::<Checked>::new());
        let other = cell.clone();
        let thread = thread::spawn(move || {
            let value = other.get_or_make().expect("memory");
            assert_eq!(value.get(), 0);
            core::ptr::from_ref(value).addr()
        });
        if let Some(value) = cell.get() {
            assert_eq!(value.get(), 0);
        }
        let here = core::ptr::from_ref(cell.get_or_make().expect("memory")).addr();
        assert_eq!(here, thread.join().expect("thread"));
    });
}

/// Fails if a writer does not wait for the readers of both lanes, or a reader does not wait for the
/// writer.
#[test]
fn big_reader_lock_excludes() {
    loom::model(|| {
        let lock = Arc::new(BigReaderLock::<_, 2, CondvarWait>::new(Checked::default()));
        let other = lock.clone();
        let reader = thread::spawn(move || {
            let seen = other.read(1);
            let first = seen.get();
            assert_eq!(seen.get(), first);
        });
        lock.write().set(1);
        assert_eq!(lock.read(0).get(), 1);
        reader.join().expect("thread");
    });
}

/// Fails if two writers take the lanes in different orders, or wait for each other otherwise.
#[test]
fn big_writers_exclude_each_other() {
    loom::model(|| {
        let lock = Arc::new(BigReaderLock::<_, 2, CondvarWait>::new(Checked::default()));
        let add = |lock: &BigReaderLock<Checked, 2, CondvarWait>| {
            let mut value = lock.write();
            let now = value.get();
            value.set(now + 1);
        };
        let other = lock.clone();
        let writer = thread::spawn(move || add(&other));
        add(&lock);
        writer.join().expect("thread");
        assert_eq!(lock.read(0).get(), 2);
    });
}

/// Fails if a thread uses a slot whose chunk has been freed, or a key becomes valid again.
///
/// One thread looks up a key that the other frees, together with the chunk; then the chunk is used
/// again.
#[test]
fn slots_are_given_back_when_nobody_is_inside() {
    loom::model(|| {
        let slots = BigReaderLock::<_, 2, CondvarWait>::new(Slots::<Checked>::new());
        let key = slots.read(0).insert().expect("memory");
        let slots = Arc::new(slots);
        let other = slots.clone();
        let reader = thread::spawn(move || {
            let inside = other.read(1);
            let found = inside.find(key);
            found.map(|found| found.value().get())
        });
        assert!(slots.read(0).remove(key));
        slots.write().shrink(|_| ());
        let next = slots.read(0).insert().expect("memory");
        assert_eq!(next.index(), key.index());
        assert!(next != key && slots.read(0).get(key).is_none());
        assert!(matches!(reader.join().expect("thread"), None | Some(0)));
    });
}

/// Fails if a thread that reads through an outgrown directory misses a slot, or a chunk that is
/// published while the directory grows is lost.
#[test]
fn a_directory_grows_while_slots_are_found() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Checked>::new());
        let first = slots.insert().expect("memory");
        let other = slots.clone();
        // A named lane takes a chunk of its own, for which the directory is too small.
        let thread = thread::spawn(move || {
            let key = other.insert_in(0).expect("memory");
            assert_eq!(other.get(key).map(Checked::get), Some(0));
            key
        });
        assert_eq!(slots.get(first).map(Checked::get), Some(0));
        let last = slots.insert_in(0).expect("memory");
        let third = slots.insert_in(0).expect("memory");
        let key = thread.join().expect("thread");
        for key in [first, key, last, third] {
            assert_eq!(slots.get(key).map(Checked::get), Some(0));
        }
        assert_eq!(slots.len(), 4);
    });
}
