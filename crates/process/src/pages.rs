//! What is known about the pages of a process without stopping it: filled, shared or pinned.
//!
//! `/proc/PID/pagemap` shows which pages are filled and which are mapped more than once, and
//! `/proc/PID/fdinfo` lists the buffers that are registered with an `io_uring`, which are pinned.
//! Both are true only at the moment of reading.

use crate::pagemap::{EXCLUSIVE, FILLED, PRESENT};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use vmarea_merge::types::{PAGE_SIZE, VmRange};

/// Size in bytes of the part of the pagemap that is read at once.
const READ_BYTES: u64 = 64 << 10;

/// Answers to questions about the pages of a process; `None` means that the answer is unknown.
pub trait Pages {
    /// Returns true if no page of the range is in memory or in swap.
    fn is_empty(&self, range: VmRange) -> Option<bool>;

    /// Counts the pages of the range, up to `most`, that other address spaces also map.
    fn shared(&self, range: VmRange, most: u64) -> Option<u64>;

    /// Returns true if a page of the range is known to be pinned.
    fn is_pinned(&self, range: VmRange) -> bool;
}

/// The pages of a list of mappings or of a recording, about which nothing is known.
#[derive(Clone, Copy, Debug)]
pub struct UnknownPages;

impl Pages for UnknownPages {
    fn is_empty(&self, _: VmRange) -> Option<bool> {
        None
    }

    fn shared(&self, _: VmRange, _: u64) -> Option<u64> {
        None
    }

    fn is_pinned(&self, _: VmRange) -> bool {
        false
    }
}

/// The pages of a process all of whose pages may be pinned.
#[derive(Clone, Copy, Debug)]
pub struct PinnedPages;

impl Pages for PinnedPages {
    fn is_empty(&self, _: VmRange) -> Option<bool> {
        None
    }

    fn shared(&self, _: VmRange, _: u64) -> Option<u64> {
        None
    }

    fn is_pinned(&self, _: VmRange) -> bool {
        true
    }
}

/// The pages of a running process.
#[derive(Debug)]
pub struct LivePages {
    pagemap: File,
    memory: Option<File>,
    registered: Vec<VmRange>,
}

impl LivePages {
    /// Opens the pagemap of process `pid`.
    ///
    /// # Errors
    /// Any error from opening the pagemap.
    pub fn open(pid: i32) -> io::Result<LivePages> {
        Ok(LivePages {
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
            memory: File::open(format!("/proc/{pid}/mem")).ok(),
            registered: registered(pid),
        })
    }

    /// Calls `each` with the address and the pagemap entry of each page, until `each` returns
    /// false.
    fn each(&self, range: VmRange, mut each: impl FnMut(u64, u64) -> bool) -> io::Result<()> {
        let mut bytes = vec![0; (range.pages() * 8).min(READ_BYTES) as usize];
        let mut at = range.start;
        while at < range.end {
            let wanted = ((range.end - at) / PAGE_SIZE * 8).min(READ_BYTES) as usize;
            let bytes = &mut bytes[..wanted];
            self.pagemap.read_exact_at(bytes, at / PAGE_SIZE * 8)?;
            for word in bytes.as_chunks::<8>().0 {
                if !each(at, u64::from_ne_bytes(*word)) {
                    return Ok(());
                }
                at += PAGE_SIZE;
            }
        }
        Ok(())
    }

    /// Returns true if a page contains only zeros; false if it cannot be read.
    fn reads_as_zeros(&self, page: u64) -> bool {
        let mut bytes = [0; PAGE_SIZE as usize];
        let memory = self.memory.as_ref();
        memory.is_some_and(|memory| memory.read_exact_at(&mut bytes, page).is_ok())
            && bytes.iter().all(|&byte| byte == 0)
    }
}

impl Pages for LivePages {
    fn is_empty(&self, range: VmRange) -> Option<bool> {
        let mut empty = true;
        let read = self.each(range, |_, word| {
            empty &= word & FILLED == 0;
            empty
        });
        read.ok().map(|()| empty)
    }

    fn shared(&self, range: VmRange, most: u64) -> Option<u64> {
        let mut count = 0;
        let read = self.each(range, |page, word| {
            let more_than_once = word & PRESENT != 0 && word & EXCLUSIVE == 0;
            // The zero page is shared by all processes, and can nevertheless be moved.
            count += u64::from(more_than_once && !self.reads_as_zeros(page));
            count < most
        });
        read.ok().map(|()| count)
    }

    fn is_pinned(&self, range: VmRange) -> bool {
        self.registered.iter().any(|buffer| buffer.overlaps(range))
    }
}

/// Returns the memory that a process has registered with its `io_uring`s.
pub fn registered(pid: i32) -> Vec<VmRange> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let mut ranges = Vec::new();
    for file in files.flatten() {
        let is_ring =
            fs::read_link(file.path()).is_ok_and(|link| link == Path::new("anon_inode:[io_uring]"));
        if is_ring {
            let info = format!("/proc/{pid}/fdinfo/{}", file.file_name().display());
            ranges.extend(buffers(&fs::read_to_string(info).unwrap_or_default()));
        }
    }
    ranges
}

/// Parses the list of registered buffers in the `fdinfo` file of an `io_uring`. The list consists
/// of the line `UserBufs: N` and a line `K: 0xADDRESS/BYTES` for each buffer.
fn buffers(info: &str) -> Vec<VmRange> {
    let lines = info
        .lines()
        .skip_while(|line| !line.starts_with("UserBufs:"));
    let buffer = |line: &str| {
        let (number, place) = line.trim().split_once(": 0x")?;
        number.parse::<u32>().ok()?;
        let (start, len) = place.split_once('/')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = start.checked_add(len.trim().parse().ok()?)?;
        Some(VmRange::new(
            start & !(PAGE_SIZE - 1),
            end.checked_next_multiple_of(PAGE_SIZE)?,
        ))
    };
    // Other lists follow the list of buffers.
    lines.skip(1).map_while(buffer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_buffers_are_found_and_other_lists_are_not() {
        let info = "SqThread:\t-1\nUserFiles:\t1\n    0: x\nUserBufs:\t2\n    0: 0x7f0000001010/16\n    \
                    1: 0x7f0000004000/8192\nPollList:\n  op=6, task_works=0\n    9: 0x1000/4096\n";
        let page =
            |start: u64, end: u64| VmRange::new(0x7f00_0000_0000 + start, 0x7f00_0000_0000 + end);
        assert_eq!(buffers(info), [page(0x1000, 0x2000), page(0x4000, 0x6000)]);
        assert_eq!(
            buffers("UserBufs:\t1\n    0: 0xffffffffffffffff/4096\n"),
            []
        );
        assert_eq!(buffers(""), []);
    }
}
