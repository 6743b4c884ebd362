//! A difference is shown three ways: as calls, as a C program, as a test to keep. Deliberate faults of
//! the core give differences, and each of the three has to say what Linux does.
//!
//! Needs a kernel that may be asked; the C program needs a compiler as well. Without them the test
//! says so.

use std::process::Command;
use vmarea::mutant::{self, Mutant};
use vmarea::policy::Policy;
use vmarea_conform::environment::Environment;
use vmarea_conform::kernel_settings::Surroundings;
use vmarea_conform::op::Step;
use vmarea_conform::regression::Regression;
use vmarea_conform::report::Found;
use vmarea_conform::run::{Settings, Shrinking, run};
use vmarea_conform::sequence::play;
use vmarea_conform::superset::Comparison;
use vmarea_replay::machine;

/// The first difference under a fault that is not about anon_vmas alone, which a kept test does not
/// hold; as short as it can be.
fn found(environment: &Environment, mutant: Mutant) -> Found {
    let settings = Settings {
        ops: 20_000,
        seed: 3,
        time: None,
        most_differences: 5,
        shrinking: Shrinking::Shortest,
    };
    let report = mutant::with(mutant, || run(environment, &settings, |_| {}).unwrap());
    let held = |found: &Found| {
        let kept = found.kept.as_ref();
        kept.is_some_and(|kept| mutant::with(mutant, || kept.play(environment.policy)).is_err())
    };
    report.differences.into_iter().find(held).expect("one")
}

/// What the program prints and its status; `None` without a compiler.
fn run_c(source: &str) -> Option<(String, Option<i32>)> {
    let directory = tempfile::tempdir().unwrap();
    let [file, program] = ["shown.c", "shown"].map(|name| directory.path().join(name));
    std::fs::write(&file, source).unwrap();
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-O1", "-o"])
        .args([&program, &file])
        .status();
    assert!(built.ok()?.success(), "{source}");
    let output = Command::new("timeout").arg("60").arg(&program).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some((text, output.status.code()))
}

/// The calls: few, and they show the same again.
fn check_calls(environment: &Environment, mutant: Mutant, found: &Found, call: &str) {
    let calls: Vec<String> = found.steps.iter().map(Step::to_string).collect();
    assert!(calls.len() <= 12, "not short: {calls:#?}");
    assert!(calls.iter().any(|c| c.contains(call)), "{calls:#?}");
    let again = mutant::with(mutant, || play(environment, &found.steps).unwrap());
    let again = again.expect("the calls show the difference again");
    assert_eq!(again.kind, found.difference.kind);
    let whole = play(environment, &found.steps).unwrap();
    assert!(whole.is_none(), "it differs without the fault: {whole:?}");
}

/// The test to keep, by its text: right without the fault, wrong with it.
fn check_kept(policy: Policy, mutant: Mutant, found: &Found) {
    let text = found.kept.as_ref().expect("the kernel answers").text();
    let kept: Regression = serde_json::from_str(&text).unwrap();
    kept.play(policy).unwrap();
    let again = mutant::with(mutant, || kept.play(policy));
    assert!(again.is_err(), "it does not see the fault:\n{text}");
}

/// The program: the kernel does as it did, and another one would be seen.
fn check_c_program(found: &Found) {
    let source = &found.c_program;
    let Some((text, status)) = run_c(source) else {
        return eprintln!("the C program was not compiled: no compiler");
    };
    assert_eq!(
        (status, text.lines().last()),
        (Some(0), Some("ok")),
        "{text}"
    );
    let first = source.find("expect(VALUE, ").expect("it knows an answer");
    let mut other = source.clone();
    other.insert_str(first + "expect(VALUE, ".len(), "8 + ");
    let (text, status) = run_c(&other).unwrap();
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("# not as it was: value"), "{text}");
    assert_eq!(text.lines().last(), Some("not ok"));
}

#[test]
fn calls_c_program_and_kept_test_say_what_linux_does() {
    let (policy, _) = machine::policy(&vmarea_process::system::header());
    let environment = match Environment::new((policy, Comparison::Exact), Surroundings::leave()) {
        Ok(environment) => environment,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    for (mutant, call) in [
        (Mutant::MprotectLooksAhead, "mprotect("),
        (Mutant::WriteGoesToBoth, "fork"),
        (Mutant::MoveKeepsPageOffset, "mremap("),
    ] {
        let found = found(&environment, mutant);
        check_calls(&environment, mutant, &found, call);
        check_kept(policy, mutant, &found);
        check_c_program(&found);
    }
}
