//! Files with valid checksums and malicious content.
//!
//! The tests build these files from the documented format and without the crate's writer, so they
//! also check the documentation.

use crate::files::read;
use proptest::prelude::*;
use twox_hash::XxHash3_64;
use vmarea_trace::Error;
use vmarea_trace::event::{Event, Header};

fn checksum(head: &[u8], body: &[u8]) -> [u8; 8] {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(head), body).to_le_bytes()
}

/// Returns the beginning of a version-1 file with this header.
fn begin(header: &[u8]) -> Vec<u8> {
    let version = 1u32.to_le_bytes();
    let len = (header.len() as u32).to_le_bytes();
    let sum = checksum(&[version, len].concat(), header);
    [b"\x89vmarea\n".as_slice(), &version, &len, &sum, header].concat()
}

/// Appends a block with these fields.
fn block(file: &mut Vec<u8>, stored: &[u8], raw_len: u32, events: u32, number: u32) {
    let fields = [stored.len() as u32, raw_len, events, number];
    let head: Vec<u8> = fields
        .iter()
        .flat_map(|field| field.to_le_bytes())
        .collect();
    file.extend_from_slice(&head);
    file.extend_from_slice(&checksum(&head, stored));
    file.extend_from_slice(stored);
}

/// Returns a file with `raw` as its only block.
fn one_block(raw: &[u8], events: u32) -> Vec<u8> {
    let mut file = begin(&postcard::to_stdvec(&Header::default()).unwrap());
    let stored = zstd::bulk::compress(raw, 1).unwrap();
    block(&mut file, &stored, raw.len() as u32, events, 1);
    file
}

fn what_is_damaged(file: &[u8]) -> &'static str {
    match read(file).1 {
        Some(Error::Damaged { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn any_block_content_is_survived(
        raw in prop::collection::vec(prop_oneof![0u8..16, any::<u8>()], 2..200), events in 1u32..100,
    ) {
        let (back, error) = read(&one_block(&raw, events.min(raw.len() as u32 / 2)));
        prop_assert!(back.len() <= events as usize);
        let ended = matches!(back.last(), Some(Event::End { .. }));
        prop_assert!(ended || error.is_some());
    }

    #[test]
    fn any_header_is_survived(header in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = read(&begin(&header));
    }
}

#[test]
fn the_documented_form_of_a_fault_is_read() {
    // tag: fault, write; other thread, other mm │ new thread │ tid 5 │ mm 1 │ address 64 │ time 1
    let fault = [0b1100_0101, 0, 10, 1, 0x80, 1, 2];
    // tag: fault, read, overlapping │ address 64 - 1 │ time 1 + 2
    let next = [0b0010_0001, 1, 4];
    // tag: rare │ End │ status 0 │ time 9
    let end = [0, 7, 0, 9];
    let (events, error) = read(&one_block(&[&fault[..], &next, &end].concat(), 3));
    assert!(error.is_none(), "{error:?}");
    let shown: Vec<_> = events.iter().map(|event| format!("{event:?}")).collect();
    assert_eq!(
        shown,
        [
            "Fault(Fault { tid: Tid(5), mm: MmId(1), addr: 64, access: Write, kernel: false, t: 1, order: Exact })",
            "Fault(Fault { tid: Tid(5), mm: MmId(1), addr: 63, access: Read, kernel: false, t: 3, order: Overlapping })",
            "End { status: 0, t: 9 }",
        ]
    );
}

#[test]
fn lengths_are_bounded_before_memory_is_taken() {
    let begin = begin(&postcard::to_stdvec(&Header::default()).unwrap());
    let with_head = |stored: u32, raw: u32, events: u32| {
        let fields = [stored, raw, events, 1, 0, 0];
        let head = fields.iter().flat_map(|field| field.to_le_bytes());
        begin.iter().copied().chain(head).collect::<Vec<u8>>()
    };
    for file in [with_head(u32::MAX, 100, 1), with_head(100, u32::MAX, 1)] {
        assert_eq!(
            what_is_damaged(&file),
            "its length is larger than any block"
        );
    }
    for file in [with_head(9, 100, 51), with_head(9, 100, 0)] {
        assert_eq!(
            what_is_damaged(&file),
            "its number of events does not fit its length"
        );
    }
    // The largest allowed length, with no bytes after it.
    assert!(matches!(
        read(&with_head(64 << 20, 100, 1)).1,
        Some(Error::CutOff { block: 1, .. })
    ));

    let mut header = begin.clone();
    header[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(what_is_damaged(&header), "its header is larger than any");
}

#[test]
fn a_block_that_expands_beyond_its_length_is_refused() {
    let mut file = begin(&postcard::to_stdvec(&Header::default()).unwrap());
    let bomb = zstd::bulk::compress(&vec![0; 200 << 20], 1).unwrap();
    block(&mut file, &bomb, 1000, 1, 1);
    assert_eq!(what_is_damaged(&file), "its compressed bytes do not fit");
}

#[test]
fn events_that_claim_more_than_there_is_are_refused() {
    let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let cases: [(&[&[u8]], &str); 7] = [
        (&[&[1, 0, 0]], "a thread was not announced"),
        (&[&[0x81, 2, 0, 0]], "a thread was not announced"),
        (&[&[0x81, 0], &max, &[0, 0]], "a thread id is too large"),
        (&[&[0x82, 0, 2, 9]], "a system call was not announced"),
        // A call with data of 2^64 - 1 bytes: new thread, new number, no arguments, no time.
        (
            &[&[0x8a, 0, 2, 0, 9, 0, 0], &max],
            "a length runs past the block",
        ),
        // A snapshot of 2^64 - 1 mappings.
        (
            &[&[4, 1, 0, 0], &max],
            "a snapshot has more mappings than bytes",
        ),
        // A note of 2^64 - 1 bytes.
        (&[&[0, 6], &max], "an event has an impossible field"),
    ];
    for (raw, what) in cases {
        assert_eq!(what_is_damaged(&one_block(&raw.concat(), 1)), what);
    }
}

#[test]
fn the_count_of_events_must_be_right() {
    // A note and the end.
    let two = [0, 6, 0, 0, 7, 0, 9];
    assert!(read(&one_block(&two, 2)).1.is_none());
    assert_eq!(
        what_is_damaged(&one_block(&two, 1)),
        "bytes follow its last event"
    );
    assert_eq!(
        what_is_damaged(&one_block(&[0, 6, 0, 0, 6, 0, 4], 3)),
        "an event ends early"
    );
    let after_end = [0, 7, 0, 9, 0, 6, 0];
    assert_eq!(
        what_is_damaged(&one_block(&after_end, 2)),
        "events follow the end"
    );
}
