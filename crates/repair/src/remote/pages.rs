//! Reads the pagemap of a process: which pages are filled, and whether they are shared.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vmarea_merge::types::VmRange;

use crate::RepairError;
use crate::plan::PAGE;
use vmarea_process::pagemap::{EXCLUSIVE, PRESENT, SWAPPED};

/// The state of a filled page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Filled {
    /// In memory, and mapped only once.
    Own,
    /// In memory and mapped more than once; or the kernel's zero page.
    Shared,
    /// Swapped out, or being migrated.
    Swapped,
}

/// The pagemap of a process.
#[derive(Debug)]
pub(super) struct Pages {
    pid: i32,
    file: File,
}

impl Pages {
    /// Opens the pagemap of process `pid`.
    ///
    /// # Errors
    /// [`RepairError::Maps`], [`RepairError::Ended`].
    pub(super) fn of(pid: i32) -> Result<Pages, RepairError> {
        let file = File::open(format!("/proc/{pid}/pagemap")).map_err(RepairError::maps(pid))?;
        Ok(Pages { pid, file })
    }

    /// Calls `each` with the address of each filled page in `range`, until `each` returns false.
    ///
    /// # Errors
    /// The errors of [`Pages::of`].
    pub(super) fn each(
        &self,
        range: VmRange,
        mut each: impl FnMut(u64, Filled) -> bool,
    ) -> Result<(), RepairError> {
        const MOST_WORDS: u64 = 8 << 10;
        let mut bytes = vec![0; (range.pages().min(MOST_WORDS) * 8) as usize];
        let mut at = range.start;
        while at < range.end {
            let pages = ((range.end - at) / PAGE).min(MOST_WORDS);
            let bytes = &mut bytes[..pages as usize * 8];
            self.file
                .read_exact_at(bytes, at / PAGE * 8)
                .map_err(RepairError::maps(self.pid))?;
            for word in bytes.as_chunks::<8>().0 {
                let word = u64::from_ne_bytes(*word);
                let filled = match (word & PRESENT != 0, word & SWAPPED != 0) {
                    (true, _) if word & EXCLUSIVE != 0 => Some(Filled::Own),
                    (true, _) => Some(Filled::Shared),
                    (false, true) => Some(Filled::Swapped),
                    (false, false) => None,
                };
                if filled.is_some_and(|filled| !each(at, filled)) {
                    return Ok(());
                }
                at += PAGE;
            }
        }
        Ok(())
    }

    /// True if a page is in memory and mapped only once.
    ///
    /// # Errors
    /// The errors of [`Pages::of`].
    pub(super) fn is_own(&self, page: u64) -> Result<bool, RepairError> {
        let mut own = false;
        self.each(VmRange::new(page, page + PAGE), |_, filled| {
            own = filled == Filled::Own;
            true
        })?;
        Ok(own)
    }
}

/// Adds a page to a list of runs in address order.
pub(super) fn extend(runs: &mut Vec<VmRange>, page: u64) {
    match runs.last_mut() {
        Some(last) if last.end == page => last.end += PAGE,
        _ => runs.push(VmRange::new(page, page + PAGE)),
    }
}

/// True if a page contains only zeros; false if it cannot be read.
pub(super) fn reads_as_zeros(memory: &File, page: u64) -> bool {
    let mut bytes = [0; PAGE as usize];
    let read = memory.read_exact_at(&mut bytes, page);
    read.is_ok() && bytes.iter().all(|&byte| byte == 0)
}
