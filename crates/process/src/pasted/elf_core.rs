//! An ELF core, as the kernel or gdb's `gcore` writes it.
//!
//! The program headers are the list of mappings, with permissions; the note `NT_FILE` has the names
//! of files and their offsets. The contents of the memory, which can be many gigabytes, are never
//! read, so that a list which lies in that memory is not taken for the list of the process.
//!
//! # Linux
//! `elf_core_dump` in `fs/binfmt_elf.c`: one `PT_LOAD` for each VMA, also for those whose contents are
//! left out; from 65,535 on, their number is in section 0. `gcore` leaves out the mappings of which it
//! saves nothing.

use super::fields::{UNKNOWN_PERMS, entry, name};
use super::{Format, Listed, Pasted};
use crate::maps::{MapName, SmapsEntry};
use crate::unseen::Unseen;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endian, Endianness};
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Seek};
use vmarea_trace::event::Perms;

const CORE: Format = Format {
    name: "an ELF core",
    cannot_show: &["what is shared", "inodes", "names of anonymous memory"],
    so: "shared memory looks like private memory",
    unseen: Unseen::SHARING.union(Unseen::INODE).union(Unseen::NAME),
};

/// Maximum size of the program headers, or of the notes, in bytes.
const MOST_BYTES: u64 = 256 << 20;
/// Place of the signal in `prstatus`: `pr_cursig`, behind three integers.
const CURSIG: usize = 12;
/// Entries of the auxiliary vector: addresses in the main thread's stack, and of the vDSO.
const AT_RANDOM: u64 = 25;
const AT_SYSINFO_EHDR: u64 = 33;

/// True for the first bytes of an ELF file.
pub fn is_elf(file: &[u8]) -> bool {
    file.starts_with(&elf::ELFMAG)
}

/// Returns the list of mappings in a core, of which only headers and notes are read.
///
/// # Errors
/// Fails with a sentence if the file is no core, or if its list is cut off.
pub fn read_core<R: Read + Seek>(file: R) -> Result<Pasted<'static>, String> {
    of_any(&ReadCache::new(file))
}

pub(super) fn read(file: &[u8]) -> Result<Pasted<'static>, String> {
    read_core(Cursor::new(file))
}

fn of_any<'d, R: ReadRef<'d>>(data: R) -> Result<Pasted<'static>, String> {
    let class = data.read_bytes_at(4, 1).map(|class| class[0]);
    match class {
        Ok(1) => of_class::<FileHeader32<Endianness>, R>(data),
        Ok(2) => of_class::<FileHeader64<Endianness>, R>(data),
        Ok(_) => Err("the ELF file is damaged in its header".to_owned()),
        Err(()) => Err("the ELF file is cut off in its header".to_owned()),
    }
}

fn of_class<'d, F, R>(data: R) -> Result<Pasted<'static>, String>
where
    F: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let damaged = |_| "the ELF file is damaged or cut off in its header".to_owned();
    let header = F::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    if header.e_type(endian) != elf::ET_CORE {
        return Err(
            "it is an ELF program, not a core: send a copy of /proc/PID/maps of its process"
                .to_owned(),
        );
    }
    let cut =
        "the core is cut off or damaged in its program headers, which are the list of mappings";
    let count = header.phnum(endian, data).map_err(|_| cut.to_owned())?;
    if u64::from(count) * u64::from(header.e_phentsize(endian)) > MOST_BYTES {
        return Err(cut.to_owned());
    }
    let segments = header
        .program_headers(endian, data)
        .map_err(|_| cut.to_owned())?;
    let mut core = Core {
        endian,
        is_64: header.is_type_64(),
        ..Core::default()
    };
    for segment in segments {
        core.segment(segment, data);
    }
    core.finish()
}

/// A file in `NT_FILE`.
struct Mapped {
    end: u64,
    offset: u64,
    path: String,
}

/// What was found in a core.
#[derive(Default)]
struct Core {
    endian: Endianness,
    is_64: bool,
    /// Mappings, with what is unknown of each.
    loads: BTreeMap<u64, SmapsEntry>,
    files: BTreeMap<u64, Mapped>,
    program: Option<String>,
    signal: Option<u32>,
    stack: Option<u64>,
    vdso: Option<u64>,
    damaged: usize,
    notes_are_cut: bool,
}

impl Core {
    fn segment<'d, P, R>(&mut self, segment: &P, data: R)
    where
        P: ProgramHeader<Endian = Endianness>,
        R: ReadRef<'d>,
    {
        let endian = self.endian;
        match segment.p_type(endian) {
            elf::PT_LOAD => {
                let start: u64 = segment.p_vaddr(endian).into();
                let size: u64 = segment.p_memsz(endian).into();
                let flags = segment.p_flags(endian);
                let has = |flag: elf::ProgramFlags| flags.0 & flag.0 != 0;
                let perms = Perms {
                    read: has(elf::PF_R),
                    write: has(elf::PF_W),
                    exec: has(elf::PF_X),
                    shared: false,
                };
                match entry(start, start.checked_add(size), perms) {
                    Ok(entry) => drop(self.loads.insert(start, entry)),
                    Err(_) => self.damaged += 1,
                }
            }
            elf::PT_NOTE => {
                let size: u64 = segment.p_filesz(endian).into();
                let notes = (size <= MOST_BYTES).then(|| segment.notes(endian, data));
                let Some(Ok(Some(mut notes))) = notes else {
                    self.notes_are_cut = true;
                    return;
                };
                loop {
                    match notes.next() {
                        Ok(Some(note)) if note.name() == b"CORE" => {
                            self.note(note.n_type(endian), note.desc());
                        }
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => {
                            self.notes_are_cut = true;
                            break;
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, kind: elf::NoteType, desc: &[u8]) {
        match kind {
            elf::NT_FILE => self.note_of_files(desc),
            elf::NT_PRPSINFO => {
                // The name and the arguments are the last two members.
                let text = desc.len().checked_sub(96).and_then(|at| desc.get(at..));
                let arguments = text.map(|text| text_of(&text[16..]));
                let name = text.map(|text| text_of(&text[..16]));
                let program = arguments.filter(|text| !text.is_empty()).or(name);
                self.program = program.filter(|text| !text.is_empty());
            }
            elf::NT_SIGINFO => self.signal = self.u32_at(desc, 0),
            elf::NT_PRSTATUS if self.signal.is_none() => {
                let bytes = desc
                    .get(CURSIG..CURSIG + 2)
                    .and_then(|two| two.try_into().ok());
                self.signal = bytes.map(|two| u32::from(self.endian.read_u16(two)));
            }
            elf::NT_AUXV => {
                let words = (0..)
                    .map_while(|n| Some((self.word(desc, 2 * n)?, self.word(desc, 2 * n + 1)?)));
                let all: Vec<_> = words.collect();
                let value = |wanted| {
                    all.iter()
                        .find(|(key, _)| *key == wanted)
                        .map(|(_, value)| *value)
                };
                self.stack = value(AT_RANDOM);
                self.vdso = value(AT_SYSINFO_EHDR);
            }
            _ => {}
        }
    }

    fn note_of_files(&mut self, desc: &[u8]) {
        let Some((count, page)) = self.word(desc, 0).zip(self.word(desc, 1)) else {
            self.notes_are_cut = true;
            return;
        };
        let word_bytes = if self.is_64 { 8 } else { 4 };
        let names = usize::try_from(count).ok().and_then(|count| {
            let at = count
                .checked_mul(3)?
                .checked_add(2)?
                .checked_mul(word_bytes)?;
            desc.get(at..)
        });
        let Some(names) = names else {
            self.notes_are_cut = true;
            return;
        };
        for (n, path) in (0..count as usize).zip(names.split(|&byte| byte == 0)) {
            let at = 2 + 3 * n;
            let word = |more| self.word(desc, at + more);
            let (Some(start), Some(end), Some(offset)) = (word(0), word(1), word(2)) else {
                break;
            };
            let mapped = Mapped {
                end,
                offset: offset.saturating_mul(page),
                path: String::from_utf8_lossy(path).into_owned(),
            };
            self.files.insert(start, mapped);
        }
    }

    /// Returns the `n`th word of the size of an address.
    fn word(&self, bytes: &[u8], n: usize) -> Option<u64> {
        if self.is_64 {
            let at = n.checked_mul(8)?;
            let bytes = bytes.get(at..at.checked_add(8)?)?;
            Some(self.endian.read_u64(bytes.try_into().ok()?))
        } else {
            self.u32_at(bytes, n.checked_mul(4)?).map(u64::from)
        }
    }

    fn u32_at(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(self.endian.read_u32(bytes.try_into().ok()?))
    }

    fn finish(mut self) -> Result<Pasted<'static>, String> {
        self.name_mappings();
        self.name_data_of_vdso();
        let left_out = self.add_files_without_load();
        let mut notes = Vec::new();
        if let Some(program) = &self.program {
            // gcore stops the process by a signal that says nothing.
            let says = |signal: &u32| *signal != 0 && *signal != libc::SIGSTOP as u32;
            let signal = self.signal.filter(says);
            let ended = signal.map_or_else(String::new, |number| {
                format!(", written on signal {number}{}", signal_name(number))
            });
            notes.push(format!("the core is that of `{program}`{ended}"));
        }
        if self.damaged > 0 {
            notes.push(format!(
                "{} program headers of the core are damaged and were left out",
                self.damaged
            ));
        }
        if self.notes_are_cut {
            notes.push(
                "the core's notes are cut off or damaged: names of files are missing".to_owned(),
            );
        }
        // The kernel writes a header for each mapping, and one for the stack is among them.
        let has_stack = self.stack.is_none()
            || self
                .loads
                .values()
                .any(|e| e.mapping.name == MapName::Stack);
        let files = left_out.len();
        if files > 0 {
            let s = if files == 1 {
                "mapping of a file has"
            } else {
                "mappings of files have"
            };
            notes.push(format!(
                "{files} {s} no program header (gcore leaves them out): other mappings may be missing as well"
            ));
        }
        let mut entries = Vec::with_capacity(self.loads.len());
        let mut marks = Vec::new();
        for (n, (start, entry)) in self.loads.into_iter().enumerate() {
            if left_out.contains(&start) {
                marks.push((n, Unseen::PERMS));
            }
            if self.notes_are_cut && entry.mapping.name == MapName::None {
                marks.push((n, Unseen::FILE));
            }
            entries.push(entry);
        }
        Ok(Pasted {
            list: Listed::Entries(entries),
            format: Some(&CORE),
            marks,
            incomplete: self.damaged + files > 0 || !has_stack,
            notes,
            ..Pasted::default()
        })
    }

    /// Gives mappings the names that the notes tell.
    fn name_mappings(&mut self) {
        let (stack, vdso, files) = (self.stack, self.vdso, &self.files);
        let special = |name: &str| MapName::Special(name.to_owned());
        for (start, entry) in &mut self.loads {
            let mapping = &mut entry.mapping;
            if let Some(file) = files.get(start) {
                mapping.offset = file.offset;
                mapping.name = name(&file.path);
            } else if stack.is_some_and(|at| (mapping.start..mapping.end).contains(&at)) {
                mapping.name = MapName::Stack;
            } else if vdso == Some(*start) {
                mapping.name = special("[vdso]");
            } else if *start == 0xffff_ffff_ff60_0000 {
                mapping.name = special("[vsyscall]");
            }
        }
    }

    /// Names the data of the vDSO, which are one or two small mappings directly below it.
    fn name_data_of_vdso(&mut self) {
        const MOST_BYTES: u64 = 16 << 10;
        let mut above = self.vdso;
        for (start, entry) in self.loads.range_mut(..self.vdso.unwrap_or(0)).rev().take(2) {
            let mapping = &mut entry.mapping;
            let perms = mapping.perms;
            let is_data = Some(mapping.end) == above
                && mapping.name == MapName::None
                && (perms.read && !perms.write && !perms.exec)
                && mapping.end - mapping.start <= MOST_BYTES;
            if !is_data {
                break;
            }
            mapping.name = MapName::Special("[vvar]".to_owned());
            above = Some(*start);
        }
    }

    /// Adds the mappings of files that have no program header, and returns where they begin.
    fn add_files_without_load(&mut self) -> Vec<u64> {
        let mut added = Vec::new();
        for (start, file) in &self.files {
            let below = self.loads.range(..file.end).next_back();
            let is_free = below.is_none_or(|(_, load)| load.mapping.end <= *start);
            if let (true, Ok(mut entry)) = (is_free, entry(*start, Some(file.end), UNKNOWN_PERMS)) {
                entry.mapping.offset = file.offset;
                entry.mapping.name = name(&file.path);
                self.loads.insert(*start, entry);
                added.push(*start);
            }
        }
        added
    }
}

/// Returns text up to its first zero, without characters of a terminal.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    text.trim().chars().filter(|c| !c.is_control()).collect()
}

/// Returns the name of a signal that ends programs, in parentheses.
fn signal_name(number: u32) -> &'static str {
    match i32::try_from(number).unwrap_or(0) {
        libc::SIGQUIT => " (SIGQUIT)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGTRAP => " (SIGTRAP)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGSYS => " (SIGSYS)",
        _ => "",
    }
}
