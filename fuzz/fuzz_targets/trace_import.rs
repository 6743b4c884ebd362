//! Imports arbitrary text in each format; this must give valid events, then at most one error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vmarea_trace::Writer;
use vmarea_trace::import::{Format, Import};

fuzz_target!(|input: &[u8]| {
    let Some((choice, text)) = input.split_first() else {
        return;
    };
    let format = match choice % 3 {
        0 => Format::Strace,
        1 => Format::PerfScript,
        _ => Format::PerfTrace,
    };
    let Ok(import) = Import::new(format, text) else {
        return;
    };
    let mut writer = Writer::new(std::io::sink(), import.header()).unwrap();
    for event in import {
        match event {
            Ok(event) => writer.write(&event).unwrap(),
            Err(_) => return,
        }
    }
});
