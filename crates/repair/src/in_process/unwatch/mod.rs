//! Ends the userfaultfd watch of mappings that the program changed while a piece was replaced.
//!
//! The program may have moved mappings away, extended them, or created other mappings between them.
//! If a mapping in the range cannot be watched at all, the kernel refuses a call that unregisters
//! the whole range. This module therefore unregisters each mapping separately. It uses no memory
//! except the stack.

#[cfg(test)]
mod tests;

use vmarea_merge::types::VmRange;

use super::places::Places;
use crate::plan::PAGE;
use vmarea_linux_sys::calls;
use vmarea_linux_sys::procmap;
use vmarea_linux_sys::uffd;

/// Maximum length in bytes of a range that is searched page by page.
const MOST_SEARCHED: u64 = 1 << 34;

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
    /// Unregisters what the program may have extended or moved: the mappings that continue `range`,
    /// which was watched from the beginning, and if there are `places`, the mappings in `range` and
    /// at these places. Returns false if some mappings may still be registered, because a change is
    /// pending or the kernel cannot unregister them yet.
    pub(super) fn cease_all(&self, range: VmRange, places: Option<&Places>) -> bool {
        // The last mapping may have grown, which raises no event.
        let mut all = self.cease_from(range.end);
        if let Some(places) = places {
            all &= self.cease_between(range.start, range.end);
            places.each(|place| {
                all &= self.cease_between(place.start, place.end);
                all &= self.cease_from(place.end);
            });
        }
        all
    }

    /// Unregisters all mappings that overlap `start..end`. Returns false as
    /// [`cease_all`](Self::cease_all) does.
    pub(super) fn cease_between(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        let mut all = true;
        while at < end {
            let found = match self.mapping_at(at) {
                Ok(Some(found)) if found.start < end => found,
                Ok(_) => return all,
                Err(libc::ENOTTY) => return all && self.cease_pages(at, Some(end)),
                Err(_) => return false,
            };
            all &= self.cease(found.start.max(at), found) != Ceased::NotYet;
            at = found.end;
        }
        all
    }

    /// Unregisters the mappings from `at` on, up to the first that is not registered or the first
    /// hole. Returns false as [`cease_all`](Self::cease_all) does.
    fn cease_from(&self, at: u64) -> bool {
        let mut at = at;
        loop {
            let found = match self.mapping_at(at) {
                Ok(Some(found)) if found.start <= at => found,
                Ok(_) => return true,
                Err(libc::ENOTTY) => return self.cease_pages(at, None),
                Err(_) => return false,
            };
            match self.cease(at, found) {
                Ceased::Now => at = found.end,
                Ceased::Before => return true,
                Ceased::NotYet => return false,
            }
        }
    }

    /// Does the work of [`cease_between`](Self::cease_between) page by page, where the kernel
    /// supports no query (before 6.11). Without an end, does that of
    /// [`cease_from`](Self::cease_from).
    fn cease_pages(&self, start: u64, end: Option<u64>) -> bool {
        let mut at = start;
        let mut all = true;
        // A place that contains what lies between many others may have any length.
        let end = end.map(|end| end.min(start.saturating_add(MOST_SEARCHED)));
        while end.is_none_or(|end| at < end) {
            match self.cease(at, VmRange::new(at, at + PAGE)) {
                Ceased::Before if end.is_none() => break,
                ceased => all &= ceased != Ceased::NotYet,
            }
            at += PAGE;
        }
        all
    }

    /// Unregisters `range`, which contains `page`, if the mapping of this page is registered.
    fn cease(&self, page: u64, range: VmRange) -> Ceased {
        match uffd::watches(self.home, page, self.empty) {
            Ok(true) => {
                let mut call = uffd::unregister(0, self.home, range.start, range.len_bytes());
                calls::run(&mut call);
                match call.errno() {
                    0 => Ceased::Now,
                    _ => Ceased::NotYet,
                }
            }
            // `EBADF`: the program has closed the descriptor.
            Ok(false) | Err(libc::EBADF) => Ceased::Before,
            Err(_) => Ceased::NotYet,
        }
    }

    /// Returns the mapping that contains `at`, or the next one; `None` if there is no other.
    fn mapping_at(&self, at: u64) -> Result<Option<VmRange>, i32> {
        match procmap::query_fd(self.maps, at, &mut []) {
            Ok(found) => Ok(Some(VmRange::new(found.start, found.end))),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// The state of a mapping after an attempt to unregister it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ceased {
    /// It is unregistered now.
    Now,
    /// It was not registered.
    Before,
    /// It may still be registered.
    NotYet,
}
