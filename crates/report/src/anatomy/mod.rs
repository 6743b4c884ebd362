//! Layout of an address space: binary image, static variables, heap, mappings, stack, kernel parts.
//!
//! Adjacent mappings of the same kind and name form one part; the space between parts is a gap. In
//! the parts that belong to the program's own file, symbols from this ELF file mark the addresses
//! of functions and variables ([`elf`]). The contents of other mapped files are deliberately not
//! shown. Above the parts, a summary shows why neighbouring mappings are apart, and how large the
//! mappings are.
//!
//! # Picture
//! ```text
//! kernel space
//! ~~~~ gap
//! stack            grows down          start_stack
//! ~~~~ gap
//! vdso, libraries, other mappings      mmap_base, down
//! ~~~~ gap
//! heap             grows up            start_brk .. brk
//! static variables uninitialised, initialised
//! binary image     constants, code
//! ```

mod draw;
pub mod elf;
pub mod sizes;
mod strip;
mod summary;
mod text;

use super::apart::{self, Apart};
use super::shown::Shown;
use elf::{Image, Symbol};
use serde::{Serialize, Serializer};
use sizes::SizeClass;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use vmarea::types::VmFlags;
use vmarea_process::maps::{MapName, MapsEntry};
use vmarea_process::{Boundary, Mapping};

/// Maximum number of mappings shown separately; if there are more, the smaller ones are folded.
const LARGEST: usize = 24;
/// End of the user address space with four-level and with five-level page tables.
const TASK_ENDS: [u64; 2] = [1 << 47, 1 << 56];
const TASK_END_32: u64 = 1 << 32;

/// Kind of a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Kernel space, beyond the addresses that a process can map.
    KernelSpace,
    /// `[vdso]`, `[vvar]` and similar mappings.
    Vdso,
    /// The stack of the first thread.
    Stack,
    /// A file, such as a library.
    File,
    /// Private anonymous memory.
    Anonymous,
    /// Shared memory that has no name in a file system.
    Shared,
    /// Several mappings folded into one part, because there are too many to show.
    Folded,
    /// The heap, which `brk` manages.
    Heap,
    /// Static variables without an initial value in the file.
    Uninitialised,
    /// Static variables with an initial value in the file.
    Initialised,
    /// Constants, string literals and headers of the program.
    Constants,
    /// Code of the program.
    Code,
    /// Unmapped addresses.
    Gap,
}

impl Kind {
    /// Returns a description of the kind.
    pub fn words(self) -> &'static str {
        match self {
            Kind::KernelSpace => "beyond the process: kernel space",
            Kind::Vdso => "made by the kernel (vdso, vvar)",
            Kind::Stack => "stack, grows down",
            Kind::File => "file",
            Kind::Anonymous => "anonymous memory",
            Kind::Shared => "shared memory",
            Kind::Folded => "more mappings",
            Kind::Heap => "heap, grows up",
            Kind::Uninitialised => "static variables, uninitialised",
            Kind::Initialised => "static variables, initialised",
            Kind::Constants => "binary image: constants, headers",
            Kind::Code => "binary image: code",
            Kind::Gap => "unmapped",
        }
    }

    /// True for the kinds that may be folded.
    fn is_plain_mapping(self) -> bool {
        matches!(self, Kind::File | Kind::Anonymous | Kind::Shared)
    }
}

/// A part of the address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// Kind of the part.
    pub kind: Kind,
    /// Address of the first byte.
    #[serde(serialize_with = "hexadecimal")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = "^0x[0-9a-f]+$"))
    )]
    pub start: u64,
    /// Address after the last byte.
    #[serde(serialize_with = "hexadecimal")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = "^0x[0-9a-f]+$"))
    )]
    pub end: u64,
    /// Size in bytes.
    pub size: u64,
    /// Number of mappings in the part.
    pub mappings: usize,
    /// Index of the first of them in the list of all mappings.
    #[serde(skip)]
    first: usize,
    /// Why the mappings in the part are apart from each other, most frequent reason first.
    pub apart: Vec<Apart>,
    /// File path, or the name that the program set.
    pub name: String,
    /// Distinct permissions (`rwxp`) of the mappings.
    pub perms: BTreeSet<String>,
    /// Flags that the program has set on a mapping, by the names of the advice or option.
    pub flags: BTreeSet<&'static str>,
    /// Known addresses in the part, highest first.
    pub marks: Vec<Mark>,
}

/// A known address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    /// The address.
    #[serde(serialize_with = "hexadecimal")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = "^0x[0-9a-f]+$"))
    )]
    pub address: u64,
    /// Name of the address, such as a symbol or a field of `mm_struct`.
    pub name: String,
    /// Description of the data at the address.
    pub what: String,
}

/// The whole address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Anatomy {
    /// Version of this structure.
    pub schema: u32,
    /// Process ID, if there is one.
    pub pid: Option<i32>,
    /// Title, which names the process and the point in time.
    pub title: String,
    /// Why neighbours among all mappings are apart, most frequent reason first.
    pub apart: Vec<Apart>,
    /// The boundaries that `apart` counts, ordered by address.
    #[serde(skip)]
    boundaries: Vec<Boundary>,
    /// Number of mappings by size, smallest first.
    pub sizes: Vec<SizeClass>,
    /// Parts and gaps, highest address first.
    pub parts: Vec<Part>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Whether to fold many mappings into few parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// Fold small mappings, so that the result is short enough to read.
    Small,
    /// Show each mapping as a part.
    None,
}

/// Whether to mark the addresses of the program's symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Symbols {
    /// Read the symbols from the program's file.
    Read,
    /// Do not read the program's file: the result depends on the process or recording alone.
    Skip,
}

impl Anatomy {
    /// Creates the anatomy of a process.
    pub fn new(shown: &Shown, fold: Fold, symbols: Symbols) -> Anatomy {
        let program = Program::of(shown);
        let mut notes = Vec::new();
        let image = match (&shown.program, &program) {
            _ if symbols == Symbols::Skip => None,
            (Some(path), Some(program)) => match elf::read(path, program.lowest) {
                Ok(image) => Some(image),
                Err(why) => {
                    notes.push(format!("the symbols of the program are unknown: {why}"));
                    None
                }
            },
            _ => {
                notes.push("the file of the program cannot be read or has changed".to_owned());
                None
            }
        };
        notes.extend(image.as_ref().and_then(|image| image.note.clone()));
        let mut parts = parts(shown, program.as_ref(), fold);
        if fold == Fold::Small {
            parts = folded(parts);
        }
        let mappings = &shown.process.mappings;
        let boundaries = shown.process.boundaries();
        for part in &mut parts {
            part.apart = apart::counts(part.within(&boundaries));
        }
        add_marks(&mut parts, shown, image.as_ref());
        add_gaps(&mut parts, image.as_ref());
        parts.reverse();
        Anatomy {
            schema: 1,
            pid: shown.process.pid,
            title: shown.title(),
            apart: apart::counts(&boundaries),
            boundaries,
            sizes: sizes::histogram(mappings.iter().map(|m| m.entry.end - m.entry.start)),
            parts,
            notes,
        }
    }
}

/// Identity of the program file that the process runs.
struct Program {
    dev: u64,
    ino: u64,
    /// Start of the lowest mapping of the file.
    lowest: u64,
}

impl Program {
    /// Finds the file mapped at `start_data`, or else the file behind `/proc/PID/exe`.
    fn of(shown: &Shown) -> Option<Program> {
        let mappings = || shown.process.mappings.iter().map(|mapping| &mapping.entry);
        let holds = |m: &&MapsEntry| {
            let data = shown.info.start_data;
            m.ino != 0 && data.is_some_and(|data| (m.start..m.end).contains(&data))
        };
        let by_inode = || {
            let ino = shown.program.as_ref()?.metadata().ok()?.ino();
            mappings().find(|m| m.ino == ino)
        };
        let one = mappings().find(holds).or_else(by_inode)?;
        let same = |m: &&MapsEntry| (m.dev, m.ino) == (one.dev, one.ino);
        Some(Program {
            dev: one.dev,
            ino: one.ino,
            lowest: mappings().find(same)?.start,
        })
    }

    fn is(&self, entry: &MapsEntry) -> bool {
        (self.dev, self.ino) == (entry.dev, entry.ino)
    }
}

/// Returns the parts without gaps, lowest address first.
fn parts(shown: &Shown, program: Option<&Program>, fold: Fold) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (first, mapping) in shown.process.mappings.iter().enumerate() {
        let entry = &mapping.entry;
        let kind = kind(mapping, program, shown.info.start_data, parts.last());
        let part = Part {
            kind,
            start: entry.start,
            end: entry.end,
            size: entry.end - entry.start,
            mappings: 1,
            first,
            apart: Vec::new(),
            name: entry.name.text(),
            perms: [entry.perms.to_string()].into(),
            flags: mapping
                .flags
                .into_iter()
                .flat_map(vmarea_explain::detail::set_by_program)
                .collect(),
            marks: Vec::new(),
        };
        match parts.last_mut() {
            Some(last) if fold == Fold::Small && belongs(last, &part) => last.take(part),
            _ => parts.push(part),
        }
    }
    parts
}

fn kind(
    mapping: &Mapping,
    program: Option<&Program>,
    start_data: Option<u64>,
    before: Option<&Part>,
) -> Kind {
    let entry = &mapping.entry;
    // Variables that become read-only after linking (RELRO) still count as variables.
    let has_data = start_data.is_some_and(|data| entry.end > data);
    let grows = mapping
        .flags
        .is_some_and(|flags| flags.contains(VmFlags::GROWSDOWN));
    let follows_data = before.is_some_and(|before| {
        let data = matches!(before.kind, Kind::Initialised | Kind::Uninitialised);
        data && before.end == entry.start
    });
    match &entry.name {
        MapName::Special(_) => Kind::Vdso,
        MapName::Stack => Kind::Stack,
        MapName::Heap => Kind::Heap,
        _ if program.is_some_and(|program| program.is(entry)) => match entry.perms {
            perms if perms.exec => Kind::Code,
            perms if perms.write || has_data => Kind::Initialised,
            _ => Kind::Constants,
        },
        MapName::None if grows => Kind::Stack,
        MapName::None if follows_data && entry.perms.write => Kind::Uninitialised,
        _ if entry.perms.shared && !is_file(entry) => Kind::Shared,
        MapName::Path(_) => Kind::File,
        MapName::None | MapName::Named(_) => Kind::Anonymous,
    }
}

/// True for a file with a user-visible name, false for internal files behind shared memory.
fn is_file(entry: &MapsEntry) -> bool {
    let name = entry.name.text();
    let nameless = ["/dev/zero", "/SYSV", "/memfd:"];
    matches!(entry.name, MapName::Path(_)) && !nameless.iter().any(|n| name.starts_with(n))
}

fn belongs(last: &Part, next: &Part) -> bool {
    let same = match last.kind {
        Kind::Vdso => true,
        _ => last.name == next.name,
    };
    last.kind == next.kind && last.end == next.start && same
}

impl Part {
    /// Returns the boundaries between two mappings of this part, out of all boundaries.
    fn within<'b>(&self, boundaries: &'b [Boundary]) -> &'b [Boundary] {
        let end = self.first + self.mappings.saturating_sub(1);
        &boundaries[self.first.min(end)..end]
    }

    fn take(&mut self, next: Part) {
        if self.kind == Kind::Vdso && self.name != next.name {
            self.name = format!("{} {}", self.name, next.name);
        }
        self.end = next.end;
        self.size += next.size;
        self.mappings += next.mappings;
        self.perms.extend(next.perms);
        self.flags.extend(next.flags);
    }
}

/// Folds runs of small mappings into one part each, if there are too many to read.
fn folded(parts: Vec<Part>) -> Vec<Part> {
    let mut sizes: Vec<u64> = parts
        .iter()
        .filter(|part| part.kind.is_plain_mapping())
        .map(|part| part.size)
        .collect();
    if sizes.len() <= LARGEST {
        return parts;
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = sizes[LARGEST - 1];
    let mut folded: Vec<Part> = Vec::new();
    // Many parts may be as small as the smallest kept part: keep only as many as fit.
    let mut room = LARGEST;
    for mut part in parts {
        if part.kind.is_plain_mapping() {
            if part.size >= least && room > 0 {
                room -= 1;
            } else {
                part.kind = Kind::Folded;
                part.name = String::new();
            }
        }
        match folded.last_mut() {
            Some(last) if last.kind == Kind::Folded && part.kind == Kind::Folded => last.take(part),
            _ => folded.push(part),
        }
    }
    folded
}

/// Adds marks for addresses in the `mm_struct` and in the ELF file of the program.
fn add_marks(parts: &mut [Part], shown: &Shown, image: Option<&Image>) {
    let info = &shown.info;
    let mark = |address: Option<u64>, name: &str, what: &str| {
        address.map(|address| Mark {
            address,
            name: name.to_owned(),
            what: what.to_owned(),
        })
    };
    let kept = [
        mark(
            info.start_stack,
            "start_stack",
            "the stack at the start of the program; arguments above",
        ),
        mark(info.start_data, "start_data", "initialised data begin"),
        mark(info.end_data, "end_data", "initialised data end"),
        mark(info.start_brk, "start_brk", "the heap begins"),
        mark(info.brk, "brk", "the heap ends"),
        mark(info.mmap_base, "mmap_base", "new mappings are placed below"),
    ];
    let symbols = image.iter().flat_map(|image| &image.symbols);
    let known = kept.into_iter().flatten().chain(symbols.map(Symbol::mark));
    for mark in known {
        // An end address belongs to the part that it ends.
        let ends = matches!(mark.name.as_str(), "brk" | "end_data" | "mmap_base");
        let at = mark.address - u64::from(ends && mark.address > 0);
        let part = parts
            .iter_mut()
            .find(|part| (part.start..part.end).contains(&at));
        if let Some(part) = part {
            part.marks.push(mark);
        }
    }
    for part in parts {
        part.marks
            .sort_by_key(|mark| std::cmp::Reverse(mark.address));
    }
}

fn add_gaps(parts: &mut Vec<Part>, image: Option<&Image>) {
    let last = parts.last().map_or(0, |part| part.end);
    let narrow = image.is_some_and(|image| image.bits == 32);
    let task_end = match last {
        last if narrow && last <= TASK_END_32 => TASK_END_32,
        last => *TASK_ENDS.iter().find(|end| last <= **end).unwrap_or(&last),
    };
    let bare = |kind: Kind, start: u64, end: u64| Part {
        kind,
        start,
        end,
        size: end - start,
        mappings: 0,
        first: 0,
        apart: Vec::new(),
        name: String::new(),
        perms: BTreeSet::new(),
        flags: BTreeSet::new(),
        marks: Vec::new(),
    };
    let mut all = Vec::with_capacity(parts.len() * 2 + 2);
    let mut at = 0;
    parts.push(bare(Kind::KernelSpace, task_end, u64::MAX));
    for part in parts.drain(..) {
        if part.start > at {
            all.push(bare(Kind::Gap, at, part.start));
        }
        at = part.end;
        all.push(part);
    }
    *parts = all;
}

fn hexadecimal<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}
