//! Importer for `strace`: assigns lines to threads, joins split calls, and tracks tasks.
//!
//! A line consists of an optional thread, an optional time, and a body ([`line`]). A call that
//! another line interrupts (`<unfinished ...>`) is stored until it resumes (`<... resumed>`). A
//! child's first line may come before the call that created the child returns. The child then
//! belongs to the oldest pending call that creates a task. [`calls`] interprets calls, and
//! [`files`] finds the file behind a descriptor.

mod calls;
mod files;
mod line;

use super::state::{Begun, ImportState, Sharing, Task};
use super::{Line, Parse};
use crate::event::{Order, Tid};
use calls::{Finished, is_fork, sharing_of};
use files::Files;
use line::{Body, Clock, Parsed};
use std::collections::{BTreeMap, HashMap};

/// Placeholder id of the first process until a line shows the real id. No traced program is process
/// 1.
const FIRST: Tid = Tid(1);

/// State of the importer between two lines.
#[derive(Default)]
pub(super) struct Strace {
    files: Files,
    pending: HashMap<Tid, Pending>,
    /// Threads in pending calls that create a task, from the oldest call to the newest.
    forks: BTreeMap<u64, Tid>,
    age: u64,
    /// Threads to which strace has attached but that no line has mentioned yet.
    attached: Vec<Tid>,
    /// The real id of the process that is named [`FIRST`].
    first: Option<Tid>,
    /// Start of a line that a message from strace interrupted.
    broken: String,
    clock: Clock,
}

/// A call that has not returned.
struct Pending {
    name: String,
    args: String,
    entry: Entry,
    age: u64,
}

/// The state in which a call began.
#[derive(Clone, Copy)]
struct Entry {
    task: Task,
    /// `None` for a call that does not affect memory; such calls are never considered to overlap.
    begun: Option<Begun>,
}

impl Entry {
    fn new(name: &str, task: Task, state: &mut ImportState) -> Self {
        let begun = calls::shapes_memory(name).then(|| state.begin_call(task));
        Self { task, begun }
    }

    fn leave(self, state: &mut ImportState) -> Order {
        match self.begun {
            Some(begun) => state.end_call(begun),
            None => Order::Exact,
        }
    }
}

/// Maximum number of attached threads that are remembered until their first line.
const MAX_ATTACHED: usize = 100_000;

impl Parse for Strace {
    fn line(&mut self, text: &str, state: &mut ImportState) -> Line {
        // "strace: Process 12 attached" may appear in the middle of another line.
        if let Some((before, message)) = text.split_once("strace: Process ") {
            self.attach(message);
            self.broken.push_str(before);
            return Line::Other;
        }
        if self.broken.is_empty() {
            return self.whole_line(text, state);
        }
        let whole = std::mem::take(&mut self.broken) + text;
        self.whole_line(&whole, state)
    }
}

impl Strace {
    fn attach(&mut self, message: &str) {
        let id = message.split(' ').next().unwrap_or_default();
        if self.attached.len() < MAX_ATTACHED {
            self.attached.extend(id.parse().map(Tid));
        }
    }

    fn whole_line(&mut self, text: &str, state: &mut ImportState) -> Line {
        let Some(Parsed { tid, time, body }) = line::parse(text) else {
            return Line::Foreign;
        };
        state.now = self.clock.at(time);
        if let Body::Call { name, args, result } = body
            && let Some(line) = self.first_exec(tid, name, args, result, state)
        {
            return line;
        }
        let tid = self.speaker(tid, state);
        match body {
            Body::Call { name, args, result } => {
                let entry = Entry::new(name, state.task(tid, None), state);
                let call = Finished::new(tid, name, args, result);
                self.finish(&call, entry, state)
            }
            Body::Unfinished { name, args } => {
                self.suspend(tid, name, args, state);
                Line::Read
            }
            Body::Resumed { name, rest } => self.resume(tid, name, rest, state),
            Body::Ended { status } => {
                self.abandon(tid, state);
                self.files.end(tid);
                state.exit(tid, status);
                Line::Read
            }
            Body::Superseded => {
                self.abandon(tid, state);
                Line::Read
            }
            Body::Other => Line::Other,
        }
    }

    /// Handles the `execve` that starts the traced program.
    ///
    /// This `execve` does not become an event, because no address space is known before it.
    fn first_exec(
        &mut self,
        tid: Option<Tid>,
        name: &str,
        args: &str,
        result: &str,
        state: &mut ImportState,
    ) -> Option<Line> {
        if name != "execve" || !state.command.is_empty() || state.has_tasks() {
            return None;
        }
        let call = Finished::new(tid.unwrap_or(FIRST), name, args, result);
        if call.result() != Some(0) {
            return None;
        }
        state.command = call.command();
        self.speaker(tid, state);
        Some(Line::Read)
    }

    /// Returns the thread that a line is about, and adds the thread if it is new.
    fn speaker(&mut self, tid: Option<Tid>, state: &mut ImportState) -> Tid {
        let tid = match tid {
            // strace names threads only while there are several.
            None => state.only_task().unwrap_or(FIRST),
            Some(tid) if self.first == Some(tid) => FIRST,
            Some(tid) if state.knows(tid) => return tid,
            Some(tid) => self.newcomer(tid, state),
        };
        if tid == FIRST && !state.knows(FIRST) && self.first.is_none() {
            state.note("the text does not name the first process: it gets the id 1".into());
        }
        state.task(tid, None);
        tid
    }

    /// Adds a thread at its first line.
    fn newcomer(&mut self, tid: Tid, state: &mut ImportState) -> Tid {
        let announced = self.attached.iter().position(|other| *other == tid);
        match announced {
            Some(place) => {
                self.attached.swap_remove(place);
            }
            // No task created this thread, so it is the process whose id was unknown until now.
            None if self.first.is_none() && state.knows(FIRST) && self.forks.is_empty() => {
                self.first = Some(tid);
                return FIRST;
            }
            None => {}
        }
        let Some(parent) = self.forks.values().next().copied() else {
            // `strace -f -p PID` shows threads that are older than the text.
            if state.command.is_empty() {
                state.join_only_process(tid);
            }
            return tid;
        };
        if let Some(call) = self.pending.get(&parent) {
            let sharing = sharing_of(&call.name, &call.args);
            self.fork(parent, tid, sharing, state);
        }
        tid
    }

    /// Stores a call until a later line resumes it.
    fn suspend(&mut self, tid: Tid, name: &str, args: &str, state: &mut ImportState) {
        self.abandon(tid, state);
        let task = state.task(tid, None);
        self.age += 1;
        if is_fork(name) {
            self.forks.insert(self.age, tid);
        }
        let call = Pending {
            name: name.to_owned(),
            args: args.to_owned(),
            entry: Entry::new(name, task, state),
            age: self.age,
        };
        self.pending.insert(tid, call);
    }

    fn resume(&mut self, tid: Tid, name: &str, rest: &str, state: &mut ImportState) -> Line {
        let Some(call) = self.take_pending(tid) else {
            // The call began before the text.
            return match calls::shapes_memory(name) {
                true => Line::Unreadable,
                false => Line::Other,
            };
        };
        let whole = call.args + rest;
        match line::split_call(&whole) {
            Some((args, result)) if call.name == name => {
                self.finish(&Finished::new(tid, name, args, result), call.entry, state)
            }
            _ => {
                call.entry.leave(state);
                Line::Unreadable
            }
        }
    }

    /// Removes a pending call of `tid` that will not return.
    fn abandon(&mut self, tid: Tid, state: &mut ImportState) {
        if let Some(call) = self.take_pending(tid) {
            call.entry.leave(state);
        }
    }

    fn take_pending(&mut self, tid: Tid) -> Option<Pending> {
        let call = self.pending.remove(&tid)?;
        self.forks.remove(&call.age);
        Some(call)
    }

    /// Handles a complete call.
    fn finish(&mut self, call: &Finished<'_>, entry: Entry, state: &mut ImportState) -> Line {
        let order = entry.leave(state);
        let line = call.tell(entry.task, order, &mut self.files, state);
        let Some(ret) = call.result().filter(|ret| *ret >= 0) else {
            return line;
        };
        match call.name {
            "execve" | "execveat" => {
                self.files.exec(entry.task.pid);
                state.exec(call.tid);
            }
            name if is_fork(name) && ret > 0 => {
                let child = Tid(i32::try_from(ret).unwrap_or(i32::MAX));
                self.attached.retain(|other| *other != child);
                self.fork(call.tid, child, sharing_of(name, call.args), state);
            }
            _ => {}
        }
        line
    }

    fn fork(&mut self, parent: Tid, child: Tid, sharing: Sharing, state: &mut ImportState) {
        if !state.knows(child) {
            let parent_pid = state.task(parent, None).pid;
            state.fork(parent, child, sharing);
            self.files.fork(parent_pid, child, sharing);
        }
    }
}
