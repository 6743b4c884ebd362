//! Tests that make each system call for a piece fail in turn, with each possible errno.
//!
//! After each failure, the process must continue with correct memory contents.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use super::{Merger, can_repair_itself};
use crate::plan::PAGE;
use crate::{MadviseFlags, Options};
use vmarea_linux_sys::calls::{self, refusals::Refusals};
use vmarea_linux_sys::child::{self, Child};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::test_memory::Pieces;
use vmarea_linux_sys::uffd::{self, Event, Uffd};
use vmarea_merge::types::VmRange;

const PAGES: u64 = 14;
/// Errnos that the kernel returns if it is busy or out of memory.
const PASSING: [i32; 4] = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EINTR];
/// Errnos that the kernel returns when a mapping is not in the expected state.
const DEFINITE: [i32; 2] = [libc::EEXIST, libc::ENOENT];
/// Time limit, longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(300);

/// Repeatedly writes a word in each page; returns how often the word had an unexpected value.
fn write_all(pieces: &Pieces, stop: &AtomicBool) -> u64 {
    let mut mine = [0; PAGES as usize];
    let mut lost = 0;
    while !stop.load(SeqCst) {
        for (page, mine) in (0..).zip(&mut mine) {
            if Pieces::is_hole(page) {
                continue;
            }
            lost += u64::from(pieces.read(page, 1) != *mine);
            *mine += 1;
            pieces.write(page, 1, *mine);
        }
    }
    let found = (0..PAGES).map(|page| pieces.read(page, 1));
    lost + found
        .zip(mine)
        .filter(|(found, mine)| found != mine)
        .count() as u64
}

/// Whether a thread writes during the merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writer {
    Runs,
    Rests,
}

/// Merges once while calls are refused, and once more without refusals. Returns the number of
/// refused calls, or a description of the failure.
fn merge(merger: &mut Merger, refusals: Refusals, writer: Writer) -> Result<u64, String> {
    let pieces = Pieces::new(PAGES);
    let stop = AtomicBool::new(false);
    let (refused, lost) = thread::scope(|scope| {
        let writes = || write_all(&pieces, &stop);
        let writer = (writer == Writer::Runs).then(|| scope.spawn(writes));
        refusals.begin();
        // If the list of mappings cannot be read, the merge returns an error and changes nothing.
        let _ = merger.merge(pieces.range());
        let refused = refusals.end();
        stop.store(true, SeqCst);
        let lost = writer.map_or(Ok(0), |writer| writer.join());
        (refused, lost.unwrap_or(u64::MAX))
    });
    let wrong = (0..PAGES).filter(|&page| {
        let expected = if Pieces::is_hole(page) { 0 } else { page };
        pieces.read(page, 0) != expected
    });
    let wrong = wrong.count();
    if wrong > 0 || lost > 0 {
        return Err(format!("{wrong} pages are wrong, {lost} words were lost"));
    }
    // Pieces that were not joined are unchanged: nothing is registered, and all of them can be
    // joined.
    match merger.merge(pieces.range()) {
        Ok(report) if report.after == 1 => Ok(refused),
        Ok(report) => Err(format!("not joined afterwards: {report:?}")),
        Err(error) => Err(format!("not joined afterwards: {error}")),
    }
}

static ROUNDS: AtomicU64 = AtomicU64::new(0);

/// Ends the process if the tests hang.
fn watch_over() {
    thread::spawn(|| {
        loop {
            let before = ROUNDS.load(SeqCst);
            thread::sleep(Duration::from_secs(60));
            if ROUNDS.load(SeqCst) == before {
                say(&format!("stuck in round {before}"));
                child::end(9);
            }
        }
    });
}

/// Writes directly to standard error, because this code runs outside the process of the test
/// harness.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Makes each call fail in turn, in each of the ways in `kinds`. Returns 0 on success.
fn refuse_each(writer: Writer, kinds: &[Refusals]) -> i32 {
    watch_over();
    let mut merger = match Merger::new(Options {
        madvise_flags: MadviseFlags::Unset,
        ..Options::default()
    }) {
        Ok(merger) => merger,
        Err(error) => {
            say(&error.to_string());
            return 8;
        }
    };
    let mut failures = 0;
    for kind in kinds {
        for before in 0.. {
            let refusals = Refusals { before, ..*kind };
            ROUNDS.fetch_add(1, SeqCst);
            match merge(&mut merger, refusals, writer) {
                Ok(0) => {
                    say(&format!("{kind:?}: {before} calls"));
                    break;
                }
                Ok(_) => {}
                Err(wrong) => {
                    say(&format!("{refusals:?}: {wrong}"));
                    failures += 1;
                }
            }
        }
    }
    i32::from(failures > 0)
}

fn each(errnos: &[i32], times: u32, by_half: bool) -> Vec<Refusals> {
    let kind = |&errno| Refusals {
        before: 0,
        times,
        errno,
        by_half,
    };
    errnos.iter().map(kind).collect()
}

fn once() -> Vec<Refusals> {
    [each(&PASSING, 1, false), each(&DEFINITE, 1, false)].concat()
}

/// Returns refusals that exercise every retry, including retries while pages are moved out.
fn often() -> Vec<Refusals> {
    each(&PASSING, 60, false)
}

/// Returns refusals in which the kernel completes a part of the call before it fails.
fn by_half() -> Vec<Refusals> {
    each(&[libc::ENOMEM, libc::EBUSY], 1, true)
}

fn all_is_well(body: fn() -> i32) {
    if let Err(error) = can_repair_itself() {
        eprintln!("skipped: {error}");
        return;
    }
    assert_eq!(child::apart(LONG, body), Some(0));
}

#[test]
fn a_refused_call_harms_nothing() {
    all_is_well(|| refuse_each(Writer::Runs, &once()));
}

#[test]
fn a_call_may_be_refused_for_long() {
    all_is_well(|| refuse_each(Writer::Runs, &often()));
}

#[test]
fn a_call_may_be_refused_when_half_of_it_is_done() {
    // A thread that touches the piece while the piece is unmapped would fault. All other failures
    // are recovered from.
    all_is_well(|| refuse_each(Writer::Rests, &by_half()));
}

/// Watches a child until it has ended. Returns 0 if and only if the end of the child is detected.
fn see_a_child_end() -> i32 {
    let watcher = Uffd::open(uffd::EVENT_FORK).expect("a userfaultfd");
    let (pieces, fd) = (Pieces::new(2), watcher.raw());
    let (start, len) = (pieces.range().start, 2 * PAGE);
    let mut call = uffd::register(0, fd, start, len);
    calls::run(&mut call);
    assert_eq!(call.errno(), 0);
    // A thread that allocates memory would wait for the fork, which waits until its event is read.
    static READS: AtomicBool = AtomicBool::new(false);
    let event = thread::spawn(move || {
        READS.store(true, SeqCst);
        loop {
            if let Ok(event) = uffd::event(fd) {
                return event;
            }
            thread::yield_now();
        }
    });
    while !READS.load(SeqCst) {
        thread::yield_now();
    }
    let child = Child::start(|inside| inside.wait());
    let Ok(Event::Fork(fd)) = event.join() else {
        return 2;
    };
    let ends_early = uffd::has_ended(fd, start);
    drop(child);
    call = uffd::unregister(0, fd, start, len);
    calls::run(&mut call);
    let is_seen = uffd::has_ended(fd, start) && call.errno() == libc::ENOMEM;
    i32::from(ends_early || !is_seen)
}

#[test]
fn the_end_of_a_child_is_no_lack_of_memory() {
    all_is_well(see_a_child_end);
}

/// Merges while the fresh mapping is read all the time, as another process would read it.
/// Returns 0 if no page is lost.
fn read_what_is_fresh() -> i32 {
    const MERGES: u32 = 4_000;
    let mut merger = Merger::new(Options {
        madvise_flags: MadviseFlags::Unset,
        ..Options::default()
    })
    .expect("it can be repaired");
    let memory = File::open("/proc/self/mem").expect("memory");
    let (at, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let wrong: u64 = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                for page in 0..PAGES {
                    let _ = memory.read_at(&mut [0; 8], at.load(SeqCst) + page * PAGE);
                }
            }
        });
        let merges = (0..MERGES).map(|_| {
            let pieces = Pieces::new(PAGES);
            let range = pieces.range();
            let room = merger.executor.room().expect("a scratch area");
            let fresh = room.fresh(VmRange::new(range.start, range.end));
            at.store(fresh.start, SeqCst);
            merger.merge(range).expect("it can be merged");
            let is_wrong = |page: &u64| !Pieces::is_hole(*page) && pieces.read(*page, 0) != *page;
            (0..PAGES).filter(is_wrong).count() as u64
        });
        let wrong = merges.sum();
        stop.store(true, SeqCst);
        wrong
    });
    i32::from(wrong > 0)
}

#[test]
fn a_fresh_mapping_that_was_read_too_early_takes_all_pages() {
    all_is_well(read_what_is_fresh);
}

/// Closes this process's userfaultfds while a page is being moved; returns false if none is open.
fn close_watchers() -> bool {
    let is_watcher = |fd: &i32| {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        link.is_ok_and(|link| link.ends_with("anon_inode:[userfaultfd]"))
    };
    let found: Vec<i32> = (3..64).filter(is_watcher).collect();
    found.iter().for_each(|&fd| own_process::close(fd));
    !found.is_empty()
}

/// Number of calls before the descriptors are closed.
static OPEN_FOR: AtomicU64 = AtomicU64::new(0);
/// Exit code if every byte is correct, but the merge finished before the descriptors were closed.
const NOT_CLOSED: i32 = 3;

/// Makes a call fail until the descriptors are closed. Returns 0 if no byte is lost.
fn close_in_the_middle() -> i32 {
    let mut merger = Merger::new(Options {
        madvise_flags: MadviseFlags::Unset,
        ..Options::default()
    })
    .expect("it can be repaired");
    let pieces = Pieces::new(PAGES);
    let refusals = Refusals {
        before: OPEN_FOR.load(SeqCst).cast_signed(),
        times: u32::MAX,
        errno: libc::EAGAIN,
        by_half: false,
    };
    let (closes, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let closed = thread::scope(|scope| {
        let closer = scope.spawn(|| {
            closes.store(true, SeqCst);
            while !refusals.has_begun() {
                if done.load(SeqCst) {
                    return false;
                }
                thread::yield_now();
            }
            assert!(close_watchers());
            refusals.end();
            true
        });
        while !closes.load(SeqCst) {
            thread::yield_now();
        }
        refusals.begin();
        let _ = merger.merge(pieces.range());
        done.store(true, SeqCst);
        closer.join().expect("it closes")
    });
    let expected = |page| if Pieces::is_hole(page) { 0 } else { page };
    let wrong = (0..PAGES).filter(|&page| pieces.read(page, 0) != expected(page));
    match (wrong.count(), closed) {
        (0, true) => child::end(0),
        (0, false) => child::end(NOT_CLOSED),
        (wrong, _) => {
            say(&format!(
                "closed after {OPEN_FOR:?} calls: {wrong} pages are wrong"
            ));
            child::end(1)
        }
    }
}

#[test]
fn pages_come_back_without_the_descriptors() {
    if let Err(error) = can_repair_itself() {
        eprintln!("skipped: {error}");
        return;
    }
    for before in 0.. {
        OPEN_FOR.store(before, SeqCst);
        let ended = child::apart(LONG, close_in_the_middle);
        if ended == Some(NOT_CLOSED) {
            return assert!(before > 20, "too few calls: {before}");
        }
        assert_eq!(ended, Some(0), "closed after {before} calls");
    }
}
