//! `perf script` text: page faults, system calls by their tracepoints, and perf's own records.
//!
//! Every line carries thread and time, so nothing has to be guessed about who speaks. What a
//! line says is known by the name of its event ([`PerfScript::event`]). Which file an `mmap`
//! maps is known where perf's record of the mapping stands between the call and its result.
//! Fork, exec and exit are taken from perf's records, or from `sched` tracepoints where those
//! are missing.

mod form;

use super::shaping::{
    MAP_ANONYMOUS, flags_of_kin, is_exec, is_fork, kin_of_flags, kind_of_path, only_asks,
    shapes_memory,
};
use super::text::{hex, number, signed};
use super::world::{Begun, FileKey, Kin, Task, World};
use super::{Line, Parse};
use crate::event::{Access, Call, Fault, FaultSource, FileId, FileRef, Order, Tid};
use crate::sysno;
use form::{Head, Mapping, hex_field, instruction, is_software_fault, pairs, parse_mapping, split};
use std::collections::HashMap;
use winnow::prelude::*;

/// State between lines.
#[derive(Default)]
pub(super) struct PerfScript {
    entered: HashMap<Tid, Entered>,
    files: HashMap<FileKey, FileId>,
    /// Codes with which processes ended themselves.
    codes: HashMap<Tid, u64>,
    /// Perf's own records of tasks are there; `sched` tracepoints would say the same twice.
    has_records: bool,
    told_of_kin: bool,
}

/// A call that has not returned.
struct Entered {
    task: Task,
    nr: u32,
    args: [u64; 6],
    begun: Begun,
    /// What perf recorded of the mapping that it made.
    mapping: Option<Mapping>,
    /// What its child has in common with it, once known.
    kin: Option<Kin>,
}

const NO_ADDRESSES: &str = "page faults have no addresses in this text: record them with \
    `perf record -d` and print them with `perf script -F +pid,+addr --show-task-events`";

impl Parse for PerfScript {
    fn line(&mut self, text: &str, world: &mut World) -> Line {
        let Some((head, rest)) = split(text) else {
            return Line::Foreign;
        };
        if head.tid == Tid(0) {
            return Line::Other;
        }
        world.now = head.time;
        // "1 page-faults: ...": how many events the sample stands for.
        let rest = match rest.split_once(' ') {
            Some((count, rest)) if count.bytes().all(|b| b.is_ascii_digit()) => rest.trim_start(),
            _ => rest,
        };
        if let Some(record) = rest.strip_prefix("PERF_RECORD_") {
            return self
                .record(&head, record, world)
                .unwrap_or(Line::Unreadable);
        }
        // A call without arguments leaves nothing behind its name.
        let (event, rest) = match rest.split_once(": ") {
            Some(parts) => parts,
            None => (rest.trim_end_matches(':'), ""),
        };
        self.event(&head, event, rest.trim(), world)
    }
}

impl PerfScript {
    fn event(&mut self, head: &Head, event: &str, rest: &str, world: &mut World) -> Line {
        let line = match event {
            "exceptions:page_fault_user" => self.exception(head, rest, Mode::User, world),
            "exceptions:page_fault_kernel" => self.exception(head, rest, Mode::Kernel, world),
            "raw_syscalls:sys_enter" => self.raw_enter(head, rest, world),
            "raw_syscalls:sys_exit" => self.raw_exit(head, rest, world),
            "sched:sched_process_fork" => self.sched_fork(head, rest, world),
            "sched:sched_process_exec" => self.sched_exec(head, world),
            "sched:sched_process_exit" => self.sched_exit(head, world),
            _ if is_software_fault(event) => return self.software(head, rest, world),
            _ => match event.strip_prefix("syscalls:sys_") {
                Some(name) => self.syscall(head, name, rest, world),
                None => return Line::Other,
            },
        };
        line.unwrap_or(Line::Unreadable)
    }

    /// Perf's own records.
    fn record(&mut self, head: &Head, text: &str, world: &mut World) -> Option<Line> {
        if let Some(ids) = text.strip_prefix("FORK(") {
            self.has_records = true;
            let ((pid, tid), (_, parent)) = pairs(ids)?;
            let kin = self.kin(parent, Some(pid == world.task(parent, None).pid), world);
            self.fork(parent, tid, kin, world);
        } else if let Some(ids) = text.strip_prefix("EXIT(") {
            self.has_records = true;
            let ((_, tid), _) = pairs(ids)?;
            self.exit(tid, world);
        } else if text.starts_with("COMM exec: ") {
            self.has_records = true;
            self.exec(head, world);
        } else if let Some(mapping) = text.strip_prefix("MMAP2 ") {
            if let Some(entered) = self.entered.get_mut(&head.tid) {
                entered.mapping = parse_mapping(mapping)?;
            }
        } else if let Some(count) = text.strip_prefix("LOST lost ") {
            world.lost(count.trim().parse().ok()?);
        } else {
            return Some(Line::Other);
        }
        Some(Line::Read)
    }

    /// The task of a line, unless it has ended.
    fn speaker(&mut self, head: &Head, world: &mut World) -> Option<Task> {
        (!world.is_over(head.tid)).then(|| world.task(head.tid, head.pid))
    }

    fn exception(
        &mut self,
        head: &Head,
        rest: &str,
        mode: Mode,
        world: &mut World,
    ) -> Option<Line> {
        let addr = hex_field(rest, "address=")?;
        let code = hex_field(rest, "error_code=")?;
        let access = match code {
            _ if code & 0x10 != 0 => Access::Exec,
            _ if code & 2 != 0 => Access::Write,
            _ => Access::Read,
        };
        self.fault(head, addr, access, mode, FaultSource::Tracepoints, world);
        Some(Line::Read)
    }

    /// `page-faults` and its kin: an address where perf was asked for one, then the instruction.
    fn software(&mut self, head: &Head, rest: &str, world: &mut World) -> Line {
        let input = &mut &*rest;
        let Ok(addr) = hex.parse_next(input) else {
            return Line::Unreadable;
        };
        let instruction = match input.trim() {
            "" => None,
            more => match instruction(more) {
                Some(instruction) => Some(instruction),
                None => return Line::Unusable(NO_ADDRESSES),
            },
        };
        let mode = match instruction {
            Some(ip) if ip >> 63 != 0 => Mode::Kernel,
            _ => Mode::User,
        };
        self.fault(
            head,
            addr,
            Access::Unknown,
            mode,
            FaultSource::SoftwareUser,
            world,
        );
        Line::Read
    }

    fn fault(
        &mut self,
        head: &Head,
        addr: u64,
        access: Access,
        mode: Mode,
        source: FaultSource,
        world: &mut World,
    ) {
        // The kernel also faults on addresses of its own.
        if addr >> 63 != 0 {
            return;
        }
        let Some(task) = self.speaker(head, world) else {
            return;
        };
        let fault = Fault {
            tid: head.tid,
            mm: task.mm,
            addr,
            access,
            kernel: mode == Mode::Kernel,
            t: head.time,
            order: Order::Exact,
        };
        world.fault(fault, source);
    }

    /// `NR 9 (0, 2000, 3, 22, ffffffff, 0)`
    fn raw_enter(&mut self, head: &Head, rest: &str, world: &mut World) -> Option<Line> {
        let (nr, list) = rest.strip_prefix("NR ")?.split_once(" (")?;
        let nr = nr.parse().ok()?;
        let mut args = [0; 6];
        for (place, arg) in args.iter_mut().zip(list.trim_end_matches(')').split(", ")) {
            *place = hex.parse(arg).ok()?;
        }
        Some(self.enter(head, nr, args, world))
    }

    /// `NR 9 = 140268224724992`
    fn raw_exit(&mut self, head: &Head, rest: &str, world: &mut World) -> Option<Line> {
        let (nr, ret) = rest.strip_prefix("NR ")?.split_once(" = ")?;
        let ret = signed.parse(ret).ok()?;
        Some(self.leave(head, nr.parse().ok()?, ret, world))
    }

    /// `enter_mmap` with `addr: 0x0, len: 0x2000, ...`, or `exit_mmap` with `0x7f...`.
    fn syscall(&mut self, head: &Head, name: &str, rest: &str, world: &mut World) -> Option<Line> {
        let nr = |name: &str| sysno::number(name.trim_start_matches("new"));
        if let Some(name) = name.strip_prefix("exit_") {
            let Some(nr) = nr(name) else {
                return Some(Line::Other);
            };
            let ret = signed.parse(rest).ok()?;
            return Some(self.leave(head, nr, ret, world));
        }
        let Some(nr) = name.strip_prefix("enter_").and_then(nr) else {
            return Some(Line::Other);
        };
        let mut args = [0; 6];
        let fields = rest.split(", ").filter(|field| !field.is_empty());
        for (place, field) in args.iter_mut().zip(fields) {
            let (_, value) = field.split_once(": ")?;
            let input = &mut &*value;
            *place = number.parse_next(input).ok()?;
        }
        Some(self.enter(head, nr, args, world))
    }

    fn enter(&mut self, head: &Head, nr: u32, args: [u64; 6], world: &mut World) -> Line {
        if nr == sysno::EXIT_GROUP
            && let Some(task) = self.speaker(head, world)
        {
            self.codes.insert(task.pid, args[0]);
        }
        if !shapes_memory(nr) || only_asks(nr, &args) {
            return Line::Other;
        }
        let Some(task) = self.speaker(head, world) else {
            return Line::Other;
        };
        let entered = Entered {
            task,
            nr,
            args,
            begun: world.begin_call(task),
            mapping: None,
            kin: None,
        };
        if let Some(old) = self.entered.insert(head.tid, entered) {
            world.end_call(old.begun);
        }
        Line::Read
    }

    fn leave(&mut self, head: &Head, nr: u32, ret: i64, world: &mut World) -> Line {
        match self.entered.get(&head.tid) {
            Some(entered) if entered.nr == nr => {}
            _ => return Line::Other,
        }
        if is_exec(nr) && ret == 0 {
            // Nothing else has told of it: that would have ended the call.
            self.exec(head, world);
            return Line::Read;
        }
        let Some(mut entered) = self.entered.remove(&head.tid) else {
            return Line::Other;
        };
        if nr == sysno::CLONE3 {
            // Its flags are behind a pointer.
            let kin = entered.kin.unwrap_or(Kin::Thread);
            (entered.nr, entered.args) = (sysno::CLONE, [flags_of_kin(kin), 0, 0, 0, 0, 0]);
        }
        let flags = entered.args[0];
        self.tell(head, entered, ret, world);
        if is_fork(nr) && ret > 0 && !self.has_records {
            let child = Tid(i32::try_from(ret).unwrap_or(i32::MAX));
            self.fork(head.tid, child, kin_of_flags(flags), world);
        }
        Line::Read
    }

    /// Makes an event of a call that has returned.
    fn tell(&mut self, head: &Head, entered: Entered, ret: i64, world: &mut World) {
        let order = world.end_call(entered.begun);
        let file = self.file(&entered, ret, world);
        world.call(Call {
            tid: head.tid,
            mm: entered.task.mm,
            nr: entered.nr,
            args: entered.args,
            ret,
            t: head.time,
            order,
            file,
            data: Vec::new(),
        });
    }

    /// The file of a mapping call.
    fn file(&mut self, entered: &Entered, ret: i64, world: &mut World) -> Option<FileRef> {
        const EBADF: i64 = 9;
        let of_file = match entered.nr {
            sysno::MMAP => entered.args[3] & MAP_ANONYMOUS == 0 && ret != -EBADF,
            sysno::SHMAT => ret >= 0,
            _ => false,
        };
        if !of_file {
            return None;
        }
        let known = entered.mapping.as_ref();
        let known = known.filter(|mapping| mapping.start == ret as u64);
        let (key, path) = match known {
            Some(mapping) => (mapping.key.clone(), mapping.path.as_str()),
            None if entered.nr == sysno::SHMAT => {
                let key = FileKey::Segment(entered.args[0] as i64);
                (key, "/SYSV00000000 (deleted)")
            }
            None => return Some(world.unknown_file()),
        };
        let inode = world.inode(&key, kind_of_path(path), path, 0);
        let file = *self.files.entry(key).or_insert_with(|| world.open());
        Some(FileRef {
            inode,
            file,
            open_flags: 0,
            seals: 0,
            size: 0,
        })
    }

    /// `comm=a pid=8499 child_comm=a child_pid=8501`
    fn sched_fork(&mut self, head: &Head, rest: &str, world: &mut World) -> Option<Line> {
        let child = rest.rsplit_once("child_pid=")?.1.trim().parse().ok()?;
        if !self.has_records {
            let kin = self.kin(head.tid, None, world);
            self.fork(head.tid, Tid(child), kin, world);
        }
        Some(Line::Read)
    }

    fn sched_exec(&mut self, head: &Head, world: &mut World) -> Option<Line> {
        if !self.has_records {
            self.exec(head, world);
        }
        Some(Line::Read)
    }

    fn sched_exit(&mut self, head: &Head, world: &mut World) -> Option<Line> {
        if !self.has_records {
            self.exit(head.tid, world);
        }
        Some(Line::Read)
    }

    /// What a child of `parent` has in common with it, by the call that makes it.
    fn kin(&mut self, parent: Tid, same_process: Option<bool>, world: &mut World) -> Kin {
        let call = self
            .entered
            .get_mut(&parent)
            .filter(|call| is_fork(call.nr));
        let kin = match (call.as_ref().map(|call| call.nr), same_process) {
            (_, Some(true)) => Kin::Thread,
            (Some(sysno::CLONE), _) => kin_of_flags(call.as_ref().map_or(0, |call| call.args[0])),
            (Some(sysno::VFORK), _) => Kin::SharesMemory,
            (Some(sysno::CLONE3), Some(false)) => Kin::SharesMemory,
            (Some(sysno::CLONE3), None) => Kin::Thread,
            (Some(_), _) => Kin::Copy,
            (None, _) => {
                if !self.told_of_kin {
                    self.told_of_kin = true;
                    world.note("the calls that make tasks are not in the text: a new process is taken as a copy".to_owned());
                }
                Kin::Copy
            }
        };
        if let Some(call) = call {
            call.kin = Some(kin);
        }
        kin
    }

    fn fork(&mut self, parent: Tid, child: Tid, kin: Kin, world: &mut World) {
        world.fork(parent, child, kin);
    }

    fn exec(&mut self, head: &Head, world: &mut World) {
        if !world.knows(head.tid) {
            world.task(head.tid, head.pid);
            return;
        }
        if let Some(entered) = self.entered.remove(&head.tid) {
            if is_exec(entered.nr) {
                self.tell(head, entered, 0, world);
            } else {
                world.end_call(entered.begun);
            }
        }
        world.exec(head.tid);
    }

    fn exit(&mut self, tid: Tid, world: &mut World) {
        if let Some(entered) = self.entered.remove(&tid) {
            world.end_call(entered.begun);
        }
        let code = self.codes.remove(&tid).unwrap_or(0);
        world.exit(tid, (code as i32 & 0xff) << 8);
    }
}

/// In which mode a fault was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    User,
    Kernel,
}
