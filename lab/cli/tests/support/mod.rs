//! Helpers shared by the tests of the command: they run it and read its output.
#![allow(dead_code)] // no test needs all of it

use std::process::{Command, Output, Stdio};
pub use vmarea_test_support::leash;

/// Path of the command under test.
pub const LAB: &str = env!("CARGO_BIN_EXE_vmarea-lab");

/// Runs the command to its end, without input.
pub fn lab(arguments: &[&str]) -> Output {
    leash::output(Command::new(LAB).args(arguments).stdin(Stdio::null()))
        .expect("the binary was built")
}

/// Converts output to text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
