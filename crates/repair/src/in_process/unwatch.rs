//! Ceasing to watch what the program has made of a piece meanwhile.
//!
//! It may have moved mappings away, made them longer, or put others between them, of which some
//! cannot be watched at all; the kernel then refuses to cease for the whole range at once. So each
//! mapping is looked at by itself. Nothing is used but the stack.

use vmarea_linux_sys::calls;
use vmarea_linux_sys::procmap;
use vmarea_linux_sys::uffd;

/// The descriptors, and an empty page to ask with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    /// What watches.
    pub(super) home: i32,
    /// An open `/proc/self/maps`.
    pub(super) maps: i32,
    /// A page that holds nothing, in a mapping that permits what the piece does.
    pub(super) empty: u64,
}

impl Watched {
    /// The mapping at `at`, to its end: it may be longer than what was moved there. False where the
    /// kernel could not now.
    pub(super) fn cease_at(&self, at: u64) -> bool {
        self.cease_between(at, at + 1)
    }

    /// All mappings that touch `start..end`. False where some may be left: a change is under way, or the
    /// kernel could not now.
    pub(super) fn cease_between(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        let mut all = true;
        while at < end {
            let found = match procmap::query_fd(self.maps, at, &mut []) {
                Ok(found) => found,
                Err(error) => {
                    // There is none from here on, or the kernel cannot be asked (before 6.11).
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
                Ok(false) => {}
                Err(_) => all = false,
            }
            at = found.end;
        }
        all
    }
}
