//! Tests that journals are read back as written, and that forged or torn journals are rejected.

use super::*;

fn left(folder: &Path) -> (Journal, State) {
    match Journal::open(folder, &[], 7, 99).unwrap() {
        Some(Found::Abandoned(journal, state)) => (journal, state),
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
    let agent = Agent {
        code: 0x1000,
        table: 0x2000,
        room: VmRange::new(0x10_0000, 0x20_0000),
        fd: 5,
        inode: Some(77),
        way: Way::Copy,
    };
    journal.agent(&agent).unwrap();
    journal.made().unwrap();
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
        agent: Some(agent),
        piece: Some(VmRange::new(0x4000, 0x8000)),
        guards: Vec::new(),
        clearing: false,
    };
    assert_eq!(state, expected);
    journal.whole().unwrap();
    journal.clearing().unwrap();
    drop(journal);
    let (mut journal, state) = left(&folder);
    assert_eq!((state.agent, state.clearing), (Some(agent), true));
    journal.cleared().unwrap();
    journal.released().unwrap();
    drop(journal);
    let (journal, state) = left(&folder);
    assert_eq!((state.agent, state.clearing), (None, false));
    drop(journal);
    // An old journal is ignored if another process has the same id.
    assert!(Journal::open(&folder, &[], 7, 100).unwrap().is_none());
    assert!(Journal::open(&folder, &[], 7, 99).unwrap().is_none());
    fs::remove_dir(&folder).unwrap();
}

#[test]
fn an_agent_is_incomplete_until_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), 7, 99).unwrap();
    let agent = Agent {
        code: 0x1000,
        table: 0,
        room: VmRange::new(0, 0),
        fd: -1,
        inode: None,
        way: Way::Move,
    };
    journal.agent(&agent).unwrap();
    drop(journal);
    let (mut journal, state) = left(folder.path());
    assert_eq!((state.agent, state.clearing), (Some(agent), true));
    journal.clearing().unwrap();
    journal.made().unwrap();
    journal.agent(&Agent { fd: 5, ..agent }).unwrap();
    drop(journal);
    let (_, state) = left(folder.path());
    assert!(!state.clearing, "another descriptor is not another agent");
}

/// Creates a folder with a complete journal of process 7.
fn written() -> (tempfile::TempDir, PathBuf) {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("journals");
    drop(Journal::create(&folder, 7, 99).unwrap());
    (above, folder)
}

fn why(found: io::Result<Option<Found>>) -> String {
    found.unwrap_err().to_string()
}

#[test]
fn what_is_a_link_or_open_to_others_is_not_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let (above, folder) = written();
    let open = |folder: &Path| Journal::open(folder, &[], 7, 99);
    // A link instead of the folder.
    let link = above.path().join("link");
    symlink(&folder, &link).unwrap();
    assert!(why(open(&link)).contains("is not a folder"));
    mode(&folder, 0o770);
    assert!(why(open(&folder)).contains("may be written to by others"));
    mode(&folder, 0o700);
    // A journal that others can write to, and a link instead of the journal.
    let (file, elsewhere) = (folder.join("7.journal"), above.path().join("elsewhere"));
    mode(&file, 0o666);
    assert!(why(open(&folder)).contains("may be written to by others"));
    mode(&file, 0o600);
    fs::hard_link(&file, &elsewhere).unwrap();
    assert!(why(open(&folder)).contains("another name"));
    fs::remove_file(&file).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(why(open(&folder)).contains("is a link"));
    fs::remove_file(&file).unwrap();
    // Opening a FIFO does not block.
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap();
    assert!(why(open(&folder)).contains("is not a file"));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(why(open(&folder)).contains("is not a file"));
    fs::remove_dir(&file).unwrap();
    fs::rename(&elsewhere, &file).unwrap();
    assert!(matches!(open(&folder), Ok(Some(Found::Abandoned(..)))));
}

#[test]
fn what_another_user_wrote_counts_only_where_the_process_is_theirs() {
    const OTHER: u32 = 54_321;
    let (_above, folder) = written();
    let give = |path: &Path, user| std::os::unix::fs::chown(path, Some(user), None);
    if give(&folder, OTHER).is_err() {
        eprintln!("skipped: only root can give a folder away");
        return;
    }
    assert!(why(Journal::open(&folder, &[], 7, 99)).contains("somebody else"));
    assert!(why(Journal::create(&folder, 8, 99).map(|_| None)).contains("somebody else"));
    // The owner of the folder did not create this file.
    assert!(why(Journal::open(&folder, &[OTHER], 7, 99)).contains("another user"));
    give(&folder.join("7.journal"), OTHER).unwrap();
    assert!(matches!(
        Journal::open(&folder, &[OTHER], 7, 99),
        Ok(Some(Found::Abandoned(..)))
    ));
}

#[test]
fn lines_that_were_never_written_are_refused() {
    let (_above, folder) = written();
    let file = folder.join("7.journal");
    let head = fs::read_to_string(&file).unwrap();
    let forged = [
        "tools 1 2 9 8 3 0",
        "tools 1 2",
        "tools 1 2 3 4 80000000 0",
        "piece 9 8",
        "piece ffffffffffffffffff 0",
        "guard 5 5",
        "stopping",
        "stopped x 0",
        "namespace 1",
        "anything",
        "",
        &format!("stopped 1 0{}", " 0".repeat(35)),
        &format!("whole{}", " ".repeat(2_000)),
    ];
    for line in forged {
        fs::write(&file, format!("{head}{line} .\n")).unwrap();
        let error = Journal::open(&folder, &[], 7, 99).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{line}");
    }
    // A journal that is truncated at any point is a shorter journal, or none.
    let whole = format!("{head}tools 1000 2000 3000 4000 5 0 .\npiece 1000 2000 .\n");
    for cut in head.len()..whole.len() {
        fs::write(&file, &whole[..cut]).unwrap();
        let (_, state) = left(&folder);
        assert_eq!(state.piece, None, "{cut}");
    }
    fs::write(&file, vec![b'x'; (MOST_BYTES + 1) as usize]).unwrap();
    let error = Journal::open(&folder, &[], 7, 99).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn journals_of_processes_that_have_ended_are_removed() {
    let (_above, folder) = written();
    let own = std::process::id().cast_signed();
    drop(Journal::create(&folder, own, proc_status::start_time(own).unwrap()).unwrap());
    drop(Journal::create(&folder, 1, 1).unwrap());
    drop(Journal::create(&folder, i32::MAX, 5).unwrap());
    // A process that has ended, but is still a zombie.
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let pid = ended.id().cast_signed();
    drop(Journal::create(&folder, pid, proc_status::start_time(pid).unwrap()).unwrap());
    while !proc_status::has_ended(pid, pid) {
        std::thread::yield_now();
    }
    fs::write(folder.join("notes"), "mine").unwrap();
    let path = folder.join("2147483646.journal");
    fs::write(&path, "vmarea-journal 1 2147483646 3 .\nnamespace 1 .\n").unwrap();
    Journal::sweep(&folder);
    ended.wait().unwrap();
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // A journal from another pid namespace is kept.
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains(&format!("{own}.journal")) && path.exists());
}
