//! Distinguishes the userfaultfd of a repair from all other descriptors of the process.
//!
//! The process runs between two pieces and can close descriptors that it did not open
//! (`close_range`, `closefrom`, `dup2`). The descriptor number may then refer to a file of the
//! program, even another userfaultfd. The descriptor is therefore used and closed only if it still
//! refers to the file that the repair opened.
//!
//! # Linux
//! Each userfaultfd has its own inode since 5.12. Before 5.12, all userfaultfds share one inode,
//! and another userfaultfd with the same number is mistaken for that of the repair.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::injector::Injector;
use crate::journal::Agent;

/// Returns the inode of the userfaultfd `fd` of thread `tid` in process `pid`. Returns `None` if
/// `fd` is closed or is another kind of file.
pub(super) fn inode(pid: i32, tid: i32, fd: i32) -> Option<u64> {
    let path = format!("/proc/{pid}/task/{tid}/fd/{fd}");
    let link = fs::read_link(&path).ok()?;
    let is_userfaultfd = link == Path::new("anon_inode:[userfaultfd]");
    is_userfaultfd.then(|| fs::metadata(&path).ok().map(|data| data.ino()))?
}

/// True if the descriptor of `agent` is still the one that the repair opened. The process must be
/// stopped; otherwise it could close the descriptor at any moment.
pub(super) fn is_ours(pid: i32, tid: i32, agent: &Agent) -> bool {
    let found = || inode(pid, tid, agent.fd);
    agent.fd >= 0 && found().is_some_and(|inode| agent.inode.is_none_or(|ours| ours == inode))
}

/// Returns `agent`, with its descriptor removed if the program has closed the descriptor. In that
/// case no call may use the descriptor number, which may refer to another file.
pub(super) fn without_closed(by: &impl Injector, agent: Agent) -> Agent {
    match is_ours(by.pid(), by.tid(), &agent) {
        true => agent,
        false => Agent { fd: -1, ..agent },
    }
}
