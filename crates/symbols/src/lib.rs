//! Functions, files and lines of the instruction addresses in a live process.
//!
//! This crate unwinds copied stacks and resolves instruction addresses to [`Location`]s: demangled
//! functions, including inlined ones, with file and line. The data comes from the mapped program
//! files, from separate debug files, and from the files in which a just-in-time compiler lists its
//! code. All of it is written by others: sizes are bounded, and damaged data costs lines or names
//! and gives a note, but no error.
//!
//! Addresses are resolved while the process lives, because its files are opened as the process
//! itself sees them, and as early as possible, because code made at run time may be replaced:
//! [`Symbols::unwind`] and [`Symbols::locate`] return the meaning that an address has at the time
//! of the call.
//!
//! # Picture
//! ```text
//! stack ──▶ unwind ─▶ addresses ─▶ module: DWARF, else symbols ─▶ Location ─▶ Frames
//!              ▲                └▶ code made at run time: jitdump, perf map ┘
//!        .eh_frame, or frame pointers
//! ```
#![forbid(unsafe_code)]

mod demangle;
mod elf;
mod jit;
mod lines;
mod module;
mod open;
mod space;

pub use jit::{code, jitdump, perf_map};

use module::Modules;
use serde::Serialize;
use space::Space;
use std::collections::HashMap;

/// A thread whose addresses are resolved. Its process must be alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Process ID, as this process sees it.
    pub pid: i32,
    /// Thread ID, as this process sees it.
    pub tid: i32,
    /// Number that identifies the thread's address space; `execve` must change it.
    pub space: u32,
}

/// A copy of a thread's stack, with the registers that are needed to unwind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackCopy<'a> {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register; a general-purpose register if the program has no frame pointers.
    pub bp: u64,
    /// Stack memory from the stack pointer upwards.
    pub bytes: &'a [u8],
}

/// A function at an instruction address.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frame {
    /// Demangled name; if it is unknown, the file name with the address in the file, such as
    /// `libc.so.6+0x2a1b0`, or else [`RUN_TIME_CODE`] or [`NO_CODE`].
    pub function: String,
    /// Source file, as the compiler was given it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in the source file, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// File name of the program or library, or [`RUN_TIME_CODE`]; `None` if nothing is mapped there.
    pub module: Option<String>,
    /// Whether the compiler inlined the function into the next frame of the stack.
    pub inlined: bool,
}

/// Module of the frames in code that was made at run time, such as by a just-in-time compiler.
pub const RUN_TIME_CODE: &str = "[run-time code]";
/// Function of an address at which the process has no code; the unwinder went astray.
pub const NO_CODE: &str = "[no code]";

/// The functions at one instruction address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// Instruction address in the process; for a caller, an address within the call instruction.
    pub address: u64,
    /// Address as in the module's file; equal to `address` if there is no module.
    pub linked: u64,
    /// Index of the module in [`Table::modules`]; `None` for code that is in no program file.
    pub module: Option<u32>,
    /// The functions, innermost first; all but the last are inlined. Never empty.
    pub frames: Vec<Frame>,
}

/// An executable mapping of a program file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedModule {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Byte offset of the mapping in the file.
    pub offset: u64,
    /// Path of the file, as the process sees it.
    pub path: String,
    /// Build ID of the file; empty if it has none.
    pub build_id: Vec<u8>,
}

/// Index of a [`Location`] in [`Table::locations`].
pub type LocationId = u32;

/// All locations that were resolved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Locations, by [`LocationId`].
    pub locations: Vec<Location>,
    /// Modules that the locations refer to.
    pub modules: Vec<MappedModule>,
    /// What could not be read, one sentence each.
    pub notes: Vec<String>,
}

impl Table {
    /// Returns the functions of a stack, innermost first.
    pub fn frames<'a>(&'a self, stack: &'a [LocationId]) -> impl Iterator<Item = &'a Frame> {
        let located = stack
            .iter()
            .filter_map(|id| self.locations.get(*id as usize));
        located.flat_map(|location| &location.frames)
    }

    fn add(&mut self, location: Location) -> LocationId {
        self.locations.push(location);
        self.locations.len() as LocationId - 1
    }
}

/// Resolver of addresses in any number of address spaces.
#[derive(Default)]
pub struct Symbols {
    spaces: HashMap<u32, Space>,
    modules: Modules,
    table: Table,
}

impl Symbols {
    /// Unwinds a stack, and resolves its addresses; the result is innermost first.
    ///
    /// Two results are equal if and only if the stacks have the same addresses, and the addresses
    /// the same meaning.
    pub fn unwind(&mut self, target: Target, stack: &StackCopy<'_>) -> Vec<LocationId> {
        let space = self.spaces.entry(target.space).or_default();
        if !space.knows(stack.ip) {
            space.read(target, &mut self.modules, &mut self.table);
        }
        let mut addresses = space.unwind(stack);
        if addresses.iter().any(|&at| !space.knows(at)) {
            // A library was loaded since the last read of the mappings.
            space.read(target, &mut self.modules, &mut self.table);
            addresses = space.unwind(stack);
            space.give_up(&addresses);
        }
        space.locate(target.pid, &addresses, &mut self.table)
    }

    /// Resolves addresses that belong together, such as a call chain that the kernel unwound.
    ///
    /// Subtract 1 from return addresses beforehand, so that they lie within the call instruction.
    pub fn locate(&mut self, target: Target, addresses: &[u64]) -> Vec<LocationId> {
        let space = self.spaces.entry(target.space).or_default();
        if addresses.iter().any(|&at| !space.knows(at)) {
            space.read(target, &mut self.modules, &mut self.table);
            space.give_up(addresses);
        }
        space.locate(target.pid, addresses, &mut self.table)
    }

    /// Returns everything that was resolved.
    pub fn into_table(mut self) -> Table {
        let mut spaces: Vec<_> = self.spaces.into_iter().collect();
        spaces.sort_unstable_by_key(|(number, _)| *number);
        let notes = spaces.into_iter().flat_map(|(_, space)| space.into_notes());
        self.table.notes = self.modules.into_notes();
        self.table.notes.extend(notes);
        self.table
    }
}
