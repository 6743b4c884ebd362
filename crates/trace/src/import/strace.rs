//! `strace` text: who says each line, calls that are split over two lines, and tasks.
//!
//! A line is an optional thread, an optional time, and a body ([`line`]). A call that another
//! line interrupts (`<unfinished ...>`) is kept until it goes on (`<... resumed>`). A child may
//! speak before the call that made it returns; it is then taken for the child of the oldest
//! call of that kind that has not returned. What a call means is in [`calls`], which file a
//! descriptor is in [`files`].

mod calls;
mod files;
mod line;

use super::world::{Begun, Kin, Task, World};
use super::{Line, Parse};
use crate::event::{Order, Tid};
use calls::{Finished, is_fork, kin_of};
use files::Files;
use line::{Body, Clock, Parsed};
use std::collections::{BTreeMap, HashMap};

/// Stands for the first process until a line tells its id. No traced program is process 1.
const FIRST: Tid = Tid(1);

/// State between lines.
#[derive(Default)]
pub(super) struct Strace {
    files: Files,
    pending: HashMap<Tid, Pending>,
    /// Forks among the pending calls, by age.
    forks: BTreeMap<u64, Tid>,
    age: u64,
    /// Threads that strace said it attached to, and that have not spoken.
    attached: Vec<Tid>,
    /// The id of the process that is called [`FIRST`].
    first: Option<Tid>,
    /// Begin of a line that strace broke by a message of its own.
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
    /// Only calls that shape memory can overlap.
    begun: Option<Begun>,
}

impl Entry {
    fn new(name: &str, task: Task, world: &mut World) -> Self {
        let begun = calls::shapes_memory(name).then(|| world.begin_call(task));
        Self { task, begun }
    }

    fn leave(self, world: &mut World) -> Order {
        match self.begun {
            Some(begun) => world.end_call(begun),
            None => Order::Exact,
        }
    }
}

/// Most threads that are remembered as attached; strace tells of each, few stay silent.
const MAX_ATTACHED: usize = 100_000;

impl Parse for Strace {
    fn line(&mut self, text: &str, world: &mut World) -> Line {
        // "strace: Process 12 attached" may stand in the middle of another line.
        if let Some((before, message)) = text.split_once("strace: Process ") {
            self.attach(message);
            self.broken.push_str(before);
            return Line::Other;
        }
        if self.broken.is_empty() {
            return self.whole_line(text, world);
        }
        let whole = std::mem::take(&mut self.broken) + text;
        self.whole_line(&whole, world)
    }
}

impl Strace {
    fn attach(&mut self, message: &str) {
        let id = message.split(' ').next().unwrap_or_default();
        if self.attached.len() < MAX_ATTACHED {
            self.attached.extend(id.parse().map(Tid));
        }
    }

    fn whole_line(&mut self, text: &str, world: &mut World) -> Line {
        let Some(Parsed { tid, time, body }) = line::parse(text) else {
            return Line::Foreign;
        };
        world.now = self.clock.at(time);
        if let Body::Call { name, args, result } = body
            && let Some(line) = self.first_exec(tid, name, args, result, world)
        {
            return line;
        }
        let tid = self.speaker(tid, world);
        match body {
            Body::Call { name, args, result } => {
                let entry = Entry::new(name, world.task(tid, None), world);
                let call = Finished::new(tid, name, args, result);
                self.finish(&call, entry, world)
            }
            Body::Unfinished { name, args } => {
                self.suspend(tid, name, args, world);
                Line::Read
            }
            Body::Resumed { name, rest } => self.resume(tid, name, rest, world),
            Body::Ended { status } => {
                self.abandon(tid, world);
                self.files.end(tid);
                world.exit(tid, status);
                Line::Read
            }
            Body::Superseded => {
                self.abandon(tid, world);
                Line::Read
            }
            Body::Other => Line::Other,
        }
    }

    /// The `execve` with which strace starts its program: no event, for nothing was there before.
    fn first_exec(
        &mut self,
        tid: Option<Tid>,
        name: &str,
        args: &str,
        result: &str,
        world: &mut World,
    ) -> Option<Line> {
        if name != "execve" || !world.command.is_empty() || world.has_tasks() {
            return None;
        }
        let call = Finished::new(tid.unwrap_or(FIRST), name, args, result);
        if call.result() != Some(0) {
            return None;
        }
        world.command = call.command();
        self.speaker(tid, world);
        Some(Line::Read)
    }

    /// The thread of a line, known to the world afterwards.
    fn speaker(&mut self, tid: Option<Tid>, world: &mut World) -> Tid {
        let tid = match tid {
            // Threads are named only while there are several.
            None => world.only_task().unwrap_or(FIRST),
            Some(tid) if self.first == Some(tid) => FIRST,
            Some(tid) if world.knows(tid) => return tid,
            Some(tid) => self.newcomer(tid, world),
        };
        if tid == FIRST && !world.knows(FIRST) && self.first.is_none() {
            world.note("the text does not tell the id of the first process: it is called 1".into());
        }
        world.task(tid, None);
        tid
    }

    /// A thread that speaks for the first time.
    fn newcomer(&mut self, tid: Tid, world: &mut World) -> Tid {
        let announced = self.attached.iter().position(|other| *other == tid);
        match announced {
            Some(place) => {
                self.attached.swap_remove(place);
            }
            // Nobody made it, so it is the one that had no name until now.
            None if self.first.is_none() && world.knows(FIRST) && self.forks.is_empty() => {
                self.first = Some(tid);
                return FIRST;
            }
            None => {}
        }
        let Some(parent) = self.forks.values().next().copied() else {
            return tid;
        };
        if let Some(call) = self.pending.get(&parent) {
            let kin = kin_of(&call.name, &call.args);
            self.fork(parent, tid, kin, world);
        }
        tid
    }

    /// A call of which the rest comes later.
    fn suspend(&mut self, tid: Tid, name: &str, args: &str, world: &mut World) {
        self.abandon(tid, world);
        let task = world.task(tid, None);
        self.age += 1;
        if is_fork(name) {
            self.forks.insert(self.age, tid);
        }
        let call = Pending {
            name: name.to_owned(),
            args: args.to_owned(),
            entry: Entry::new(name, task, world),
            age: self.age,
        };
        self.pending.insert(tid, call);
    }

    fn resume(&mut self, tid: Tid, name: &str, rest: &str, world: &mut World) -> Line {
        let Some(call) = self.take_pending(tid) else {
            // It began before the text did.
            return match calls::shapes_memory(name) {
                true => Line::Unreadable,
                false => Line::Other,
            };
        };
        let whole = call.args + rest;
        match line::split_call(&whole) {
            Some((args, result)) if call.name == name => {
                self.finish(&Finished::new(tid, name, args, result), call.entry, world)
            }
            _ => {
                call.entry.leave(world);
                Line::Unreadable
            }
        }
    }

    /// A pending call of `tid` will not return.
    fn abandon(&mut self, tid: Tid, world: &mut World) {
        if let Some(call) = self.take_pending(tid) {
            call.entry.leave(world);
        }
    }

    fn take_pending(&mut self, tid: Tid) -> Option<Pending> {
        let call = self.pending.remove(&tid)?;
        self.forks.remove(&call.age);
        Some(call)
    }

    /// A call is whole.
    fn finish(&mut self, call: &Finished<'_>, entry: Entry, world: &mut World) -> Line {
        let order = entry.leave(world);
        let line = call.tell(entry.task, order, &mut self.files, world);
        let Some(ret) = call.result().filter(|ret| *ret >= 0) else {
            return line;
        };
        match call.name {
            "execve" | "execveat" => {
                self.files.exec(entry.task.pid);
                world.exec(call.tid);
            }
            name if is_fork(name) && ret > 0 => {
                let child = Tid(i32::try_from(ret).unwrap_or(i32::MAX));
                self.attached.retain(|other| *other != child);
                self.fork(call.tid, child, kin_of(name, call.args), world);
            }
            _ => {}
        }
        line
    }

    fn fork(&mut self, parent: Tid, child: Tid, kin: Kin, world: &mut World) {
        if !world.knows(child) {
            let parent_pid = world.task(parent, None).pid;
            world.fork(parent, child, kin);
            self.files.fork(parent_pid, child, kin);
        }
    }
}
