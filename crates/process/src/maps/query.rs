//! One mapping at a time, by `PROCMAP_QUERY`.
//!
//! The request names an address and answers the mapping there or the next one after it, without
//! printing and parsing text. A question costs about a microsecond however long the list is, which
//! is what it is for; for the whole list the text is no slower.

use std::fs::File;
use std::io;

use vmarea_trace::event::Perms;

use super::{MapName, MapsEntry, device};
use vmarea_linux_sys::procmap;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The kernel does not know the request.
    #[error("PROCMAP_QUERY needs Linux 6.11 or later")]
    Unsupported,
    /// The process cannot be asked.
    #[error("asking for the mappings of process {pid}: {cause}")]
    Process {
        /// Which one.
        pid: i32,
        /// Why.
        cause: io::Error,
    },
}

/// Queries to one process.
#[derive(Debug)]
pub struct Query {
    pid: i32,
    maps: File,
    name: Vec<u8>,
}

impl Query {
    /// Opens the door to a process and tries whether the kernel answers.
    ///
    /// # Errors
    /// [`QueryError::Unsupported`]; [`QueryError::Process`] when there is no such process or it
    /// may not be looked into.
    pub fn open(pid: i32) -> Result<Query, QueryError> {
        let maps = File::open(format!("/proc/{pid}/maps"))
            .map_err(|cause| QueryError::Process { pid, cause })?;
        let name = vec![0; procmap::NAME_BYTES];
        let mut query = Query { pid, maps, name };
        query.covering_or_next(0)?;
        Ok(query)
    }

    /// The mapping that covers `addr` or else the first one above it; `None` after the last.
    /// `[vsyscall]` is not among them.
    ///
    /// # Errors
    /// As [`Query::open`]; the process may have ended meanwhile.
    pub fn covering_or_next(&mut self, addr: u64) -> Result<Option<MapsEntry>, QueryError> {
        let answer = match procmap::query(&self.maps, addr, &mut self.name) {
            Ok(answer) => answer,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => {
                return Err(QueryError::Unsupported);
            }
            Err(cause) => {
                let pid = self.pid;
                return Err(QueryError::Process { pid, cause });
            }
        };
        let flag = |bit: u64| answer.flags & bit != 0;
        Ok(Some(MapsEntry {
            start: answer.start,
            end: answer.end,
            perms: Perms {
                read: flag(procmap::VMA_READABLE),
                write: flag(procmap::VMA_WRITABLE),
                exec: flag(procmap::VMA_EXECUTABLE),
                shared: flag(procmap::VMA_SHARED),
            },
            offset: answer.offset,
            dev: device(answer.dev_major.into(), answer.dev_minor.into()).unwrap_or(0),
            ino: answer.ino,
            name: MapName::parse(&self.name[..answer.name_len], None),
        }))
    }

    /// All mappings by address, each asked for when it is wanted.
    pub fn iter(&mut self) -> impl Iterator<Item = Result<MapsEntry, QueryError>> {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let found = self.covering_or_next(next?).transpose();
            next = match &found {
                Some(Ok(mapping)) => Some(mapping.end),
                _ => None,
            };
            found
        })
    }
}
