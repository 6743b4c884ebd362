//! Reads arbitrary bytes as the content of a block with a valid frame.
//!
//! Such content can have a valid checksum. The events that are read are written to a new trace, and
//! reading this trace must return equal events.
#![no_main]

use libfuzzer_sys::fuzz_target;
use twox_hash::XxHash3_64;
use vmarea_trace::dump::Printer;
use vmarea_trace::event::{Event, Header};
use vmarea_trace::{Reader, Writer};

fuzz_target!(|input: &[u8]| {
    let Some((events, raw)) = input.split_first_chunk::<2>() else {
        return;
    };
    let events = u32::from(u16::from_le_bytes(*events));
    let mut read = Vec::new();
    for event in Reader::new(&file(raw, events)[..]).unwrap() {
        match event {
            Ok(event) => read.push(event),
            Err(_) => break,
        }
    }
    let mut printer = Printer::new(std::io::sink());
    let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    for event in &read {
        printer.event(event).unwrap();
        writer.write(event).unwrap();
    }
    let again = writer.finish().unwrap();
    let again: Vec<Event> = Reader::new(&again[..])
        .unwrap()
        .map_while(Result::ok)
        .collect();
    assert!(again == read);
});

/// Returns a trace file with one block, built from the documented format alone.
fn file(raw: &[u8], events: u32) -> Vec<u8> {
    let header = postcard::to_stdvec(&Header::default()).unwrap();
    let (version, len) = (1u32.to_le_bytes(), (header.len() as u32).to_le_bytes());
    let sum = checksum(&[version, len].concat(), &header);
    let stored = zstd::bulk::compress(raw, 1).unwrap();
    let fields = [stored.len() as u32, raw.len() as u32, events, 1];
    let head: Vec<u8> = fields
        .iter()
        .flat_map(|field| field.to_le_bytes())
        .collect();
    let block_sum = checksum(&head, &stored);
    let prologue = [b"\x89vmarea\n".as_slice(), &version, &len, &sum, &header];
    [&prologue.concat()[..], &head, &block_sum, &stored].concat()
}

fn checksum(head: &[u8], body: &[u8]) -> [u8; 8] {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(head), body).to_le_bytes()
}
