//! Program files and libraries, each loaded once, with their separate debug files.
//!
//! A debug file is searched where gdb searches it: by build ID in `/usr/lib/debug/.build-id`, and by
//! the name in `.gnu_debuglink` beside the program, in `.debug` beside it, and in `/usr/lib/debug`.
//! It is used only if its build ID or its checksum is right.

use crate::Frame;
use crate::demangle::demangle;
use crate::elf::{Elf, SymbolTable, build_id};
use crate::lines::Lines;
use crate::open::{self, Links, Mapped};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use vmarea_process::maps::MapsEntry;

/// Maximum size of a program file or debug file in bytes; a larger one is not read.
const FILE_BYTES: u64 = 1 << 30;
/// Maximum size of all debug information in bytes.
const DEBUG_BYTES: u64 = 2 << 30;
const ELF_MAGIC: &[u8] = b"\x7fELF";
/// Beginning of the names of files that exist only in memory.
const MEMFD: &str = "/memfd:";
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// A program file or library.
pub(crate) struct Module {
    /// File name.
    pub(crate) name: String,
    pub(crate) elf: Elf,
    debug: Debug,
    /// Whether reading a part of the debug information failed.
    torn: Cell<bool>,
}

/// Data that helps to name functions, from the file itself or its debug file.
#[derive(Default)]
struct Debug {
    lines: Option<Lines>,
    symbols: Option<SymbolTable>,
    damage: Option<String>,
}

/// Content of a mapped file.
#[derive(Clone)]
pub(crate) enum Content {
    /// A program or library.
    Program(Rc<Module>),
    /// Neither: the code in it was made at run time.
    Other,
    /// The file cannot be read, or is no longer the mapped one.
    Unreadable,
}

/// Device, inode, size, and time of the last change.
type Identity = (u64, u64, u64, i64, i64);

/// All files that were loaded.
pub(crate) struct Modules {
    by_identity: HashMap<Identity, Content>,
    unreadable: Vec<(String, String)>,
    budget: u64,
}

impl Default for Modules {
    fn default() -> Modules {
        Modules {
            by_identity: HashMap::new(),
            unreadable: Vec::new(),
            budget: DEBUG_BYTES,
        }
    }
}

impl Modules {
    /// Returns the file that process `pid` maps.
    pub(crate) fn get(&mut self, pid: i32, mapping: &MapsEntry) -> Content {
        let path = mapping.name.text();
        if mapping.ino == 0 || path.starts_with(MEMFD) {
            return Content::Other;
        }
        let found = match open::mapped(pid, mapping) {
            Ok(Mapped::Same(file)) => file.metadata().map(|about| (file, about)),
            Ok(Mapped::Replaced) => Err(io::Error::other(
                "the file was deleted or replaced while the program ran",
            )),
            Err(error) => Err(error),
        };
        let (mut file, about) = match found {
            Ok(found) => found,
            Err(error) => {
                self.note(path, error);
                return Content::Unreadable;
            }
        };
        let identity = (
            about.dev(),
            about.ino(),
            about.size(),
            about.mtime(),
            about.mtime_nsec(),
        );
        if let Some(known) = self.by_identity.get(&identity) {
            return known.clone();
        }
        let content = match open::read(&mut file, FILE_BYTES) {
            Ok(bytes) => self.load(pid, &path, &bytes),
            Err(error) => {
                self.note(path, error);
                Content::Unreadable
            }
        };
        self.by_identity.insert(identity, content.clone());
        content
    }

    fn load(&mut self, pid: i32, path: &str, bytes: &[u8]) -> Content {
        if !bytes.starts_with(ELF_MAGIC) {
            return Content::Other;
        }
        let parsed = match object::File::parse(bytes) {
            Ok(parsed) => parsed,
            Err(error) => {
                self.note(path.to_owned(), error);
                return Content::Unreadable;
            }
        };
        let elf = Elf::of(&parsed);
        let mut debug = Debug::of(&parsed, &mut self.budget);
        if debug.lines.is_none() && debug.damage.is_none() {
            let separate = separate(pid, Path::new(path), &elf, &mut self.budget);
            debug = separate.unwrap_or(debug);
        }
        if let Some(damage) = debug.damage.take() {
            self.note(
                path.to_owned(),
                format!("its debug information is damaged: {damage}"),
            );
        }
        Content::Program(Rc::new(Module {
            name: file_name(path),
            elf,
            debug,
            torn: Cell::default(),
        }))
    }

    fn note(&mut self, path: String, why: impl ToString) {
        let note = (path, why.to_string());
        if !self.unreadable.contains(&note) {
            self.unreadable.push(note);
        }
    }

    /// Returns one sentence per file that could not be read completely.
    pub(crate) fn into_notes(self) -> Vec<String> {
        let unreadable = self.unreadable.into_iter();
        let mut notes: Vec<_> = unreadable
            .map(|(path, why)| format!("functions or lines of {path} are missing: {why}"))
            .collect();
        for content in self.by_identity.into_values() {
            let Content::Program(module) = content else {
                continue;
            };
            if !module.torn.get() {
                continue;
            }
            notes.push(format!(
                "functions or lines of {} are missing: a part of its debug information is damaged",
                module.name
            ));
        }
        notes.sort_unstable();
        notes
    }
}

impl Module {
    /// Returns the functions at a link-time address, innermost first. The list is never empty.
    pub(crate) fn frames(&self, linked: u64) -> Vec<Frame> {
        let lines = self.debug.lines.as_ref();
        let found = lines.map_or(Ok(Vec::new()), |lines| lines.frames(linked));
        let mut frames = found.unwrap_or_else(|_| {
            self.torn.set(true);
            Vec::new()
        });
        if frames.is_empty() {
            frames.push(Frame::default());
        }
        let last = frames.len() - 1;
        for (n, frame) in frames.iter_mut().enumerate() {
            frame.module = Some(self.name.clone());
            if frame.function.is_empty() {
                // An inlined function has no symbol.
                let symbol = self.symbol(linked).filter(|_| n == last);
                frame.function = symbol.map_or_else(|| nameless(&self.name, linked), demangle);
            }
        }
        frames
    }

    fn symbol(&self, linked: u64) -> Option<&str> {
        let separate = self.debug.symbols.as_ref();
        separate
            .and_then(|symbols| symbols.name(linked))
            .or_else(|| self.elf.symbols.name(linked))
    }
}

impl Debug {
    /// Reads the debug information of a file.
    fn of(file: &object::File<'_>, budget: &mut u64) -> Debug {
        match Lines::of(file, budget) {
            Ok(lines) => Debug {
                lines,
                ..Debug::default()
            },
            Err(damage) => Debug {
                damage: Some(damage),
                ..Debug::default()
            },
        }
    }

    /// Reads a separate debug file.
    fn of_separate(bytes: &[u8], budget: &mut u64) -> Debug {
        match object::File::parse(bytes) {
            Ok(file) => Debug {
                symbols: Some(SymbolTable::of(&file)),
                ..Debug::of(&file, budget)
            },
            Err(error) => Debug {
                damage: Some(error.to_string()),
                ..Debug::default()
            },
        }
    }
}

/// Returns the content of the separate debug file of the program at `path`.
fn separate(pid: i32, path: &Path, elf: &Elf, budget: &mut u64) -> Option<Debug> {
    if let Some(bytes) = by_build_id(pid, &elf.build_id) {
        let is_right = |bytes: &[u8]| match object::File::parse(bytes) {
            Ok(file) => build_id(&file) == elf.build_id,
            // A file at this path is meant for the program; its damage is reported.
            Err(_) => true,
        };
        if is_right(&bytes) {
            return Some(Debug::of_separate(&bytes, budget));
        }
    }
    let (name, sum) = elf.debug_link.as_ref()?;
    let bytes = by_link(pid, path, name, *sum)?;
    Some(Debug::of_separate(&bytes, budget))
}

/// Reads the debug file of a build ID, from the process's file system or else from ours.
fn by_build_id(pid: i32, id: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let mut path = format!("{DEBUG_FOLDER}/.build-id/{first:02x}/");
    for byte in rest {
        write!(path, "{byte:02x}").ok()?;
    }
    path += ".debug";
    // A container often has no debug files of its own.
    let own = std::process::id() as i32;
    let mut files = [pid, own].into_iter();
    files.find_map(|pid| contents(pid, Path::new(&path)).ok())
}

/// Reads the debug file that `.gnu_debuglink` names.
fn by_link(pid: i32, path: &Path, name: &[u8], sum: u32) -> Option<Vec<u8>> {
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    // The name must be that of a file, without a folder.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let folder = path.parent()?;
    let inner = folder.strip_prefix("/").ok()?;
    let folders: [PathBuf; 3] = [
        folder.to_owned(),
        folder.join(".debug"),
        Path::new(DEBUG_FOLDER).join(inner),
    ];
    let mut paths = folders.iter().map(|folder| folder.join(name));
    paths.find_map(|candidate| {
        if candidate == path {
            return None;
        }
        let bytes = contents(pid, &candidate).ok()?;
        (crc32fast::hash(&bytes) == sum).then_some(bytes)
    })
}

fn contents(pid: i32, path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open::in_root(pid, path, Links::Follow)?;
    open::read(&mut file, FILE_BYTES)
}

/// Returns the last part of a path.
pub(crate) fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Returns what stands in place of the name of an unknown function.
pub(crate) fn nameless(module: &str, linked: u64) -> String {
    format!("{module}+{linked:#x}")
}
