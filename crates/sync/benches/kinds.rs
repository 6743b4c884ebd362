//! Benchmark of the kinds of VMA lock, relative to `mmap_lock` alone, in one run.
//!
//! Measures the throughput of one reader (alone, next to another reader, and next to a writer) and
//! of one writer. Also prints the size of each lock. The figures do not include the rest of a page
//! fault, which takes a hundred times longer than the lock; `vmarea-lab bench fault` measures whole
//! page faults.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmarea_sync::{
    AlignedRwLock, BoxedRwLock, FlaggedVmaLock, Lock, MmapLockOnly, VmaCell, VmaLock, VmaLockKind,
};

const ROUNDS: usize = 9;
const CALLS: u32 = 200_000;
const WHILE: Duration = Duration::from_millis(60);

/// An address space of two VMAs.
struct Mm<K: VmaLockKind> {
    lock: Lock,
    vmas: [VmaCell<u64, K>; 2],
}

impl<K: VmaLockKind> Mm<K> {
    fn new() -> Self {
        let mm = Mm {
            lock: Lock::new(),
            vmas: Default::default(),
        };
        let mut guard = mm.lock.write();
        for vma in &mm.vmas {
            vma.claim(&mut guard);
            vma.attach(&mut guard);
        }
        drop(guard);
        mm
    }

    /// Reads like a page fault: with the VMA's lock, or with `mmap_lock` if the VMA's lock is
    /// refused.
    fn read(&self, vma: usize) -> u64 {
        match self.vmas[vma].start_read(&self.lock) {
            Ok(body) => *body,
            Err(_) => *self.vmas[vma].get(&self.lock.read()),
        }
    }

    fn write(&self, vma: usize) {
        let mut guard = self.lock.write();
        self.vmas[vma].start_write(&mut guard);
        *self.vmas[vma].get_mut(&mut guard) += 1;
    }

    fn alone(call: impl Fn()) -> f64 {
        let begun = Instant::now();
        (0..CALLS).for_each(|_| call());
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    }

    /// Returns how many reads each reader of `vmas` makes per microsecond while `other` runs.
    fn together(&self, vmas: &[usize], other: impl Fn() + Sync) -> f64 {
        let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for &vma in vmas {
                let (stop, reads) = (&stop, &reads);
                scope.spawn(move || {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        (0..64).for_each(|_| {
                            black_box(self.read(vma));
                        });
                        count += 64;
                    }
                    reads.fetch_add(count, Ordering::Relaxed);
                });
            }
            let begun = Instant::now();
            while begun.elapsed() < WHILE {
                other();
            }
            stop.store(true, Ordering::Relaxed);
        });
        reads.into_inner() as f64 / WHILE.as_micros() as f64 / vmas.len() as f64
    }

    fn measure() -> [f64; 6] {
        let mm = Self::new();
        let rest = || thread::sleep(WHILE / 4);
        [
            Self::alone(|| {
                black_box(mm.read(0));
            }),
            Self::alone(|| mm.write(0)),
            mm.together(&[0], rest),
            mm.together(&[0, 0], rest),
            mm.together(&[0, 1], rest),
            mm.together(&[0], || mm.write(1)),
        ]
    }
}

const HEADS: [&str; 6] = [
    "read, ns",
    "write, ns",
    "1 reader, M/s",
    "2 of one VMA",
    "2 of two VMAs",
    "1 and a writer",
];

fn main() {
    type Row = (&'static str, usize, fn() -> [f64; 6]);
    fn row<K: VmaLockKind>() -> Row {
        (K::NAME, size_of::<VmaCell<u64, K>>() - 8, Mm::<K>::measure)
    }
    let rows = [
        row::<MmapLockOnly>(),
        row::<FlaggedVmaLock<BoxedRwLock>>(),
        row::<FlaggedVmaLock<AlignedRwLock>>(),
        row::<FlaggedVmaLock>(),
        row::<VmaLock>(),
    ];
    // Rounds of all kinds alternate, so that a disturbance affects all of them.
    let rounds: Vec<[[f64; 6]; 5]> = (0..ROUNDS)
        .map(|_| rows.map(|(_, _, measure)| measure()))
        .collect();
    let median = |kind: usize, what: usize| {
        let mut all: Vec<f64> = rounds.iter().map(|round| round[kind][what]).collect();
        all.sort_by(f64::total_cmp);
        all[ROUNDS / 2]
    };
    print!("{:<28} {:>5}", "", "bytes");
    HEADS.iter().for_each(|head| print!("  {head:>18}"));
    println!();
    for (kind, (name, bytes, _)) in rows.iter().enumerate() {
        print!("{name:<28} {bytes:>5}");
        for what in 0..HEADS.len() {
            let (ours, measure) = (median(kind, what), median(0, what));
            print!("  {ours:>9.1} ({:>5.2}x)", ours / measure);
        }
        println!();
    }
    println!("figures with several readers are per reader; x is relative to mmap_lock only");
}
