//! The queue of observed calls and of the actions that wait for them.

use super::Stacks;
use super::actions::Action;
use super::call_rings::loss::Loss;
use super::call_rings::record::{Observed, Record, UserStack};
use super::call_rings::{CallRings, Contents, RING_BYTES, stack_bytes};
use super::call_table::{self, CallRule};
use crate::samples::{SamplesError, default_ring_bytes};
use foldhash::{HashMap, HashSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use vmarea_linux_sys::call_trace::CallFilter;
use vmarea_linux_sys::perf::What;
use vmarea_trace::event::{MmId, Nanos};

/// A call between its entry and its exit.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) rule: &'static CallRule,
    pub(crate) args: [u64; 6],
    pub(crate) mm: MmId,
    pub(crate) stack: Option<Box<UserStack>>,
}

/// The observed calls and the tracer's actions that wait for them.
#[derive(Debug)]
pub(crate) struct ObservedCalls {
    rings: CallRings,
    /// Records that have not been handled, in order of time.
    records: VecDeque<Record>,
    /// Bytes of the stacks in these records.
    stack_bytes: usize,
    actions: BTreeMap<(Nanos, u64), Action>,
    sequence: u64,
    /// Time before which all calls are known.
    watermark: Nanos,
    /// Time up to which everything has been handled.
    pub(crate) reached: Nanos,
    pub(crate) entered: HashMap<i32, Entered>,
    /// Kernel's address of the file that each thread is about to map at a stop.
    pub(crate) mapped: HashMap<i32, u64>,
    /// Threads whose next call is of another architecture.
    pub(crate) foreign: HashSet<i32>,
    /// Time of the last observed call in each address space that several tasks use.
    pub(crate) changed: HashMap<MmId, Nanos>,
    /// True if the handling was interrupted, so that the tracer must not sleep.
    pub(crate) is_behind: bool,
}

/// The next thing in the stream.
pub(crate) enum Next {
    Record(Record),
    Action(Nanos, Action),
}

impl ObservedCalls {
    /// Opens the rings, of `ring_bytes` per CPU, or of a size that fits the machine's memory.
    ///
    /// # Errors
    /// The reason why the kernel does not permit it.
    pub(crate) fn open(
        stacks: Stacks,
        ring_bytes: Option<usize>,
    ) -> Result<ObservedCalls, SamplesError> {
        let ring_bytes = match ring_bytes {
            Some(bytes) => bytes,
            None => default_ring_bytes(RING_BYTES)?,
        };
        let contents = Contents {
            owner: What::BpfOutput { stack_bytes: 0 },
            stack_bytes: stack_bytes(stacks),
        };
        let filter = CallFilter {
            entry: 1,
            exit: 1,
            stack: u64::from(stacks == Stacks::Copy),
            ..CallFilter::default()
        };
        let filters = call_table::observable().map(|nr| {
            let file = u64::from(i64::from(nr) == libc::SYS_mmap);
            (nr, CallFilter { file, ..filter })
        });
        // The program will be a child of this process.
        let root = std::process::id();
        let rings = CallRings::open(root, contents, filters, ring_bytes)?;
        Ok(ObservedCalls {
            rings,
            records: VecDeque::new(),
            stack_bytes: 0,
            actions: BTreeMap::new(),
            sequence: 0,
            watermark: 0,
            reached: 0,
            entered: HashMap::default(),
            mapped: HashMap::default(),
            foreign: HashSet::default(),
            changed: HashMap::default(),
            is_behind: false,
        })
    }

    /// Returns descriptors for `poll(2)` that become readable when a ring is a quarter full.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.poll_fds()
    }

    /// Lets an action wait for the observed calls before `t`.
    pub(crate) fn postpone(&mut self, t: Nanos, action: Action) {
        self.sequence += 1;
        self.actions.insert((t, self.sequence), action);
    }

    /// Empties the rings. Returns the time before which all calls are known.
    pub(crate) fn read(&mut self) -> Nanos {
        let before = self.watermark;
        let known = self.records.len();
        self.watermark = self.rings.drain(&mut self.records);
        self.count_stacks(known);
        if self.rings.overflowed() {
            // A full ring reports a loss late. It began after the rings were emptied the last time.
            let at = self.records.partition_point(|record| record.t < before);
            self.records.insert(at, Loss::of_overflow(before).into());
        }
        self.watermark
    }

    /// Ends the recording and appends all remaining records.
    ///
    /// # Errors
    /// The errors of [`CallRings::finish`].
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let known = self.records.len();
        let finished = self.rings.finish(&mut self.records);
        self.count_stacks(known);
        finished
    }

    /// Counts the stacks in all records but the first ones.
    fn count_stacks(&mut self, known: usize) {
        let new = self.records.range(known..);
        self.stack_bytes += new.map(stack_len).sum::<usize>();
    }

    /// Returns the memory that the waiting records need, in bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.records.len() * size_of::<Record>() + self.stack_bytes
    }

    /// Returns the threads that made the most recent of the waiting calls.
    pub(crate) fn recent_callers(&self) -> BTreeSet<i32> {
        const RECENT: usize = 10_000;
        let entered = |record: &Record| match record.what {
            Observed::Entered { tid, .. } => Some(tid),
            _ => None,
        };
        let recent = self.records.iter().rev().take(RECENT);
        recent.filter_map(entered).collect()
    }

    /// Returns the time of the next thing in the stream.
    pub(crate) fn next_time(&self) -> Nanos {
        let action = self.actions.first_key_value();
        let action = action.map_or(Nanos::MAX, |((t, _), _)| *t);
        let record = self.records.front().map_or(Nanos::MAX, |record| record.t);
        action.min(record)
    }

    /// Marks a process as one whose calls are written.
    pub(crate) fn mark(&self, pid: i32) {
        // The call cannot fail.
        let _ = self.rings.mark(pid);
    }

    /// Removes and returns the next thing in the stream if it is older than `until`.
    pub(crate) fn next(&mut self, until: Nanos) -> Option<Next> {
        let action = self.actions.first_entry();
        let record = self.records.front();
        match (record.map(|record| record.t), action) {
            (Some(t), action) if action.as_ref().is_none_or(|a| t <= a.key().0) => {
                if t >= until {
                    return None;
                }
                let record = self.records.pop_front()?;
                self.stack_bytes -= stack_len(&record);
                Some(Next::Record(record))
            }
            (_, Some(action)) if action.key().0 < until => {
                let ((t, _), action) = action.remove_entry();
                Some(Next::Action(t, action))
            }
            _ => None,
        }
    }
}

/// Returns the number of stack bytes in a record.
fn stack_len(record: &Record) -> usize {
    match &record.what {
        Observed::Entered {
            stack: Some(stack), ..
        } => stack.bytes.len(),
        _ => 0,
    }
}
