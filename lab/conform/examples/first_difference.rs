//! Compares the core with the running kernel until the first difference.
//!
//! `ci/run mutants` runs this program on a core with a deliberate defect. The program prints the
//! number of steps and the kind of difference. Exit status: 3 for a difference, 0 for none within a
//! million steps, 1 if the comparison is not possible on this kernel.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use vmarea::policy::Policy;
use vmarea_conform::environment::Environment;
use vmarea_conform::error::RunError;
use vmarea_conform::kernel_settings::Surroundings;
use vmarea_conform::run::{Settings, Shrinking, run};
use vmarea_conform::superset::Comparison;
use vmarea_conform::watch::Unwatched;

const SETTINGS: Settings = Settings {
    ops: 1_000_000,
    seed: 7,
    time: None,
    most_differences: 1,
    shrinking: Shrinking::None,
};

fn main() -> ExitCode {
    match first_difference() {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(found)) => {
            println!("{found}");
            ExitCode::from(3)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn first_difference() -> Result<Option<String>, RunError> {
    let environment = Environment::new((Policy::LINUX, Comparison::Exact), Surroundings::leave())?;
    let report = run(&environment, &SETTINGS, &mut Unwatched, |_| {})?;
    let found = report.differences.first();
    Ok(found.map(|found| {
        let kind = &found.difference.kind;
        format!("after {} steps: {kind}", report.compared)
    }))
}
