//! Collects the memory calls that failed, and which check of the core refused them.
//!
//! The core decides each call as the recorded kernel does, so if both refuse a call with the same
//! errno, the core's check is the kernel's reason. If the core would have let the call succeed, or
//! would have failed it in another way, the reason is not known.

use super::action::Action;
use super::decode::EINTR;
use super::failed::{FailedCall, FailedCalls};
use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex, PoisonError};
use vmarea::refused::{Observer, Refused};
use vmarea_trace::dump::call_text;
use vmarea_trace::event::{Call, Event};
use vmarea_trace::sysno;

/// What the reasons of a group have in common.
type Kind = Option<(Discriminant<Refused>, &'static str)>;
type Key = (&'static str, Option<String>, Kind);

/// Collects the failed calls of a replay.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    groups: Vec<FailedCalls>,
    numbers: HashMap<Key, usize>,
    begin: Option<u64>,
    last: Last,
}

/// The last reason that the core gave, shared with the observer that sets it.
#[derive(Clone, Debug, Default)]
struct Last(Arc<Mutex<Option<Refused>>>);

impl Last {
    fn set(&self, why: Option<Refused>) -> Option<Refused> {
        std::mem::replace(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
            why,
        )
    }
}

impl Observer for Last {
    fn refused(&self, why: &Refused) {
        self.set(Some(*why));
    }
}

impl Failures {
    /// Returns the observer that learns the reasons.
    pub(crate) fn observer(&self) -> Box<dyn Observer> {
        Box::new(self.last.clone())
    }

    /// Notes when the recording begins.
    pub(crate) fn follow(&mut self, event: &Event) {
        if self.begin.is_none() {
            self.begin = match event {
                Event::MmStart(start) => Some(start.t),
                Event::TaskStart { t, .. } => Some(*t),
                Event::Snapshot(snapshot) => Some(snapshot.t),
                Event::Call(call) => Some(call.t),
                Event::Fault(fault) => Some(fault.t),
                _ => None,
            };
        }
    }

    /// Forgets the reason of an earlier call, before the core carries out the next one.
    pub(crate) fn before(&self) {
        self.last.set(None);
    }

    /// Adds the call if it failed; `ours` is the core's result, if the core carried the call out.
    pub(crate) fn after(&mut self, action: &Action, call: &Call, ours: Option<i64>) {
        let Some(name) = name(action, call).filter(|_| failed(call)) else {
            return;
        };
        let why = self.last.set(None).filter(|_| ours == Some(call.ret));
        let errno = super::verify::errno(call.ret);
        let kind = why.map(|why| {
            let words = match why {
                Refused::Breaks(rule) => rule.broken(),
                _ => why.remedy(),
            };
            (discriminant(&why), words)
        });
        let one = self.one(call);
        match self.numbers.get(&(name, errno.clone(), kind)) {
            Some(&number) => {
                let group = &mut self.groups[number];
                group.count += 1;
                group.last = one;
            }
            None => {
                let number = self.groups.len();
                self.numbers.insert((name, errno.clone(), kind), number);
                self.groups.push(FailedCalls {
                    call: name.to_owned(),
                    errno,
                    count: 1,
                    first: one.clone(),
                    last: one,
                    reason: why.map(|why| why.to_string()),
                    remedy: why.map(|why| why.remedy()),
                });
            }
        }
    }

    fn one(&self, call: &Call) -> FailedCall {
        FailedCall {
            ns: call.t.saturating_sub(self.begin.unwrap_or(call.t)),
            tid: call.tid.0,
            mm: call.mm.0,
            text: call_text(call),
            function: None,
            t: call.t,
        }
    }

    /// Returns the failed calls so far, in the order of the first of each kind.
    pub(crate) fn take(&mut self) -> Vec<FailedCalls> {
        self.numbers.clear();
        std::mem::take(&mut self.groups)
    }
}

/// True if the kernel refused the call. A call that a signal interrupted is not refused.
fn failed(call: &Call) -> bool {
    const RESTARTED: std::ops::RangeInclusive<i64> = -516..=-512;
    match call.nr {
        // A break of 0 only asks where the heap ends.
        sysno::BRK => call.args[0] != 0 && call.ret as u64 != call.args[0],
        _ => (-4095..0).contains(&call.ret) && call.ret != EINTR && !RESTARTED.contains(&call.ret),
    }
}

/// Returns the name of a call that maps, changes or unmaps memory, or that found none for a copy of the
/// address space; `None` for other calls.
fn name(action: &Action, call: &Call) -> Option<&'static str> {
    const MEMORY: [u32; 20] = [
        sysno::BRK,
        sysno::MADVISE,
        sysno::MAP_SHADOW_STACK,
        sysno::MBIND,
        sysno::MLOCK,
        sysno::MLOCK2,
        sysno::MLOCKALL,
        sysno::MMAP,
        sysno::MPROTECT,
        sysno::MREMAP,
        sysno::MSEAL,
        sysno::MUNLOCK,
        sysno::MUNMAP,
        sysno::PKEY_ALLOC,
        sysno::PKEY_FREE,
        sysno::PKEY_MPROTECT,
        sysno::PROCESS_MADVISE,
        sysno::REMAP_FILE_PAGES,
        sysno::SHMAT,
        sysno::SHMDT,
    ];
    /// Other errors of these calls, such as EAGAIN at a limit on processes, are not about memory.
    const COPIES: [u32; 4] = [sysno::CLONE, sysno::CLONE3, sysno::FORK, sysno::VFORK];
    const ENOMEM: i64 = -12;
    let is_call = matches!(action, Action::Call(_) | Action::CallOn(..));
    let copies = COPIES.contains(&call.nr) && call.ret == ENOMEM;
    let name = sysno::name(call.nr).filter(|_| is_call || copies || MEMORY.contains(&call.nr));
    name.filter(|name| *name != "ioctl")
}
