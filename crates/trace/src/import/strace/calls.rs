//! What a finished call of `strace` text means: an event, a change of descriptors, or nothing.
//!
//! Arguments that are printed as numbers or names keep their value. One that is printed as what
//! a pointer points to (a string, a structure, a list) has lost its address and becomes 1, or 0
//! for `NULL`; where the call needs the content it goes into [`Call::data`].

use super::files::Files;
use super::line::split_args;
use crate::event::{Call, FileRef, Order, Tid};
use crate::import::Line;
use crate::import::shaping::{self, MAP_ANONYMOUS, kin_of_flags, only_asks};
use crate::import::text::{expression, number, signed};
use crate::import::world::{Kin, Task, World};
use crate::names;
use crate::sysno;
use winnow::prelude::*;

/// A call with its result, as text.
pub(super) struct Finished<'a> {
    pub(super) tid: Tid,
    pub(super) name: &'a str,
    pub(super) args: &'a str,
    result: &'a str,
}

/// True for calls that become events.
pub(super) fn shapes_memory(name: &str) -> bool {
    sysno::number(name).is_some_and(shaping::shapes_memory)
}

/// True for calls that make tasks.
pub(super) fn is_fork(name: &str) -> bool {
    sysno::number(name).is_some_and(shaping::is_fork)
}

/// What the child of such a call has in common with its parent.
pub(super) fn kin_of(name: &str, args: &str) -> Kin {
    match name {
        "fork" => Kin::Copy,
        "vfork" => Kin::SharesMemory,
        _ => kin_of_flags(clone_flags(args)),
    }
}

/// `flags=` of `clone` and `clone3`, with the exit signal. Names that are not known count as 0.
fn clone_flags(args: &str) -> u64 {
    let flags = field(args, "flags").unwrap_or_default();
    let signal = field(args, "exit_signal").unwrap_or_default();
    let value = |name: &str| names::value(name).or_else(|| number.parse(name).ok());
    let parts = flags.split('|').chain([signal]);
    parts.filter_map(value).fold(0, |bits, more| bits | more)
}

/// The text of `name=` in arguments or a structure.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find(name)?;
        let before = text[..at].chars().next_back();
        from = at + name.len();
        if matches!(before, None | Some(' ' | '{' | ','))
            && let Some(value) = text[from..].strip_prefix('=')
        {
            return value.split([',', '}', ')', ' ']).next();
        }
    }
}

impl<'a> Finished<'a> {
    pub(super) fn new(tid: Tid, name: &'a str, args: &'a str, result: &'a str) -> Self {
        Self {
            tid,
            name,
            args,
            result,
        }
    }

    /// The result or negative errno; nothing where the call did not return (`?`).
    pub(super) fn result(&self) -> Option<i64> {
        let rest = &mut &*self.result;
        let value = signed.parse_next(rest).ok()?;
        let error = rest.trim_start().split([' ', '(']).next();
        match error.and_then(names::errno) {
            Some(errno) if value == -1 => Some(-errno),
            _ => Some(value),
        }
    }

    /// Path and arguments of an `execve`.
    pub(super) fn command(&self) -> Vec<String> {
        let args = split_args(self.args);
        let list = args.get(1).copied().unwrap_or_default();
        let list = list.trim_start_matches('[').trim_end_matches(']');
        split_args(list).into_iter().filter_map(string).collect()
    }

    /// Makes events of the call, or notes what it does to descriptors.
    pub(super) fn tell(
        &self,
        task: Task,
        order: Order,
        files: &mut Files,
        world: &mut World,
    ) -> Line {
        if !shapes_memory(self.name) {
            return match self.descriptors(task.pid, files, world) {
                Some(()) => Line::Read,
                None => Line::Other,
            };
        }
        let Some(ret) = self.result() else {
            // It was interrupted by the end of its thread.
            return Line::Other;
        };
        match self.event(task, order, ret, files, world) {
            Told::Call(call) => {
                world.call(*call);
                Line::Read
            }
            Told::Nothing => Line::Other,
            Told::Unreadable => Line::Unreadable,
        }
    }

    fn event(
        &self,
        task: Task,
        order: Order,
        ret: i64,
        files: &mut Files,
        world: &mut World,
    ) -> Told {
        let texts = split_args(self.args);
        let mut call = Call {
            tid: self.tid,
            mm: task.mm,
            nr: sysno::number(self.name).unwrap_or_default(),
            args: [0; 6],
            ret,
            t: world.now,
            order,
            file: None,
            data: Vec::new(),
        };
        if is_fork(self.name) {
            if call.nr == sysno::CLONE3 {
                call.nr = sysno::CLONE;
            }
            call.args[0] = clone_flags(self.args);
            return Told::Call(Box::new(call));
        }
        for (place, text) in call.args.iter_mut().zip(&texts) {
            match value(text) {
                Some(value) => *place = value,
                // Options that have nothing to do with memory are not known by name.
                None if call.nr == sysno::PRCTL => return Told::Nothing,
                None if call.nr == sysno::PERSONALITY => return Told::Nothing,
                None => return Told::Unreadable,
            }
        }
        if only_asks(call.nr, &call.args) {
            return Told::Nothing;
        }
        call.data = data(call.nr, &texts);
        call.file = mapped(&call, task.pid, &texts, files, world);
        Told::Call(Box::new(call))
    }

    /// What the call does to descriptors and sizes. Nothing where it has none to do with them.
    fn descriptors(&self, pid: Tid, files: &mut Files, world: &mut World) -> Option<()> {
        let args = split_args(self.args);
        let arg = |i: usize| args.get(i).copied();
        let ret = self.result()?;
        if ret < 0 {
            return None;
        }
        let fd = ret as i32;
        match self.name {
            "open" | "creat" => {
                let flags = arg(1).and_then(value).unwrap_or(0);
                files.open(pid, fd, self.path(arg(0)?)?, flags, world);
            }
            "openat" | "openat2" => {
                let flags = arg(2).map(|flags| field(flags, "flags").unwrap_or(flags));
                let flags = flags.and_then(value).unwrap_or(0);
                files.open(pid, fd, self.path(arg(1)?)?, flags, world);
            }
            "memfd_create" => {
                let flags = arg(1).and_then(value).unwrap_or(0);
                files.memfd(pid, fd, &string(arg(0)?)?, flags, world);
            }
            "dup" => files.duplicate(pid, descriptor(arg(0)?)?, fd, 0),
            "dup2" | "dup3" => {
                let flags = arg(2).and_then(value).unwrap_or(0);
                files.duplicate(pid, descriptor(arg(0)?)?, fd, flags);
            }
            "fcntl" => match arg(1)? {
                "F_DUPFD" => files.duplicate(pid, descriptor(arg(0)?)?, fd, 0),
                "F_DUPFD_CLOEXEC" => files.duplicate(pid, descriptor(arg(0)?)?, fd, 0o2000000),
                _ => return None,
            },
            "close" => files.close(pid, descriptor(arg(0)?)?),
            "fstat" | "newfstatat" => {
                let size = field(self.args, "st_size").and_then(value)?;
                files.size(pid, descriptor(arg(0)?)?, size);
            }
            "ftruncate" => files.size(pid, descriptor(arg(0)?)?, arg(1).and_then(value)?),
            "shmget" => files.segment(ret, arg(1).and_then(value)?),
            _ => return None,
        }
        Some(())
    }

    /// The path that a call opens: the one that `-y` shows, else the argument.
    fn path(&self, arg: &str) -> Option<String> {
        match shown_path(self.result).filter(|path| path.starts_with('/')) {
            Some(path) => Some(path.to_owned()),
            None => string(arg),
        }
    }
}

/// What a call of the text comes to.
enum Told {
    Call(Box<Call>),
    /// It changes nothing.
    Nothing,
    Unreadable,
}

/// The value of an argument.
fn value(text: &str) -> Option<u64> {
    // Descriptors may have a path behind them, pointers a comment.
    let bare = match text.split_once([' ', '<']) {
        Some((bare, rest)) if !rest.starts_with('<') => bare,
        _ => text,
    };
    match text.chars().next()? {
        '"' | '{' | '[' | '~' | '&' => Some(1),
        _ => expression.parse(bare).ok(),
    }
}

/// What a pointer argument points to, where the call needs it.
fn data(nr: u32, texts: &[&str]) -> Vec<u8> {
    let text = |i: usize| texts.get(i).copied().unwrap_or_default();
    let words: Vec<u64> = match nr {
        sysno::PRLIMIT64 => limit(text(2)),
        sysno::SETRLIMIT => limit(text(1)),
        sysno::MBIND => mask(text(3)),
        sysno::SET_MEMPOLICY => mask(text(1)),
        sysno::PROCESS_MADVISE => ranges(text(1)),
        sysno::PRCTL => return string(text(4)).unwrap_or_default().into_bytes(),
        _ => return Vec::new(),
    };
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn limit(text: &str) -> Vec<u64> {
    let fields = ["rlim_cur", "rlim_max"];
    let values = fields.map(|name| field(text, name).and_then(value));
    match values {
        [Some(soft), Some(hard)] => vec![soft, hard],
        _ => Vec::new(),
    }
}

/// `[0x3, 0x1]`: a node mask.
fn mask(text: &str) -> Vec<u64> {
    let list = text.trim_start_matches('[').trim_end_matches(']');
    if list.len() == text.len() {
        return Vec::new();
    }
    split_args(list).into_iter().filter_map(value).collect()
}

/// `[{iov_base=0x1000, iov_len=4096}, ...]`
fn ranges(text: &str) -> Vec<u64> {
    let list = text.trim_start_matches('[').trim_end_matches(']');
    let pair = |text| {
        let base = field(text, "iov_base").and_then(value)?;
        let len = field(text, "iov_len").and_then(value)?;
        Some([base, len])
    };
    split_args(list)
        .into_iter()
        .filter_map(pair)
        .flatten()
        .collect()
}

/// The file that a call maps, if it maps one.
fn mapped(
    call: &Call,
    pid: Tid,
    texts: &[&str],
    files: &mut Files,
    world: &mut World,
) -> Option<FileRef> {
    match call.nr {
        sysno::MMAP if call.args[3] & MAP_ANONYMOUS == 0 && call.ret != -9 => {
            let text = texts.get(4)?;
            let fd = descriptor(text)?;
            (fd >= 0).then(|| files.mapped(pid, fd, shown_path(text), world))
        }
        sysno::SHMAT if call.ret >= 0 => Some(files.attached(call.args[0] as i64, world)),
        _ => None,
    }
}

/// The number of `3` or `3</path>`.
fn descriptor(text: &str) -> Option<i32> {
    Some(value(text)? as i32)
}

/// The path of `3</path>`, as `/proc/PID/maps` would show it.
fn shown_path(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('<')?;
    let (path, _) = rest.split_once(['<', '>'])?;
    Some(path)
}

/// The content of a string. Escapes stay as they are, but for quotes.
fn string(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?;
    let end = inner.rfind('"')?;
    Some(inner[..end].replace("\\\"", "\""))
}
