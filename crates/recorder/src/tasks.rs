//! The threads that the tracer follows and the address spaces that they use.
//!
//! A thread uses one address space from its creation until its exit stop or the next `execve`. The
//! recorder takes the final snapshot when the last user leaves. While one thread is inside a call
//! that changes the address space, other threads that are stopped before such a call wait in a
//! queue. This module makes no system calls.

use super::call_table::CallRule;
use std::collections::VecDeque;
use vmarea_trace::event::{MmId, Nanos, Snapshot};

use super::clone_untraced::Untraced;
use super::files::Opened;
use super::timeline::Alone;

/// Id shared by all unrecorded address spaces: that of the recorded command before its `execve`,
/// and those of 32-bit programs.
pub(crate) const UNRECORDED: MmId = MmId(0);

/// Maximum number of turns that a call can last while its thread is observed running.
const TURNS: u64 = 20;

/// Which calls stop a resumed thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// The thread stops only at calls that the filter selects.
    Filtered,
    /// The thread stops at every system call, because it has a file open for direct I/O.
    EverySyscall,
}

/// A traced thread.
#[derive(Debug)]
pub(crate) struct Task {
    /// Thread group of the thread.
    pub pid: i32,
    /// Address space that the thread uses; see [`Task::leaving`].
    pub mm: MmId,
    /// Mode in which the thread is resumed.
    pub mode: Mode,
    /// Current call of the thread.
    pub call: Option<Pending>,
    /// True if the thread is about to exit and no longer counts as a user of `mm`.
    pub leaving: bool,
    /// True if the tracer no longer traces the thread, which is about to exit.
    pub released: bool,
    /// Wait status, once it is known: of a leader, that of its process.
    pub status: Option<i32>,
    /// Clone flags to restore at the thread's first stop.
    pub untraced: Option<Untraced>,
    /// True between the entry stop and the exit stop of a call.
    ///
    /// Known only for a thread that stops at every system call.
    pub inside: bool,
    /// True if the thread is in a group-stop of job control.
    pub listens: bool,
    /// True from a group-stop of job control until the next signal.
    pub was_stopped: bool,
    /// True if the tracer has asked the thread to stop, until the thread resumes.
    pub interrupted: bool,
    /// How to resume the thread, if it is kept at a stop while threads are being stopped.
    pub kept: Option<Resumption>,
}

/// How a stopped thread resumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resumption {
    /// The thread runs, and receives this signal (0 for none).
    Run(i32),
    /// The thread stays in the group-stop of job control.
    Listen,
}

impl Task {
    pub(crate) fn new(pid: i32, mm: MmId, mode: Mode) -> Task {
        Task {
            pid,
            mm,
            mode,
            call: None,
            leaving: false,
            released: false,
            status: None,
            untraced: None,
            inside: false,
            listens: false,
            was_stopped: false,
            interrupted: false,
            kept: None,
        }
    }
}

/// A call between its entry and its exit.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Rule in the call table that applies to the call.
    pub rule: &'static CallRule,
    /// Call number to record; a `clone3` call is recorded as `clone`.
    pub nr: u32,
    /// Recorded arguments.
    pub args: [u64; 6],
    /// Data behind the call's pointer arguments.
    pub data: Vec<u8>,
    /// File behind the call's descriptor argument.
    pub file: Option<Opened>,
    /// Whether no other call on the address space ran at the same time.
    pub alone: Alone,
    /// Time at which the thread entered the call; 0 while the thread waits to enter it.
    pub entry: Nanos,
    /// Clone flags that were changed so that the call's child is traced.
    pub untraced: Option<Untraced>,
    /// For `execve`: the final snapshot of the address space that the thread leaves.
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
    /// Time at which the thread entered the call.
    begun: Nanos,
    /// Start of the thread's current turn: its entry, or the last time that it was seen running.
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
    /// Number of threads that use the address space.
    pub users: u32,
    /// Number of recorded calls.
    pub calls: u64,
    /// Threads inside a call that changes the address space.
    pub inside: Vec<Inside>,
    /// Threads stopped before a call that changes the address space, each with its time of arrival.
    pub queue: VecDeque<(i32, Nanos)>,
    /// True if the note about the address space has already been made; it is made only once.
    pub noted: bool,
    /// Snapshot to use if no other snapshot can be taken after the last user has exited.
    pub fallback_snapshot: Option<Snapshot>,
}

impl Space {
    /// Returns the time at which the first thread in the queue may enter its call although other
    /// threads are still inside theirs.
    ///
    /// By that time, each thread inside a call has been there for a whole `turn`, and may be
    /// waiting for the first thread in the queue. As long as calls end within their turns, no
    /// thread becomes overdue, however many threads wait.
    pub(crate) fn next_due(&self, turn: Nanos) -> Option<Nanos> {
        self.queue.front()?;
        let last = self.inside.iter().map(|i| i.since).max();
        Some(last.map_or(0, |since| since + turn))
    }

    /// Removes from the queue the threads that may enter their calls at `now`, and returns them.
    ///
    /// The result contains the first thread in the queue if it is due, and all others that have
    /// waited for a whole turn, because a running call may be waiting for any of them. If `runs` is
    /// true for all threads inside calls, none of them is waiting for another thread, so their
    /// turns start again; a call gets at most [`TURNS`] turns.
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

    /// Removes a thread from the calls and from the queue; returns whether it was inside a call.
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
        assert!(space.take_overdue(159, 10, |_| false).is_empty());
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
        assert!(space.take_overdue(110, 10, |_| true).is_empty());
        assert_eq!(space.next_due(10), Some(120));
        // Only one of the threads inside is running: the other one may be waiting.
        assert_eq!(space.take_overdue(120, 10, |tid| tid == 1), [3]);
        // A call that runs forever does not block other threads forever.
        space.queue.push_back((4, 125));
        assert!(
            space
                .take_overdue(100 + TURNS * 10 - 1, 10, |_| true)
                .is_empty()
        );
        assert_eq!(space.take_overdue(200 + TURNS * 10, 10, |_| true), [4]);
    }
}
