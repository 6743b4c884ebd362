//! Derives from each call which open file descriptions it maps and unmaps.
//!
//! The recorder derives the effect of a successful call from its arguments. After a call that may
//! have failed midway, or that ran at the same time as another call, the recorder reads the list of
//! mappings instead.

use super::actions::FinishedCall;
use super::mapped_files::Range;
use super::timeline::Alone;
use super::tracer::Tracer;
use vmarea_linux_sys::PAGE;
use vmarea_process::maps::{self, MapsEntry, Query, QueryError};
use vmarea_trace::event::MmId;

const DONTUNMAP: u64 = libc::MREMAP_DONTUNMAP as u64;
const ENOMEM: i64 = -(libc::ENOMEM as i64);

/// True if a result is a negative errno.
pub(super) fn is_error(ret: i64) -> bool {
    (-4095..0).contains(&ret)
}

/// True for the results from `ERESTARTSYS` to `ERESTART_RESTARTBLOCK`: the call had no effect and is
/// restarted.
pub(super) fn is_restarted(ret: i64) -> bool {
    (-516..=-512).contains(&ret)
}

/// Returns the mapping at an address in a stopped thread's memory.
pub(super) fn mapping_at(tid: i32, addr: u64) -> Option<MapsEntry> {
    let holds = |m: &MapsEntry| m.start <= addr && addr < m.end;
    match Query::open(tid) {
        Ok(mut query) => query.covering_or_next(addr).ok()?.filter(holds),
        Err(QueryError::Unsupported) => maps::read(tid).ok()?.into_iter().find(holds),
        Err(QueryError::Process { .. }) => None,
    }
}

/// Returns the page-aligned range that contains the `len` bytes at `addr`.
fn pages(addr: u64, len: u64) -> Range {
    let end = addr.saturating_add(len);
    addr & !(PAGE - 1)..end.checked_next_multiple_of(PAGE).unwrap_or(end)
}

impl Tracer<'_> {
    /// Closes duplicates before an unmapping, so that the program itself performs the last close.
    pub(super) fn before_unmap(&mut self, mm: MmId, nr: u32, args: &[u64; 6]) {
        let [addr, len, ..] = *args;
        if i64::from(nr) == libc::SYS_munmap && addr.is_multiple_of(PAGE) && len != 0 {
            self.files.mapped.before_unmap(mm, &pages(addr, len));
        }
    }

    /// Updates the mapped ranges after a finished call.
    ///
    /// A file that the call mapped has already been recorded.
    pub(super) fn follow_mappings(&mut self, tid: i32, mm: MmId, call: &FinishedCall) {
        let ret = call.ret;
        let [addr, len, new_len, flags, target, _] = call.args;
        let failed = is_error(ret);
        let source = pages(addr, len);
        let there = pages(ret as u64, len);
        let mapped = &mut self.files.mapped;
        let unsure: [Option<Range>; 2] = match i64::from(call.nr) {
            libc::SYS_mmap if failed => [Some(source), None],
            libc::SYS_mmap => {
                if flags & libc::MAP_ANONYMOUS as u64 != 0 {
                    mapped.unmap(mm, &there);
                }
                [Some(there), None]
            }
            libc::SYS_munmap => {
                if !failed {
                    mapped.unmap(mm, &source);
                }
                [Some(source), None]
            }
            libc::SYS_mremap => {
                let to = if failed { target } else { ret as u64 };
                let to = pages(to, new_len);
                if !failed {
                    let remains = len == 0 || flags & DONTUNMAP != 0;
                    mapped.remap(mm, &source, &to, remains);
                }
                [Some(source), Some(to)]
            }
            libc::SYS_madvise if ret == 0 || ret == ENOMEM => {
                match new_len as i32 {
                    libc::MADV_DONTFORK => mapped.set_stays(mm, &source, true),
                    libc::MADV_DOFORK => mapped.set_stays(mm, &source, false),
                    _ => {}
                }
                [None, None]
            }
            libc::SYS_shmat if !failed => {
                // Only the list of mappings contains the length of the segment.
                if let Some(segment) = mapping_at(tid, ret as u64) {
                    mapped.unmap(mm, &(segment.start..segment.end));
                }
                [None, None]
            }
            libc::SYS_remap_file_pages => [Some(source), None],
            _ => return,
        };
        if failed || call.alone == Alone::No {
            for range in unsure.into_iter().flatten() {
                self.check_mappings(tid, mm, &range);
            }
        }
    }

    /// Forgets the ranges that the list of mappings no longer contains.
    fn check_mappings(&mut self, tid: i32, mm: MmId, range: &Range) {
        if self.files.mapped.pieces_in(mm, range).is_empty() {
            return;
        }
        self.files.mapped.keep_only(mm, range, |start, ino| {
            mapping_at(tid, start).is_some_and(|mapping| mapping.ino == ino)
        });
    }
}
