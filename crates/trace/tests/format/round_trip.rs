//! A reader returns the written events unchanged.

use crate::events::{headers, traces};
use crate::files::{file, read, walk};
use proptest::prelude::*;
use std::io::{self, Write};
use vmarea_trace::event::{Event, Header, MmId, Perms, SnapKind, SnapReason, SnapVma, Snapshot};
use vmarea_trace::{Error, Reader, Writer};

proptest! {
    #[test]
    fn arbitrary_events_come_back(header in headers(), events in traces(60), per_block in 1usize..70) {
        let file = file(&header, &events, per_block);
        let reader = Reader::new(&file[..]).unwrap();
        prop_assert_eq!(reader.header(), &header);
        let (back, error) = read(&file);
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(back, events);
    }
}

#[test]
fn many_blocks_come_back_and_take_few_bytes() {
    let events = walk(300_000);
    let file = file(&Header::default(), &events, usize::MAX);
    let (back, error) = read(&file);
    assert!(error.is_none(), "{error:?}");
    assert!(back == events);
    assert!(file.len() < 8 * events.len(), "{} bytes", file.len());
}

#[test]
fn a_large_snapshot_fits_a_block() {
    let vma = |i: u64| SnapVma {
        start: 0x1000_0000 + i * 0x3000,
        end: 0x1000_1000 + i * 0x3000,
        perms: Perms {
            read: true,
            ..Perms::default()
        },
        offset: 0,
        inode: None,
        kind: SnapKind::Plain,
        kernel: None,
    };
    let snapshot = |vmas: u64| {
        Event::Snapshot(Snapshot {
            mm: MmId(1),
            reason: SnapReason::Checkpoint,
            t: 7,
            exact: true,
            info: None,
            vmas: (0..vmas).map(vma).collect(),
        })
    };
    let events = [snapshot(1_000_000), Event::End { status: 0, t: 8 }];
    let file = file(&Header::default(), &events, usize::MAX);
    assert!(read(&file).0 == events);

    let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    let error = writer.write(&snapshot(3_000_000)).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    writer.write(&events[1]).unwrap();
    assert!(read(&writer.finish().unwrap()).0 == events[1..]);
}

#[test]
fn what_was_flushed_is_readable_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.vmtrace");
    let events = walk(100);
    let mut writer = Writer::create(&path, &Header::default()).unwrap();
    for event in &events[..60] {
        writer.write(event).unwrap();
    }
    writer.flush().unwrap();
    let so_far: Vec<_> = Reader::open(&path).unwrap().collect();
    assert_eq!(so_far.len(), 61);
    assert!(matches!(so_far[60], Err(Error::CutOff { block: 2, .. })));
    for event in &events[60..] {
        writer.write(event).unwrap();
    }
    writer.finish().unwrap();
    let whole: Result<Vec<_>, _> = Reader::open(&path).unwrap().collect();
    assert!(whole.unwrap() == events);
}

#[test]
fn a_dropped_writer_leaves_its_events_and_no_end() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &Header::default()).unwrap();
    for event in &walk(5)[..5] {
        writer.write(event).unwrap();
    }
    drop(writer);
    let (events, error) = read(&file);
    assert_eq!(events, walk(5)[..5]);
    assert!(
        matches!(error, Some(Error::CutOff { block: 2, offset }) if offset == file.len() as u64)
    );
}

#[test]
fn nothing_is_written_after_the_end() {
    let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    let events = walk(1);
    writer.write(&events[1]).unwrap();
    assert!(matches!(writer.write(&events[0]), Err(Error::AfterEnd)));
    assert_eq!(read(&writer.finish().unwrap()).0, events[1..]);
}

/// A disk on which only `left` bytes are free.
struct SmallDisk {
    left: usize,
    bytes: Vec<u8>,
}

impl Write for &mut SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.left);
        if len == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.left -= len;
        self.bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_fills_up_leaves_a_prefix_that_says_so() {
    let events = walk(20);
    let whole = file(&Header::default(), &events, 4).len();
    for left in 1..whole {
        let mut disk = SmallDisk {
            left,
            bytes: Vec::new(),
        };
        let result = Writer::new(&mut disk, &Header::default()).and_then(|mut writer| {
            for event in &events {
                writer.write(event)?;
                writer.flush()?;
            }
            writer.finish().map(|_| ())
        });
        assert!(matches!(result, Err(Error::Full { .. })), "{result:?}");
        let (back, error) = read(&disk.bytes);
        assert!(events.starts_with(&back));
        assert!(
            matches!(error, Some(Error::CutOff { .. } | Error::NotATrace)),
            "{error:?}"
        );
    }
}

#[test]
fn a_full_disk_is_named_once_and_the_writer_gives_up() {
    let mut writer = match Writer::create("/dev/full", &Header::default()) {
        Err(Error::Full { written: 0, .. }) => return,
        Err(error) => panic!("{error}"),
        Ok(writer) => writer,
    };
    writer.write(&walk(1)[0]).unwrap();
    assert!(matches!(writer.flush(), Err(Error::Full { .. })));
    assert!(matches!(writer.flush(), Err(Error::GivenUp)));
}
