//! The userfaultfd of a repair, told from every other descriptor of the process.
//!
//! The process runs between two pieces and may close descriptors that it did not open (`close_range`,
//! `closefrom`, `dup2`). The number may name a file of the program by then, even another userfaultfd. So it
//! is used, and closed, only where the file behind it is the one that the repair has opened.
//!
//! # Linux
//! Each userfaultfd has an inode of its own since 5.12. Before, all share one, and another
//! userfaultfd with the same number is taken for ours.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::journal::Agent;

/// The inode of the userfaultfd that thread `tid` of process `pid` has as `fd`; `None` where that is another
/// file, or none.
pub(super) fn inode(pid: i32, tid: i32, fd: i32) -> Option<u64> {
    let path = format!("/proc/{pid}/task/{tid}/fd/{fd}");
    let link = fs::read_link(&path).ok()?;
    let is_userfaultfd = link == Path::new("anon_inode:[userfaultfd]");
    is_userfaultfd.then(|| fs::metadata(&path).ok().map(|data| data.ino()))?
}

/// True where the descriptor of `agent` is still the one that was opened. The process stands, or it may be
/// closed in the next moment.
pub(super) fn is_ours(pid: i32, tid: i32, agent: &Agent) -> bool {
    let found = || inode(pid, tid, agent.fd);
    agent.fd >= 0 && found().is_some_and(|inode| agent.inode.is_none_or(|ours| ours == inode))
}
