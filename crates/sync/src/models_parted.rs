//! Loom models of the lock that is divided into parts.
//!
//! The comment on each model names the error that makes the model fail.

use crate::models::CondvarWait;
use crate::{Guarded, Nesting, PartedLock, VmaCell, VmaLock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A number whose accesses are all checked by loom.
#[derive(Debug)]
struct Checked(UnsafeCell<u64>);

// SAFETY: the models check that accesses are synchronized.
unsafe impl Sync for Checked {}

impl Default for Checked {
    fn default() -> Self {
        Checked(UnsafeCell::new(0))
    }
}

impl Checked {
    fn get(&self) -> u64 {
        // SAFETY: loom checks the access.
        self.0.with(|value| unsafe { *value })
    }

    fn add(&mut self, more: u64) {
        // SAFETY: loom checks the access.
        self.0.with_mut(|value| unsafe { *value += more });
    }
}

/// A divided lock, and a number in each part and in the whole.
struct Divided {
    /// Waiting threads sleep: each turn of a spinning thread would be one more branch of the model.
    lock: PartedLock<2, CondvarWait>,
    parts: [Guarded<Checked>; 2],
    whole: Guarded<Checked>,
}

impl Divided {
    fn new(active: &[usize]) -> Arc<Self> {
        let lock = PartedLock::default();
        let mut all = lock.write_all(Nesting::First);
        for part in active {
            all.part_mut(*part);
        }
        drop(all);
        Arc::new(Divided {
            parts: [0, 1].map(|part| Guarded::new(lock.part(part).id(), Checked::default())),
            whole: Guarded::new(lock.whole().id(), Checked::default()),
            lock,
        })
    }

    /// Adds to a part as a writer of that part; takes all if the part is inactive.
    fn add(&self, part: usize) {
        match self.lock.write_part(part) {
            Some(mut guard) => self.parts[part].get_mut(&mut guard).add(1),
            None => {
                let mut all = self.lock.write_all(Nesting::First);
                self.parts[part].get_mut(all.part_mut(part)).add(1);
            }
        }
    }

    fn sum(&self) -> u64 {
        let all = self.lock.write_all(Nesting::First).downgrade();
        let active = |part: &usize| self.lock.active() >> part & 1 == 1;
        let parts = (0..2).filter(active);
        parts
            .map(|part| self.parts[part].get(all.part(part)).get())
            .sum::<u64>()
            + self.whole.get(all.whole()).get()
    }
}

/// Fails if a holder of all and a writer of a part hold the part at the same time, or if one misses
/// what the other wrote.
#[test]
fn all_excludes_the_writers_of_parts() {
    loom::model(|| {
        let shared = Divided::new(&[0, 1]);
        let other = shared.clone();
        let writer = thread::spawn(move || other.add(0));
        let mut all = shared.lock.write_all(Nesting::First);
        for part in 0..2 {
            shared.parts[part].get_mut(all.part_mut(part)).add(1);
        }
        shared.whole.get_mut(all.whole_mut()).add(1);
        drop(all);
        writer.join().expect("writer thread");
        assert_eq!(shared.sum(), 4);
    });
}

/// Fails if writers of one part overlap, or if a writer of another part disturbs them.
#[test]
fn writers_of_parts() {
    loom::model(|| {
        let shared = Divided::new(&[0, 1]);
        let threads = [0, 1].map(|part| {
            let other = shared.clone();
            thread::spawn(move || other.add(part))
        });
        shared.add(0);
        for thread in threads {
            thread.join().expect("writer thread");
        }
        assert_eq!(shared.sum(), 3);
    });
}

/// Fails if a writer takes a part that another thread is about to activate, if two threads activate
/// it, or if one who takes all overlooks it.
#[test]
fn activation() {
    loom::model(|| {
        let shared = Divided::new(&[]);
        let other = shared.clone();
        let writer = thread::spawn(move || other.add(1));
        shared.add(1);
        assert!(shared.sum() >= 1);
        writer.join().expect("writer thread");
        assert_eq!(shared.sum(), 2);
    });
}

/// Fails if a thread takes a part after all parts have been made inactive.
#[test]
fn deactivation() {
    loom::model(|| {
        let shared = Divided::new(&[1]);
        let other = shared.clone();
        let writer = thread::spawn(move || {
            if let Some(mut guard) = other.lock.write_part(1) {
                other.parts[1].get_mut(&mut guard).add(1);
            }
        });
        let mut all = shared.lock.write_all(Nesting::First);
        let seen = shared.parts[1].get(all.part(1)).get();
        all.deactivate();
        drop(all);
        writer.join().expect("writer thread");
        let mut all = shared.lock.write_all(Nesting::First);
        assert_eq!(shared.parts[1].get(all.part_mut(1)).get(), seen);
    });
}

/// Fails if a reader of a VMA sees it while the writer of its part, or a holder of all, changes it.
#[test]
fn a_reader_of_a_vma_and_the_writer_of_its_part() {
    loom::model(|| {
        let lock = PartedLock::<2, CondvarWait>::default();
        let vma = VmaCell::<Checked, VmaLock>::default();
        let mut all = lock.write_all(Nesting::First);
        vma.claim(all.part_mut(1));
        vma.attach(all.part_mut(1));
        drop(all);
        let shared = Arc::new((lock, vma));
        let other = shared.clone();
        let writer = thread::spawn(move || {
            let (lock, vma) = &*other;
            let mut guard = lock.write_part(1).expect("an active part");
            vma.start_write(&mut guard);
            vma.get_mut(&mut guard).add(1);
            vma.get_mut(&mut guard).add(1);
        });
        let (lock, vma) = &*shared;
        if let Ok(reader) = vma.start_read(lock.part(1)) {
            assert_eq!(reader.get() % 2, 0);
        }
        writer.join().expect("writer thread");
    });
}
