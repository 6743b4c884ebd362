//! Threads that do the same thing at the same time, and how fast they are.
//!
//! Speed is measured twice. *By the clock*: what all threads did, over the time from the first one's begin
//! to the last one's end. *By the processor*: what each thread did over the processor time that it got,
//! added up. Where every thread has a processor for itself the two agree; on a busy machine the second
//! still tells what threads cost each other (a thread that spins pays, one that sleeps does not).

use super::Ratio;
use serde::Serialize;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
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
    let begun = Barrier::new(threads as usize + usize::from(beside.is_some()));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = beside.map(|beside| {
            let (begun, done) = (&begun, &done);
            scope.spawn(move || {
                begun.wait();
                (0..)
                    .take_while(|_| !done.load(Ordering::Relaxed))
                    .try_for_each(beside)
            })
        });
        let spawn = |thread| {
            let begun = &begun;
            scope.spawn(move || {
                begun.wait();
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
