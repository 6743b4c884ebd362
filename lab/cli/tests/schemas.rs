//! The schemas in `lab/schemas`: they are current, and they describe what the commands write.
//!
//! `vmarea_test_support::schemas` says what is checked.
#![forbid(unsafe_code)]

mod support;

use serde_json::Value;
use support::LAB;
use vmarea_test_support::schemas::{Program, Subject};

const PROGRAM: Program = Program {
    name: "vmarea-lab",
    path: LAB,
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas"),
    renew: "cargo run --manifest-path lab/Cargo.toml --example schemas -- lab/schemas",
};

/// A recording of the documentation.
const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/example/family.vmtrace"
);

/// Defines one test per command, and the list of the tested commands.
macro_rules! commands {
    ($($test:ident: $command:literal, $run:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let run: fn(&Subject) = $run;
                run(&Subject::new(PROGRAM, $command));
            }
        )*
        const TESTED: &[&str] = &[$($command),*];
    };
}

commands! {
    bench_brk: "bench brk", |it| {
        it.run(&["--calls", "64", "--rounds", "2"]);
    };
    bench_cache: "bench cache", |it| {
        it.run(&["--rounds", "2", TRACE]);
    };
    bench_calls: "bench calls", |it| {
        it.run(&["--rounds", "2"]);
    };
    bench_fault: "bench fault", |it| {
        it.run(&["--pages", "512", "--rounds", "2"]);
    };
    bench_layout: "bench layout", |it| {
        it.run(&["--vmas", "500"]);
    };
    bench_lookup: "bench lookup", |it| {
        it.run(&["--vmas", "10", "--vmas", "100", "--rounds", "2"]);
    };
    bench_spacing: "bench spacing", |it| {
        it.run(&["--mappings", "50", "--rounds", "2"]);
        it.run(&["--mappings", "50", "--rounds", "2", "--av", "same", "--curve"]);
    };
    conform: "conform", |it| {
        it.run(&["--ops", "500", "--seed", "1"]);
        it.run(&["--ops", "500", "--seed", "1", "--profile", "vmarea"]);
        // Differences are reported with their steps; a newer kernel does not follow these rules.
        it.run(&["--ops", "2000", "--seed", "1", "--profile", "linux-5.10"]);
    };
    experiment: "experiment", |it| {
        it.run(&["vma-lock", "--quick"]);
    };
    graph: "graph", |it| {
        it.run(&[]);
    };
}

/// Returns the schemas that the types of the results have.
fn schemas() -> Vec<(&'static str, Value)> {
    let schemas = vmarea_lab::schemas().into_iter();
    schemas
        .map(|(name, schema)| (name, schema.to_value()))
        .collect()
}

#[test]
fn every_command_with_json_has_a_schema_and_a_test() {
    PROGRAM.check_names(&vmarea_lab::definition(), &schemas(), TESTED);
}

#[test]
fn the_committed_schemas_are_current() {
    PROGRAM.check_committed(&schemas());
}

#[test]
fn each_schema_is_valid_and_describes_its_fields() {
    PROGRAM.check_descriptions(&schemas());
}
