//! Does the comparison bite? Each deliberate fault of the core must be found.
//!
//! Runs where a kernel may be asked; `ci/mutants.sh` shows how many steps each took.

use vmarea::mutant::{self, Mutant};
use vmarea::policy::Policy;
use vmarea_conform::environment::Environment;
use vmarea_conform::kernel_settings::Surroundings;
use vmarea_conform::run::{Settings, Shrinking, run};
use vmarea_conform::superset::Comparison;

/// Within so many steps each has to be found; most are after a few thousand.
const STEPS: u64 = 1_000_000;

#[test]
fn every_mutant_is_found() {
    let environment =
        match Environment::new((Policy::LINUX, Comparison::Exact), Surroundings::leave()) {
            Ok(environment) => environment,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let settings = Settings {
            ops: STEPS,
            seed: 7,
            time: None,
            most_differences: 1,
            shrinking: Shrinking::None,
        };
        let report = mutant::with(mutant, || run(&environment, &settings, |_| {}).unwrap());
        match report.differences.first() {
            Some(found) => println!(
                "{mutant:?}: after {} steps, {}",
                report.compared, found.difference.kind
            ),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
