//! Tests of the lock that is divided into parts.

use crate::{Guarded, Nesting, PartedLock, Rank};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

fn divided() -> (PartedLock<4>, [Guarded<u64>; 4]) {
    let lock = PartedLock::with_rank(Rank(32));
    let cells = core::array::from_fn(|part| Guarded::new(lock.part(part).id(), 0));
    (lock, cells)
}

#[test]
fn a_part_is_inactive_until_a_holder_of_all_uses_it() {
    let (lock, cells) = divided();
    assert!(lock.write_part(2).is_none() && lock.read_part(2).is_none());
    let mut all = lock.write_all(Nesting::First);
    *cells[2].get_mut(all.part_mut(2)) = 7;
    drop(all);
    assert_eq!(lock.active(), 0b100);
    let guard = lock.read_part(2).expect("an active part");
    assert_eq!(*cells[2].get(&guard), 7);
    drop(guard);
    assert!(lock.write_part(1).is_none());
}

#[test]
fn a_writer_of_one_part_does_not_keep_out_the_writer_of_another() {
    let (lock, _) = divided();
    let mut all = lock.write_all(Nesting::First);
    all.part_mut(0);
    all.part_mut(3);
    drop(all);
    let first = lock.write_part(0).expect("an active part");
    // Waits for nothing, or the test hangs.
    thread::scope(|s| {
        s.spawn(|| drop(lock.write_part(3)));
    });
    assert!(lock.part(0).try_write().is_none() && lock.part(3).try_write().is_some());
    drop(first);
}

#[test]
#[should_panic(expected = "does not own the cell")]
fn the_guard_of_a_part_gives_no_access_to_another() {
    let (lock, cells) = divided();
    let mut all = lock.write_all(Nesting::First);
    all.part_mut(0);
    all.part_mut(1);
    drop(all);
    let mut guard = lock.write_part(0).expect("an active part");
    *cells[1].get_mut(&mut guard) = 1;
}

#[test]
fn a_panic_releases_one_part_and_all() {
    let (lock, cells) = divided();
    let mut all = lock.write_all(Nesting::First);
    *cells[1].get_mut(all.part_mut(1)) = 1;
    drop(all);
    let part = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.write_part(1);
        panic!("while one part is held");
    }));
    let all = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.write_all(Nesting::First);
        panic!("while all are held");
    }));
    assert!(part.is_err() && all.is_err());
    let guard = lock.write_all(Nesting::First);
    assert_eq!(*cells[1].get(guard.part(1)), 1);
    drop(guard);
    assert!(lock.write_part(1).is_some());
}

#[test]
fn threads_of_all_kinds_count_without_loss() {
    let (lock, cells) = divided();
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    thread::scope(|s| {
        for thread in 0..3usize {
            let (lock, cells) = (&lock, &cells);
            s.spawn(move || {
                for round in 0..rounds {
                    let part = (thread + round / 7) % 4;
                    match lock.write_part(part).filter(|_| round % 16 != 0) {
                        Some(mut guard) => *cells[part].get_mut(&mut guard) += 1,
                        None => {
                            *cells[part].get_mut(lock.write_all(Nesting::First).part_mut(part)) += 1
                        }
                    }
                }
            });
        }
    });
    let all = lock.write_all(Nesting::First).downgrade();
    let counted: u64 = (0..4).map(|part| *cells[part].get(all.part(part))).sum();
    assert_eq!(counted, 3 * rounds as u64);
}
