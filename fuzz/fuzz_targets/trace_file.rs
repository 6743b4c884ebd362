//! Reads arbitrary bytes as a trace file; the reader must return events, then at most one error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vmarea_trace::Reader;
use vmarea_trace::dump::Printer;

fuzz_target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::new(bytes) else {
        return;
    };
    let mut printer = Printer::new(std::io::sink());
    printer.header(reader.header()).unwrap();
    let mut failed = false;
    for event in reader {
        assert!(!failed, "something follows an error");
        match event {
            Ok(event) => printer.event(&event).unwrap(),
            Err(_) => failed = true,
        }
    }
});
