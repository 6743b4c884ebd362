//! Handles system calls: delays each call until it may run, and records it when it returns.
//!
//! Calls that change the same address space run one after another, so the order of their exits is
//! the order of their effects. If a call lasts longer than [`Tracer::turn`], the next thread may
//! enter its own call, because the unfinished call may be waiting for that thread. If all threads
//! inside calls are running or waiting for a processor, none of them can be waiting for another
//! thread, so their turns are extended, up to a limit.

use super::actions::{Action, FinishedCall};
use super::aio_ring;
use super::call_range::CallRange;
use super::call_table::{self, Role};
use super::clock::clock;
use super::clone_untraced::{CLONE_UNTRACED, Untraced};
use super::files::{MappedAt, Opened, inode_key};
use super::mapping_calls::{is_error, is_restarted, mapping_at};
use super::memory;
use super::snapshot::{self, AllStopped, Subject};
use super::tasks::{Inside, Mode, Pending, Resumption, UNRECORDED};
use super::timeline::{Alone, Ended, Flight};
use super::tracer::Tracer;
use super::{CallStack, Stacks};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use vmarea_linux_sys::arch;
use vmarea_linux_sys::ptrace::{self, SyscallStop};
use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_process::maps::MapsEntry;
use vmarea_process::system;
use vmarea_trace::event::{Call, Event, FileRef, MmId, Nanos, Order, SnapReason, Snapshot, Tid};

const CLONE_VM: u64 = libc::CLONE_VM as u64;

impl Tracer<'_> {
    /// Lets a thread enter the call at which it is stopped.
    pub(super) fn let_in(&mut self, tid: i32, alone: Alone) {
        let Some(task) = self.tasks.get(&tid) else {
            return;
        };
        let (pid, mm, mode) = (task.pid, task.mm, task.mode);
        let Some(call) = &task.call else {
            return self.let_run(tid, Resumption::Run(0));
        };
        let (rule, args, clone_flags) = (call.rule, call.args, call.clone_flags());
        let recorded = mm != UNRECORDED;
        let file = match mapped_descriptor(rule.nr, &args).filter(|_| recorded) {
            Some(fd) => self.duplicate(pid, tid, fd),
            None => None,
        };
        let mut data = memory::data(tid, rule.data, &args);
        if i64::from(rule.nr) == libc::SYS_prlimit64 {
            let target = self.prlimit_target(tid, args[0] as i32);
            data.extend(u64::from(target.unwrap_or(0).cast_unsigned()).to_le_bytes());
        }
        let now = clock();
        let mut last_snapshot = None;
        match rule.role {
            Role::Executes => {
                if recorded && self.users(mm) == 1 {
                    last_snapshot = self.snapshot(tid, mm, SnapReason::Exit, now);
                }
                self.call_begins(tid, now, Flight::MovesTask, None);
            }
            Role::Clones => {
                let forks = clone_flags & CLONE_VM == 0;
                self.call_begins(tid, now, Flight::MovesTask, forks.then_some(mm));
            }
            Role::ChangesMappings if self.users(mm) > 1 => {
                let range = CallRange::of_entered(rule.nr, &args);
                self.call_begins(tid, now, Flight::ChangesMappings(mm, range), Some(mm));
            }
            Role::OpensDirect if mode == Mode::Filtered => self.stop_at_every_call(pid, tid),
            _ => {}
        }
        self.before_unmap(mm, rule.nr, &args);
        let untraced = match rule.role {
            // A process that was running before needs no tracer: the child stays unrecorded.
            Role::Clones if self.attachment.is_some() => None,
            Role::Clones if clone_flags & CLONE_UNTRACED != 0 => Untraced::clear(tid, rule.nr),
            _ => None,
        };
        if let Some(call) = self.tasks.get_mut(&tid).and_then(|t| t.call.as_mut()) {
            call.untraced = untraced;
            call.data = data;
            call.file = file;
            call.alone = alone;
            call.entry = now;
            call.last_snapshot = last_snapshot;
        }
        self.let_run(tid, Resumption::Run(0));
    }

    fn users(&self, mm: MmId) -> u32 {
        self.spaces.get(&mm).map_or(0, |space| space.users)
    }

    /// Lets the next thread in the queue enter its call, unless another thread is inside a call.
    pub(super) fn let_in_next(&mut self, mm: MmId) {
        let Some(space) = self.spaces.get_mut(&mm) else {
            return;
        };
        if space.inside.is_empty()
            && let Some((tid, _)) = space.queue.pop_front()
        {
            space.inside.push(Inside::new(tid, clock()));
            self.let_in(tid, Alone::Yes);
        }
    }

    /// Lets overdue threads enter their calls, because running calls may be waiting for them.
    ///
    /// The order in which the overdue calls and the running calls take effect is then unknown,
    /// unless the lock tracepoints show it.
    pub(super) fn let_in_overdue(&mut self, now: Nanos) {
        let turn = self.turn();
        let mut overdue = Vec::new();
        for space in self.spaces.values_mut() {
            for tid in space.take_overdue(now, turn, is_running) {
                overdue.push((tid, space.inside.clone()));
                space.inside.push(Inside::new(tid, now));
            }
        }
        for (tid, inside) in overdue {
            for other in inside {
                if let Some(call) = self.tasks.get_mut(&other.tid).and_then(|t| t.call.as_mut()) {
                    call.alone = Alone::No;
                }
            }
            self.let_in(tid, Alone::No);
        }
    }

    /// Handles a system-call stop.
    ///
    /// The thread is stopped at the exit of a call that the recorder let it enter. In the mode
    /// [`Mode::EverySyscall`], and in a process that the recorder attached to, the thread can also
    /// be stopped at the entry or exit of any other call.
    pub(super) fn at_syscall(&mut self, tid: i32, now: Nanos) {
        match ptrace::syscall_stop(tid) {
            Ok((_, SyscallStop::Exit { ret })) => {
                let ret = self.result_after_interrupt(tid, ret);
                self.finish_call(tid, ret, now);
                self.resume(tid, 0);
            }
            Ok((audit, SyscallStop::Entry { nr, args })) => {
                self.at_entry(tid, audit, nr, args, now);
            }
            _ => self.resume(tid, 0),
        }
    }

    fn at_entry(&mut self, tid: i32, audit: u32, nr: u64, args: [u64; 6], now: Nanos) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.inside = true;
        let mode = task.mode;
        if audit == arch::AUDIT {
            if self.attachment.is_some()
                && let Some(rule) = call_table::rule_for(nr, &args)
            {
                return self.begin_call(tid, rule, nr, args, now);
            }
            if mode == Mode::EverySyscall {
                self.before_file_call(tid, nr, args, now);
            }
        } else if self.attachment.is_some() {
            self.note_foreign_call(tid);
        }
        self.let_run(tid, Resumption::Run(0));
    }

    /// Begins to record a read or write if the descriptor bypasses the page cache.
    fn before_file_call(&mut self, tid: i32, nr: u64, args: [u64; 6], now: Nanos) {
        let Some(rule) = call_table::direct_io_rule(nr) else {
            return;
        };
        let Some(pid) = self.tasks.get(&tid).map(|task| task.pid) else {
            return;
        };
        let fd = args[0] as RawFd;
        let direct = self.duplicate(pid, tid, fd).is_some_and(|f| f.is_direct());
        if direct && let Some(task) = self.tasks.get_mut(&tid) {
            let mut call = Pending::new(rule, rule.nr, args);
            call.entry = now;
            task.call = Some(call);
        }
    }

    /// Makes the threads of a process stop at every call from now on.
    fn stop_at_every_call(&mut self, pid: i32, tid: i32) {
        let all = self.tasks.values_mut().filter(|task| task.pid == pid);
        all.for_each(|task| task.mode = Mode::EverySyscall);
        if self.attachment.is_some() {
            return;
        }
        self.note(format!(
            "process {pid} (thread {tid}) opens a file with O_DIRECT: from here on it stops \
             at every system call"
        ));
    }

    /// Records a call that has ended with `ret`.
    pub(super) fn finish_call(&mut self, tid: i32, ret: i64, now: Nanos) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let (pid, mm) = (task.pid, task.mm);
        let Some(call) = task.call.take() else {
            return;
        };
        if let Some(untraced) = call.untraced {
            untraced.restore(tid);
        }
        let was_inside = self
            .spaces
            .get_mut(&mm)
            .is_some_and(|space| space.leave_call(tid));
        if mm == UNRECORDED || is_restarted(ret) {
            self.call_discarded(tid, now);
        } else {
            self.record_call(tid, pid, mm, call, ret, now);
        }
        if was_inside {
            self.let_in_next(mm);
        }
    }

    fn record_call(
        &mut self,
        tid: i32,
        pid: i32,
        mm: MmId,
        mut call: Pending,
        ret: i64,
        now: Nanos,
    ) {
        let alone = call.alone;
        let events = match call.rule.role {
            Role::Executes => {
                // The call failed and did not leave this address space, so the snapshot is not a
                // final one.
                self.call_discarded(tid, now);
                if let Some(mut snapshot) = call.last_snapshot.take() {
                    snapshot.reason = SnapReason::Checkpoint;
                    self.push(snapshot.t, vec![Event::Snapshot(snapshot)]);
                }
                return;
            }
            Role::OpensDirect | Role::Exits => return,
            Role::Traces => return self.note_tracing(pid, ret),
            Role::SetsFilter => return self.has_set_filter(tid, pid, &call, ret),
            Role::AccessesMemory(kind) => self.kernel_accesses(tid, mm, kind, &call, ret, now),
            Role::SetsCapabilities if ret < 0 => return,
            Role::SetsCapabilities => {
                let mask = system::capabilities(tid);
                call.data = mask.map_or_else(Vec::new, |mask| mask.to_le_bytes().to_vec());
                vec![self.call_event(tid, mm, call, ret, now)]
            }
            Role::ChangesMappings | Role::Sets | Role::Clones => {
                vec![self.call_event(tid, mm, call, ret, now)]
            }
        };
        let counted = matches!(events.first(), Some(Event::Call(_)));
        let exit = now;
        let ended = Ended {
            mm,
            exit,
            alone,
            child: None,
            events,
        };
        self.call_ends(tid, ended);
        if counted {
            self.count_call(tid, pid, mm, now);
        }
    }

    /// Builds the event of a finished call.
    pub(super) fn call_event(
        &mut self,
        tid: i32,
        mm: MmId,
        mut call: Pending,
        mut ret: i64,
        t: Nanos,
    ) -> Event {
        let ring = match aio_ring::maps_ring(call.nr, ret) {
            true => aio_ring::address(tid, &call.args).and_then(|ring| mapping_at(tid, ring)),
            false => None,
        };
        if let Some(ring) = &ring {
            (call.nr, call.args, ret) = aio_ring::mmap(ring);
        }
        if self.stacks == Stacks::Copy {
            self.copy_stack(tid, mm, t);
        }
        let file = match (call.file.take(), i64::from(call.nr)) {
            (Some(opened), _) => Some(self.file_of(tid, mm, opened, &call, ret)),
            (None, libc::SYS_shmat) if !is_error(ret) => {
                let segment = mapping_at(tid, ret as u64);
                segment.and_then(|segment| self.file_of_mapping(tid, &segment))
            }
            _ => ring.and_then(|ring| self.file_of_mapping(tid, &ring)),
        };
        if self.files.mapped.has_ranges(mm) {
            let finished = FinishedCall {
                nr: call.nr,
                args: call.args,
                ret,
                alone: call.alone,
            };
            self.follow_mappings(tid, mm, &finished);
        }
        let mm = match i64::from(call.rule.nr) {
            libc::SYS_process_madvise => self.advised(tid, mm, &call.args),
            _ => mm,
        };
        Event::Call(Call {
            tid: Tid(tid),
            mm,
            nr: call.nr,
            args: call.args,
            ret,
            t,
            order: Order::Exact,
            file,
            data: call.data,
        })
    }

    /// Passes a thread's stack to the sink, or an empty stack if the memory cannot be read.
    fn copy_stack(&mut self, tid: i32, mm: MmId, t: Nanos) {
        const BYTES: u64 = 16 << 10;
        let [ip, sp, bp] = ptrace::stack_registers(tid).unwrap_or_default();
        let stack = CallStack {
            tid,
            pid: self.tasks.get(&tid).map_or(tid, |task| task.pid),
            mm: mm.0,
            ip,
            sp,
            bp,
            bytes: memory::bytes(tid, sp, BYTES),
        };
        self.at(t, Action::Stack(stack));
    }

    fn file_of(&mut self, tid: i32, mm: MmId, opened: Opened, call: &Pending, ret: i64) -> FileRef {
        let addr = ret as u64;
        let [_, len, _, flags, ..] = call.args;
        let private = flags & 3 == libc::MAP_PRIVATE as u64;
        let at = (!is_error(ret)).then_some(MappedAt {
            mm,
            addr,
            len,
            shared: !private,
        });
        self.files
            .of_call(opened, at, || inode_key(&mapping_at(tid, addr)?))
    }

    /// Returns the file of a new mapping that no descriptor names: a segment or a ring.
    fn file_of_mapping(&mut self, tid: i32, mapping: &MapsEntry) -> Option<FileRef> {
        let inode = snapshot::inode(tid, mapping, &mut self.files)?;
        Some(self.files.of_segment(inode, mapping))
    }

    /// Returns the address space on which `process_madvise` acts.
    fn advised(&self, tid: i32, own: MmId, args: &[u64; 6]) -> MmId {
        let path = format!("/proc/{tid}/fdinfo/{}", args[0] as RawFd);
        let info = std::fs::read_to_string(path).unwrap_or_default();
        let pid = info
            .lines()
            .find_map(|line| line.strip_prefix("Pid:"))
            .and_then(|pid| pid.trim().parse::<i32>().ok());
        let task = pid.and_then(|pid| self.tasks.get(&pid));
        task.map_or(own, |task| task.mm)
    }

    fn count_call(&mut self, tid: i32, pid: i32, mm: MmId, now: Nanos) {
        let Some(space) = self.spaces.get_mut(&mm) else {
            return;
        };
        space.calls += 1;
        let due = self
            .checkpoint
            .is_some_and(|every| space.calls % every == 0);
        if due && let Some(snapshot) = self.snapshot_of(tid, pid, mm, SnapReason::Checkpoint, now) {
            self.push(now, vec![Event::Snapshot(snapshot)]);
        }
    }

    /// Takes a snapshot of a stopped thread's address space.
    pub(super) fn snapshot(
        &mut self,
        tid: i32,
        mm: MmId,
        reason: SnapReason,
        t: Nanos,
    ) -> Option<Snapshot> {
        let pid = self.tasks.get(&tid)?.pid;
        self.snapshot_of(tid, pid, mm, reason, t)
    }

    fn snapshot_of(
        &mut self,
        tid: i32,
        pid: i32,
        mm: MmId,
        reason: SnapReason,
        t: Nanos,
    ) -> Option<Snapshot> {
        let all_stopped = match self.users(mm) {
            0 | 1 => AllStopped::Yes,
            _ => AllStopped::No,
        };
        let subject = Subject {
            tid,
            pid,
            mm,
            reason,
            all_stopped,
        };
        match self.snapshotter.take(subject, t, &mut self.files) {
            Ok(snapshot) => Some(snapshot),
            Err(error) => {
                self.note(format!(
                    "cannot read the mappings of thread {tid} ({reason:?}): {error}"
                ));
                None
            }
        }
    }

    /// Duplicates a descriptor of a traced process.
    fn duplicate(&mut self, pid: i32, tid: i32, fd: RawFd) -> Option<Opened> {
        let duplicate = self
            .process_descriptor(pid)
            .and_then(|process| getfd(process, fd))
            // The leader may have exited, or the thread may have a private descriptor table.
            .or_else(|| {
                let thread = PidfdFlags::from_bits_retain(libc::PIDFD_THREAD);
                let thread = rustix::process::pidfd_open(Pid::from_raw(tid)?, thread).ok()?;
                getfd(&thread, fd)
            })?;
        Opened::inspect(duplicate)
    }

    fn process_descriptor(&mut self, pid: i32) -> Option<&OwnedFd> {
        match self.pidfds.entry(pid) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => {
                let flags = PidfdFlags::empty();
                let process = rustix::process::pidfd_open(Pid::from_raw(pid)?, flags).ok()?;
                Some(place.insert(process))
            }
        }
    }
}

impl Pending {
    /// Returns the clone flags of a call that creates a task.
    pub(super) fn clone_flags(&self) -> u64 {
        match i64::from(self.nr) {
            libc::SYS_clone => self.args[0],
            arch::SYS_VFORK => (libc::CLONE_VM | libc::CLONE_VFORK) as u64,
            _ => 0,
        }
    }
}

/// True if a thread inside a call is certainly not waiting for another thread.
///
/// The result is true if the thread is running, waiting for a processor, or already stopped at the
/// end of the call.
pub(super) fn is_running(tid: i32) -> bool {
    let status = TaskStatus::read(tid).unwrap_or_default();
    matches!(status.state(), Some('R' | 't'))
}

/// Returns the descriptor of the file that a call maps.
fn mapped_descriptor(nr: u32, args: &[u64; 6]) -> Option<RawFd> {
    let anonymous = args[3] & libc::MAP_ANONYMOUS as u64 != 0;
    let fd = args[4] as RawFd;
    (i64::from(nr) == libc::SYS_mmap && !anonymous && fd >= 0).then_some(fd)
}

fn getfd(process: impl AsFd, fd: RawFd) -> Option<OwnedFd> {
    rustix::process::pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).ok()
}
