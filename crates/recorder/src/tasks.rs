//! The threads that the tracer follows and the address spaces that they use.
//!
//! A thread uses one address space from its creation until its exit stop or the next `execve`. The
//! final snapshot is taken when the last user leaves. While one thread is inside a call that
//! changes the address space, others that are stopped before such a call wait in a queue. This
//! module makes no system calls.

use super::call_table::CallRule;
use std::collections::VecDeque;
use vmarea_trace::event::{MmId, Nanos, Snapshot};

use super::clone_untraced::Untraced;
use super::files::Opened;
use super::timeline::Alone;

/// Stands for what is not recorded: the child before its first program, and 32-bit programs.
pub(crate) const UNRECORDED: MmId = MmId(0);

/// How many turns a call may last while its thread is seen running.
const TURNS: u64 = 20;

/// How a thread is resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// It stops only at calls that the filter selects.
    Filtered,
    /// It stops at every system call, because it has a file open that bypasses the page cache.
    EverySyscall,
}

/// A traced thread.
#[derive(Debug)]
pub(crate) struct Task {
    /// Thread group.
    pub pid: i32,
    /// The address space that it uses; see [`Task::leaving`].
    pub mm: MmId,
    /// How it is resumed.
    pub mode: Mode,
    /// The call that it is in.
    pub call: Option<Pending>,
    /// It has passed its exit stop and no longer counts as a user.
    pub leaving: bool,
    /// What to restore at its first stop.
    pub untraced: Option<Untraced>,
}

impl Task {
    pub(crate) fn new(pid: i32, mm: MmId, mode: Mode) -> Task {
        Task {
            pid,
            mm,
            mode,
            call: None,
            leaving: false,
            untraced: None,
        }
    }
}

/// A call between its entry and its exit.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The call's entry in the table.
    pub rule: &'static CallRule,
    /// The recorded number: `clone` for `clone3`.
    pub nr: u32,
    /// The recorded arguments.
    pub args: [u64; 6],
    /// The data that its pointers lead to.
    pub data: Vec<u8>,
    /// The file of its descriptor.
    pub file: Option<Opened>,
    /// Whether no other call of the address space ran at the same time.
    pub alone: Alone,
    /// When it was let in; 0 while it waits.
    pub entry: Nanos,
    /// What was changed so that its child is traced.
    pub untraced: Option<Untraced>,
    /// Before `execve`: the final snapshot of the address space that the thread leaves.
    pub last_snapshot: Option<Snapshot>,
}

impl Pending {
    pub(crate) fn new(rule: &'static CallRule, nr: u32, args: [u64; 6]) -> Pending {
        Pending {
            rule,
            nr,
            args,
            data: Vec::new(),
            file: None,
            alone: Alone::Yes,
            entry: 0,
            untraced: None,
            last_snapshot: None,
        }
    }
}

/// A thread inside a call that changes its address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    pub tid: i32,
    /// When it was let in.
    begun: Nanos,
    /// Start of its current turn: its entry, or the last time it was seen running.
    since: Nanos,
}

impl Inside {
    pub(crate) fn new(tid: i32, now: Nanos) -> Inside {
        Inside {
            tid,
            begun: now,
            since: now,
        }
    }
}

/// An address space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Threads that use it.
    pub users: u32,
    /// Number of recorded calls.
    pub calls: u64,
    /// Threads inside a call that changes it.
    pub inside: Vec<Inside>,
    /// Threads stopped before such a call, and since when.
    pub queue: VecDeque<(i32, Nanos)>,
    /// The note about it, which is made only once, was made.
    pub noted: bool,
    /// Snapshot to use if none can be taken after the last user has exited.
    pub fallback_snapshot: Option<Snapshot>,
}

impl Space {
    /// When the first thread of the queue may enter although others are inside.
    ///
    /// That is when each of those has been inside for a whole `turn`, and so may be waiting for
    /// exactly this thread. While calls keep ending, no thread is overdue, however many wait.
    pub(crate) fn next_due(&self, turn: Nanos) -> Option<Nanos> {
        self.queue.front()?;
        let last = self.inside.iter().map(|i| i.since).max();
        Some(last.map_or(0, |since| since + turn))
    }

    /// Takes the threads out of the queue that may enter at `now`.
    ///
    /// These are the first one that is due and all that have waited as long, since a call inside
    /// may be waiting for any of them. If all threads inside are running (`runs`), they wait for
    /// none of these and get another turn, up to [`TURNS`].
    pub(crate) fn take_overdue(
        &mut self,
        now: Nanos,
        turn: Nanos,
        runs: impl Fn(i32) -> bool,
    ) -> Vec<i32> {
        if self.next_due(turn).is_none_or(|due| due > now) {
            return Vec::new();
        }
        let more = |i: &Inside| now.saturating_sub(i.begun) < TURNS * turn && runs(i.tid);
        if !self.inside.is_empty() && self.inside.iter().all(more) {
            self.inside.iter_mut().for_each(|i| i.since = now);
            return Vec::new();
        }
        let as_long = |(_, since): &&(i32, Nanos)| since + turn <= now;
        let count = self.queue.iter().take_while(as_long).count().max(1);
        self.queue.drain(..count).map(|(tid, _)| tid).collect()
    }

    /// Takes a thread out of the calls and the queue. Returns whether it was inside.
    pub(crate) fn leave_call(&mut self, tid: i32) -> bool {
        self.queue.retain(|(t, _)| *t != tid);
        let before = self.inside.len();
        self.inside.retain(|i| i.tid != tid);
        self.inside.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_due_when_the_calls_inside_last() {
        let mut space = Space::default();
        assert_eq!(space.next_due(10), None);
        space.inside = vec![Inside::new(1, 100), Inside::new(2, 150)];
        assert_eq!(space.next_due(10), None);
        space.queue.extend([(3, 151), (4, 155), (5, 160)]);
        assert_eq!(space.next_due(10), Some(160));
        assert_eq!(space.take_overdue(159, 10, |_| false), []);
        assert_eq!(space.take_overdue(165, 10, |_| false), [3, 4]);
        assert!(space.leave_call(2) && !space.leave_call(3));
        assert_eq!(space.next_due(10), Some(110));
        assert_eq!(space.take_overdue(165, 10, |_| false), [5]);
        assert_eq!(space.next_due(10), None);
    }

    #[test]
    fn a_call_that_runs_waits_for_nobody() {
        let mut space = Space {
            inside: vec![Inside::new(1, 100), Inside::new(2, 100)],
            ..Space::default()
        };
        space.queue.push_back((3, 101));
        assert_eq!(space.take_overdue(110, 10, |_| true), []);
        assert_eq!(space.next_due(10), Some(120));
        // Each of those inside may be the one that waits.
        assert_eq!(space.take_overdue(120, 10, |tid| tid == 1), [3]);
        // A call that runs forever does not block the others forever.
        space.queue.push_back((4, 125));
        assert_eq!(space.take_overdue(100 + TURNS * 10 - 1, 10, |_| true), []);
        assert_eq!(space.take_overdue(200 + TURNS * 10, 10, |_| true), [4]);
    }
}
