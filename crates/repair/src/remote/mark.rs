//! The mark of a repair in the process that it repairs.
//!
//! The mark stands in the vDSO's unused bytes from the first stop to the last. It names the process
//! that repairs, so that a second repair keeps away, and the range of the [`scratch`](super::scratch)
//! area, so that the remains of a killed repair can be unmapped. A mark is a fact about the process
//! alone: it disappears with the address space, and a child that inherits it has another id.
//!
//! Nothing of a mark is believed that the process could not do itself: it leads only to an `munmap`
//! in the same process.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use vmarea_linux_sys::task_status;
use vmarea_merge::types::VmRange;

use crate::proc_status;

const MAGIC: &[u8; 16] = b"vmarea at work\0\x01";
/// Number of bytes of a mark.
pub(super) const BYTES: u64 = 64;

/// A mark, as it stands in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// Id of the repaired process in its own pid namespace.
    process: i32,
    /// Id of the process that repairs, in its own pid namespace.
    owner: i32,
    /// Start time of the process that repairs.
    owner_start: u64,
    /// Pid namespace of the process that repairs.
    namespace: u64,
    /// Range of the scratch area. It may not have been mapped yet.
    pub(super) scratch: VmRange,
}

impl Mark {
    /// Returns the mark of a repair of process `pid` by this process.
    pub(super) fn of(pid: i32, scratch: VmRange) -> Mark {
        let owner = std::process::id().cast_signed();
        Mark {
            process: proc_status::inner_id(pid),
            owner,
            owner_start: proc_status::start_time(owner).unwrap_or(0),
            namespace: namespace(),
            scratch,
        }
    }

    /// Reads the mark at `place`; `None` if process `pid` has none.
    pub(super) fn read(pid: i32, memory: &File, place: u64) -> Option<Mark> {
        let mut bytes = [0; BYTES as usize];
        memory.read_exact_at(&mut bytes, place).ok()?;
        if bytes[..16] != *MAGIC {
            return None;
        }
        let word = |n: usize| {
            let bytes = bytes[16 + 8 * n..24 + 8 * n].try_into();
            bytes.map(u64::from_ne_bytes).unwrap_or(0)
        };
        let (start, end) = (word(4), word(5));
        let mark = Mark {
            process: word(0) as i32,
            owner: (word(0) >> 32) as i32,
            owner_start: word(1),
            namespace: word(2),
            scratch: (start <= end).then(|| VmRange::new(start, end))?,
        };
        (mark.process == proc_status::inner_id(pid)).then_some(mark)
    }

    /// Returns the mark as it is written to the process.
    pub(super) fn bytes(&self) -> [u8; BYTES as usize] {
        let words = [
            u64::from(self.process.cast_unsigned()) | u64::from(self.owner.cast_unsigned()) << 32,
            self.owner_start,
            self.namespace,
            0,
            self.scratch.start,
            self.scratch.end,
        ];
        let mut bytes = [0; BYTES as usize];
        bytes[..16].copy_from_slice(MAGIC);
        for (place, word) in bytes[16..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Returns whether the repair that left the mark may still run: the id of its process, if that
    /// has a meaning here.
    pub(super) fn at_work(&self) -> Option<Option<i32>> {
        if self.namespace != namespace() {
            return Some(None);
        }
        let runs = proc_status::start_time(self.owner).is_ok_and(|start| start == self.owner_start)
            && !task_status::has_ended(self.owner, self.owner);
        runs.then_some(Some(self.owner))
    }

    /// True if this process left the mark.
    pub(super) fn is_own(&self) -> bool {
        self.namespace == namespace() && self.owner == std::process::id().cast_signed()
    }
}

/// Returns the pid namespace of this process.
fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino())
}
