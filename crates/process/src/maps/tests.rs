//! Tests that parse lists of real processes, as well as malicious text.

use super::*;
use vmarea_linux_sys::child::Child;

fn one(text: &str) -> Result<MapsEntry, ParseError> {
    parse(text.as_bytes()).map(|mut list| list.pop().expect("no mapping"))
}

#[test]
fn every_kind_of_line() {
    let text = b"55e0c8a00000-55e0c8a21000 r-xp 00002000 fe:01 1234   /usr/bin/cat\n\
        55e0c8a21000-55e0c8a22000 rw-s 00000000 00:01 7 /memfd:jit (deleted)\n\
        55e0c8b00000-55e0c8b21000 rw-p 00000000 00:00 0          [heap]\n\
        7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
        7f0000001000-7f0000002000 rw-p 00000000 00:00 0          [anon:a b]\n\
        7f0000002000-7f0000003000 r--p 00000000 08:11 18446744073709551615 /a\\012b\n\
        7f0000003000-7f0000004000 rw-s 00000000 00:0e 1033 anon_inode:[perf_event]\n\
        7ffe00000000-7ffe00001000 rw-p 00000000 00:00 0 [stack]\n\
        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]";
    let list = parse(text).unwrap();
    let names: Vec<_> = list.iter().map(|mapping| mapping.name.text()).collect();
    assert_eq!(
        names,
        [
            "/usr/bin/cat",
            "/memfd:jit (deleted)",
            "[heap]",
            "",
            "[anon:a b]",
            "/a\\012b",
            "anon_inode:[perf_event]",
            "[stack]",
            "[vsyscall]"
        ]
    );
    assert_eq!(list[0].start, 0x55e0_c8a0_0000);
    assert_eq!(list[0].offset, 0x2000);
    assert_eq!(list[0].dev, 0xfe << 20 | 1);
    assert_eq!(list[0].ino, 1234);
    assert!(list[0].perms.exec && !list[0].perms.write && !list[0].perms.shared);
    assert!(list[1].perms.shared && list[1].name.is_deleted());
    assert_eq!(list[5].ino, u64::MAX);
    assert_eq!(list[5].name.path().unwrap(), "/a\nb");
    assert_eq!(list[6].name.path(), None);
}

#[test]
fn wrong_lines_are_named() {
    let good = "1000-2000 rw-p 00000000 00:00 0\n";
    assert!(one(good).is_ok());
    for bad in [
        "x",
        "1000",
        "1000-2000",
        "-2000 rw-p 00000000 00:00 0",
        "2000-1000 rw-p 00000000 00:00 0",
        "1000-10000000000000000 rw-p 00000000 00:00 0",
        "1000-2000 rwzp 00000000 00:00 0",
        "1000-2000 rw-p 00000000 00 0",
        "1000-2000 rw-p 00000000 1000:00 0",
        "1000-2000 rw-p 00000000 00:100000 0",
        "1000-2000 rw-p 00000000 00:00 18446744073709551616",
        "1000-2000 rw-p 00000000 00:00 ",
        "1000-2000 rw-p 00000000 00:00 0x1",
        "1000-2000 rw-p  0000000 00:00 0",
        "",
    ] {
        let error = parse(format!("{good}{bad}\n{good}").as_bytes()).unwrap_err();
        assert_eq!(error.line, 2, "{bad:?}: {error}");
    }
    assert_eq!(parse(b"").unwrap(), []);
}

#[test]
fn a_text_that_is_cut_or_changed_anywhere_never_panics() {
    let text = std::fs::read("/proc/self/smaps").unwrap();
    let text = &text[..text.len().min(3_000)];
    for at in 0..text.len() {
        let _ = parse(&text[..at]);
        let _ = parse_smaps(&text[..at]);
        let mut bad = text.to_vec();
        bad[at] = 0xff;
        let _ = parse_smaps(&bad);
    }
}

#[test]
fn text_smaps_and_queries_agree() {
    let child = Child::start(|inside| {
        let page = rustix::param::page_size() as u64;
        let base = inside.map(2_000);
        for n in 0..1_000 {
            inside.protect(base + 2 * n * page, 1);
        }
        inside.say(base);
        inside.wait();
    });
    let mut child = child;
    child.hear();
    let list = read(child.pid()).unwrap();
    assert!(list.len() > 2_000);
    let smaps = std::fs::read(format!("/proc/{}/smaps", child.pid())).unwrap();
    let smaps = parse_smaps(&smaps).unwrap();
    let from_smaps: Vec<_> = smaps.iter().map(|entry| entry.mapping.clone()).collect();
    assert_eq!(from_smaps, list);
    for entry in smaps.iter().filter(|e| e.mapping.start >> 63 == 0) {
        assert_eq!(entry.has(b"wr"), entry.mapping.perms.write, "{entry:?}");
    }
    match Query::open(child.pid()) {
        Ok(mut query) => {
            let asked: Vec<_> = query.iter().map(Result::unwrap).collect();
            let of_user: Vec<_> = list
                .iter()
                .filter(|m| m.start >> 63 == 0)
                .cloned()
                .collect();
            assert_eq!(asked, of_user);
        }
        Err(QueryError::Unsupported) => eprintln!("skipped: {}", QueryError::Unsupported),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_such_process_is_an_error() {
    assert!(read(i32::MAX).is_err());
    assert!(matches!(
        Query::open(i32::MAX),
        Err(QueryError::Process { .. })
    ));
}
