//! Importer for `perf trace`: calls with named arguments, and faults with `-F`.
//!
//! `perf trace` omits arguments that are 0. It prints a fault on a mapped file as a position in
//! that file instead of an address; such faults cannot be used and count as lost. The text does not
//! show which files are mapped.

use super::classify::{
    MAP_ANONYMOUS, flags_for_sharing, is_exec, is_fork, only_asks, shapes_memory, sharing_of_flags,
};
use super::state::{Begun, ImportState, Sharing, Task};
use super::text::{hex, id, number, seconds, signed};
use super::{Line, Parse};
use crate::dump::signature::{self, Arg};
use crate::event::{Access, Call, Fault, FaultSource, Order, Tid};
use crate::names;
use crate::sysno;
use std::collections::HashMap;
use winnow::ascii::space0;
use winnow::combinator::{alt, delimited, opt};
use winnow::prelude::*;
use winnow::token::take_until;

/// State of the importer between two lines.
#[derive(Default)]
pub(super) struct PerfTrace {
    /// Calls that have not returned yet.
    entered: HashMap<Tid, Entered>,
    /// True once a call has been read. An `execve` before that starts the traced program.
    has_begun: bool,
}

struct Entered {
    task: Task,
    nr: u32,
    args: [u64; 6],
    begun: Begun,
}

impl Parse for PerfTrace {
    fn line(&mut self, text: &str, state: &mut ImportState) -> Line {
        let rest = &mut &*text;
        let Ok(time) = head(rest) else {
            return Line::Foreign;
        };
        let Some((tid, what)) = speaker(rest) else {
            return Line::Foreign;
        };
        if let Some(time) = time {
            state.now = time;
        }
        if state.is_over(tid) {
            return Line::Other;
        }
        let line = match what.trim_start() {
            fault if fault.starts_with("minfault ") || fault.starts_with("majfault ") => {
                page_fault(tid, fault, state)
            }
            call => match call.strip_prefix("... [continued]: ") {
                Some(call) => self.continued(tid, call, state),
                None => self.call(tid, call, state),
            },
        };
        line.unwrap_or(Line::Unreadable)
    }
}

impl PerfTrace {
    /// Reads `name(a: 1, b: 2) = RESULT`, or `name(a: 1, b: 2) ...` for a call that has not
    /// returned.
    fn call(&mut self, tid: Tid, text: &str, state: &mut ImportState) -> Option<Line> {
        let (name, rest) = text.split_once('(')?;
        let nr = match sysno::number(name) {
            Some(nr) if shapes_memory(nr) => nr,
            Some(sysno::EXIT) => {
                state.exit(tid, 0);
                return Some(Line::Read);
            }
            Some(sysno::EXIT_GROUP) => {
                let code = rest
                    .split_once("error_code: ")
                    .map_or("0", |(_, code)| code);
                let code = number.parse_next(&mut &*code).ok()?;
                state.exit_process(tid, (code as i32 & 0xff) << 8);
                return Some(Line::Read);
            }
            _ => return Some(Line::Other),
        };
        let (list, result) = match rest.rsplit_once(" = ") {
            Some((list, result)) => (list, Some(result)),
            None => (rest.trim_end_matches('.'), None),
        };
        let list = list.trim_end();
        let args = arguments(nr, list.strip_suffix(')').unwrap_or(list))?;
        if only_asks(nr, &args) {
            return Some(Line::Other);
        }
        self.has_begun = true;
        let task = state.task(tid, None);
        let entered = Entered {
            task,
            nr,
            args,
            begun: state.begin_call(task),
        };
        match result {
            Some(result) => return self.finish(tid, entered, result, state),
            None => self.suspend(tid, entered, state),
        }
        Some(Line::Read)
    }

    fn suspend(&mut self, tid: Tid, entered: Entered, state: &mut ImportState) {
        if let Some(old) = self.entered.insert(tid, entered) {
            state.end_call(old.begun);
        }
    }

    /// Reads `name()) = RESULT`: the end of a call that was suspended, or that began before the
    /// text.
    fn continued(&mut self, tid: Tid, text: &str, state: &mut ImportState) -> Option<Line> {
        let (name, _) = text.split_once('(')?;
        let nr = sysno::number(name);
        let (_, result) = text.rsplit_once(" =")?;
        if self
            .entered
            .get(&tid)
            .is_some_and(|entered| Some(entered.nr) == nr)
        {
            let entered = self.entered.remove(&tid)?;
            return self.finish(tid, entered, result, state);
        }
        let ok = result.trim().is_empty() || result.trim() == "0";
        match nr {
            Some(nr) if is_exec(nr) && ok && self.has_begun && state.knows(tid) => {
                state.exec(tid);
            }
            // This is the traced program's first call, or the child's side of the call that created
            // the child.
            Some(nr) if is_exec(nr) || is_fork(nr) => {
                self.child(tid, state);
            }
            _ => return Some(Line::Other),
        }
        Some(Line::Read)
    }

    /// Adds a new task. If a call that creates tasks has not returned yet, its caller is the
    /// parent.
    fn child(&mut self, tid: Tid, state: &mut ImportState) {
        let parent = self.entered.iter().filter(|(_, call)| is_fork(call.nr));
        let parent = parent.min_by_key(|(tid, _)| **tid);
        if let Some((parent, call)) = parent {
            state.fork(*parent, tid, sharing(call.nr, call.args[0]));
        }
        state.task(tid, None);
    }

    fn finish(
        &mut self,
        tid: Tid,
        entered: Entered,
        result: &str,
        state: &mut ImportState,
    ) -> Option<Line> {
        const EBADF: i64 = 9;
        let Entered {
            task,
            mut nr,
            mut args,
            begun,
        } = entered;
        let order = state.end_call(begun);
        let input = &mut result.trim();
        let ret = match signed.parse_next(input).ok()? {
            -1 => match input.trim_start().split(' ').next().and_then(names::errno) {
                Some(errno) => -errno,
                None => -1,
            },
            ret => ret,
        };
        let sharing = sharing(nr, args[0]);
        if nr == sysno::CLONE3 {
            // The flags of `clone3` are in memory that the text does not show.
            (nr, args) = (sysno::CLONE, [flags_for_sharing(sharing), 0, 0, 0, 0, 0]);
        }
        let of_file = nr == sysno::MMAP && args[3] & MAP_ANONYMOUS == 0 && ret != -EBADF;
        let file = of_file.then(|| state.unknown_file());
        state.call(Call {
            tid,
            mm: task.mm,
            nr,
            args,
            ret,
            t: state.now,
            order,
            file,
            data: Vec::new(),
        });
        if is_fork(nr) && ret > 0 {
            state.fork(tid, Tid(i32::try_from(ret).ok()?), sharing);
        }
        if is_exec(nr) && ret == 0 {
            state.exec(tid);
        }
        Some(Line::Read)
    }
}

/// Reads `0.448 ( 0.015 ms):` in milliseconds; `?` marks an unknown start.
fn head(input: &mut &str) -> ModalResult<Option<u64>> {
    let millis = alt((seconds.map(|t| Some(t / 1000)), "?".map(|_| None)));
    let time = delimited(space0, millis, space0).parse_next(input)?;
    let _ = ("(", take_until(0.., "):"), "):", space0).parse_next(input)?;
    Ok(time)
}

/// Reads `COMM/TID what`.
fn speaker(text: &str) -> Option<(Tid, &str)> {
    text.match_indices('/').find_map(|(at, _)| {
        let rest = &mut text.get(at + 1..)?;
        let tid = id.parse_next(rest).ok()?;
        rest.starts_with(' ').then_some((Tid(tid), *rest))
    })
}

/// Reads `minfault [ip] => //anon@0x7f... (d.)`; fails for a position in a file.
fn page_fault(tid: Tid, text: &str, state: &mut ImportState) -> Option<Line> {
    let (_, place) = text.split_once(" => ")?;
    let place = place.rsplit_once(" (")?.0;
    let address = match place.rsplit_once('@') {
        Some((name, address)) if name.starts_with("//anon") || name.starts_with('[') => address,
        None => place,
        Some(_) => return None,
    };
    let input = &mut address.strip_prefix("0x")?;
    let addr = hex.parse_next(input).ok()?;
    let fault = Fault {
        tid,
        mm: state.task(tid, None).mm,
        addr,
        access: Access::Unknown,
        kernel: false,
        t: state.now,
        order: Order::Exact,
    };
    state.fault(fault, FaultSource::SoftwareUser);
    Some(Line::Read)
}

fn sharing(nr: u32, flags: u64) -> Sharing {
    match nr {
        sysno::CLONE => sharing_of_flags(flags),
        sysno::CLONE3 => Sharing::Thread,
        sysno::VFORK => Sharing::SharesMemory,
        _ => Sharing::Copy,
    }
}

/// Returns the names of a call's arguments in the order of the tracepoints.
fn argument_names(nr: u32) -> &'static [&'static str] {
    match nr {
        sysno::MMAP => &["addr", "len", "prot", "flags", "fd", "off"],
        sysno::MUNMAP => &["addr", "len"],
        sysno::MPROTECT | sysno::PKEY_MPROTECT => &["start", "len", "prot", "pkey"],
        sysno::BRK => &["brk"],
        sysno::MREMAP => &["addr", "old_len", "new_len", "flags", "new_addr"],
        sysno::MADVISE => &["start", "len_in", "behavior"],
        sysno::PROCESS_MADVISE => &["pidfd", "vec", "vlen", "behavior", "flags"],
        sysno::MLOCK | sysno::MUNLOCK | sysno::MLOCK2 | sysno::MSEAL => &["start", "len", "flags"],
        sysno::MLOCKALL => &["flags"],
        sysno::SHMAT => &["shmid", "shmaddr", "shmflg"],
        sysno::SHMDT => &["shmaddr"],
        sysno::MBIND => &["start", "len", "mode", "nmask", "maxnode", "flags"],
        sysno::SET_MEMPOLICY => &["mode", "nmask", "maxnode"],
        sysno::REMAP_FILE_PAGES => &["start", "size", "prot", "pgoff", "flags"],
        sysno::PRCTL => &["option", "arg2", "arg3", "arg4", "arg5"],
        sysno::PRLIMIT64 => &["pid", "resource", "new_rlim", "old_rlim"],
        sysno::SETRLIMIT => &["resource", "rlim"],
        sysno::PERSONALITY => &["personality"],
        sysno::CLONE => &[
            "clone_flags",
            "newsp",
            "parent_tidptr",
            "child_tidptr",
            "tls",
        ],
        sysno::CLONE3 => &["uargs", "size"],
        sysno::EXECVE => &["filename", "argv", "envp"],
        _ => &[],
    }
}

/// Reads arguments by name. Absent arguments are 0, except that an anonymous mapping gets
/// descriptor -1.
fn arguments(nr: u32, list: &str) -> Option<[u64; 6]> {
    let known = argument_names(nr);
    let kinds = signature::arguments(nr).unwrap_or(&[]);
    let mut args = [0; 6];
    let mut told = [false; 6];
    for field in list.split(", ").filter(|field| !field.trim().is_empty()) {
        let (name, text) = field.split_once(": ")?;
        let Some(place) = known.iter().position(|known| *known == name.trim()) else {
            continue;
        };
        args[place] = match value(kinds.get(place), text.trim()) {
            Some(value) => value,
            // Options that do not concern memory have no known names.
            None if nr == sysno::PRCTL || is_exec(nr) => 0,
            None => return None,
        };
        told[place] = true;
    }
    if nr == sysno::MMAP && !told[4] && args[3] & MAP_ANONYMOUS != 0 {
        args[4] = 0xffff_ffff;
    }
    Some(args)
}

/// Reads a number, or names joined by `|`, with or without a prefix such as `PROT_`.
fn value(kind: Option<&Arg>, text: &str) -> Option<u64> {
    let mut bits = 0;
    for part in text.split('|') {
        let input = &mut &*part;
        bits |= match (opt(number).parse_next(input).ok()?, kind) {
            (Some(value), _) => value,
            (None, Some(Arg::Named(names))) => names.find(part)?,
            (None, _) => names::value(part)?,
        };
    }
    Some(bits)
}
