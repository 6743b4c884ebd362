//! The journal: the data that a later run needs to finish an interrupted repair.
//!
//! There is one text file for each process under repair. A line is appended before each step that
//! must not remain half done; incomplete lines are ignored. The plan of a piece is on disk before
//! the process is stopped; the registers of the borrowed thread are added once the process is
//! stopped. The progress within a piece is not recorded: the state of the process shows it. A run
//! holds a lock on the journal that it uses.
//!
//! # Picture
//! ```text
//! vmarea-journal 1 PID START_TIME .
//! namespace INODE .                    the pid namespace of these ids
//! stopping WAS_STOPPED SYSCALL .       the process is about to be stopped
//! stopped TID MASK REGISTERS... .      the state to be restored to its thread
//! restored .                           the state has been restored
//! tools CODE TABLE ROOM_START ROOM_END FD COPIES INODE .    the agent in the process
//! piece START END .                    a piece is about to be joined
//! guard START END .                    a guard page is about to be opened and marked; each of several
//!                                      has its own line
//! guarded .                            all these guard pages are marked, or unchanged
//! whole .                              the piece is joined, or unchanged
//! released .                           the process runs as before
//! clearing .                           the agent is incomplete: it is being injected
//!                                      (code page first) or removed (code page last)
//! made .                               the agent is complete
//! cleared .                            the agent is removed
//! ```

mod files;
mod folders;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vmarea_merge::types::VmRange;

use files::Folder;
pub(super) use folders::Journals;

use super::{RepairError, Way, proc_status};
use vmarea_linux_sys::inject::Registers;

/// The resources of a repair within the process: code, table, scratch area and userfaultfd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Agent {
    /// Address of the agent's code page.
    pub(super) code: u64,
    /// Address of the agent's table of calls.
    pub(super) table: u64,
    /// The scratch area for pieces.
    pub(super) room: VmRange,
    /// Descriptor of the process's userfaultfd, or -1 if there is none.
    pub(super) fd: i32,
    /// Inode of the userfaultfd; `None` if it could not be read.
    pub(super) inode: Option<u64>,
    /// Whether the userfaultfd moves or copies pages.
    pub(super) way: Way,
}

/// State of the borrowed thread, to be restored after the injected calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Saved {
    pub(super) tid: i32,
    pub(super) mask: u64,
    pub(super) registers: Registers,
}

/// The state of a repair, as read from its journal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct State {
    /// `Some` while the process is stopped: true if it was already in group-stop.
    pub(super) stopping: Option<bool>,
    /// Address of a system-call instruction in the process.
    pub(super) syscall: u64,
    pub(super) saved: Option<Saved>,
    pub(super) agent: Option<Agent>,
    pub(super) piece: Option<VmRange>,
    /// The guard pages that are being replaced with guard markers. One of them may currently be
    /// accessible.
    pub(super) guards: Vec<VmRange>,
    /// True while the agent is being injected or removed, so parts of it may be missing.
    pub(super) clearing: bool,
}

impl State {
    /// True if a thread that is stopped at `pc` may be executing the calls of a repair.
    pub(super) fn is_ours(&self, pc: u64) -> bool {
        const CODE_BYTES: u64 = 4096;
        const AFTER_INSTRUCTION: u64 = 8;
        (self.syscall..=self.syscall.saturating_add(AFTER_INSTRUCTION)).contains(&pc)
            || self.agent.is_some_and(|agent| {
                (agent.code..agent.code.saturating_add(CODE_BYTES)).contains(&pc)
            })
    }
}

/// An open, locked journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    folder: Folder,
    name: String,
}

/// An existing journal.
#[allow(clippy::large_enum_variant, reason = "one exists at a time")]
#[derive(Debug)]
pub(super) enum Found {
    /// Another process, with this id if known, has locked the journal.
    AtWork(Option<i32>),
    /// No running process uses the journal.
    Abandoned(Journal, State),
}

/// Maximum size of a journal; no repair writes more.
const MOST_BYTES: u64 = 64 << 20;
const MOST_LINE_BYTES: usize = 1 << 10;

impl Journal {
    /// Returns the default folder for the journals of a user: a private folder in `/var/tmp`.
    pub(super) fn usual_folder(user: u32) -> PathBuf {
        Folder::usual(user)
    }

    fn name(pid: i32) -> String {
        format!("{pid}.journal")
    }

    fn head(pid: i32, start_time: u64) -> String {
        format!("vmarea-journal 1 {pid} {start_time}")
    }

    /// Removes the journals of processes that have ended.
    pub(super) fn sweep(folder: &Path) {
        let Ok(Some(folder)) = Folder::open(folder, &[]) else {
            return;
        };
        for name in folder.names().unwrap_or_default() {
            let is_over = || -> Option<bool> {
                let pid: i32 = name.strip_suffix(".journal")?.parse().ok()?;
                let file = folder.open_file(&name).ok()??;
                files::lock(&file).ok()?.ok()?;
                let mut head = String::new();
                file.take(MOST_LINE_BYTES as u64)
                    .read_to_string(&mut head)
                    .ok()?;
                let mut lines = whole_lines(&head);
                let (first, second) = (lines.next()?, lines.next()?);
                // Process ids of another namespace differ from those in this one.
                let is_ours = second == format!("namespace {:x}", namespace()?);
                let is_it = proc_status::start_time(pid)
                    .is_ok_and(|start| first == Journal::head(pid, start));
                // A process that has ended may still be a zombie.
                let threads = proc_status::tasks(pid).unwrap_or_default();
                let runs = is_it && threads.iter().any(|&tid| !proc_status::has_ended(pid, tid));
                Some(is_ours && !runs)
            };
            if is_over() == Some(true) {
                let _ = folder.remove_file(&name);
            }
        }
    }

    /// Begins a journal for a process that has none.
    ///
    /// # Errors
    /// `AlreadyExists`, and the errors of creating files. A folder that belongs to another user is
    /// refused.
    pub(super) fn create(folder: &Path, pid: i32, start_time: u64) -> io::Result<Journal> {
        let (folder, name) = (Folder::make(folder)?, Journal::name(pid));
        let file = folder.create_file(&name)?;
        if files::lock(&file)?.is_err() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut journal = Journal { file, folder, name };
        journal.line(&Journal::head(pid, start_time))?;
        journal.line(&format!("namespace {:x}", namespace().unwrap_or(0)))?;
        Ok(journal)
    }

    /// Opens the journal of a process, and reads the state of the repair from it. The folder must
    /// belong to the user of this process or to one of `others`. Returns `None` if there is no
    /// journal, or only the journal of an earlier process with the same id.
    ///
    /// # Errors
    /// Errors from reading files; `PermissionDenied` if the journal cannot be trusted;
    /// `InvalidData`.
    pub(super) fn open(
        folder: &Path,
        others: &[u32],
        pid: i32,
        start_time: u64,
    ) -> io::Result<Option<Found>> {
        let Some(folder) = Folder::open(folder, others)? else {
            return Ok(None);
        };
        let name = Journal::name(pid);
        let Some(file) = folder.open_file(&name)? else {
            return Ok(None);
        };
        if let Err(holder) = files::lock(&file)? {
            return Ok(Some(Found::AtWork(holder)));
        }
        if !folder.is_file(&name, &file)? {
            // The previous holder of the lock finished the repair and removed the journal.
            return Ok(None);
        }
        let mut text = String::new();
        (&file).take(MOST_BYTES + 1).read_to_string(&mut text)?;
        let mut journal = Journal { file, folder, name };
        if text.len() as u64 > MOST_BYTES {
            return Err(broken("it is too long"));
        }
        let mut lines = whole_lines(&text);
        if lines.next() != Some(&Journal::head(pid, start_time)) {
            // The journal belongs to another process, or was truncated before the first step.
            journal.remove()?;
            return Ok(None);
        }
        let mut state = State::default();
        for line in lines {
            let read = (line.len() <= MOST_LINE_BYTES).then(|| read_line(&mut state, line));
            if read.flatten().is_none() {
                let start: String = line.chars().take(60).collect();
                return Err(broken(&format!("it has the line {start:?}")));
            }
        }
        if !text.ends_with('\n') {
            // The next line must not complete a torn one.
            journal.file.write_all(b"!\n")?;
        }
        Ok(Some(Found::Abandoned(journal, state)))
    }

    /// Reads the state of the repair from the journal.
    #[cfg(test)]
    pub(super) fn read_again(&self) -> State {
        let text = fs::read_to_string(self.path()).unwrap();
        let mut state = State::default();
        for line in whole_lines(&text).skip(1) {
            read_line(&mut state, line).unwrap();
        }
        state
    }

    /// Returns the user who owns the journal.
    pub(super) fn owner(&self) -> u32 {
        self.folder.owner()
    }

    /// Returns the path of the journal.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path_of(&self.name)
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(format!("{text} .\n").as_bytes())
    }

    pub(super) fn stopping(&mut self, was_stopped: bool, syscall: u64) -> io::Result<()> {
        self.line(&format!("stopping {} {syscall:x}", u8::from(was_stopped)))
    }

    pub(super) fn restored(&mut self) -> io::Result<()> {
        self.line("restored")
    }

    pub(super) fn stopped(&mut self, saved: &Saved) -> io::Result<()> {
        let mut text = format!("stopped {} {:x}", saved.tid, saved.mask);
        for word in &saved.registers.words[..saved.registers.count] {
            text += &format!(" {word:x}");
        }
        self.line(&text)
    }

    pub(super) fn agent(&mut self, agent: &Agent) -> io::Result<()> {
        let Agent {
            code,
            table,
            room,
            fd,
            inode,
            way,
        } = agent;
        let copies = u8::from(*way == Way::Copy);
        let inode = inode.unwrap_or(0);
        self.line(&format!(
            "tools {code:x} {table:x} {:x} {:x} {fd:x} {copies} {inode:x}",
            room.start, room.end
        ))
    }

    /// Records the plan of a piece; the record is on disk when this function returns.
    pub(super) fn piece(&mut self, piece: VmRange) -> io::Result<()> {
        self.line(&format!("piece {:x} {:x}", piece.start, piece.end))?;
        self.file.sync_data()
    }

    pub(super) fn whole(&mut self) -> io::Result<()> {
        self.line("whole")
    }

    /// Records that guard pages are about to be made accessible and then marked, one by one.
    pub(super) fn guards(&mut self, guards: impl Iterator<Item = VmRange>) -> io::Result<()> {
        let lines = guards.map(|guard| format!("guard {:x} {:x} .\n", guard.start, guard.end));
        self.file.write_all(lines.collect::<String>().as_bytes())
    }

    pub(super) fn guarded(&mut self) -> io::Result<()> {
        self.line("guarded")
    }

    pub(super) fn released(&mut self) -> io::Result<()> {
        self.line("released")
    }

    pub(super) fn clearing(&mut self) -> io::Result<()> {
        self.line("clearing")
    }

    /// Records that the agent is complete.
    pub(super) fn made(&mut self) -> io::Result<()> {
        self.line("made")
    }

    pub(super) fn cleared(&mut self) -> io::Result<()> {
        self.line("cleared")
    }

    /// Removes the journal of a finished repair.
    pub(super) fn remove(self) -> io::Result<()> {
        self.folder.remove_file(&self.name)
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Returns the complete lines of a journal.
fn whole_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix(" .\n"))
}

/// Returns the pid namespace of this process.
fn namespace() -> Option<u64> {
    Some(fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// Updates `state` with one line of a journal; `None` if the line is malformed.
fn read_line(state: &mut State, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
    match kind {
        "stopping" => {
            state.stopping = Some(hex()? != 0);
            state.syscall = hex()?;
        }
        "restored" => state.saved = None,
        "stopped" => state.saved = Some(read_saved(line)?),
        "tools" => {
            // The journal names an agent before the agent's code is written. The agent is
            // incomplete until `made`.
            state.clearing |= state.agent.is_none();
            state.agent = Some(read_agent(&mut hex)?);
        }
        "piece" => {
            let (start, end) = (hex()?, hex()?);
            state.piece = Some((start <= end).then(|| VmRange::new(start, end))?);
        }
        "guard" => {
            let (start, end) = (hex()?, hex()?);
            let guard = (start < end).then(|| VmRange::new(start, end))?;
            state.guards.push(guard);
        }
        "guarded" => state.guards.clear(),
        "whole" => state.piece = None,
        "made" => state.clearing = false,
        "clearing" => state.clearing = true,
        "cleared" => (state.agent, state.clearing) = (None, false),
        "released" => (state.stopping, state.saved) = (None, None),
        "namespace" => {
            if hex()? != namespace().unwrap_or(0) {
                return None;
            }
        }
        _ => return None,
    }
    Some(())
}

/// Parses a `stopped` line.
fn read_saved(line: &str) -> Option<Saved> {
    let mut words = line.split(' ').skip(1);
    let tid = words.next()?.parse().ok()?;
    let mask = u64::from_str_radix(words.next()?, 16).ok()?;
    let mut registers = Registers {
        words: [0; 34],
        count: 0,
    };
    for word in words {
        *registers.words.get_mut(registers.count)? = u64::from_str_radix(word, 16).ok()?;
        registers.count += 1;
    }
    Some(Saved {
        tid,
        mask,
        registers,
    })
}

/// Parses the numbers of a `tools` line.
fn read_agent(hex: &mut impl FnMut() -> Option<u64>) -> Option<Agent> {
    let (code, table, start, end) = (hex()?, hex()?, hex()?, hex()?);
    let fd = hex()?;
    let way = match hex() {
        Some(1) => Way::Copy,
        _ => Way::Move,
    };
    let room = (start <= end).then(|| VmRange::new(start, end))?;
    Some(Agent {
        code,
        table,
        room,
        // The number is written unsigned, so -1 has all 32 bits set.
        fd: if fd == u64::from(u32::MAX) {
            -1
        } else {
            i32::try_from(fd).ok()?
        },
        inode: hex().filter(|&inode| inode != 0),
        way,
    })
}

/// Converts an error from writing, reading or removing a journal.
pub(super) fn failed(cause: io::Error) -> RepairError {
    RepairError::System {
        what: "the journal (--journal names another folder for it)",
        cause,
    }
}

#[cfg(test)]
mod tests;
