//! Queries for one mapping at a time through `PROCMAP_QUERY`.
//!
//! The request specifies an address and returns the mapping at that address or, if there is none,
//! the next mapping above it. No text is printed or parsed. A query takes about a microsecond
//! regardless of the number of mappings. Querying the whole list is no faster than parsing the
//! text.

use std::fs::File;
use std::io;

use vmarea_trace::event::Perms;

use super::{MapName, MapsEntry, device};
use vmarea_linux_sys::procmap;

/// Reason why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The kernel does not support the request.
    #[error("PROCMAP_QUERY needs Linux 6.11 or later")]
    Unsupported,
    /// The process cannot be queried.
    #[error("cannot query the mappings of process {pid}: {cause}")]
    Process {
        /// Id of the process.
        pid: i32,
        /// Underlying error.
        cause: io::Error,
    },
}

/// Query interface for the mappings of one process.
#[derive(Debug)]
pub struct Query {
    pid: i32,
    maps: File,
    name: Vec<u8>,
}

impl Query {
    /// Opens `/proc/PID/maps` and checks that the kernel supports the request.
    ///
    /// # Errors
    /// [`QueryError::Unsupported`] on an older kernel; [`QueryError::Process`] if there is no such
    /// process or the caller may not inspect it.
    pub fn open(pid: i32) -> Result<Query, QueryError> {
        let maps = File::open(format!("/proc/{pid}/maps"))
            .map_err(|cause| QueryError::Process { pid, cause })?;
        let name = vec![0; procmap::NAME_BYTES];
        let mut query = Query { pid, maps, name };
        query.covering_or_next(0)?;
        Ok(query)
    }

    /// Returns the mapping that contains `addr`, or the next one above `addr`; `None` if neither
    /// exists.
    ///
    /// `[vsyscall]` is never returned.
    ///
    /// # Errors
    /// Same as [`Query::open`]; the process may have exited since.
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

    /// Iterates over all mappings by address, with one query per mapping.
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
