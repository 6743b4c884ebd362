//! Pairs the entry and exit of each thread's calls and turns them into events.

use super::Observer;
use crate::aio_ring;
use crate::call_range::CallRange;
use crate::call_rings::record::UserStack;
use crate::call_table::{self, CallRule, Data, KernelAccess, Role};
use crate::files::maps_itself;
use crate::mapping_calls::{is_error, is_restarted};
use crate::snapshot;
use crate::timeline::{Alone, Ended, Flight};
use crate::{CallStack, Stacks, memory};
use std::os::fd::RawFd;
use vmarea_linux_sys::arch;
use vmarea_process::maps::MapsEntry;
use vmarea_process::system;
use vmarea_trace::event::{Call, Event, FileId, FileRef, MmId, Nanos, Order, Tid};

/// Length of the first version of `struct clone_args`.
const CLONE_ARGS: usize = 64;

/// A call between its entry and its exit.
#[derive(Debug)]
pub(super) struct Pending {
    rule: &'static CallRule,
    /// Call number to record; a `clone3` call is recorded as `clone`.
    nr: u32,
    args: [u64; 6],
    /// Kernel's address of the file that the call maps; 0 if there is none.
    file: u64,
    /// Address space that the call changes.
    mm: MmId,
    data: Vec<u8>,
    pub(super) entry: Nanos,
    alone: Alone,
    stack: Option<Box<UserStack>>,
    /// Mapping that the kernel reported during the call.
    pub(super) mapped: Option<Box<MapsEntry>>,
}

impl Pending {
    /// True if the call creates a task.
    pub(super) fn clones(&self) -> bool {
        self.rule.role == Role::Clones
    }

    /// True if the call changes mappings.
    pub(super) fn changes_mappings(&self) -> bool {
        self.rule.role == Role::ChangesMappings
    }

    /// Returns the flags of a call that creates a task, if they are known.
    pub(super) fn clone_flags(&self) -> Option<u64> {
        match i64::from(self.nr) {
            libc::SYS_clone => Some(self.args[0]),
            arch::SYS_VFORK => Some((libc::CLONE_VM | libc::CLONE_VFORK) as u64),
            arch::SYS_FORK => Some(0),
            _ => None,
        }
    }
}

impl Observer<'_> {
    /// Handles the entry of a call.
    pub(super) fn entered(
        &mut self,
        (t, tid): (Nanos, i32),
        nr: u32,
        (args, file): ([u64; 6], u64),
        stack: Option<Box<UserStack>>,
    ) {
        let Some(rule) = call_table::rule_for(u64::from(nr), &args) else {
            return;
        };
        self.other_writes(t, rule, &args);
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.seen = t;
        let (pid, own) = (task.pid, task.mm);
        match rule.role {
            Role::OpensDirect if !opens_direct(tid, nr, &args) => return,
            Role::OpensDirect => return self.hide(own, t, "direct I/O"),
            Role::AccessesMemory(KernelAccess::ReadsOther | KernelAccess::WritesOther) => return,
            Role::AccessesMemory(_) => return self.hide(own, t, "asynchronous I/O or vmsplice"),
            Role::SetsFilter | Role::Traces | Role::Executes | Role::Exits => return,
            _ => {}
        }
        let mm = match i64::from(nr) {
            libc::SYS_process_madvise => self.advised(tid, own, args[0] as RawFd),
            libc::SYS_ioctl => return self.registers(t, tid),
            libc::SYS_io_uring_setup => return self.hide(own, t, "io_uring"),
            _ => own,
        };
        let mut call = Pending {
            rule,
            nr,
            args,
            file,
            mm,
            data: argument_data(tid, rule.data, &args, stack.as_deref()),
            entry: t,
            alone: Alone::Yes,
            stack,
            mapped: None,
        };
        if i64::from(nr) == libc::SYS_clone3 {
            call.read_clone_args(tid);
        }
        if i64::from(nr) == libc::SYS_prlimit64 {
            let target = match args[0] as i32 {
                0 => pid,
                other => self.tasks.get(&other).map_or(0, |task| task.pid),
            };
            call.data
                .extend(u64::from(target.cast_unsigned()).to_le_bytes());
        }
        self.begin_call(tid, call);
    }

    fn begin_call(&mut self, tid: i32, mut call: Pending) {
        let Some(space) = self.spaces.get_mut(&call.mm) else {
            return;
        };
        let (role, t) = (call.rule.role, call.entry);
        let mut others = Vec::new();
        if matches!(role, Role::ChangesMappings | Role::Clones) {
            others.extend(space.inside.iter().copied().filter(|other| *other != tid));
            space.inside.insert(tid);
        }
        if !others.is_empty() {
            call.alone = Alone::No;
        }
        let flight = match role {
            Role::Clones => Some(Flight::MovesTask),
            Role::ChangesMappings if space.users.len() > 1 => {
                let range = CallRange::of_entered(call.nr, &call.args);
                Some(Flight::ChangesMappings(call.mm, range))
            }
            _ => None,
        };
        if let Some(flight) = flight.filter(|_| space.recorded) {
            self.timeline.call_begins(tid, t, flight);
        }
        for other in others {
            if let Some(task) = self.tasks.get_mut(&other)
                && let Some(call) = &mut task.call
            {
                call.alone = Alone::No;
            }
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.call = Some(call);
        }
    }

    /// Handles the exit of a call.
    pub(super) fn returned(&mut self, t: Nanos, tid: i32, nr: u32, ret: i64) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.seen = t;
        let own = task.mm;
        let Some(call) = task.call.take_if(|call| call.rule.nr == nr) else {
            return self.returned_unseen(t, own, nr);
        };
        let recorded = match self.spaces.get_mut(&call.mm) {
            Some(space) => {
                if space.inside.remove(&tid) {
                    space.changed = t;
                }
                space.recorded
            }
            None => false,
        };
        let nothing = call.rule.role == Role::SetsCapabilities && ret < 0;
        if !recorded || nothing || is_restarted(ret) {
            return self.timeline.call_discarded(tid);
        }
        let (mm, alone) = (call.mm, call.alone);
        let event = self.call_event(tid, call, ret, t);
        let ended = Ended {
            mm,
            exit: t,
            alone,
            child: None,
            events: vec![event],
        };
        self.timeline.call_ends(tid, ended);
    }

    /// Handles the exit of a call that began before the recording, or whose entry was lost.
    fn returned_unseen(&mut self, t: Nanos, mm: MmId, nr: u32) {
        let changes = |rule: &CallRule| {
            rule.nr == nr && rule.when.is_empty() && rule.role == Role::ChangesMappings
        };
        if !call_table::RULES.iter().any(changes) {
            return;
        }
        match self.spaces.get_mut(&mm) {
            Some(space) if space.recorded => self.restart(mm, t),
            Some(space) => space.changed = t,
            None => {}
        }
    }

    /// Builds the event of a finished call.
    pub(super) fn call_event(
        &mut self,
        tid: i32,
        mut call: Pending,
        mut ret: i64,
        t: Nanos,
    ) -> Event {
        self.emit_stack(tid, &call);
        if let Some(ring) = &call.mapped
            && aio_ring::maps_ring(call.nr, ret)
        {
            (call.nr, call.args, ret) = aio_ring::mmap(ring);
        }
        let file = match i64::from(call.rule.nr) {
            libc::SYS_mmap | libc::SYS_shmat | libc::SYS_io_setup if !is_error(ret) => {
                self.file_of(tid, &call, ret)
            }
            _ => None,
        };
        let data = match call.rule.role {
            Role::SetsCapabilities => {
                system::capabilities(tid).map_or_else(Vec::new, |mask| mask.to_le_bytes().to_vec())
            }
            _ => call.data,
        };
        Event::Call(Call {
            tid: Tid(tid),
            mm: call.mm,
            nr: call.nr,
            args: call.args,
            ret,
            t,
            order: Order::Exact,
            file,
            data,
        })
    }

    fn emit_stack(&mut self, tid: i32, call: &Pending) {
        if self.stacks == Stacks::Skip {
            return;
        }
        let mut stack = CallStack {
            tid,
            pid: self.tasks.get(&tid).map_or(tid, |task| task.pid),
            mm: call.mm.0,
            ..CallStack::default()
        };
        if let Some(user) = &call.stack {
            (stack.ip, stack.sp, stack.bp) = (user.ip, user.sp, user.bp);
            stack.bytes.clone_from(&user.bytes);
        }
        self.emitter.stack(&stack);
    }

    /// Returns the file that a call mapped; `None` if nothing is known about the file.
    fn file_of(&mut self, tid: i32, call: &Pending, ret: i64) -> Option<FileRef> {
        const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
        let is_mmap = i64::from(call.rule.nr) == libc::SYS_mmap;
        if is_mmap && call.args[3] & ANONYMOUS != 0 {
            return None;
        }
        let addr = ret as u64;
        let mapping = call.mapped.as_deref()?;
        if addr < mapping.start || mapping.end <= addr {
            return None;
        }
        let inode = snapshot::inode(tid, mapping, &mut self.files)?;
        if !is_mmap {
            return Some(self.files.of_segment(inode, mapping));
        }
        let known = self.files.inode(inode)?;
        let shared = call.args[3] & 3 != libc::MAP_PRIVATE as u64;
        (known.fs_magic != 0).then_some(FileRef {
            inode,
            file: match maps_itself(Some(known.kind), shared) && !self.files.is_stacked(inode) {
                true => self.snapshotter.file(call.file),
                false => FileId::UNKNOWN,
            },
            open_flags: libc::O_RDWR as u32,
            seals: 0,
            size: known.size,
        })
    }

    /// Returns the address space on which `process_madvise` acts.
    fn advised(&self, tid: i32, own: MmId, fd: RawFd) -> MmId {
        let info = std::fs::read_to_string(format!("/proc/{tid}/fdinfo/{fd}"));
        let info = info.unwrap_or_default();
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        let pid = pid.and_then(|pid| pid.trim().parse::<i32>().ok());
        let task = pid.and_then(|pid| self.tasks.get(&pid));
        task.map_or(own, |task| task.mm)
    }

    /// Handles the registration of memory with a userfaultfd, or its end: another thread may fill
    /// the pages. The exit of the call is not observed, so the mappings stay unknown for a moment.
    fn registers(&mut self, t: Nanos, tid: i32) {
        const LASTS: Nanos = 100_000_000;
        let mm = |observer: &Self| observer.tasks.get(&tid).map(|task| task.mm);
        let Some(before) = mm(self) else {
            return;
        };
        self.hide(before, t, "a userfaultfd");
        if mm(self) == Some(before) {
            self.restart(before, t);
        }
        if let Some(space) = mm(self).and_then(|mm| self.spaces.get_mut(&mm)) {
            space.changed = t + LASTS;
        }
    }

    /// Handles writes to the memory of an observed process by any process.
    fn other_writes(&mut self, t: Nanos, rule: &CallRule, args: &[u64; 6]) {
        if rule.role == Role::AccessesMemory(KernelAccess::WritesOther)
            && let Some(task) = self.tasks.get(&(args[0] as i32))
        {
            self.hide(task.mm, t, "process_vm_writev");
        }
    }
}

impl Pending {
    /// Replaces the arguments of `clone3` by those of the equivalent `clone`, if they can be read.
    fn read_clone_args(&mut self, tid: i32) {
        let addr = self.args[0];
        let sampled = self.stack.as_ref().and_then(|s| s.at(addr, CLONE_ARGS));
        let bytes = match sampled {
            Some(bytes) => bytes.to_vec(),
            None => memory::bytes(tid, addr, CLONE_ARGS as u64),
        };
        let word = |n: usize| bytes.get(8 * n..8 * n + 8)?.try_into().ok();
        let (Some(flags), Some(signal), Some(stack)) = (word(0), word(4), word(5)) else {
            return;
        };
        let word = u64::from_ne_bytes;
        self.nr = libc::SYS_clone as u32;
        self.args = [word(flags) | word(signal), word(stack), 0, 0, 0, 0];
    }
}

/// True if a call that may open a file for direct I/O does so, as far as is known.
fn opens_direct(tid: i32, nr: u32, args: &[u64; 6]) -> bool {
    if i64::from(nr) != libc::SYS_openat2 {
        return true;
    }
    // The first member of `struct open_how` contains the flags.
    let flags = memory::words(tid, args[2], 1);
    flags
        .first()
        .is_none_or(|flags| flags & libc::O_DIRECT as u64 != 0)
}

/// Reads the data behind a call's pointers: from the sampled stack, or from memory, where it may
/// have changed in the meantime.
fn argument_data(tid: i32, kind: Data, args: &[u64; 6], stack: Option<&UserStack>) -> Vec<u8> {
    let arg = |n: u8| args[usize::from(n)];
    let range = match kind {
        Data::Iovecs { at, count } => Some((arg(at), arg(count).saturating_mul(16))),
        Data::NodeMask { at, bits } => {
            Some((arg(at), arg(bits).saturating_sub(1).div_ceil(64) * 8))
        }
        Data::Limit { at } => Some((arg(at), 16)),
        _ => None,
    };
    let sampled = range.and_then(|(addr, len)| stack?.at(addr, usize::try_from(len).ok()?));
    match sampled {
        Some(bytes) => bytes.to_vec(),
        None => memory::data(tid, kind, args),
    }
}
