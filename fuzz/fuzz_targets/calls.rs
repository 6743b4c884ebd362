//! A string of bytes as a sequence of calls on the core, every invariant checked after each.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vmarea_conform::fuzz::play(bytes));
