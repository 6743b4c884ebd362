//! Code that was made at run time, as the program's own lists name it.
//!
//! A just-in-time compiler lists its functions in `/tmp/perf-PID.map` or in a jitdump file. The
//! lists grow, and an address that is listed again has new code, so they are read again when a
//! stack contains such an address. A list is text of the program, not a fact: it is read only if it
//! is a regular file of the process's user or of root, and an entry counts only where the process
//! has code without a program file. Thus a list cannot rename the functions of a library.

pub mod code;
pub mod jitdump;
mod list;
mod name;
pub mod perf_map;

use crate::open::{self, Links, Mapped};
use crate::{Frame, RUN_TIME_CODE};
use code::Code;
use list::List;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use vmarea_process::maps::MapsEntry;

/// The lists of one address space.
#[derive(Default)]
pub(crate) struct Jit {
    owner: Option<Owner>,
    map: Source,
    dump: Source,
    codes: Vec<Code>,
    /// End and number of the code that is at each start address now.
    table: BTreeMap<u64, (u64, usize)>,
    /// Ranges of run-time code, and number of codes, from which `table` was made.
    made_from: (Vec<Range<u64>>, usize),
    outside: u64,
    replaced: u64,
}

/// User of the process, and its number in its own pid namespace.
#[derive(Clone, Copy)]
struct Owner {
    uid: u32,
    inner_pid: i32,
}

/// A list, as far as it is known.
#[derive(Default)]
enum Source {
    /// The list was not found after this many attempts.
    #[default]
    Unknown,
    Absent(u32),
    Open(List),
    Refused(String),
}

impl Jit {
    /// Opens the jitdump file if this mapping is its marker; returns true if it is.
    pub(crate) fn notice(&mut self, pid: i32, mapping: &MapsEntry) -> bool {
        let path = mapping.name.text();
        let name = path.rsplit('/').next().unwrap_or_default();
        if !(name.starts_with("jit-") && name.ends_with(".dump")) {
            return false;
        }
        if matches!(self.dump, Source::Unknown)
            && let Some(owner) = self.owner(pid)
            && let Ok(Mapped::Same(file)) = open::mapped(pid, mapping)
        {
            self.dump = Source::of(path, file, owner, List::jitdump);
        }
        true
    }

    /// Reads what was added to the lists; `run_time` is where the process has run-time code.
    pub(crate) fn update(&mut self, pid: i32, run_time: &[Range<u64>]) {
        self.find_map(pid);
        for source in [&mut self.map, &mut self.dump] {
            if let Source::Open(list) = source {
                list.read(&mut self.codes);
            }
        }
        if self.made_from.0 != run_time {
            self.table.clear();
            (self.outside, self.replaced) = (0, 0);
            self.made_from = (run_time.to_vec(), 0);
        }
        for number in self.made_from.1..self.codes.len() {
            self.place(number);
        }
        self.made_from.1 = self.codes.len();
    }

    /// Opens the perf map; after failures, tries again less and less often.
    fn find_map(&mut self, pid: i32) {
        let attempts = match self.map {
            Source::Unknown => 1,
            Source::Absent(attempts) => attempts + 1,
            Source::Open(_) | Source::Refused(_) => return,
        };
        self.map = Source::Absent(attempts);
        if !attempts.is_power_of_two() {
            return;
        }
        let Some(owner) = self.owner(pid) else { return };
        let path = format!("/tmp/perf-{}.map", owner.inner_pid);
        match open::in_root(pid, Path::new(&path), Links::Refuse) {
            Ok(file) => self.map = Source::of(path, file, owner, List::perf_map),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.map = Source::Refused(format!("{path} is not used: {error}")),
        }
    }

    fn owner(&mut self, pid: i32) -> Option<Owner> {
        if self.owner.is_none() {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            self.owner = Owner::of(&status);
        }
        self.owner
    }

    /// Enters a code in the table, in place of those that it overlaps.
    fn place(&mut self, number: usize) {
        let code = &self.codes[number];
        let (start, end) = (code.start, code.start + code.len);
        let ranges = &self.made_from.0;
        if !ranges.iter().any(|r| r.start <= start && end <= r.end) {
            self.outside += 1;
            return;
        }
        let before = self.table.range(..start).next_back();
        let first = match before {
            Some((&at, &(its_end, _))) if its_end > start => at,
            _ => start,
        };
        let overlapped: Vec<_> = self.table.range(first..end).map(|(at, _)| *at).collect();
        self.replaced += overlapped.len() as u64;
        for at in overlapped {
            self.table.remove(&at);
        }
        self.table.insert(start, (end, number));
    }

    /// Returns the number of the code at an address.
    pub(crate) fn code_at(&self, at: u64) -> Option<usize> {
        let (_, &(end, number)) = self.table.range(..=at).next_back()?;
        (at < end).then_some(number)
    }

    /// Returns the function of a code.
    pub(crate) fn frame(&self, number: usize, at: u64) -> Frame {
        let code = &self.codes[number];
        let named = name::parse(&code.name);
        let behind = code.lines.partition_point(|line| line.start <= at);
        let exact = code.lines[..behind].last();
        Frame {
            function: named.function,
            file: exact.map(|line| line.file.clone()).or(named.file),
            line: exact.map(|line| line.line).or(named.line),
            module: Some(RUN_TIME_CODE.to_owned()),
            inlined: false,
        }
    }

    /// Returns what could not be read, or was not believed.
    pub(crate) fn into_notes(self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut lists = Vec::new();
        let mut malformed = 0;
        for source in [self.map, self.dump] {
            match source {
                Source::Refused(why) => notes.push(why),
                Source::Open(list) => {
                    malformed += list.malformed;
                    notes.extend(
                        list.cut
                            .then(|| format!("{} is too large: its end was not read", list.path)),
                    );
                    lists.push(list.path);
                }
                Source::Unknown | Source::Absent(_) => {}
            }
        }
        if malformed + self.outside + self.replaced > 0 {
            notes.push(format!(
                "skipped entries of {}: {malformed} malformed, {} outside of run-time code, {} \
                 overlapped by later ones",
                lists.join(" and "),
                self.outside,
                self.replaced
            ));
        }
        notes
    }
}

impl Source {
    /// Accepts a list only from the process's user or from root.
    fn of(path: String, file: File, owner: Owner, list: fn(String, File) -> List) -> Source {
        match file.metadata() {
            Ok(about) if about.uid() == owner.uid || about.uid() == 0 => {
                Source::Open(list(path, file))
            }
            Ok(about) => Source::Refused(format!(
                "{path} is not used: it belongs to user {}, and the process to user {}",
                about.uid(),
                owner.uid
            )),
            Err(error) => Source::Refused(format!("{path} is not used: {error}")),
        }
    }
}

impl Owner {
    /// Parses the text of `/proc/PID/status`.
    fn of(status: &str) -> Option<Owner> {
        let field = |name: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.split_ascii_whitespace())
        };
        Some(Owner {
            // Real, effective, saved, and that for new files.
            uid: field("Uid")?.nth(3)?.parse().ok()?,
            inner_pid: field("NSpid")?.next_back()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests;
