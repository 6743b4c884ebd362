//! Tests of the lists of code made at run time.

use super::*;
use std::io::Write;

/// Range of the run-time code.
const RUN_TIME: Range<u64> = 0x1000..0x2000;

const USER: Owner = Owner {
    uid: u32::MAX,
    inner_pid: 1,
};

/// A list with this text, opened on behalf of a process whose user owns the file.
fn with_map(text: &str) -> (Jit, File) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let owner = Owner {
        uid: file.metadata().unwrap().uid(),
        ..USER
    };
    let opened = file.try_clone().unwrap();
    let jit = Jit {
        map: Source::of("map".to_owned(), opened, owner, List::perf_map),
        ..Jit::default()
    };
    (jit, file)
}

fn name(jit: &Jit, at: u64) -> Option<String> {
    Some(jit.frame(jit.code_at(at)?, at).function)
}

#[test]
fn lines_that_lie_are_skipped_and_counted() {
    let (mut jit, _) = with_map(
        "1000 100 good\n\
         not a line\n\
         1800 0 empty\n\
         ffffffffffffff00 200 wraps\n\
         7000 10 a_library\n\
         0 ffffffffffffff everything\n\
         1f80 100 beyond_the_end\n",
    );
    jit.update(1, &[RUN_TIME]);
    assert_eq!(name(&jit, 0x1000).as_deref(), Some("good"));
    assert_eq!(name(&jit, 0x10ff).as_deref(), Some("good"));
    for at in [0x1100, 0x1800, 0x1f80, 0x7000, u64::MAX] {
        assert_eq!(name(&jit, at), None, "{at:x}");
    }
    let note = "skipped entries of map: 3 malformed, 3 outside of run-time code, 0 overlapped by \
                later ones";
    assert_eq!(jit.into_notes(), [note]);
}

#[test]
fn code_that_replaces_code_has_a_number_of_its_own() {
    let (mut jit, mut file) = with_map("1000 100 first\n1100 100 second\n11");
    let run_time = [RUN_TIME];
    jit.update(1, &run_time);
    let old = jit.code_at(0x1080);
    assert_eq!(name(&jit, 0x1080).as_deref(), Some("first"));
    // The rest of the line that was incomplete, and a line that overlaps two others.
    file.write_all(b"f0 10 third\n1080 100 fourth\n").unwrap();
    jit.update(1, &run_time);
    assert_eq!(name(&jit, 0x1080).as_deref(), Some("fourth"));
    assert_ne!(jit.code_at(0x1080), old);
    assert_eq!(name(&jit, 0x11f0).as_deref(), Some("third"));
    assert_eq!(name(&jit, 0x1000), None);
    assert_eq!(jit.replaced, 2);
}

#[test]
fn lines_count_again_when_memory_becomes_executable() {
    let (mut jit, _) = with_map("5000 100 later\n");
    jit.update(1, &[RUN_TIME]);
    assert_eq!((name(&jit, 0x5000), jit.outside), (None, 1));
    jit.update(1, &[RUN_TIME, 0x5000..0x6000]);
    assert_eq!(name(&jit, 0x5000).as_deref(), Some("later"));
    assert_eq!(jit.outside, 0);
}

#[test]
fn a_list_of_another_user_is_refused() {
    let file = tempfile::tempfile().unwrap();
    let owner = file.metadata().unwrap().uid();
    if owner == 0 {
        // A list of root is accepted from everyone's process.
        let source = Source::of("map".to_owned(), file, USER, List::perf_map);
        assert!(matches!(source, Source::Open(_)));
        return;
    }
    let source = Source::of("map".to_owned(), file, USER, List::perf_map);
    assert!(matches!(source, Source::Refused(_)));
}

/// Builds a record of a jitdump file.
fn record(kind: u32, fields: &[u64], text: &[u8]) -> Vec<u8> {
    let len = 16 + 8 * fields.len() + text.len();
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend((len as u32).to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    bytes.extend(text);
    bytes
}

#[test]
fn a_jitdump_names_functions_and_lines() {
    let mut bytes = record(2, &[0x1000, 2, 0x1000, 7], b"a.js\0");
    // The second line: 16 bytes ahead, in the same file.
    bytes.extend(0x1010u64.to_le_bytes());
    bytes.extend(9u64.to_le_bytes());
    bytes.extend(b"\xff\0");
    let len = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&len.to_le_bytes());
    assert_eq!(jitdump::parse(&bytes), code::Parsed::default());
    bytes.extend(record(0, &[0, 0x1000, 0x1000, 0x20, 1], b"f\0code"));
    bytes.extend(record(1, &[0, 0, 0x1000, 0x3000, 0x20, 1], b""));
    bytes.extend(record(4, &[0, 0, 0], b""));
    let whole = bytes.len();
    bytes.extend(&record(0, &[0, 0, 0x5000, 8, 2], b"torn\0")[..20]);
    let parsed = jitdump::parse(&bytes);
    assert_eq!((parsed.used, parsed.malformed), (whole, 0));
    let [loaded, moved] = &parsed.codes[..] else {
        panic!("{parsed:?}");
    };
    assert_eq!(
        (loaded.name.as_str(), loaded.start, loaded.len),
        ("f", 0x1000, 0x20)
    );
    let line = |start, line| code::CodeLine {
        start,
        file: "a.js".to_owned(),
        line,
    };
    let lines = |base| vec![line(base, 7), line(base + 16, 9)];
    assert_eq!(loaded.lines, lines(0x1000));
    assert_eq!((moved.start, &moved.lines), (0x3000, &lines(0x3000)));
}

#[test]
fn a_jitdump_whose_length_lies_ends_there() {
    let mut bytes = record(0, &[0, 0, 0x1000, 8, 1], b"f\0");
    let good = bytes.len();
    bytes.extend(record(0, &[0, 0, 0x2000, 8, 1], b"g\0"));
    bytes[good + 4..good + 8].copy_from_slice(&3u32.to_le_bytes());
    let parsed = jitdump::parse(&bytes);
    assert_eq!((parsed.codes.len(), parsed.malformed), (1, 1));
    assert_eq!(parsed.used, bytes.len());
}
