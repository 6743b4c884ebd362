//! What is written is read; what is forged, torn or of somebody else is not.

use super::*;

fn left(folder: &Path) -> (Journal, State) {
    match Journal::open(folder, &[], 7, 99).unwrap() {
        Some(Found::Left(journal, state)) => (journal, state),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_written_is_read_and_a_torn_line_is_not() {
    let folder = std::env::temp_dir().join(format!("vmarea-journal-{}", std::process::id()));
    let mut journal = Journal::create(&folder, 7, 99).unwrap();
    assert_eq!(
        Journal::create(&folder, 7, 99).unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
    let mut words = [0; 34];
    words[..27].fill(0xabc);
    let registers = Registers { words, count: 27 };
    let saved = Saved {
        tid: 8,
        mask: 0xff00,
        registers,
    };
    let tools = Tools {
        code: 0x1000,
        table: 0x2000,
        room: VmRange::new(0x10_0000, 0x20_0000),
        fd: 5,
        way: Way::Copy,
    };
    journal.tools(&tools).unwrap();
    journal.piece(VmRange::new(0x4000, 0x8000)).unwrap();
    journal.stopping(true, 0x1234).unwrap();
    journal.stopped(&saved).unwrap();
    journal.file.write_all(b"whole").unwrap();
    drop(journal);
    let (mut journal, state) = left(&folder);
    let expected = State {
        stopping: Some(true),
        syscall: 0x1234,
        saved: Some(saved),
        tools: Some(tools),
        piece: Some(VmRange::new(0x4000, 0x8000)),
        clearing: false,
    };
    assert_eq!(state, expected);
    journal.whole().unwrap();
    journal.clearing().unwrap();
    drop(journal);
    let (mut journal, state) = left(&folder);
    assert_eq!((state.tools, state.clearing), (Some(tools), true));
    journal.cleared().unwrap();
    journal.released().unwrap();
    drop(journal);
    let (journal, state) = left(&folder);
    assert_eq!((state.tools, state.clearing), (None, false));
    drop(journal);
    // Another process with the same number: an old journal says nothing of it.
    assert!(Journal::open(&folder, &[], 7, 100).unwrap().is_none());
    assert!(Journal::open(&folder, &[], 7, 99).unwrap().is_none());
    fs::remove_dir(&folder).unwrap();
}
