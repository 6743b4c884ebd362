//! Tests with the kernel: whatever the program does to a watched mapping, its watch ends.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::thread;

use super::*;
use crate::in_process::executor;
use crate::in_process::phase::Phase;
use crate::in_process::tests::all_is_well;
use vmarea_linux_sys::calls::{Arena, Call};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::uffd::Event;

/// Pages of the watched mapping, and of each place to which it is moved.
const PAGES: u64 = 4;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const FIXED: u64 = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
const KEPT: u64 = FIXED | libc::MREMAP_DONTUNMAP as u64;

/// A range with a watched mapping, three places behind it, and an empty page.
///
/// ```text
/// | watched, 4 pages | free, 4 | place, 4 | free, 4 | place, 4 | free, 4 | empty, 1 |
/// ```
struct Area {
    start: u64,
}

impl Area {
    fn new() -> Area {
        let start = own_process::reserve(25 * PAGE).expect("address space");
        own_process::release(start, 24 * PAGE);
        let area = Area { start };
        area.map(0, PAGES);
        area.map(24, 1);
        area
    }

    fn at(&self, page: u64) -> u64 {
        self.start + page * PAGE
    }

    fn map(&self, page: u64, pages: u64) {
        let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
        let (at, len) = (self.at(page), pages * PAGE);
        let args = [at, len, READ_WRITE, kind, u64::MAX, 0];
        make(libc::SYS_mmap, &args);
    }

    fn unmap(&self, page: u64, pages: u64) {
        make(libc::SYS_munmap, &[self.at(page), pages * PAGE]);
    }

    fn protect(&self, page: u64) {
        let read = libc::PROT_READ as u64;
        make(libc::SYS_mprotect, &[self.at(page), PAGE, read]);
    }

    /// Moves pages, or resizes a mapping in place.
    fn remap(&self, [from, old]: [u64; 2], [to, new]: [u64; 2], flags: u64) {
        let lens = [old * PAGE, new * PAGE];
        let args = [self.at(from), lens[0], lens[1], flags, self.at(to)];
        make(libc::SYS_mremap, &args);
    }

    /// Returns the pages that any userfaultfd watches.
    fn watched(&self) -> Vec<u64> {
        let smaps = fs::read_to_string("/proc/self/smaps").expect("smaps");
        let (mut pages, mut range) = (Vec::new(), 0..0);
        for line in smaps.lines() {
            let first = line.split(' ').next().unwrap_or_default();
            let hex = |text| u64::from_str_radix(text, 16);
            if let Some((Ok(start), Ok(end))) = first.split_once('-').map(|(a, b)| (hex(a), hex(b)))
            {
                range = start..end;
            } else if line.starts_with("VmFlags:") && line.contains(" um") {
                pages.extend(range.clone().step_by(PAGE as usize));
            }
        }
        pages.iter().map(|at| (at - self.start) / PAGE).collect()
    }
}

type Changes = fn(&Area);

fn make(nr: i64, args: &[u64]) {
    let mut call = Call::plain(0, nr, args);
    calls::run(&mut call);
    assert_eq!(call.errno(), 0, "call {nr} {args:x?}");
}

/// Makes `changes` to a watched mapping while another thread reads the events, then ends the watch
/// with `maps`. Returns the pages that are watched in between; none may be afterwards.
fn end_after(changes: Changes, maps: &File) -> Vec<u64> {
    let area = Area::new();
    let places: Arena<Places> = Arena::new(1).expect("memory");
    let places = &places.get()[0];
    let home = executor::open(executor::EVENTS).expect("a userfaultfd");
    let fd = home.raw();
    let mut call = uffd::register(0, fd, area.start, PAGES * PAGE);
    calls::run(&mut call);
    assert_eq!(call.errno(), 0);
    let (stop, stopped) = std::io::pipe().expect("a pipe");
    thread::scope(|scope| {
        scope.spawn(move || {
            while uffd::wait(fd, stop.as_raw_fd()) {
                while let Ok(event) = uffd::event(fd) {
                    assert!(!matches!(event, Event::Fault), "a page was missing");
                    places.note(Phase::Away.meaning(event));
                }
            }
        });
        changes(&area);
        drop(stopped);
    });
    let between = area.watched();
    let watched = Watched {
        home: fd,
        maps: maps.as_raw_fd(),
        empty: area.at(24),
    };
    let range = VmRange::new(area.start, area.at(PAGES));
    assert!(watched.cease_all(range, Some(places)));
    let afterwards = area.watched();
    assert!(afterwards.is_empty(), "{between:?} to {afterwards:?}");
    between
}

/// Changes, and the pages that are watched after them.
const CHANGES: [(Changes, &[u64]); 8] = [
    (|_| {}, &[0, 1, 2, 3]),
    // Grows while it is moved.
    (|a| a.remap([1, 1], [8, 2], FIXED), &[0, 2, 3, 8, 9]),
    // Grows, and loses a page in the middle.
    (
        |a| {
            a.remap([0, 4], [8, 7], FIXED);
            a.unmap(12, 1);
        },
        &[8, 9, 10, 11, 13, 14],
    ),
    // Grows, and a page in the middle is moved on.
    (
        |a| {
            a.remap([1, 1], [8, 4], FIXED);
            a.remap([10, 1], [16, 1], FIXED);
        },
        &[0, 2, 3, 8, 9, 11, 16],
    ),
    // Leaves an empty mapping at each place.
    (
        |a| {
            a.remap([0, 4], [8, 4], KEPT);
            a.remap([8, 4], [16, 4], KEPT);
        },
        &[0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19],
    ),
    // Has other permissions.
    (
        |a| {
            a.remap([0, 2], [8, 2], FIXED);
            a.protect(8);
            a.protect(3);
        },
        &[2, 3, 8, 9],
    ),
    // Grows in place, and is split where it has grown.
    (
        |a| {
            a.remap([0, 4], [0, 7], 0);
            a.protect(5);
        },
        &[0, 1, 2, 3, 4, 5, 6],
    ),
    // Is replaced by memory that is not watched.
    (|a| a.map(1, 2), &[0, 3]),
];

fn end_each(maps: &str) -> i32 {
    let maps = File::open(maps).expect("a file");
    for (changes, watched) in CHANGES {
        assert_eq!(end_after(changes, &maps), watched);
    }
    0
}

#[test]
fn the_watch_ends_whatever_the_program_has_changed() {
    all_is_well(|| end_each("/proc/self/maps"));
}

/// This file does not support the query for a mapping, as no file did before Linux 6.11.
#[test]
fn the_watch_ends_without_the_query_for_mappings() {
    all_is_well(|| end_each("/proc/self/stat"));
}
