//! Converts a finished call in `strace` output to an event, a change of descriptors, or nothing.
//!
//! Arguments printed as numbers or names keep their values. For some pointer arguments `strace`
//! prints the content that they point to (a string, a structure, a list). The pointer itself is
//! then lost and becomes 1, or 0 for `NULL`. Content that the call's effect depends on goes into
//! [`Call::data`].

use super::files::Files;
use super::line::split_args;
use crate::event::{Call, FileRef, Order, Tid};
use crate::import::Line;
use crate::import::classify::{self, MAP_ANONYMOUS, only_asks, sharing_of_flags};
use crate::import::state::{ImportState, Sharing, Task};
use crate::import::text::{expression, number, signed};
use crate::names;
use crate::sysno;
use winnow::prelude::*;

/// A finished call: the text of its arguments and result.
pub(super) struct Finished<'a> {
    pub(super) tid: Tid,
    pub(super) name: &'a str,
    pub(super) args: &'a str,
    result: &'a str,
}

/// True for calls that become events.
pub(super) fn shapes_memory(name: &str) -> bool {
    sysno::number(name).is_some_and(classify::shapes_memory)
}

/// True for calls that create tasks.
pub(super) fn is_fork(name: &str) -> bool {
    sysno::number(name).is_some_and(classify::is_fork)
}

/// Returns the sharing between parent and child for a call that creates a task.
pub(super) fn sharing_of(name: &str, args: &str) -> Sharing {
    match name {
        "fork" => Sharing::Copy,
        "vfork" => Sharing::SharesMemory,
        _ => sharing_of_flags(clone_flags(args)),
    }
}

/// Returns the value of `flags=` in `clone` and `clone3`, with the exit signal. Unknown names count
/// as 0.
fn clone_flags(args: &str) -> u64 {
    let flags = field(args, "flags").unwrap_or_default();
    let signal = field(args, "exit_signal").unwrap_or_default();
    let value = |name: &str| names::value(name).or_else(|| number.parse(name).ok());
    let parts = flags.split('|').chain([signal]);
    parts.filter_map(value).fold(0, |bits, more| bits | more)
}

/// Returns the text after `name=` in arguments or a structure.
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

    /// Returns the result or negative errno; `None` if the call did not return (`?`).
    pub(super) fn result(&self) -> Option<i64> {
        let rest = &mut &*self.result;
        let value = signed.parse_next(rest).ok()?;
        let error = rest.trim_start().split([' ', '(']).next();
        match error.and_then(names::errno) {
            Some(errno) if value == -1 => Some(-errno),
            _ => Some(value),
        }
    }

    /// Returns the path and the arguments of an `execve`.
    pub(super) fn command(&self) -> Vec<String> {
        let args = split_args(self.args);
        let list = args.get(1).copied().unwrap_or_default();
        let list = list.trim_start_matches('[').trim_end_matches(']');
        split_args(list).into_iter().filter_map(string).collect()
    }

    /// Creates the event for a finished call, or records the call's effect on descriptors.
    pub(super) fn tell(
        &self,
        task: Task,
        order: Order,
        files: &mut Files,
        state: &mut ImportState,
    ) -> Line {
        if !shapes_memory(self.name) {
            return match self.descriptors(task.pid, files, state) {
                Some(()) => Line::Read,
                None => Line::Other,
            };
        }
        let Some(ret) = self.result() else {
            // The thread exited during the call.
            return Line::Other;
        };
        match self.event(task, order, ret, files, state) {
            Interpreted::Call(call) => {
                state.call(*call);
                Line::Read
            }
            Interpreted::Nothing => Line::Other,
            Interpreted::Unreadable => Line::Unreadable,
        }
    }

    fn event(
        &self,
        task: Task,
        order: Order,
        ret: i64,
        files: &mut Files,
        state: &mut ImportState,
    ) -> Interpreted {
        let texts = split_args(self.args);
        let mut call = Call {
            tid: self.tid,
            mm: task.mm,
            nr: sysno::number(self.name).unwrap_or_default(),
            args: [0; 6],
            ret,
            t: state.now,
            order,
            file: None,
            data: Vec::new(),
        };
        if is_fork(self.name) {
            if call.nr == sysno::CLONE3 {
                call.nr = sysno::CLONE;
            }
            call.args[0] = clone_flags(self.args);
            return Interpreted::Call(Box::new(call));
        }
        for (place, text) in call.args.iter_mut().zip(&texts) {
            match value(text) {
                Some(value) => *place = value,
                // Options that do not concern memory have no known names.
                None if call.nr == sysno::PRCTL => return Interpreted::Nothing,
                None if call.nr == sysno::PERSONALITY => return Interpreted::Nothing,
                None => return Interpreted::Unreadable,
            }
        }
        if only_asks(call.nr, &call.args) {
            return Interpreted::Nothing;
        }
        call.data = data(call.nr, &texts);
        call.file = mapped(&call, task.pid, &texts, files, state);
        Interpreted::Call(Box::new(call))
    }

    /// Applies the call's effect on descriptors and file sizes. Returns `None` if it has no such
    /// effect.
    fn descriptors(&self, pid: Tid, files: &mut Files, state: &mut ImportState) -> Option<()> {
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
                files.open(pid, fd, self.path(arg(0)?)?, flags, state);
            }
            "openat" | "openat2" => {
                let flags = arg(2).map(|flags| field(flags, "flags").unwrap_or(flags));
                let flags = flags.and_then(value).unwrap_or(0);
                files.open(pid, fd, self.path(arg(1)?)?, flags, state);
            }
            "memfd_create" => {
                let flags = arg(1).and_then(value).unwrap_or(0);
                files.memfd(pid, fd, &string(arg(0)?)?, flags, state);
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

    /// Returns the path that a call opens: the one that `-y` shows, or else the argument.
    fn path(&self, arg: &str) -> Option<String> {
        match shown_path(self.result).filter(|path| path.starts_with('/')) {
            Some(path) => Some(path.to_owned()),
            None => string(arg),
        }
    }
}

/// Result of interpreting a call.
enum Interpreted {
    Call(Box<Call>),
    /// The call changes nothing.
    Nothing,
    Unreadable,
}

/// Returns the value of an argument.
fn value(text: &str) -> Option<u64> {
    // A path may follow a descriptor, and a comment may follow a pointer.
    let bare = match text.split_once([' ', '<']) {
        Some((bare, rest)) if !rest.starts_with('<') => bare,
        _ => text,
    };
    match text.chars().next()? {
        '"' | '{' | '[' | '~' | '&' => Some(1),
        _ => expression.parse(bare).ok(),
    }
}

/// Returns the content behind a pointer argument, if the call's effect depends on it.
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

/// Reads a node mask such as `[0x3, 0x1]`.
fn mask(text: &str) -> Vec<u64> {
    let list = text.trim_start_matches('[').trim_end_matches(']');
    if list.len() == text.len() {
        return Vec::new();
    }
    split_args(list).into_iter().filter_map(value).collect()
}

/// Reads `[{iov_base=0x1000, iov_len=4096}, ...]`.
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

/// Returns the file that a call maps, if any.
fn mapped(
    call: &Call,
    pid: Tid,
    texts: &[&str],
    files: &mut Files,
    state: &mut ImportState,
) -> Option<FileRef> {
    match call.nr {
        sysno::MMAP if call.args[3] & MAP_ANONYMOUS == 0 && call.ret != -9 => {
            let text = texts.get(4)?;
            let fd = descriptor(text)?;
            (fd >= 0).then(|| files.mapped(pid, fd, shown_path(text), state))
        }
        sysno::SHMAT if call.ret >= 0 => Some(files.attached(call.args[0] as i64, state)),
        _ => None,
    }
}

/// Returns the number in `3` or `3</path>`.
fn descriptor(text: &str) -> Option<i32> {
    Some(value(text)? as i32)
}

/// Returns the path in `3</path>`, as `/proc/PID/maps` would show it.
fn shown_path(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('<')?;
    let (path, _) = rest.split_once(['<', '>'])?;
    Some(path)
}

/// Returns the content of a string. Escapes other than quotes remain unchanged.
fn string(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?;
    let end = inner.rfind('"')?;
    Some(inner[..end].replace("\\\"", "\""))
}
