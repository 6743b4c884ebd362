//! The program that is kept merged, and its descendants.
//!
//! A descendant inherits the environment. It is therefore recognized even if its parent has ended,
//! and whichever process it belongs to now; a descendant whose environment was cleared is not.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;

use vmarea_process::processes;

use super::KEEP_VARIABLE;
use crate::proc_status;

/// Number of looks at a process without an environment: a process has none for a moment while it
/// executes a program, and a kernel thread never has one.
pub(super) const LOOKS: u32 = 3;

/// What is known of a process.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Member,
    Stranger,
    /// The number of looks so far.
    Unknown(u32),
}

/// The processes that a keeper keeps merged.
#[derive(Debug)]
pub(super) struct Family {
    /// The process that executes the program; in the family even before it has done so.
    program: i32,
    program_start: u64,
    /// The variable with its value, as it stands in an environment.
    entry: Vec<u8>,
    seen: BTreeMap<i32, Seen>,
}

/// Returns a value of the variable that no other keeper uses.
pub(super) fn value() -> OsString {
    let pid = std::process::id();
    let start = proc_status::start_time(pid.cast_signed()).unwrap_or(0);
    format!("{pid}-{start}").into()
}

impl Family {
    /// Returns the family of `program`, whose descendants have `value` in their environments.
    pub(super) fn new(program: i32, value: &OsStr) -> Family {
        Family {
            program,
            program_start: proc_status::start_time(program).unwrap_or(0),
            entry: format!("{KEEP_VARIABLE}={}", value.display()).into_bytes(),
            seen: BTreeMap::new(),
        }
    }

    /// Returns the processes of the family that have not ended.
    pub(super) fn members(&mut self) -> Vec<i32> {
        let own = std::process::id().cast_signed();
        let mut seen = BTreeMap::new();
        for pid in processes::list().unwrap_or_default() {
            let before = self.seen.get(&pid).copied().unwrap_or(Seen::Unknown(0));
            let now = match before {
                _ if pid == own => Seen::Stranger,
                _ if pid == self.program && self.is_program() => Seen::Member,
                Seen::Unknown(looks) => self.look_at(pid, looks),
                known => known,
            };
            seen.insert(pid, now);
        }
        self.seen = seen;
        let members = self
            .seen
            .iter()
            .filter(|(_, seen)| matches!(seen, Seen::Member));
        let members = members.map(|(pid, _)| *pid);
        members
            .filter(|&pid| !proc_status::has_ended(pid, pid))
            .collect()
    }

    fn is_program(&self) -> bool {
        proc_status::start_time(self.program).is_ok_and(|start| start == self.program_start)
    }

    fn look_at(&self, pid: i32, looks: u32) -> Seen {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut entries = environment.split(|byte| *byte == 0);
        match entries.any(|entry| entry == self.entry) {
            true => Seen::Member,
            false if environment.is_empty() && looks < LOOKS => Seen::Unknown(looks + 1),
            false => Seen::Stranger,
        }
    }
}
