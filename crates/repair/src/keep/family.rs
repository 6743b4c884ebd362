//! The program that is kept merged, and its descendants.
//!
//! A descendant inherits the environment. It is therefore recognized even if its parent has ended,
//! and whichever process it belongs to now; a descendant whose environment was cleared is not.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;

use vmarea_process::processes;

use super::KEEP_VARIABLE;
use crate::proc_status;

/// What is known of a process.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Member,
    Stranger,
    /// It had no environment.
    Unknown,
}

/// The processes that a keeper keeps merged.
#[derive(Debug)]
pub(super) struct Family {
    /// The process that executes the program; in the family even before it has done so.
    program: Member,
    /// The variable with its value, as it stands in an environment.
    entry: Vec<u8>,
    /// What is known of each process, with the time at which it was started.
    seen: BTreeMap<i32, (u64, Seen)>,
}

/// A process: its id, and the time at which it was started. Another process may get the same id later.
pub(super) type Member = (i32, u64);

/// Returns a value of the variable that no other keeper uses.
pub(super) fn value() -> OsString {
    let pid = std::process::id();
    // Nobody else can claim to be a descendant.
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    format!("{pid}-{}", random.trim()).into()
}

impl Family {
    /// Returns the family of `program`, whose descendants have `value` in their environments.
    pub(super) fn new(program: i32, value: &OsStr) -> Family {
        Family {
            program: (program, proc_status::start_time(program).unwrap_or(0)),
            entry: format!("{KEEP_VARIABLE}={}", value.display()).into_bytes(),
            seen: BTreeMap::new(),
        }
    }

    /// Returns the processes of the family that have not ended.
    pub(super) fn members(&mut self) -> Vec<Member> {
        let own = std::process::id().cast_signed();
        let mut seen = BTreeMap::new();
        for pid in processes::list().unwrap_or_default() {
            let Ok(start) = proc_status::start_time(pid) else {
                continue;
            };
            let before = match self.seen.get(&pid) {
                Some(&(then, seen)) if then == start => seen,
                _ => Seen::Unknown,
            };
            let now = match before {
                _ if pid == own => Seen::Stranger,
                _ if (pid, start) == self.program => Seen::Member,
                Seen::Unknown => self.look_at(pid),
                known => known,
            };
            seen.insert(pid, (start, now));
        }
        self.seen = seen;
        let members = self.seen.iter();
        let members = members.filter(|(_, (_, seen))| matches!(seen, Seen::Member));
        let members = members.map(|(&pid, &(start, _))| (pid, start));
        members.filter(|&member| !has_ended(member)).collect()
    }

    /// True if the process that executes the program has ended.
    pub(super) fn has_lost_program(&self) -> bool {
        has_ended(self.program)
    }

    /// A process has no environment for a moment while it executes a program. Kernel threads never
    /// have one.
    fn look_at(&self, pid: i32) -> Seen {
        let environment = match fs::read(format!("/proc/{pid}/environ")) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Seen::Stranger,
            read => read.unwrap_or_default(),
        };
        let mut entries = environment.split(|byte| *byte == 0);
        let is_of_kernel = || processes::stat(pid).map_or(true, |stat| stat.is_of_kernel());
        match entries.any(|entry| entry == self.entry) {
            true => Seen::Member,
            false if environment.is_empty() && !is_of_kernel() => Seen::Unknown,
            false => Seen::Stranger,
        }
    }
}

/// True if no thread of a process has memory any more, or the id is another process's.
pub(super) fn has_ended((pid, start): Member) -> bool {
    let is_same = proc_status::start_time(pid).is_ok_and(|now| now == start);
    !is_same || !proc_status::has_memory(pid)
}
