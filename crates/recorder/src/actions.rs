//! Actions: what the tracer's stops tell about the stream.
//!
//! This file describes the actions only. [`super::deferral`] decides when each takes effect.

use super::CallStack;
use super::timeline::{Alone, Ended, Flight};
use foldhash::HashMap;
use vmarea_trace::event::{Event, MmId, Snapshot};

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedCall {
    pub(crate) nr: u32,
    pub(crate) args: [u64; 6],
    pub(crate) ret: i64,
    /// Whether no other call on the address space ran at the same time.
    pub(crate) alone: Alone,
}

/// An action with an effect on the stream.
#[derive(Debug)]
pub(crate) enum Action {
    /// A thread enters a call. The call changes the mappings of an address space, if one is given.
    CallBegins {
        tid: i32,
        flight: Flight,
        changes: Option<MmId>,
    },
    /// The call in which a thread is has no effect, or its effect is recorded separately.
    CallDiscarded { tid: i32 },
    /// A thread has finished a call.
    CallEnds { tid: i32, ended: Ended },
    /// Events that belong together.
    Events(Vec<Event>),
    /// An address space has ended.
    MmEnded(MmId),
    /// The list of mappings that was read while the threads of a process were being killed.
    LastList(Box<Snapshot>),
    /// The stack of a call.
    Stack(CallStack),
    /// A thread makes a call of another architecture, whose number would be misunderstood.
    ForeignCall { tid: i32 },
    /// A thread has exited.
    Gone { tid: i32 },
}

/// Threads inside calls that change an address space, in the order of the stream.
#[derive(Debug, Default)]
pub(crate) struct Concurrent(HashMap<MmId, Vec<(i32, Alone)>>);

impl Concurrent {
    /// Records that a thread enters a call.
    pub(super) fn enters(&mut self, mm: MmId, tid: i32) {
        let inside = self.0.entry(mm).or_default();
        inside.retain(|(other, _)| *other != tid);
        let alone = match inside.is_empty() {
            true => Alone::Yes,
            false => Alone::No,
        };
        inside.iter_mut().for_each(|(_, other)| *other = Alone::No);
        inside.push((tid, alone));
    }

    /// Records that a thread is no longer inside a call. Returns whether another call overlapped.
    pub(super) fn leaves(&mut self, mm: MmId, tid: i32) -> Alone {
        let inside = self.0.get_mut(&mm);
        let left = inside.and_then(|inside| {
            let at = inside.iter().position(|(other, _)| *other == tid)?;
            Some(inside.swap_remove(at).1)
        });
        left.unwrap_or(Alone::Yes)
    }

    /// Forgets a thread whose call has no effect.
    pub(super) fn forget(&mut self, tid: i32) {
        self.0.retain(|_, inside| {
            inside.retain(|(other, _)| *other != tid);
            !inside.is_empty()
        });
    }
}
