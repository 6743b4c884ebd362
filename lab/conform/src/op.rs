//! Elements of a sequence as data: calls, memory accesses, forks and exits.
//!
//! A call is a call number and six arguments, as they are passed to the kernel, so a sequence can
//! contain any call, valid or not. Values that differ from run to run are replaced: a descriptor
//! becomes the number of a file in the [`arena`], and memory that an argument points to is stored
//! as words in the call.

use super::arena;
use serde::{Deserialize, Serialize};
use std::fmt;
use vmarea::types::PAGE_SIZE;
use vmarea_trace::dump::signature::{Arg, arguments};
use vmarea_trace::sysno;

/// `ioctl` request that registers a range with a userfaultfd.
pub const UFFDIO_REGISTER: u64 = 0xc020_aa00;
/// `ioctl` request that unregisters a range.
pub const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;

/// A system call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "CallText", into = "CallText")]
pub struct Call {
    /// Call number on x86-64.
    pub nr: u32,
    /// Arguments of the call.
    pub args: [u64; 6],
    /// Words to which the argument selected by [`pointer_argument`] points.
    pub data: Vec<u64>,
}

/// Form of a call in stored files: the call's name, and its numbers in hexadecimal.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct CallText {
    /// Name of the call.
    name: String,
    /// Arguments, in hexadecimal.
    args: Vec<String>,
    /// Words to which the pointer argument points, in hexadecimal; absent if there are none.
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

/// Returns the name of a system call.
pub fn name(nr: u32) -> &'static str {
    sysno::name(nr).unwrap_or("syscall")
}

/// Action of one process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A system call.
    Call(Call),
    /// Loads eight bytes.
    Read {
        /// Address of the load.
        addr: u64,
    },
    /// Stores eight bytes.
    Write {
        /// Address of the store.
        addr: u64,
        /// Value to store.
        value: u64,
    },
    /// Calls `fork`; later steps refer to the new process as `child`.
    Fork {
        /// Number by which later steps refer to the new process.
        child: u8,
    },
    /// Ends the process.
    Exit,
    /// Adds VMAs outside of the arena until the process is close to `vm.max_map_count`.
    Fill {
        /// Number of VMAs that the process can still create afterwards.
        leave: u64,
    },
    /// Background work on pages, which a kernel can do at any time and which has no visible effect.
    Background(Work),
}

/// Background work on pages, which changes neither mappings nor bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Swaps out the page at this address. In the kernel, `MADV_PAGEOUT` requests this; Linux can
    /// ignore it.
    SwapOut(u64),
    /// Migrates the page at this address to another frame. Only the core does this.
    Migrate(u64),
    /// Merges equal pages of mergeable mappings. On Linux `ksmd` does this, at unpredictable times.
    MergeEqual,
}

/// One step of a sequence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// Number of the process that executes the step.
    pub process: u8,
    /// Action of the process.
    pub op: Op,
}

/// Returns the index of the argument that is a file descriptor.
pub fn file_argument(nr: u32) -> Option<usize> {
    match nr {
        sysno::MMAP => Some(4),
        sysno::FTRUNCATE | sysno::FALLOCATE | sysno::IOCTL => Some(0),
        _ => None,
    }
}

/// Returns the index of the argument that is a System V shared memory segment.
pub fn segment_argument(nr: u32) -> Option<usize> {
    (nr == sysno::SHMAT).then_some(0)
}

/// Returns the index of the argument that points to the call's data.
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

/// Real addresses of regions that differ from run to run and have symbolic addresses in sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// Start of the heap; its symbolic address is [`arena::HEAP`].
    pub heap: u64,
    /// Start of the kernel's special mappings, or 0 if there are none.
    ///
    /// The symbolic address is [`arena::SPECIAL`].
    pub special: u64,
}

impl Places {
    /// Returns each region's symbolic start, symbolic end and real start.
    fn all(self) -> [(u64, u64, u64); 2] {
        let special = (arena::SPECIAL, arena::SPECIAL_END, self.special);
        [(arena::HEAP, arena::HEAP_END, self.heap), special]
    }

    /// Converts a symbolic address to the real address; returns other addresses unchanged.
    pub fn placed(self, addr: u64) -> u64 {
        let found = self.all().into_iter().find_map(|(name, end, place)| {
            let named = (name..end).contains(&addr) && place != 0;
            named.then(|| addr - name + place)
        });
        found.unwrap_or(addr)
    }

    /// Converts a real address to the symbolic address; returns other addresses unchanged.
    pub fn named(self, addr: u64) -> u64 {
        let found = self.all().into_iter().find_map(|(name, end, place)| {
            let there = (place..place + (end - name)).contains(&addr) && place != 0;
            there.then(|| addr - place + name)
        });
        found.unwrap_or(addr)
    }

    /// Converts the page offset of a real address to that of the symbolic address; returns others unchanged.
    pub fn named_pgoff(self, pgoff: u64) -> u64 {
        let addr = pgoff.checked_mul(PAGE_SIZE);
        addr.map_or(pgoff, |addr| self.named(addr) / PAGE_SIZE)
    }
}

impl Call {
    /// Returns the arguments, with symbolic addresses replaced by real addresses.
    pub fn placed(&self, places: Places) -> [u64; 6] {
        self.args.map(|arg| places.placed(arg))
    }

    /// Returns the data, with symbolic addresses replaced by real addresses.
    pub fn placed_data(&self, places: Places) -> Vec<u64> {
        self.data.iter().map(|&word| places.placed(word)).collect()
    }

    /// Creates a call without data.
    pub fn new<const N: usize>(nr: u32, args: [u64; N]) -> Call {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&args);
        Call {
            nr,
            args: all,
            data: Vec::new(),
        }
    }

    /// Formats the arguments as in C.
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
    /// Returns a one-word name for the action.
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
