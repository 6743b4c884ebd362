//! The stacks of the memory calls that failed in a recording.

use super::recording::CallStacks;
use super::stacks::Stacks;
use std::collections::HashMap;
use vmarea_replay::FailedCalls;
use vmarea_trace::event::{Event, Tid};
use vmarea_trace::sysno;

/// The stacks of the calls that failed, by thread and time.
#[derive(Debug, Default)]
pub struct Places {
    calls: CallStacks,
    stacks: HashMap<(Tid, u64), u32>,
}

impl Places {
    /// Begins with the stacks of all calls of the recording.
    pub fn new(calls: CallStacks) -> Places {
        Places {
            calls,
            stacks: HashMap::new(),
        }
    }

    /// Keeps the stack of a call that may have failed.
    pub fn follow(&mut self, event: &Event) {
        let Event::Call(call) = event else {
            return;
        };
        let may_fail = call.ret < 0 || call.nr == sysno::BRK;
        if let Some(stack) = self.calls.next(call.tid).filter(|_| may_fail) {
            self.stacks.insert((call.tid, call.t), stack);
        }
    }

    /// Names the functions that made the first and the last call of each kind.
    pub fn name(&self, failed: &mut [FailedCalls], stacks: &Stacks) {
        for call in failed.iter_mut().flat_map(|f| [&mut f.first, &mut f.last]) {
            let stack = self.stacks.get(&call.key()).copied();
            let own = stacks.own_function(stack);
            call.function = own.map(|frame| match (&frame.file, frame.line) {
                (Some(file), Some(line)) => format!("{} ({file}:{line})", frame.function),
                _ => frame.function.clone(),
            });
        }
    }
}
