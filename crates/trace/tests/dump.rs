//! The text form of events, which scripts read and which must therefore remain stable.

use vmarea_trace::dump::{Printer, dump};
use vmarea_trace::event::*;
use vmarea_trace::sysno;
use vmarea_trace::{Error, Reader, Writer};

const START: u64 = 5_000_000_000_000;

fn call(nr: u32, args: [u64; 6], ret: i64) -> Call {
    Call {
        tid: Tid(693),
        mm: MmId(1),
        nr,
        args,
        ret,
        t: START + 1_234_567_890,
        order: Order::Exact,
        file: None,
        data: Vec::new(),
    }
}

fn lines(events: &[Event]) -> Vec<String> {
    let mut text = Vec::new();
    let mut printer = Printer::new(&mut text);
    for event in events {
        printer.event(event).unwrap();
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

/// Returns the printed call without the columns before it.
fn text_of(call: Call) -> String {
    let line = lines(&[Event::Call(call)]).remove(0);
    line["    0.000000      mm1     693  ".len()..].to_owned()
}

#[test]
fn columns_are_time_mm_thread_and_text() {
    let events = [
        Event::MmStart(MmStart {
            mm: MmId(1),
            origin: Origin::Exec,
            t: START,
        }),
        Event::TaskStart {
            tid: Tid(693),
            pid: Tid(693),
            mm: MmId(1),
            t: START,
        },
        Event::Call(call(sysno::BRK, [0; 6], 0x5555_0000)),
        Event::Fault(Fault {
            tid: Tid(694),
            mm: MmId(1),
            addr: 0x7ffc_0000_1234,
            access: Access::Write,
            kernel: true,
            t: START - 1000,
            order: Order::Overlapping,
        }),
        Event::Note("two\nlines".to_owned()),
        Event::MmStart(MmStart {
            mm: MmId(2),
            origin: Origin::Fork { parent: MmId(1) },
            t: START + 3_000_000_000,
        }),
        Event::End {
            status: 9,
            t: START + 3_000_000_000,
        },
    ];
    assert_eq!(
        lines(&events),
        [
            "    0.000000      mm1       -  mm_start exec",
            "    0.000000      mm1     693  task_start pid 693",
            "    1.234567      mm1     693  brk(NULL) = 0x55550000",
            "   -0.000001      mm1     694  fault write 0x7ffc00001234 kernel overlapping",
            "   -0.000001        -       -  note two\\nlines",
            "    3.000000      mm2       -  mm_start fork of mm1",
            "    3.000000        -       -  end killed by signal 9",
        ]
    );
}

#[test]
fn calls_read_as_strace_shows_them() {
    let minus_one = u64::from(u32::MAX);
    let mmap = call(sysno::MMAP, [0, 8192, 3, 0x22, minus_one, 0], 0x7f00_0000);
    assert_eq!(
        text_of(mmap),
        "mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f000000"
    );
    let mut file = call(sysno::MMAP, [0, 4096, 1, 2, 3, 8192], -12);
    file.file = Some(FileRef {
        inode: InodeId(4),
        file: FileId(2),
        open_flags: 0o2000000,
        seals: 0,
        size: 777,
    });
    assert_eq!(
        text_of(file),
        "mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 8192) = -1 ENOMEM inode=4 file=2 O_CLOEXEC size=777"
    );
    let mut limit = call(sysno::PRLIMIT64, [0, 8, 1, 0, 0, 0], 0);
    limit.data = [4096u64, u64::MAX]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    assert_eq!(
        text_of(limit),
        "prlimit64(0, RLIMIT_MEMLOCK, 0x1, NULL) = 0 data=0x1000,0xffffffffffffffff"
    );
    let mut name = call(sysno::PRCTL, [0x5356_4d41, 0, 0x1000, 4096, 0x2000, 0], 0);
    name.data = b"heap\n".to_vec();
    assert_eq!(
        text_of(name),
        "prctl(PR_SET_VMA, 0x0, 0x1000, 0x1000, 0x2000) = 0 data=\"heap\\n\""
    );
    assert_eq!(
        text_of(call(sysno::MADVISE, [0x1000, 4096, 4, 0, 0, 0], -22)),
        "madvise(0x1000, 4096, MADV_DONTNEED) = -1 EINVAL"
    );
    assert_eq!(
        text_of(call(9999, [1, 2, 3, 4, 5, 6], 7)),
        "syscall_9999(0x1, 0x2, 0x3, 0x4, 0x5, 0x6) = 7"
    );
}

/// Returns a readable and executable mapping of one page.
fn mapping(
    start: u64,
    inode: Option<InodeId>,
    kind: SnapKind,
    kernel: Option<KernelVma>,
) -> SnapVma {
    SnapVma {
        start,
        end: start + 0x1000,
        perms: Perms {
            read: true,
            exec: true,
            ..Perms::default()
        },
        offset: 0x2000,
        inode,
        kind,
        kernel,
    }
}

#[test]
fn snapshots_read_as_maps() {
    let kernel = KernelVma {
        pgoff: 5,
        flags: 0x75,
        anon_vma: 1,
        root: 2,
        chain_singular: true,
        file: 3,
        policy: false,
    };
    let vdso = SnapKind::Special("[vdso]".to_owned());
    let events = [
        Event::Inode(Inode {
            id: InodeId(1),
            dev: 0xfe << 20 | 1,
            ino: 131,
            kind: InodeKind::Regular,
            fs_magic: 0xef53,
            mount_flags: 0,
            size: 9,
            path: "/bin/a b\u{1b}[2J".to_owned(),
        }),
        Event::Snapshot(Snapshot {
            mm: MmId(1),
            reason: SnapReason::Exit,
            t: START,
            exact: false,
            info: Some(MmInfo {
                brk: Some(0x5000),
                cap_ipc_lock: Some(true),
                ..MmInfo::default()
            }),
            vmas: vec![
                mapping(0x40_0000, Some(InodeId(1)), SnapKind::Plain, None),
                mapping(0x50_0000, None, SnapKind::Heap, Some(kernel)),
                mapping(0x7fff_0000_0000, None, vdso, None),
            ],
        }),
    ];
    assert_eq!(
        lines(&events),
        [
            "    0.000000        -       -  inode 1 fe:01 131 regular size 9 fs 0xef53 mount 0x0 /bin/a b\\u{1b}[2J",
            "    0.000000      mm1       -  snapshot exit inexact: 3 mappings brk=0x5000 cap_ipc_lock=true",
            "    0.000000      mm1       -  map 00400000-00401000 r-xp 00002000 fe:01 131 /bin/a b\\u{1b}[2J",
            "    0.000000      mm1       -  map 00500000-00501000 r-xp 00002000 00:00 0 [heap] pgoff=0x5 flags=0x75 anon_vma=1 root=2 chain=singular file=3 policy=none",
            "    0.000000      mm1       -  map 7fff00000000-7fff00001000 r-xp 00002000 00:00 0 [vdso]",
        ]
    );
}

#[test]
fn a_file_is_dumped_up_to_its_damage() {
    let header = Header {
        kernel_release: "6.18.44-amd64".to_owned(),
        command: vec!["true".to_owned()],
        page_size: 4096,
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    writer.write(&Event::Lost { count: 3, t: START }).unwrap();
    writer.flush().unwrap();
    writer
        .write(&Event::End {
            status: 256,
            t: START,
        })
        .unwrap();
    let mut file = writer.finish().unwrap();
    let shown = |file: &[u8]| {
        let mut text = Vec::new();
        let result = dump(Reader::new(file).unwrap(), &mut text);
        (String::from_utf8(text).unwrap(), result)
    };
    let (text, result) = shown(&file);
    result.unwrap();
    assert!(text.starts_with("# kernel 6.18.44-amd64\n# machine unknown\n# page size 4096\n"));
    assert!(text.ends_with("lost 3\n    0.000000        -       -  end exited 1\n"));
    file.pop();
    let (text, result) = shown(&file);
    assert!(text.ends_with("lost 3\n"));
    assert!(matches!(result, Err(Error::CutOff { block: 2, .. })));
    let full = std::fs::File::create("/dev/full").unwrap();
    let result = dump(Reader::new(&file[..]).unwrap(), full);
    assert!(matches!(result, Err(Error::Print(_))));
}
