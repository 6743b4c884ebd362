//! Instruction counts for work that a second process of this program does under valgrind.
//!
//! The caller counts the instructions once with and once without the work, and subtracts the two
//! counts. This eliminates the instructions for starting the program and reading its input.

use super::Context;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Counts the instructions of `vmarea-lab experiment --work ARGUMENTS`.
///
/// # Errors
/// One line that says why the instructions cannot be counted, and what to do about it.
pub(super) fn count(context: &Context<'_>, arguments: &[&OsStr]) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
    ]);
    valgrind
        .arg(&context.program)
        .args(["experiment", "--work"]);
    let output = valgrind.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|_| "there is no valgrind: apt-get install valgrind".to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last = said.lines().last().unwrap_or_default();
        return Err(format!("the counted process failed: {last}"));
    }
    counted(&said).ok_or_else(|| "valgrind printed no count of instructions".to_owned())
}

/// Returns the instruction count in valgrind's output.
fn counted(said: &str) -> Option<u64> {
    let line = said
        .lines()
        .find(|line| line.contains("I   refs:") || line.contains("I refs:"))?;
    let number = line.rsplit(' ').next()?;
    number.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_count_is_found_in_the_output() {
        let said = "==12== Cachegrind\n==12== \n==12== I   refs:      1,234,567\n";
        assert_eq!(super::counted(said), Some(1_234_567));
        assert_eq!(super::counted("==12== nothing"), None);
    }
}
