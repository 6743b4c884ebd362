//! Tasks, address spaces and files of the text being imported, and the resulting events.
//!
//! The importers report what a line means (`fork`, `exec`, a call, a fault). This module assigns
//! the ids that events need; before an id is first used, it adds the event that introduces the id.
//! The initial content of an address space is unknown, so each address space begins empty, as if
//! created by `execve`.
//!
//! # Invariants
//! O1  Every task that a line names is known: a task without an earlier line starts as a separate
//!     process.
//! O2  An mm ends with its last task.
//! O3  A call that ran at the same time as another call in its mm is [`Order::Overlapping`].

use crate::event::{
    Call, Event, Fault, FaultSource, FileId, FileRef, Inode, InodeId, InodeKind, MmId, MmStart,
    Nanos, Order, Origin, Tid,
};
use std::collections::{HashMap, HashSet, VecDeque};

/// A thread or process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) pid: Tid,
    pub(super) mm: MmId,
}

/// Sharing between a new task and its creator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// A thread of the same process.
    Thread,
    /// A process that shares memory until it calls `execve` (`vfork`, `posix_spawn`).
    SharesMemory,
    /// A process with a copy of the memory.
    Copy,
}

/// Counters of an mm.
#[derive(Debug, Default)]
struct Mm {
    tasks: usize,
    /// Number of calls that have begun but not ended.
    running: usize,
    /// Number of calls that have ended.
    ended: u64,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    mm: MmId,
    alone: bool,
    ended: u64,
}

/// Identity of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum FileKey {
    /// A path, if no better identity is known.
    Path(String),
    /// Device and inode number.
    Number(u64, u64),
    /// A System V segment.
    Segment(i64),
    /// The n-th file that has no known path.
    Nameless(u32),
}

/// State shared by all lines.
#[derive(Debug, Default)]
pub(super) struct ImportState {
    /// Events that have not been returned yet.
    pub(super) queue: VecDeque<Event>,
    /// Command of the first `execve`.
    pub(super) command: Vec<String>,
    has_unknown_files: bool,
    /// Source of the first fault.
    pub(super) faults: FaultSource,
    /// Time of the last line.
    pub(super) now: Nanos,
    tasks: HashMap<Tid, Task>,
    /// Tasks that have exited.
    over: HashSet<Tid>,
    mms: HashMap<MmId, Mm>,
    last_mm: u32,
    inodes: HashMap<FileKey, InodeId>,
    last_file: u32,
    nameless: u32,
    /// The first task in the text; `status` is its exit status.
    first: Option<Tid>,
    pub(super) status: Option<i32>,
}

impl ImportState {
    /// Returns the task with the id `tid`, and adds the task if it is new. `pid` is the task's
    /// process, if the text names that process.
    pub(super) fn task(&mut self, tid: Tid, pid: Option<Tid>) -> Task {
        if let Some(task) = self.tasks.get(&tid) {
            return *task;
        }
        if let Some(leader) = pid.and_then(|pid| self.tasks.get(&pid)).copied() {
            return self.begin_task(tid, leader.pid, leader.mm);
        }
        if self.first.is_some() {
            self.note(format!(
                "task {} appears without a fork: its address space is assumed to be empty",
                tid.0
            ));
        }
        let mm = self.begin_mm(Origin::Exec);
        self.begin_task(tid, pid.unwrap_or(tid), mm)
    }

    /// True if a line has mentioned this task and the task has not ended.
    pub(super) fn knows(&self, tid: Tid) -> bool {
        self.tasks.contains_key(&tid)
    }

    /// True if the task has exited; later lines about it are then ignored.
    pub(super) fn is_over(&self, tid: Tid) -> bool {
        self.over.contains(&tid)
    }

    /// True if a task is alive.
    pub(super) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Returns the only live task; `None` if there is not exactly one.
    pub(super) fn only_task(&self) -> Option<Tid> {
        match self.tasks.len() {
            1 => self.tasks.keys().next().copied(),
            _ => None,
        }
    }

    /// Adds a task that no line has created as a thread of the only process, if there is only one.
    pub(super) fn join_only_process(&mut self, tid: Tid) {
        let mut tasks = self.tasks.values();
        let Some(first) = tasks.next().copied() else {
            return;
        };
        if tasks.all(|task| task.pid == first.pid) {
            self.note(format!(
                "task {} appears without a clone: it is taken for a thread of process {}",
                tid.0, first.pid.0
            ));
            self.begin_task(tid, first.pid, first.mm);
        }
    }

    /// Adds `child` as a child of `parent`. Does nothing if `child` is already known.
    pub(super) fn fork(&mut self, parent: Tid, child: Tid, sharing: Sharing) {
        if self.knows(child) {
            return;
        }
        let Task { pid, mm } = self.task(parent, None);
        match sharing {
            Sharing::Thread => self.begin_task(child, pid, mm),
            Sharing::SharesMemory => self.begin_task(child, child, mm),
            Sharing::Copy => {
                let copy = self.begin_mm(Origin::Fork { parent: mm });
                self.begin_task(child, child, copy)
            }
        };
    }

    /// Handles a successful `execve`: only thread `tid` of the process remains, with a new mm.
    pub(super) fn exec(&mut self, tid: Tid) {
        let Task { pid, .. } = self.task(tid, None);
        for other in self.threads(pid) {
            if other != tid {
                self.exit(other, 0);
            }
        }
        let mm = self.begin_mm(Origin::Exec);
        if tid == pid {
            self.move_task(tid, mm);
        } else {
            // A thread that is not the leader takes the leader's id.
            self.exit(tid, 0);
            self.begin_task(pid, pid, mm);
        }
    }

    /// Ends task `tid` with this wait status.
    pub(super) fn exit(&mut self, tid: Tid, status: i32) {
        let Some(task) = self.tasks.remove(&tid) else {
            return;
        };
        let t = self.now;
        self.queue.push_back(Event::TaskEnd { tid, status, t });
        self.over.insert(tid);
        if self.first == Some(tid) {
            self.status = Some(status);
        }
        self.leave(task.mm);
    }

    /// Ends the whole process of `tid`.
    pub(super) fn exit_process(&mut self, tid: Tid, status: i32) {
        let Task { pid, .. } = self.task(tid, None);
        for thread in self.threads(pid) {
            self.exit(thread, status);
        }
    }

    /// Returns the tasks of a process, in order.
    fn threads(&self, pid: Tid) -> Vec<Tid> {
        let of_process = self.tasks.iter().filter(|(_, task)| task.pid == pid);
        let mut threads: Vec<Tid> = of_process.map(|(tid, _)| *tid).collect();
        threads.sort_unstable();
        threads
    }

    /// Begins a call by `task`.
    pub(super) fn begin_call(&mut self, task: Task) -> Begun {
        let mm = self.mms.entry(task.mm).or_default();
        mm.running += 1;
        Begun {
            mm: task.mm,
            alone: mm.running == 1,
            ended: mm.ended,
        }
    }

    /// Ends a call. Returns the certainty of the call's position in the stream.
    pub(super) fn end_call(&mut self, begun: Begun) -> Order {
        let Some(mm) = self.mms.get_mut(&begun.mm) else {
            return Order::Exact;
        };
        mm.running = mm.running.saturating_sub(1);
        let exact = begun.alone && mm.running == 0 && mm.ended == begun.ended;
        mm.ended += 1;
        if exact {
            Order::Exact
        } else {
            Order::Overlapping
        }
    }

    /// Adds a call with its result.
    pub(super) fn call(&mut self, call: Call) {
        self.queue.push_back(Event::Call(call));
    }

    /// Adds a page fault from this kind of source.
    pub(super) fn fault(&mut self, fault: Fault, source: FaultSource) {
        if self.faults == FaultSource::None {
            self.faults = source;
        }
        self.queue.push_back(Event::Fault(fault));
    }

    /// Records that samples are missing at this point.
    pub(super) fn lost(&mut self, count: u64) {
        let t = self.now;
        self.queue.push_back(Event::Lost { count, t });
    }

    /// Adds a remark for the user.
    pub(super) fn note(&mut self, text: String) {
        self.queue.push_back(Event::Note(text));
    }

    /// Returns the inode for `key`. If the inode is new, adds an event that describes it.
    pub(super) fn inode(
        &mut self,
        key: &FileKey,
        kind: InodeKind,
        path: &str,
        size: u64,
    ) -> InodeId {
        if let Some(id) = self.inodes.get(key) {
            return *id;
        }
        let id = InodeId(self.inodes.len() as u32 + 1);
        self.inodes.insert(key.clone(), id);
        let (dev, ino) = match key {
            FileKey::Number(dev, ino) => (*dev, *ino),
            _ => (0, 0),
        };
        self.queue.push_back(Event::Inode(Inode {
            id,
            dev,
            ino,
            kind,
            fs_magic: 0,
            mount_flags: 0,
            size,
            path: path.to_owned(),
        }));
        id
    }

    /// Creates an open file description.
    pub(super) fn open(&mut self) -> FileId {
        self.last_file += 1;
        FileId(self.last_file)
    }

    /// Creates a key for a file without a name.
    pub(super) fn nameless(&mut self) -> FileKey {
        self.nameless += 1;
        FileKey::Nameless(self.nameless)
    }

    /// Creates a file about which nothing is known; a note says once that there are such files.
    pub(super) fn unknown_file(&mut self) -> FileRef {
        if !std::mem::replace(&mut self.has_unknown_files, true) {
            self.note(
                "some files have no name in the text (strace -y shows them): each mapping of one \
                 counts as that of another file"
                    .to_owned(),
            );
        }
        let key = self.nameless();
        FileRef {
            inode: self.inode(&key, InodeKind::Other, "", 0),
            file: self.open(),
            open_flags: 0,
            seals: 0,
            size: 0,
        }
    }

    /// Handles the end of the text.
    pub(super) fn end(&mut self) {
        if self.status.is_none() {
            self.note("the text ends before the end of the first process".to_owned());
        }
        self.queue.push_back(Event::End {
            status: self.status.unwrap_or(0),
            t: self.now,
        });
    }

    fn begin_mm(&mut self, origin: Origin) -> MmId {
        self.last_mm += 1;
        let mm = MmId(self.last_mm);
        self.mms.insert(mm, Mm::default());
        self.queue.push_back(Event::MmStart(MmStart {
            mm,
            origin,
            t: self.now,
        }));
        mm
    }

    fn begin_task(&mut self, tid: Tid, pid: Tid, mm: MmId) -> Task {
        self.first.get_or_insert(tid);
        let task = Task { pid, mm };
        self.over.remove(&tid);
        self.tasks.insert(tid, task);
        self.mms.entry(mm).or_default().tasks += 1;
        let t = self.now;
        self.queue.push_back(Event::TaskStart { tid, pid, mm, t });
        task
    }

    fn move_task(&mut self, tid: Tid, mm: MmId) {
        let left = self.tasks.remove(&tid);
        self.begin_task(tid, tid, mm);
        if let Some(task) = left {
            self.leave(task.mm);
        }
    }

    fn leave(&mut self, mm: MmId) {
        let Some(counts) = self.mms.get_mut(&mm) else {
            return;
        };
        counts.tasks = counts.tasks.saturating_sub(1);
        if counts.tasks == 0 {
            self.mms.remove(&mm);
            self.queue.push_back(Event::MmEnd { mm, t: self.now });
        }
    }
}
