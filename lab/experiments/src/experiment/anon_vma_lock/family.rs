//! Model of related tasks in Linux 2.6.31, which share one anon_vma with a spin lock and a VMA
//! list.

use super::{HEAP, PAGE};
use parking_lot::Mutex;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A spin lock that counts how often it is taken.
#[derive(Default)]
struct SpinLock {
    is_held: AtomicBool,
    taken: AtomicU64,
}

impl SpinLock {
    fn locked<T>(&self, what: impl FnOnce() -> T) -> T {
        // ORDERING: Acquire, pairs with the Release store below.
        while self.is_held.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        // ORDERING: Relaxed, a statistic that is read after the threads have ended.
        self.taken.fetch_add(1, Ordering::Relaxed);
        let result = what();
        // ORDERING: Release, pairs with the Acquire swap of the next holder.
        self.is_held.store(false, Ordering::Release);
        result
    }
}

/// The bounds of a task's heap VMA.
#[derive(Clone, Copy)]
struct Heap {
    start: u64,
    end: u64,
}

/// A family of tasks in Linux 2.6.31; the tasks' heaps share one anon_vma.
pub(super) struct Family {
    anon_vma: SpinLock,
    /// Numbers of the tasks whose VMAs are on the anon_vma's list, in fork order.
    list: Mutex<Vec<usize>>,
    heaps: Vec<Mutex<Heap>>,
}

impl Family {
    /// Forks `tasks` tasks from one parent, whose heap has one page.
    pub(super) fn new(tasks: usize) -> Family {
        let heap = Heap {
            start: HEAP,
            end: HEAP + PAGE,
        };
        let family = Family {
            anon_vma: SpinLock::default(),
            list: Mutex::new(vec![0]),
            heaps: (0..=tasks).map(|_| Mutex::new(heap)).collect(),
        };
        for task in 1..=tasks {
            family.anon_vma.locked(|| family.list.lock().push(task));
        }
        family
    }

    /// Grows a task's heap by a page; does not take the lock of the anon_vma if `shortcut` is true.
    ///
    /// The patch that the paper describes adds the shortcut.
    pub(super) fn brk(&self, task: usize, shortcut: bool) {
        // The heap's mutex stands for `mmap_sem`.
        let mut heap = self.heaps[task].lock();
        let end = heap.end + PAGE;
        if shortcut {
            heap.end = end;
        } else {
            self.anon_vma.locked(|| heap.end = end);
        }
    }

    /// Walks the reverse map from a heap page at `addr`; returns the number of VMAs that map that
    /// address.
    pub(super) fn walk(&self, addr: u64) -> usize {
        self.anon_vma.locked(|| {
            let list = self.list.lock();
            let visited = list.iter().filter(|task| {
                let heap = self.heaps[**task].lock();
                heap.start <= addr && addr < heap.end
            });
            visited.count()
        })
    }

    /// Returns how often the lock of the anon_vma was taken.
    pub(super) fn taken(&self) -> u64 {
        // ORDERING: Relaxed, a statistic that is read after the threads have ended.
        self.anon_vma.taken.load(Ordering::Relaxed)
    }
}
