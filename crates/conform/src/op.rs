//! What a sequence is made of: calls, accesses, forks and exits, as data.
//!
//! A call is its number and six arguments, as the kernel takes them, so that anything can be said,
//! sensible or not. Two things stand in place of what differs from run to run: a descriptor is the
//! number of a file of the [`arena`], and memory that an argument points to is given
//! as words.

use super::arena;
use serde::{Deserialize, Serialize};
use std::fmt;
use vmarea_trace::dump::signature::{Arg, arguments};
use vmarea_trace::sysno;

/// `ioctl` on a userfaultfd: registers a range.
pub const UFFDIO_REGISTER: u64 = 0xc020_aa00;
/// Takes that back.
pub const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;

/// A system call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "CallText", into = "CallText")]
pub struct Call {
    /// Its number on x86-64.
    pub nr: u32,
    /// Its arguments.
    pub args: [u64; 6],
    /// What the argument named by [`pointer_argument`] points to.
    pub data: Vec<u64>,
}

/// A call in a file that people read: its name, and numbers in hexadecimal.
#[derive(Serialize, Deserialize)]
struct CallText {
    name: String,
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    data: Vec<String>,
}

impl From<Call> for CallText {
    fn from(call: Call) -> CallText {
        let hex = |numbers: &[u64]| numbers.iter().map(|n| format!("{n:#x}")).collect();
        let count = arguments(call.nr).map_or(6, <[Arg]>::len);
        CallText {
            name: name(call.nr).to_owned(),
            args: hex(&call.args[..count]),
            data: hex(&call.data),
        }
    }
}

impl TryFrom<CallText> for Call {
    type Error = String;

    fn try_from(text: CallText) -> Result<Call, String> {
        let number = |s: &String| {
            let digits = s.strip_prefix("0x").ok_or("numbers begin with 0x")?;
            u64::from_str_radix(digits, 16).map_err(|e| format!("{s}: {e}"))
        };
        let nr = sysno::number(&text.name).ok_or(format!("no system call {:?}", text.name))?;
        if text.args.len() > 6 {
            return Err("a call has six arguments at the most".to_owned());
        }
        let mut args = [0; 6];
        for (to, from) in args.iter_mut().zip(&text.args) {
            *to = number(from)?;
        }
        let data = text.data.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Call { nr, args, data })
    }
}

/// The name of a call.
pub fn name(nr: u32) -> &'static str {
    sysno::name(nr).unwrap_or("syscall")
}

/// What one process does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A system call.
    Call(Call),
    /// A load of eight bytes.
    Read {
        /// Where.
        addr: u64,
    },
    /// A store of eight bytes.
    Write {
        /// Where.
        addr: u64,
        /// What.
        value: u64,
    },
    /// `fork`; the copy becomes the process of that number.
    Fork {
        /// Number of the new process.
        child: u8,
    },
    /// The process ends.
    Exit,
    /// Mappings outside of the arena, until this many more reach the limit (`vm.max_map_count`).
    Fill {
        /// How many are left.
        leave: u64,
    },
    /// What a kernel does with pages when it likes, and what nobody may notice.
    Background(Work),
}

/// Work on pages that changes neither mappings nor bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// The page at this address goes out to swap. Linux is asked by `MADV_PAGEOUT`, and may decline.
    SwapOut(u64),
    /// The page at this address goes to another frame. Linux is not asked.
    Migrate(u64),
    /// Equal pages of mergeable mappings become one. On Linux `ksmd` does so in its own time.
    MergeEqual,
}

/// One step of a sequence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The process that does it.
    pub process: u8,
    /// What it does.
    pub op: Op,
}

/// Which argument is a descriptor.
pub fn file_argument(nr: u32) -> Option<usize> {
    match nr {
        sysno::MMAP => Some(4),
        sysno::FTRUNCATE | sysno::FALLOCATE | sysno::IOCTL => Some(0),
        _ => None,
    }
}

/// Which argument is a segment of shared memory.
pub fn segment_argument(nr: u32) -> Option<usize> {
    (nr == sysno::SHMAT).then_some(0)
}

/// Which argument points to the call's data.
pub fn pointer_argument(nr: u32) -> Option<usize> {
    match nr {
        sysno::MBIND => Some(3),
        sysno::SET_MEMPOLICY => Some(1),
        sysno::PRLIMIT64 => Some(2),
        sysno::PROCESS_MADVISE => Some(1),
        sysno::CAPSET => Some(0),
        sysno::IOCTL => Some(2),
        _ => None,
    }
}

/// Where in a process that lies which differs from run to run, and has a name in sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// The heap begins here; sequences call that [`arena::HEAP`].
    pub heap: u64,
    /// The kernel's own mappings begin here; sequences call that [`arena::SPECIAL`]. 0 where there are
    /// none.
    pub special: u64,
}

impl Places {
    /// Names and what they are called after: first address, first after it, and where it is.
    fn all(self) -> [(u64, u64, u64); 2] {
        let special = (arena::SPECIAL, arena::SPECIAL_END, self.special);
        [(arena::HEAP, arena::HEAP_END, self.heap), special]
    }

    /// Where a named address lies.
    pub fn placed(self, addr: u64) -> u64 {
        let found = self.all().into_iter().find_map(|(name, end, place)| {
            let named = (name..end).contains(&addr) && place != 0;
            named.then(|| addr - name + place)
        });
        found.unwrap_or(addr)
    }

    /// The name of an address, or itself.
    pub fn named(self, addr: u64) -> u64 {
        let found = self.all().into_iter().find_map(|(name, end, place)| {
            let there = (place..place + (end - name)).contains(&addr) && place != 0;
            there.then(|| addr - place + name)
        });
        found.unwrap_or(addr)
    }
}

impl Call {
    /// The arguments in a process.
    pub fn placed(&self, places: Places) -> [u64; 6] {
        self.args.map(|arg| places.placed(arg))
    }

    /// The data in a process.
    pub fn placed_data(&self, places: Places) -> Vec<u64> {
        self.data.iter().map(|&word| places.placed(word)).collect()
    }

    /// A call without data.
    pub fn new<const N: usize>(nr: u32, args: [u64; N]) -> Call {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&args);
        Call {
            nr,
            args: all,
            data: Vec::new(),
        }
    }

    /// Its arguments as text, in the manner of C.
    pub fn arguments(&self) -> Vec<String> {
        let kinds = arguments(self.nr).unwrap_or(&[Arg::Bits; 6]);
        let named = |(kind, &value): (&Arg, &u64)| match *kind {
            Arg::Address if value == 0 => "NULL".to_owned(),
            Arg::Address | Arg::Bits => format!("{value:#x}"),
            Arg::Number if value >= 4096 => format!("{value:#x}"),
            Arg::Number => format!("{value}"),
            Arg::Int => format!("{}", value as i32),
            Arg::Named(names) => names.show(value).to_string(),
        };
        let mut text: Vec<String> = kinds.iter().zip(&self.args).map(named).collect();
        if let Some(at) = pointer_argument(self.nr).filter(|_| !self.data.is_empty()) {
            text[at] = format!("{:#x?}", self.data)
                .replace([' ', '\n'], "")
                .replace(",]", "]");
        }
        text
    }
}

impl Op {
    /// What it is, in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Call(call) => name(call.nr),
            Op::Read { .. } => "read",
            Op::Write { .. } => "write",
            Op::Fork { .. } => "fork",
            Op::Exit => "exit",
            Op::Fill { .. } => "fill",
            Op::Background(Work::SwapOut(_)) => "swap out",
            Op::Background(Work::Migrate(_)) => "migrate",
            Op::Background(Work::MergeEqual) => "merge equal pages",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Call(call) => {
                write!(f, "{}({})", name(call.nr), call.arguments().join(", "))
            }
            Op::Read { addr } => write!(f, "read {addr:#x}"),
            Op::Write { addr, value } => write!(f, "write {addr:#x} {value:#x}"),
            Op::Fork { child } => write!(f, "fork -> process {child}"),
            Op::Exit => f.write_str("exit"),
            Op::Fill { leave } => write!(f, "mappings elsewhere, until {leave} are left"),
            Op::Background(Work::SwapOut(addr)) => {
                write!(f, "the page at {addr:#x} is swapped out")
            }
            Op::Background(Work::Migrate(addr)) => {
                write!(f, "the page at {addr:#x} goes to another frame")
            }
            Op::Background(Work::MergeEqual) => f.write_str("equal pages are merged"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}: {}", self.process, self.op)
    }
}
