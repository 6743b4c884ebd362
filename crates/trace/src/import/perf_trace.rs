//! `perf trace` text: calls with named arguments, zeros left out, and faults with `-F`.
//!
//! A fault on a mapped file is printed as a place in that file and not as an address; such
//! faults cannot be used and are counted as lost. Which files are mapped is not told.

use super::shaping::{
    MAP_ANONYMOUS, flags_of_kin, is_exec, is_fork, kin_of_flags, only_asks, shapes_memory,
};
use super::text::{hex, id, number, seconds, signed};
use super::world::{Begun, Kin, Task, World};
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

/// State between lines.
#[derive(Default)]
pub(super) struct PerfTrace {
    /// Calls that have not returned.
    entered: HashMap<Tid, Entered>,
    /// A call was seen. Before it, `execve` is the start of the program that is traced.
    has_begun: bool,
}

struct Entered {
    task: Task,
    nr: u32,
    args: [u64; 6],
    begun: Begun,
}

impl Parse for PerfTrace {
    fn line(&mut self, text: &str, world: &mut World) -> Line {
        let rest = &mut &*text;
        let Ok(time) = head(rest) else {
            return Line::Foreign;
        };
        let Some((tid, what)) = speaker(rest) else {
            return Line::Foreign;
        };
        if let Some(time) = time {
            world.now = time;
        }
        if world.is_over(tid) {
            return Line::Other;
        }
        let line = match what.trim_start() {
            fault if fault.starts_with("minfault ") || fault.starts_with("majfault ") => {
                page_fault(tid, fault, world)
            }
            call => match call.strip_prefix("... [continued]: ") {
                Some(call) => self.continued(tid, call, world),
                None => self.call(tid, call, world),
            },
        };
        line.unwrap_or(Line::Unreadable)
    }
}

impl PerfTrace {
    /// `name(a: 1, b: 2) = RESULT`, or `name(a: 1, b: 2) ...` where it has not returned.
    fn call(&mut self, tid: Tid, text: &str, world: &mut World) -> Option<Line> {
        let (name, rest) = text.split_once('(')?;
        let nr = match sysno::number(name) {
            Some(nr) if shapes_memory(nr) => nr,
            Some(sysno::EXIT) => {
                world.exit(tid, 0);
                return Some(Line::Read);
            }
            Some(sysno::EXIT_GROUP) => {
                let code = rest
                    .split_once("error_code: ")
                    .map_or("0", |(_, code)| code);
                let code = number.parse_next(&mut &*code).ok()?;
                world.exit_process(tid, (code as i32 & 0xff) << 8);
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
        let task = world.task(tid, None);
        let entered = Entered {
            task,
            nr,
            args,
            begun: world.begin_call(task),
        };
        match result {
            Some(result) => return self.finish(tid, entered, result, world),
            None => self.suspend(tid, entered, world),
        }
        Some(Line::Read)
    }

    fn suspend(&mut self, tid: Tid, entered: Entered, world: &mut World) {
        if let Some(old) = self.entered.insert(tid, entered) {
            world.end_call(old.begun);
        }
    }

    /// `name()) = RESULT`: of a call that was suspended, or that began before the text did.
    fn continued(&mut self, tid: Tid, text: &str, world: &mut World) -> Option<Line> {
        let (name, _) = text.split_once('(')?;
        let nr = sysno::number(name);
        let (_, result) = text.rsplit_once(" =")?;
        if self
            .entered
            .get(&tid)
            .is_some_and(|entered| Some(entered.nr) == nr)
        {
            let entered = self.entered.remove(&tid)?;
            return self.finish(tid, entered, result, world);
        }
        let ok = result.trim().is_empty() || result.trim() == "0";
        match nr {
            Some(nr) if is_exec(nr) && ok && self.has_begun && world.knows(tid) => {
                world.exec(tid);
            }
            // The program that is traced, or a child's side of the call that made it.
            Some(nr) if is_exec(nr) || is_fork(nr) => {
                self.child(tid, world);
            }
            _ => return Some(Line::Other),
        }
        Some(Line::Read)
    }

    /// A new task speaks, perhaps before the call that made it returns.
    fn child(&mut self, tid: Tid, world: &mut World) {
        let parent = self.entered.iter().filter(|(_, call)| is_fork(call.nr));
        let parent = parent.min_by_key(|(tid, _)| **tid);
        if let Some((parent, call)) = parent {
            world.fork(*parent, tid, kin(call.nr, call.args[0]));
        }
        world.task(tid, None);
    }

    fn finish(
        &mut self,
        tid: Tid,
        entered: Entered,
        result: &str,
        world: &mut World,
    ) -> Option<Line> {
        const EBADF: i64 = 9;
        let Entered {
            task,
            mut nr,
            mut args,
            begun,
        } = entered;
        let order = world.end_call(begun);
        let input = &mut result.trim();
        let ret = match signed.parse_next(input).ok()? {
            -1 => match input.trim_start().split(' ').next().and_then(names::errno) {
                Some(errno) => -errno,
                None => -1,
            },
            ret => ret,
        };
        let kin = kin(nr, args[0]);
        if nr == sysno::CLONE3 {
            // Its flags are behind a pointer.
            (nr, args) = (sysno::CLONE, [flags_of_kin(kin), 0, 0, 0, 0, 0]);
        }
        let of_file = nr == sysno::MMAP && args[3] & MAP_ANONYMOUS == 0 && ret != -EBADF;
        let file = of_file.then(|| world.unknown_file());
        world.call(Call {
            tid,
            mm: task.mm,
            nr,
            args,
            ret,
            t: world.now,
            order,
            file,
            data: Vec::new(),
        });
        if is_fork(nr) && ret > 0 {
            world.fork(tid, Tid(i32::try_from(ret).ok()?), kin);
        }
        if is_exec(nr) && ret == 0 {
            world.exec(tid);
        }
        Some(Line::Read)
    }
}

/// `0.448 ( 0.015 ms):`, in milliseconds; `?` where the begin is not known.
fn head(input: &mut &str) -> ModalResult<Option<u64>> {
    let millis = alt((seconds.map(|t| Some(t / 1000)), "?".map(|_| None)));
    let time = delimited(space0, millis, space0).parse_next(input)?;
    let _ = ("(", take_until(0.., "):"), "):", space0).parse_next(input)?;
    Ok(time)
}

/// `COMM/TID what`
fn speaker(text: &str) -> Option<(Tid, &str)> {
    text.match_indices('/').find_map(|(at, _)| {
        let rest = &mut text.get(at + 1..)?;
        let tid = id.parse_next(rest).ok()?;
        rest.starts_with(' ').then_some((Tid(tid), *rest))
    })
}

/// `minfault [ip] => //anon@0x7f... (d.)`: an address where it is not one of a file.
fn page_fault(tid: Tid, text: &str, world: &mut World) -> Option<Line> {
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
        mm: world.task(tid, None).mm,
        addr,
        access: Access::Unknown,
        kernel: false,
        t: world.now,
        order: Order::Exact,
    };
    world.fault(fault, FaultSource::SoftwareUser);
    Some(Line::Read)
}

fn kin(nr: u32, flags: u64) -> Kin {
    match nr {
        sysno::CLONE => kin_of_flags(flags),
        sysno::CLONE3 => Kin::Thread,
        sysno::VFORK => Kin::SharesMemory,
        _ => Kin::Copy,
    }
}

/// Names of arguments in their order, as the tracepoints have them.
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

/// Arguments by their names; those that are left out are 0, but for the descriptor of a mapping.
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
            // Options that have nothing to do with memory are not known by name.
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

/// A number, or names with or without the prefix of their kind.
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
