//! Parses arbitrary lists of run-time code: the entries are plausible, and no byte is used twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vmarea_symbols::{jitdump, perf_map};

fuzz_target!(|input: &[u8]| {
    for parse in [perf_map::parse, jitdump::parse] {
        let parsed = parse(input);
        assert!(parsed.used <= input.len());
        for code in parsed.codes {
            assert!(code.len != 0 && code.start.checked_add(code.len).is_some());
        }
        // The rest is incomplete, so nothing is found in it.
        let rest = parse(&input[parsed.used..]);
        assert!(rest.codes.is_empty() && rest.malformed == 0);
    }
});
