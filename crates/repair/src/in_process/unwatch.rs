//! Ends the userfaultfd watch of mappings that the program changed while a piece was replaced.
//!
//! The program may have moved mappings away, extended them, or created other mappings between them.
//! If a mapping in the range cannot be watched at all, the kernel refuses a call that unregisters
//! the whole range. This module therefore unregisters each mapping separately. It uses no memory
//! except the stack.

use vmarea_linux_sys::calls;
use vmarea_linux_sys::procmap;
use vmarea_linux_sys::uffd;

/// The descriptors, and an empty page for queries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    /// The userfaultfd with which the mappings are registered.
    pub(super) home: i32,
    /// An open `/proc/self/maps`.
    pub(super) maps: i32,
    /// An empty page in a mapping with the protection of the piece.
    pub(super) empty: u64,
}

impl Watched {
    /// Unregisters the whole mapping at `at`, including parts that were not moved there. Returns
    /// false if the kernel cannot unregister it yet.
    pub(super) fn cease_at(&self, at: u64) -> bool {
        self.cease_between(at, at + 1)
    }

    /// Unregisters all mappings that overlap `start..end`. Returns false if some mappings may still
    /// be registered, because a change is pending or the kernel cannot unregister them yet.
    pub(super) fn cease_between(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        let mut all = true;
        while at < end {
            let found = match procmap::query_fd(self.maps, at, &mut []) {
                Ok(found) => found,
                Err(error) => {
                    // No mapping follows, or the kernel does not support the query (before 6.11).
                    let is_answer = [libc::ENOENT, libc::ENOTTY].map(Some);
                    return all && is_answer.contains(&error.raw_os_error());
                }
            };
            if found.start >= end {
                return all;
            }
            let first = found.start.max(at);
            match uffd::watches(self.home, first, self.empty) {
                Ok(true) => {
                    let len = found.end - found.start;
                    let mut call = uffd::unregister(0, self.home, found.start, len);
                    calls::run(&mut call);
                    all &= call.errno() == 0;
                }
                // `EBADF`: the program has closed the descriptor.
                Ok(false) | Err(libc::EBADF) => {}
                Err(_) => all = false,
            }
            at = found.end;
        }
        all
    }
}
