//! Importer for `perf script`: page faults, system-call tracepoints, and perf's own records.
//!
//! Every line contains a thread and a time. The name of the line's event determines how the line is
//! parsed ([`PerfScript::event`]). The file of an `mmap` is known if perf's record of the mapping
//! comes between the call and its result. Forks, execs and exits are taken from perf's records, or
//! from `sched` tracepoints if there are no records.

mod form;

use super::classify::{
    MAP_ANONYMOUS, flags_for_sharing, is_exec, is_fork, kind_of_path, only_asks, shapes_memory,
    sharing_of_flags,
};
use super::state::{Begun, FileKey, ImportState, Sharing, Task};
use super::text::{hex, number, signed};
use super::{Line, Parse};
use crate::event::{Access, Call, Fault, FaultSource, FileId, FileRef, Order, Tid};
use crate::sysno;
use form::{Head, Mapping, hex_field, instruction, is_software_fault, pairs, parse_mapping, split};
use std::collections::HashMap;
use winnow::prelude::*;

/// State of the importer between two lines.
#[derive(Default)]
pub(super) struct PerfScript {
    entered: HashMap<Tid, Entered>,
    files: HashMap<FileKey, FileId>,
    /// Exit codes that processes passed to `exit_group`.
    codes: HashMap<Tid, u64>,
    /// True if the text contains perf's own task records, which make `sched` tracepoints redundant.
    has_records: bool,
    told_of_kin: bool,
}

/// A call that has not returned.
struct Entered {
    task: Task,
    nr: u32,
    args: [u64; 6],
    begun: Begun,
    /// Perf's record of the mapping that the call created.
    mapping: Option<Mapping>,
    /// Sharing between the caller and the child, once known.
    sharing: Option<Sharing>,
}

const NO_ADDRESSES: &str = "page faults have no addresses in this text: record them with \
    `perf record -d` and print them with `perf script -F +pid,+addr --show-task-events`";

impl Parse for PerfScript {
    fn line(&mut self, text: &str, state: &mut ImportState) -> Line {
        let Some((head, rest)) = split(text) else {
            return Line::Foreign;
        };
        if head.tid == Tid(0) {
            return Line::Other;
        }
        state.now = head.time;
        // "1 page-faults: ...": the number of events that the sample represents.
        let rest = match rest.split_once(' ') {
            Some((count, rest)) if count.bytes().all(|b| b.is_ascii_digit()) => rest.trim_start(),
            _ => rest,
        };
        if let Some(record) = rest.strip_prefix("PERF_RECORD_") {
            return self
                .record(&head, record, state)
                .unwrap_or(Line::Unreadable);
        }
        // Nothing follows the name of a call without arguments.
        let (event, rest) = match rest.split_once(": ") {
            Some(parts) => parts,
            None => (rest.trim_end_matches(':'), ""),
        };
        self.event(&head, event, rest.trim(), state)
    }
}

impl PerfScript {
    fn event(&mut self, head: &Head, event: &str, rest: &str, state: &mut ImportState) -> Line {
        let line = match event {
            "exceptions:page_fault_user" => self.exception(head, rest, Mode::User, state),
            "exceptions:page_fault_kernel" => self.exception(head, rest, Mode::Kernel, state),
            "raw_syscalls:sys_enter" => self.raw_enter(head, rest, state),
            "raw_syscalls:sys_exit" => self.raw_exit(head, rest, state),
            "sched:sched_process_fork" => self.sched_fork(head, rest, state),
            "sched:sched_process_exec" => self.sched_exec(head, state),
            "sched:sched_process_exit" => self.sched_exit(head, state),
            _ if is_software_fault(event) => return self.software(head, rest, state),
            _ => match event.strip_prefix("syscalls:sys_") {
                Some(name) => self.syscall(head, name, rest, state),
                None => return Line::Other,
            },
        };
        line.unwrap_or(Line::Unreadable)
    }

    /// Reads perf's own records.
    fn record(&mut self, head: &Head, text: &str, state: &mut ImportState) -> Option<Line> {
        if let Some(ids) = text.strip_prefix("FORK(") {
            self.has_records = true;
            let ((pid, tid), (_, parent)) = pairs(ids)?;
            let sharing = self.sharing(parent, Some(pid == state.task(parent, None).pid), state);
            self.fork(parent, tid, sharing, state);
        } else if let Some(ids) = text.strip_prefix("EXIT(") {
            self.has_records = true;
            let ((_, tid), _) = pairs(ids)?;
            self.exit(tid, state);
        } else if text.starts_with("COMM exec: ") {
            self.has_records = true;
            self.exec(head, state);
        } else if let Some(mapping) = text.strip_prefix("MMAP2 ") {
            if let Some(entered) = self.entered.get_mut(&head.tid) {
                entered.mapping = parse_mapping(mapping)?;
            }
        } else if let Some(count) = text.strip_prefix("LOST lost ") {
            state.lost(count.trim().parse().ok()?);
        } else {
            return Some(Line::Other);
        }
        Some(Line::Read)
    }

    /// Returns the task that a line is about, unless the task has exited.
    fn speaker(&mut self, head: &Head, state: &mut ImportState) -> Option<Task> {
        (!state.is_over(head.tid)).then(|| state.task(head.tid, head.pid))
    }

    fn exception(
        &mut self,
        head: &Head,
        rest: &str,
        mode: Mode,
        state: &mut ImportState,
    ) -> Option<Line> {
        let addr = hex_field(rest, "address=")?;
        let code = hex_field(rest, "error_code=")?;
        let access = match code {
            _ if code & 0x10 != 0 => Access::Exec,
            _ if code & 2 != 0 => Access::Write,
            _ => Access::Read,
        };
        self.fault(head, addr, access, mode, FaultSource::Tracepoints, state);
        Some(Line::Read)
    }

    /// Reads `page-faults` and variants: the address, if perf recorded it, and the instruction.
    fn software(&mut self, head: &Head, rest: &str, state: &mut ImportState) -> Line {
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
            state,
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
        state: &mut ImportState,
    ) {
        // The kernel also faults on its own addresses.
        if addr >> 63 != 0 {
            return;
        }
        let Some(task) = self.speaker(head, state) else {
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
        state.fault(fault, source);
    }

    /// Reads `NR 9 (0, 2000, 3, 22, ffffffff, 0)`.
    fn raw_enter(&mut self, head: &Head, rest: &str, state: &mut ImportState) -> Option<Line> {
        let (nr, list) = rest.strip_prefix("NR ")?.split_once(" (")?;
        let nr = nr.parse().ok()?;
        let mut args = [0; 6];
        for (place, arg) in args.iter_mut().zip(list.trim_end_matches(')').split(", ")) {
            *place = hex.parse(arg).ok()?;
        }
        Some(self.enter(head, nr, args, state))
    }

    /// Reads `NR 9 = 140268224724992`.
    fn raw_exit(&mut self, head: &Head, rest: &str, state: &mut ImportState) -> Option<Line> {
        let (nr, ret) = rest.strip_prefix("NR ")?.split_once(" = ")?;
        let ret = signed.parse(ret).ok()?;
        Some(self.leave(head, nr.parse().ok()?, ret, state))
    }

    /// Reads `enter_mmap` with `addr: 0x0, len: 0x2000, ...`, or `exit_mmap` with `0x7f...`.
    fn syscall(
        &mut self,
        head: &Head,
        name: &str,
        rest: &str,
        state: &mut ImportState,
    ) -> Option<Line> {
        let nr = |name: &str| sysno::number(name.trim_start_matches("new"));
        if let Some(name) = name.strip_prefix("exit_") {
            let Some(nr) = nr(name) else {
                return Some(Line::Other);
            };
            let ret = signed.parse(rest).ok()?;
            return Some(self.leave(head, nr, ret, state));
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
        Some(self.enter(head, nr, args, state))
    }

    fn enter(&mut self, head: &Head, nr: u32, args: [u64; 6], state: &mut ImportState) -> Line {
        if nr == sysno::EXIT_GROUP
            && let Some(task) = self.speaker(head, state)
        {
            self.codes.insert(task.pid, args[0]);
        }
        if !shapes_memory(nr) || only_asks(nr, &args) {
            return Line::Other;
        }
        let Some(task) = self.speaker(head, state) else {
            return Line::Other;
        };
        let entered = Entered {
            task,
            nr,
            args,
            begun: state.begin_call(task),
            mapping: None,
            sharing: None,
        };
        if let Some(old) = self.entered.insert(head.tid, entered) {
            state.end_call(old.begun);
        }
        Line::Read
    }

    fn leave(&mut self, head: &Head, nr: u32, ret: i64, state: &mut ImportState) -> Line {
        match self.entered.get(&head.tid) {
            Some(entered) if entered.nr == nr => {}
            _ => return Line::Other,
        }
        if is_exec(nr) && ret == 0 {
            // Perf's record did not report the exec; such a record would have ended the call.
            self.exec(head, state);
            return Line::Read;
        }
        let Some(mut entered) = self.entered.remove(&head.tid) else {
            return Line::Other;
        };
        if nr == sysno::CLONE3 {
            // The flags of `clone3` are in memory that the text does not show.
            let sharing = entered.sharing.unwrap_or(Sharing::Thread);
            (entered.nr, entered.args) =
                (sysno::CLONE, [flags_for_sharing(sharing), 0, 0, 0, 0, 0]);
        }
        let flags = entered.args[0];
        self.tell(head, entered, ret, state);
        if is_fork(nr) && ret > 0 && !self.has_records {
            let child = Tid(i32::try_from(ret).unwrap_or(i32::MAX));
            self.fork(head.tid, child, sharing_of_flags(flags), state);
        }
        Line::Read
    }

    /// Creates the event for a call that has returned.
    fn tell(&mut self, head: &Head, entered: Entered, ret: i64, state: &mut ImportState) {
        let order = state.end_call(entered.begun);
        let file = self.file(&entered, ret, state);
        state.call(Call {
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

    /// Returns the file that a call maps, if any.
    fn file(&mut self, entered: &Entered, ret: i64, state: &mut ImportState) -> Option<FileRef> {
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
            None => return Some(state.unknown_file()),
        };
        let inode = state.inode(&key, kind_of_path(path), path, 0);
        let file = *self.files.entry(key).or_insert_with(|| state.open());
        Some(FileRef {
            inode,
            file,
            open_flags: 0,
            seals: 0,
            size: 0,
        })
    }

    /// Reads `comm=a pid=8499 child_comm=a child_pid=8501`.
    fn sched_fork(&mut self, head: &Head, rest: &str, state: &mut ImportState) -> Option<Line> {
        let child = rest.rsplit_once("child_pid=")?.1.trim().parse().ok()?;
        if !self.has_records {
            let sharing = self.sharing(head.tid, None, state);
            self.fork(head.tid, Tid(child), sharing, state);
        }
        Some(Line::Read)
    }

    fn sched_exec(&mut self, head: &Head, state: &mut ImportState) -> Option<Line> {
        if !self.has_records {
            self.exec(head, state);
        }
        Some(Line::Read)
    }

    fn sched_exit(&mut self, head: &Head, state: &mut ImportState) -> Option<Line> {
        if !self.has_records {
            self.exit(head.tid, state);
        }
        Some(Line::Read)
    }

    /// Returns the sharing between `parent` and its new child, according to the call that creates
    /// the child.
    fn sharing(
        &mut self,
        parent: Tid,
        same_process: Option<bool>,
        state: &mut ImportState,
    ) -> Sharing {
        let call = self
            .entered
            .get_mut(&parent)
            .filter(|call| is_fork(call.nr));
        let sharing = match (call.as_ref().map(|call| call.nr), same_process) {
            (_, Some(true)) => Sharing::Thread,
            (Some(sysno::CLONE), _) => {
                sharing_of_flags(call.as_ref().map_or(0, |call| call.args[0]))
            }
            (Some(sysno::VFORK), _) => Sharing::SharesMemory,
            (Some(sysno::CLONE3), Some(false)) => Sharing::SharesMemory,
            (Some(sysno::CLONE3), None) => Sharing::Thread,
            (Some(_), _) => Sharing::Copy,
            (None, _) => {
                if !self.told_of_kin {
                    self.told_of_kin = true;
                    state.note("the text lacks the calls that create tasks: each new process is assumed to be a copy".to_owned());
                }
                Sharing::Copy
            }
        };
        if let Some(call) = call {
            call.sharing = Some(sharing);
        }
        sharing
    }

    fn fork(&mut self, parent: Tid, child: Tid, sharing: Sharing, state: &mut ImportState) {
        state.fork(parent, child, sharing);
    }

    fn exec(&mut self, head: &Head, state: &mut ImportState) {
        if !state.knows(head.tid) {
            state.task(head.tid, head.pid);
            return;
        }
        if let Some(entered) = self.entered.remove(&head.tid) {
            if is_exec(entered.nr) {
                self.tell(head, entered, 0, state);
            } else {
                state.end_call(entered.begun);
            }
        }
        state.exec(head.tid);
    }

    fn exit(&mut self, tid: Tid, state: &mut ImportState) {
        if let Some(entered) = self.entered.remove(&tid) {
            state.end_call(entered.begun);
        }
        let code = self.codes.remove(&tid).unwrap_or(0);
        state.exit(tid, (code as i32 & 0xff) << 8);
    }
}

/// Processor mode in which a fault was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    User,
    Kernel,
}
