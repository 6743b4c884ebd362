//! Creation times, which distinguish a file from an earlier one with the same inode number.

use rustix::fs::{AtFlags, StatxFlags};
use std::os::fd::AsFd;
use vmarea_trace::event::{FileId, InodeId};

/// Creation time of an inode in seconds and nanoseconds, if its file system records it.
pub(super) type BirthTime = Option<(i64, u32)>;

/// Returns the creation time of an open file.
pub(super) fn birth_time(fd: impl AsFd) -> BirthTime {
    let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let known = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
    known.then_some((statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec))
}

/// An inode that has been assigned an ID, stored under its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownInode {
    pub(super) id: InodeId,
    pub(super) born: BirthTime,
}

impl KnownInode {
    /// True unless the creation times show that the key now belongs to a different inode.
    pub(super) fn is(&self, born: BirthTime) -> bool {
        may_be_same(self.born, born)
    }
}

/// True unless the creation times are known and differ.
pub(super) fn may_be_same(one: BirthTime, other: BirthTime) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// A description that was mapped, and the creation time of its inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped {
    pub(super) file: FileId,
    pub(super) born: BirthTime,
}
