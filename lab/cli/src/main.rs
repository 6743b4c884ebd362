//! The `vmarea-lab` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vmarea_lab::run()
}
