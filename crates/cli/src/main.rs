//! The `vmarea` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vmarea_cli::run()
}
