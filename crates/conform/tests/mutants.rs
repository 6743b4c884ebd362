//! Mutants: the comparison must find each deliberate fault of the core.
//!
//! Needs access to the kernel's own view; `ci/mutants.sh` shows the number of steps for each mutant.

use vmarea::mutant::{self, Mutant};
use vmarea::policy::Policy;
use vmarea_conform::environment::Environment;
use vmarea_conform::kernel_settings::Surroundings;
use vmarea_conform::run::{Settings, Shrinking, run};
use vmarea_conform::superset::Comparison;

/// Maximum number of steps until a mutant must be found; most need a few thousand.
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
