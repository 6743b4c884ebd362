//! Tests of the importers on captured `strace` and `perf` output of `data/program.c` (see
//! `data/capture.sh`).
//!
//! Several tools recorded the same program, so their texts must yield the same calls.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use vmarea_trace::event::*;
use vmarea_trace::import::{Format, Import};
use vmarea_trace::{Error, Reader, Writer, sysno};

const STRACE: [&str; 3] = ["strace-o.txt", "strace-ttt-T-y.txt", "strace-stderr.txt"];

fn open(name: &str) -> BufReader<File> {
    let path = [env!("CARGO_MANIFEST_DIR"), "tests", "data", name];
    BufReader::new(File::open(path.iter().collect::<PathBuf>()).unwrap())
}

fn import(format: Format, name: &str) -> (Header, Vec<Event>) {
    let import = Import::new(format, open(name)).unwrap();
    let header = import.header().clone();
    let events: Result<Vec<_>, _> = import.collect();
    (header, events.unwrap())
}

fn calls(events: &[Event]) -> impl Iterator<Item = &Call> {
    events.iter().filter_map(|event| match event {
        Event::Call(call) => Some(call),
        _ => None,
    })
}

fn faults(events: &[Event]) -> Vec<&Fault> {
    let faults = events.iter().filter_map(|event| match event {
        Event::Fault(fault) => Some(fault),
        _ => None,
    });
    faults.collect()
}

fn notes(events: &[Event]) -> Vec<&str> {
    let notes = events.iter().filter_map(|event| match event {
        Event::Note(text) => Some(text.as_str()),
        _ => None,
    });
    notes.collect()
}

/// Returns the parts of a call that do not depend on addresses: number, lengths, flags, success.
fn shape(call: &Call) -> (u32, [u64; 3], bool) {
    let [_, b, c, d, ..] = call.args;
    let flags = match call.nr {
        sysno::MMAP => [b, c, d],
        sysno::MPROTECT | sysno::MADVISE => [b, c, 0],
        sysno::MREMAP => [b, c, d],
        sysno::MLOCK | sysno::MLOCK2 | sysno::MUNLOCK => [b, 0, 0],
        sysno::MLOCKALL => [call.args[0], 0, 0],
        // The C library trims the new thread's arena by an amount that depends on its alignment.
        sysno::MUNMAP => [u64::from(b > 1 << 20), 0, 0],
        _ => [0; 3],
    };
    (call.nr, flags, call.ret >= 0)
}

/// Returns the shapes of the first task's calls in its first mm, except `clone`, `prlimit64` and
/// `prctl`.
fn story(events: &[Event]) -> Vec<(u32, [u64; 3], bool)> {
    let first = events.iter().find_map(|event| match event {
        Event::TaskStart { tid, .. } => Some(*tid),
        _ => None,
    });
    let of_first = calls(events).filter(|call| Some(call.tid) == first && call.mm == MmId(1));
    of_first
        .filter(|call| !matches!(call.nr, sysno::CLONE | sysno::PRLIMIT64 | sysno::PRCTL))
        .map(shape)
        .collect()
}

/// Checks that ids are announced before their use and not used after their end.
fn check_ids(events: &[Event]) {
    let mut mms = HashSet::new();
    let mut tasks = HashMap::new();
    let mut inodes = HashSet::new();
    for event in events {
        match event {
            Event::MmStart(start) => {
                if let Origin::Fork { parent } = start.origin {
                    assert!(mms.contains(&parent), "{event:?}");
                }
                assert!(mms.insert(start.mm), "{event:?}");
            }
            Event::MmEnd { mm, .. } => {
                assert!(mms.remove(mm), "{event:?}");
                assert!(tasks.values().all(|used| used != mm), "{event:?}");
            }
            Event::TaskStart { tid, mm, .. } => {
                assert!(mms.contains(mm), "{event:?}");
                tasks.insert(*tid, *mm);
            }
            Event::TaskEnd { tid, .. } => assert!(tasks.remove(tid).is_some(), "{event:?}"),
            Event::Inode(inode) => assert!(inodes.insert(inode.id), "{event:?}"),
            Event::Call(call) => {
                assert_eq!(tasks.get(&call.tid), Some(&call.mm), "{event:?}");
                assert!(call.file.is_none_or(|file| inodes.contains(&file.inode)));
            }
            Event::Fault(fault) => assert_eq!(tasks.get(&fault.tid), Some(&fault.mm)),
            _ => {}
        }
    }
}

/// Returns how many mms `execve` and `fork` created, and the exit status of each process.
fn tasks(events: &[Event]) -> (usize, usize, Vec<i32>) {
    let (mut execs, mut forks) = (0, 0);
    let mut leaders = HashSet::new();
    let mut ends = Vec::new();
    for event in events {
        match event {
            Event::MmStart(start) => match start.origin {
                Origin::Exec => execs += 1,
                _ => forks += 1,
            },
            Event::TaskStart { tid, pid, .. } if tid == pid => {
                leaders.insert(*tid);
            }
            Event::TaskEnd { tid, status, .. } if leaders.contains(tid) => ends.push(status >> 8),
            _ => {}
        }
    }
    ends.sort_unstable();
    (execs, forks, ends)
}

#[test]
fn tasks_and_ids_are_right_in_every_text() {
    let texts = STRACE
        .map(|name| (Format::Strace, name))
        .into_iter()
        .chain([
            (Format::Strace, "strace-memory.txt"),
            (Format::PerfScript, "perf-script.txt"),
            (Format::PerfScript, "perf-script-raw.txt"),
            (Format::PerfTrace, "perf-trace.txt"),
        ]);
    for (format, name) in texts {
        let (header, events) = import(format, name);
        check_ids(&events);
        // The program and its second child call `execve`; `fork` creates two children. The exit
        // statuses are those of the three processes.
        assert_eq!(tasks(&events), (2, 2, vec![0, 3, 7]), "{name}");
        assert_eq!(header.machine, "x86_64");
        assert_eq!(header.kernel_release, "");
        assert!(notes(&events)[0].starts_with("imported from "));
        assert!(
            matches!(events.last(), Some(Event::End { status: 0, .. })),
            "{name}"
        );
    }
}

#[test]
fn every_text_tells_the_same_calls() {
    let (header, events) = import(Format::Strace, STRACE[0]);
    assert_eq!(header.command, ["./program"]);
    let expected = story(&events);
    assert!(expected.len() > 30, "{}", expected.len());
    for (format, name) in [
        (Format::Strace, STRACE[1]),
        (Format::Strace, STRACE[2]),
        (Format::Strace, "strace-memory.txt"),
        (Format::PerfScript, "perf-script.txt"),
        (Format::PerfScript, "perf-script-raw.txt"),
        (Format::PerfTrace, "perf-trace.txt"),
    ] {
        let told = story(&import(format, name).1);
        for (i, (told, expected)) in told.iter().zip(&expected).enumerate() {
            assert_eq!(told, expected, "{name}, call {i}");
        }
        assert_eq!(told.len(), expected.len(), "{name}");
    }
}

#[test]
fn threads_map_and_unmap_in_the_memory_of_their_process() {
    for name in STRACE {
        let (_, events) = import(Format::Strace, name);
        let mut per_thread: BTreeMap<Tid, Vec<u32>> = BTreeMap::new();
        for call in calls(&events).filter(|call| call.mm == MmId(1) && call.args[1] == 8192) {
            per_thread.entry(call.tid).or_default().push(call.nr);
        }
        let rounds = per_thread.values().filter(|calls| {
            let unmaps = calls.iter().filter(|nr| **nr == sysno::MUNMAP);
            unmaps.count() == 5
        });
        assert_eq!(rounds.count(), 2, "{name}: {per_thread:?}");
    }
}

#[test]
fn calls_that_ran_at_the_same_time_are_marked() {
    let text = "\
        1 execve(\"a\", [\"a\"], 0x7f) = 0\n\
        1 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_THREAD) = 2\n\
        1 mmap(NULL, 1, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0 <unfinished ...>\n\
        2 mmap(NULL, 2, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x2000\n\
        1 <... mmap resumed>) = 0x1000\n\
        2 mmap(NULL, 3, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x3000\n\
        2 mmap(NULL, 4, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0 <unfinished ...>\n\
        1 write(1, \"x\", 1) = 1\n\
        2 <... mmap resumed>) = 0x4000\n\
        1 +++ killed by SIGSEGV +++\n";
    let import = Import::new(Format::Strace, text.as_bytes()).unwrap();
    let events: Vec<Event> = import.map(Result::unwrap).collect();
    let told: Vec<_> = calls(&events)
        .filter(|call| call.nr == sysno::MMAP)
        .map(|call| (call.args[1], call.ret, call.order))
        .collect();
    assert_eq!(
        told,
        [
            (2, 0x2000, Order::Overlapping),
            (1, 0x1000, Order::Overlapping),
            (3, 0x3000, Order::Exact),
            (4, 0x4000, Order::Exact),
        ]
    );
    assert!(matches!(events.last(), Some(Event::End { status: 11, .. })));
}

#[test]
fn strace_tells_files_by_their_paths() {
    let (_, events) = import(Format::Strace, "strace-ttt-T-y.txt");
    let mut paths = HashMap::new();
    for event in &events {
        if let Event::Inode(inode) = event {
            paths.insert(inode.id, (inode.path.as_str(), inode.kind, inode.size));
        }
    }
    let of = |end: &str| {
        let mut files = calls(&events)
            .filter(|call| call.mm == MmId(1))
            .filter_map(|call| call.file)
            .filter(|file| paths[&file.inode].0.ends_with(end));
        let first = files.next().unwrap();
        (first, paths[&first.inode], files.collect::<Vec<_>>())
    };
    let (libc, (path, kind, size), others) = of("/libc.so.6");
    assert!(path.starts_with("/usr/lib/") && kind == InodeKind::Regular && size > 1 << 20);
    assert_eq!(libc.size, size);
    // The four segments of the library are mapped from one open file description.
    assert_eq!(others, [libc; 3]);

    let (first, _, others) = of("/tmp/vmarea-capture/program");
    assert_eq!(others, [first], "a duplicate is the same description");
    let (memfd, (_, kind, _), _) = of("/memfd:heap (deleted)");
    assert_eq!(
        (kind, memfd.size, memfd.open_flags),
        (InodeKind::Shmem, 16384, 2)
    );
    let (_, (_, kind, size), _) = of("/SYSV00000000 (deleted)");
    assert_eq!((kind, size), (InodeKind::SharedAnon, 8192));
}

#[test]
fn strace_tells_what_pointers_point_to() {
    let (_, events) = import(Format::Strace, STRACE[0]);
    let limit = calls(&events)
        .find(|call| call.nr == sysno::PRLIMIT64)
        .unwrap();
    let expected = [(4u64 << 20).to_le_bytes(), u64::MAX.to_le_bytes()];
    assert_eq!(limit.data, expected.concat());
    let errno = calls(&events)
        .find(|call| call.ret < 0)
        .map(|call| (call.nr, call.ret));
    assert!(errno == Some((sysno::PRLIMIT64, -1)) || errno == Some((sysno::MMAP, -9)));
}

/// An excerpt of `strace -f -p PID`, as in reports: two threads of one process, which no line creates.
const EXCERPT: &str = "\
[pid  4343] mmap(NULL, 1052672, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f8e8918d000
[pid  4343] mprotect(0x7f8e8918d000, 4096, PROT_NONE) = 0
[pid  4344] mmap(NULL, 1052672, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f8e8908c000
[pid  4344] mprotect(0x7f8e8908c000, 4096, PROT_NONE) = -1 ENOMEM (Cannot allocate memory)
";

#[test]
fn threads_that_no_line_creates_are_of_one_process() {
    let import = Import::new(Format::Strace, EXCERPT.as_bytes()).unwrap();
    let events: Vec<_> = import.map(Result::unwrap).collect();
    let spaces: HashSet<_> = calls(&events).map(|call| call.mm).collect();
    assert_eq!(spaces.len(), 1, "{events:?}");
    let said = "task 4344 appears without a clone: it is taken for a thread of process 4343";
    assert!(notes(&events).contains(&said), "{:?}", notes(&events));
}

#[test]
fn perf_script_tells_faults_and_files() {
    let (header, events) = import(Format::PerfScript, "perf-script.txt");
    assert_eq!(header.faults, FaultSource::Tracepoints);
    let faults = faults(&events);
    assert!(faults.len() > 150);
    for access in [Access::Read, Access::Write, Access::Exec] {
        assert!(faults.iter().any(|fault| fault.access == access));
    }
    assert!(faults.iter().any(|fault| fault.kernel));
    let mapped = |end: &str| {
        let id = events.iter().find_map(|event| match event {
            Event::Inode(inode) if inode.path.ends_with(end) => Some((inode.id, inode.ino > 0)),
            _ => None,
        });
        let (id, numbered) = id.unwrap();
        assert!(numbered);
        let of_file = |call: &&Call| call.file.is_some_and(|file| file.inode == id);
        calls(&events)
            .filter(|call| call.mm == MmId(1))
            .filter(of_file)
            .count()
    };
    assert_eq!(
        (mapped("/libc.so.6"), mapped("/memfd:heap (deleted)")),
        (4, 1)
    );

    // The program writes to each page that a thread touches.
    let area = calls(&events)
        .find(|call| call.args[1] == 64 * 4096)
        .unwrap()
        .ret as u64;
    let touched = |page: u64| {
        let in_page = |fault: &&&Fault| fault.addr >> 12 == (area >> 12) + page;
        faults
            .iter()
            .filter(in_page)
            .any(|fault| fault.access == Access::Write)
    };
    assert!(touched(0) && touched(10) && touched(11) && touched(20) && !touched(30));
}

#[test]
fn software_faults_need_addresses() {
    let (header, events) = import(Format::PerfScript, "perf-script-software.txt");
    assert_eq!(header.faults, FaultSource::SoftwareUser);
    assert!(faults(&events).len() > 150);
    assert!(faults(&events).iter().all(|fault| fault.addr >> 47 == 0));
    assert!(faults(&events).iter().any(|fault| fault.kernel));

    let error = Import::new(Format::PerfScript, open("perf-script-no-addresses.txt"));
    let error = error.err().unwrap().to_string();
    assert!(error.contains("perf script -F +pid,+addr"), "{error}");
}

#[test]
fn perf_trace_tells_faults_on_anonymous_memory_and_counts_the_others() {
    let (header, events) = import(Format::PerfTrace, "perf-trace.txt");
    assert_eq!(header.faults, FaultSource::SoftwareUser);
    assert!(faults(&events).len() > 20);
    let lost = events.iter().find_map(|event| match event {
        Event::Lost { count, .. } => Some(*count),
        _ => None,
    });
    assert!(lost.is_some_and(|count| count > 20));
}

#[test]
fn an_import_is_a_trace() {
    let import = Import::new(Format::Strace, open(STRACE[2])).unwrap();
    let mut writer = Writer::new(Vec::new(), import.header()).unwrap();
    let mut events = Vec::new();
    for event in import {
        let event = event.unwrap();
        writer.write(&event).unwrap();
        events.push(event);
    }
    let file = writer.finish().unwrap();
    let back: Result<Vec<_>, _> = Reader::new(&file[..]).unwrap().collect();
    assert_eq!(back.unwrap(), events);
}

#[test]
fn times_run_from_the_clock_of_the_text() {
    for name in [
        "strace-ttt-T-y.txt",
        "strace-stderr.txt",
        "strace-memory.txt",
    ] {
        let (_, events) = import(Format::Strace, name);
        let times: Vec<Nanos> = calls(&events).map(|call| call.t).collect();
        assert!(times.is_sorted(), "{name}");
        let whole = times[times.len() - 1] - times[0];
        assert!(
            (1_000_000..60_000_000_000).contains(&whole),
            "{name}: {whole}"
        );
    }
}

#[test]
fn other_text_is_refused_and_cut_text_is_told() {
    for format in [Format::Strace, Format::PerfScript, Format::PerfTrace] {
        let error = Import::new(format, &b"root:x:0:0:root:/root:/bin/bash\n"[..]).err();
        assert!(matches!(error, Some(Error::AnotherTool)), "{error:?}");
        assert!(Import::new(format, &b""[..]).is_err());
    }
    let text = "5 execve(\"./a\", [\"./a\"], 0x7f) = 0\n5 mmap(NULL, 4096, PROT_UNHEARD_OF, 2, 3, 0) = 0x7f\n5 brk(";
    let events: Vec<Event> = Import::new(Format::Strace, text.as_bytes())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let notes = notes(&events);
    assert_eq!(
        notes[1..],
        [
            "1 lines about memory could not be read, the first is line 2",
            "the text ends before the end of the first process"
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Checks that the importers survive real text in which bytes are changed, removed and
    /// duplicated.
    #[test]
    fn damaged_text_is_survived(
        text in 0usize..4, changes in vec((any::<Index>(), any::<u8>(), 0usize..4), 1..60),
    ) {
        let (format, name) = [
            (Format::Strace, "strace-ttt-T-y.txt"),
            (Format::Strace, "strace-stderr.txt"),
            (Format::PerfScript, "perf-script.txt"),
            (Format::PerfTrace, "perf-trace.txt"),
        ][text];
        let mut bytes = Vec::new();
        open(name).read_to_end(&mut bytes).unwrap();
        bytes.truncate(20_000);
        for (place, byte, change) in changes {
            let at = place.index(bytes.len() - 40);
            match change {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..at + usize::from(byte % 40))),
                2 => bytes.insert(at, byte),
                _ => bytes.extend_from_within(at..at + 40),
            }
        }
        let lines = bytes.split(|byte| *byte == b'\n').count();
        if let Ok(import) = Import::new(format, &bytes[..]) {
            let events = import.map_while(Result::ok).count();
            prop_assert!(events < 20 * lines + 20);
        }
    }
}
