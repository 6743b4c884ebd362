//! Threads that do the same thing at the same time, and how fast they are.
//!
//! Speed is measured twice. *By the clock*: what all threads did, over the time from the first one's begin
//! to the last one's end. *By the processor*: what each thread did over the processor time that it got,
//! added up. Where every thread has a processor for itself the two agree; on a busy machine the second
//! still tells what threads cost each other (a thread that spins pays, one that sleeps does not).
//!
//! A measurement takes some milliseconds, as long as it may take until a thread that slept runs, or until
//! two that woke on one processor come apart. So each has a processor of its own where there are enough,
//! and waits for the others at the start without sleeping.

use super::Ratio;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Times a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Speed {
    pub(super) clock: f64,
    pub(super) processor: f64,
}

/// A ratio of speeds, both ways of measuring.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ratios {
    /// By the clock.
    pub clock: Option<Ratio>,
    /// By the processor.
    pub processor: Option<Ratio>,
}

impl Ratios {
    /// Of `of[i]` to `to[i]`.
    pub(super) fn of_pairs(of: &[Speed], to: &[Speed]) -> Ratios {
        let by = |f: fn(&Speed) -> f64| {
            let list = |speeds: &[Speed]| speeds.iter().map(f).collect::<Vec<f64>>();
            Ratio::of_pairs(&list(of), &list(to))
        };
        Ratios {
            clock: by(|speed| speed.clock),
            processor: by(|speed| speed.processor),
        }
    }
}

/// Calls `each(thread, n)` for `n` below `times` in each thread, all at once; and `beside(n)` again and
/// again in one more until the last has ended.
pub(super) fn together<E: Send>(
    (threads, times): (u64, u64),
    each: &(dyn Fn(u64, u64) -> Result<(), E> + Sync),
    beside: Option<&(dyn Fn(u64) -> Result<(), E> + Sync)>,
) -> Result<Speed, E> {
    let begun = Start::new(threads + u64::from(beside.is_some()));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = beside.map(|beside| {
            let (begun, done) = (&begun, &done);
            scope.spawn(move || {
                begun.wait(threads);
                (0..)
                    .take_while(|_| !done.load(Ordering::Relaxed))
                    .try_for_each(beside)
            })
        });
        let spawn = |thread| {
            let begun = &begun;
            scope.spawn(move || {
                begun.wait(thread);
                let (begin, used) = (Instant::now(), processor_time());
                let went = (0..times).try_for_each(|n| each(thread, n));
                went.map(|()| (begin, Instant::now(), processor_time() - used))
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        let ended: Vec<_> = handles.into_iter().map(joined).collect();
        done.store(true, Ordering::Relaxed);
        if let Some(other) = other {
            joined(other)?;
        }
        let ended = ended.into_iter().collect::<Result<Vec<_>, E>>()?;
        let begin = ended.iter().map(|e| e.0).min();
        let end = ended.iter().map(|e| e.1).max();
        let clock = end.zip(begin).map_or(Duration::ZERO, |(e, b)| e - b);
        let per_second = |times: u64, time: Duration| times as f64 / time.as_secs_f64().max(1e-9);
        Ok(Speed {
            clock: per_second(threads * times, clock),
            processor: ended.iter().map(|e| per_second(times, e.2)).sum(),
        })
    })
}

/// Where threads wait for each other before they begin.
struct Start {
    threads: u64,
    /// Processors that we may run on.
    processors: Vec<usize>,
    here: AtomicU64,
}

impl Start {
    fn new(threads: u64) -> Start {
        let may = sched_getaffinity(None).unwrap_or_default();
        Start {
            threads,
            processors: (0..CpuSet::MAX_CPU).filter(|&n| may.is_set(n)).collect(),
            here: AtomicU64::new(0),
        }
    }

    /// Waits until all are here; `thread` is the number of the calling one.
    fn wait(&self, thread: u64) {
        let enough = self.processors.len() as u64 >= self.threads;
        if enough {
            let mut own = CpuSet::new();
            own.set(self.processors[thread as usize]);
            // Where that is refused the threads find their places themselves.
            let _ = sched_setaffinity(None, &own);
        }
        self.here.fetch_add(1, Ordering::AcqRel);
        while self.here.load(Ordering::Acquire) < self.threads {
            if enough {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// A thread's result; its panic is ours.
pub(super) fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Processor time that the calling thread has had.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
