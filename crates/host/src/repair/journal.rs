//! The journal: what another run needs to know to finish a repair that ours could not.
//!
//! One text file for each process under repair. A line is added before each step that must not be
//! left half done, and is only counted where it is whole. The plan of a piece is on disk before the
//! process is stopped; registers follow when it stands. What was done of a piece is not written
//! down: the process itself shows it.
//!
//! # Picture
//! ```text
//! vmarea-journal 1 PID START_TIME .
//! stopping WAS_STOPPED SYSCALL .               the process is about to be stopped
//! stopped TID MASK REGISTERS... .              what its thread has to get back
//! restored .                                   it has got it back
//! tools CODE TABLE ROOM_START ROOM_END FD COPIES .
//! piece START END .
//! whole .                                      the piece is done, or as it was
//! released .                                   the process runs as if nothing had been
//! clearing .                                   the tools are about to go, the agent's page last
//! cleared .                                    they are gone
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use vmarea::values::VmRange;

use super::Way;
use crate::sys::inject::Registers;

/// What is there in the process to work with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tools {
    /// The agent's page.
    pub(super) code: u64,
    /// Its table.
    pub(super) table: u64,
    /// Address space for pieces.
    pub(super) room: VmRange,
    /// The process's userfaultfd.
    pub(super) fd: i32,
    /// What that can do.
    pub(super) way: Way,
}

/// What a thread has to get back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Saved {
    pub(super) tid: i32,
    pub(super) mask: u64,
    pub(super) registers: Registers,
}

/// Where a repair stood.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct State {
    /// The process was being stopped; whether it had been before.
    pub(super) stopping: Option<bool>,
    /// An instruction of the process that makes a system call.
    pub(super) syscall: u64,
    pub(super) saved: Option<Saved>,
    pub(super) tools: Option<Tools>,
    pub(super) piece: Option<VmRange>,
    /// The tools were being taken out: some or all of them may be gone.
    pub(super) clearing: bool,
}

impl State {
    /// True for a place at which a thread stands only because of us.
    pub(super) fn is_ours(&self, pc: u64) -> bool {
        const CODE_BYTES: u64 = 4096;
        const AFTER_INSTRUCTION: u64 = 8;
        (self.syscall..=self.syscall + AFTER_INSTRUCTION).contains(&pc)
            || self
                .tools
                .is_some_and(|tools| (tools.code..tools.code + CODE_BYTES).contains(&pc))
    }
}

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Where journals lie unless it is said otherwise: a folder of this user's own in `/var/tmp`.
    pub(super) fn default_folder() -> PathBuf {
        let user = rustix::process::getuid().as_raw();
        PathBuf::from(format!("/var/tmp/vmarea-{user}"))
    }

    fn path(folder: &Path, pid: i32) -> PathBuf {
        folder.join(format!("{pid}.journal"))
    }

    /// Removes the journal of a process that is not there any more, if there is one.
    pub(super) fn forget(folder: &Path, pid: i32) {
        let _ = fs::remove_file(Journal::path(folder, pid));
    }

    /// Begins a journal; there must be none of this process.
    ///
    /// # Errors
    /// `AlreadyExists`, and those of making files. A folder that is somebody else's is refused.
    pub(super) fn create(folder: &Path, pid: i32, start_time: u64) -> io::Result<Journal> {
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let owner = fs::symlink_metadata(folder)?;
        if !owner.is_dir() || owner.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the folder for journals belongs to somebody else",
            ));
        }
        let path = Journal::path(folder, pid);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let mut journal = Journal { file, path };
        journal.line(&format!("vmarea-journal 1 {pid} {start_time}"))?;
        Ok(journal)
    }

    /// Opens the journal of a process that was left in the middle, and tells where it stood.
    /// `None` where there is none, or where it is of an earlier process with this number.
    ///
    /// # Errors
    /// Those of reading files; `InvalidData`.
    pub(super) fn open(
        folder: &Path,
        pid: i32,
        start_time: u64,
    ) -> io::Result<Option<(Journal, State)>> {
        let path = Journal::path(folder, pid);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let mut lines = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix(" .\n"));
        let head = format!("vmarea-journal 1 {pid} {start_time}");
        if lines.next() != Some(&head) {
            // Of another process, or cut before anything was done.
            fs::remove_file(&path)?;
            return Ok(None);
        }
        let mut state = State::default();
        for line in lines {
            read_line(&mut state, line)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a broken journal"))?;
        }
        let mut file = OpenOptions::new().append(true).open(&path)?;
        if !text.ends_with('\n') {
            // What comes next must not make a whole line of a torn one.
            file.write_all(b"!\n")?;
        }
        Ok(Some((Journal { file, path }, state)))
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

    pub(super) fn tools(&mut self, tools: &Tools) -> io::Result<()> {
        let Tools {
            code,
            table,
            room,
            fd,
            way,
        } = tools;
        let copies = u8::from(*way == Way::Copy);
        self.line(&format!(
            "tools {code:x} {table:x} {:x} {:x} {fd:x} {copies}",
            room.start, room.end
        ))
    }

    /// The plan of a piece, on disk when this returns.
    pub(super) fn piece(&mut self, piece: VmRange) -> io::Result<()> {
        self.line(&format!("piece {:x} {:x}", piece.start, piece.end))?;
        self.file.sync_data()
    }

    pub(super) fn whole(&mut self) -> io::Result<()> {
        self.line("whole")
    }

    pub(super) fn released(&mut self) -> io::Result<()> {
        self.line("released")
    }

    pub(super) fn clearing(&mut self) -> io::Result<()> {
        self.line("clearing")
    }

    pub(super) fn cleared(&mut self) -> io::Result<()> {
        self.line("cleared")
    }

    /// All is done: the journal goes.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

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
        "stopped" => {
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
            state.saved = Some(Saved {
                tid,
                mask,
                registers,
            });
        }
        "tools" => {
            let (code, table, start, end) = (hex()?, hex()?, hex()?, hex()?);
            let fd = hex()?;
            let way = match hex() {
                Some(1) => Way::Copy,
                _ => Way::Move,
            };
            let room = (start <= end).then(|| VmRange::new(start, end))?;
            state.tools = Some(Tools {
                code,
                table,
                room,
                fd: i32::try_from(fd).ok()?,
                way,
            });
        }
        "piece" => {
            let (start, end) = (hex()?, hex()?);
            state.piece = Some((start <= end).then(|| VmRange::new(start, end))?);
        }
        "whole" => state.piece = None,
        "clearing" => state.clearing = true,
        "cleared" => (state.tools, state.clearing) = (None, false),
        "released" => (state.stopping, state.saved) = (None, None),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_a_torn_line_is_not() {
        let folder = std::env::temp_dir().join(format!("vmarea-journal-{}", std::process::id()));
        let mut journal = Journal::create(&folder, 7, 99).unwrap();
        assert_eq!(
            Journal::create(&folder, 7, 99).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        let mut words = [0; 34];
        words[..27].fill(0xabc);
        let registers = Registers { words, count: 27 };
        let saved = Saved {
            tid: 8,
            mask: 0xff00,
            registers,
        };
        let tools = Tools {
            code: 0x1000,
            table: 0x2000,
            room: VmRange::new(0x10_0000, 0x20_0000),
            fd: 5,
            way: Way::Copy,
        };
        journal.tools(&tools).unwrap();
        journal.piece(VmRange::new(0x4000, 0x8000)).unwrap();
        journal.stopping(true, 0x1234).unwrap();
        journal.stopped(&saved).unwrap();
        journal.file.write_all(b"whole").unwrap();
        drop(journal);
        let (mut journal, state) = Journal::open(&folder, 7, 99).unwrap().unwrap();
        let expected = State {
            stopping: Some(true),
            syscall: 0x1234,
            saved: Some(saved),
            tools: Some(tools),
            piece: Some(VmRange::new(0x4000, 0x8000)),
            clearing: false,
        };
        assert_eq!(state, expected);
        journal.whole().unwrap();
        journal.clearing().unwrap();
        drop(journal);
        let (mut journal, state) = Journal::open(&folder, 7, 99).unwrap().unwrap();
        assert_eq!((state.tools, state.clearing), (Some(tools), true));
        journal.cleared().unwrap();
        journal.released().unwrap();
        drop(journal);
        let (journal, state) = Journal::open(&folder, 7, 99).unwrap().unwrap();
        assert_eq!((state.tools, state.clearing), (None, false));
        drop(journal);
        // Another process with the same number: an old journal says nothing of it.
        assert!(Journal::open(&folder, 7, 100).unwrap().is_none());
        assert!(Journal::open(&folder, 7, 99).unwrap().is_none());
        fs::remove_dir(&folder).unwrap();
    }
}
