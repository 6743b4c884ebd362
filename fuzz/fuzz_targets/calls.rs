//! Executes a sequence of calls, encoded as bytes, on the core, and checks every invariant after
//! each call.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vmarea_conform::fuzz::play(bytes));
