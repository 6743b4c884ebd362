//! Measures the speed of threads that do the same work at the same time.
//!
//! Speed is measured in two ways. *By the clock*: the work of all threads divided by the time from
//! the start of the first thread to the end of the last thread. *By the processor*: the work of
//! each thread divided by its processor time, summed over the threads. If every thread has its own
//! processor, the two speeds agree. On a busy machine, the speed by the processor still shows how
//! much threads slow each other down. It does not include the time that threads sleep, because a
//! sleeping thread, unlike a spinning thread, consumes no processor time.
//!
//! A measurement takes a few milliseconds. A sleeping thread can take just as long to wake up, and
//! the scheduler can take just as long to separate two threads that woke up on one processor.
//! Therefore each thread is pinned to its own processor if there are enough processors, and spins
//! at the start until all threads are ready.

use super::Ratio;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Operations per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Speed {
    pub(super) clock: f64,
    pub(super) processor: f64,
}

/// Ratio of two speeds, measured in both ways.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ratios {
    /// Ratio by the clock.
    pub clock: Option<Ratio>,
    /// Ratio by the processor.
    pub processor: Option<Ratio>,
}

impl Ratios {
    /// Returns the ratios of the speeds `of[i]` to `to[i]`.
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

/// Calls `each(thread, n)` for all `n` below `times` in each of `threads` concurrent threads.
///
/// A further thread calls `beside(n)` with increasing `n` until the last of the other threads ends.
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

/// Barrier at which threads wait for each other before they begin their work.
struct Start {
    threads: u64,
    /// Processors on which this process may run.
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

    /// Waits until all threads have arrived; `thread` is the number of the calling thread, from 0.
    fn wait(&self, thread: u64) {
        let enough = self.processors.len() as u64 >= self.threads;
        if enough {
            let mut own = CpuSet::new();
            own.set(self.processors[thread as usize]);
            // If pinning fails, the scheduler places the threads.
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

/// Returns a thread's result, or propagates its panic.
pub(super) fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the processor time that the calling thread has consumed.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
