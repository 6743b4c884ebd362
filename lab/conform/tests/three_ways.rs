//! The three forms in which a difference is reported: as calls, as a C program, and as a regression
//! test.
//!
//! The test compares a core that has one wrong rule with the kernel. Each form of the difference
//! found must show Linux's behaviour.
//!
//! The test needs permission to read the running kernel's data, and a compiler for the C program.
//! If the permission is missing, the test is skipped; if the compiler is missing, only the C
//! program is not tested. The test reports either case.

use std::process::Command;
use vmarea::policy::{OneSided, Policy, Rules};
use vmarea_conform::environment::Environment;
use vmarea_conform::kernel_settings::Surroundings;
use vmarea_conform::op::Step;
use vmarea_conform::regression::Regression;
use vmarea_conform::report::Found;
use vmarea_conform::run::{Settings, Shrinking, run};
use vmarea_conform::sequence::play;
use vmarea_conform::superset::Comparison;
use vmarea_conform::watch::Unwatched;

/// Returns the shortest sequence for the first difference that a regression test can detect.
///
/// A regression test cannot detect every difference in anon_vmas.
fn found(wrong: &Environment) -> Found {
    let settings = Settings {
        ops: 20_000,
        seed: 3,
        time: None,
        most_differences: 5,
        shrinking: Shrinking::Shortest,
    };
    let report = run(wrong, &settings, &mut Unwatched, |_| {}).unwrap();
    let held = |found: &Found| {
        let kept = found.kept.as_ref();
        kept.is_some_and(|kept| kept.play(wrong.policy).is_err())
    };
    report.differences.into_iter().find(held).expect("one")
}

/// Returns the output and the status of a C program; `None` without a compiler.
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

/// Checks that there are few calls, and that they show the difference only under the wrong rule.
fn check_calls(right: &Environment, wrong: &Environment, found: &Found, call: &str) {
    let calls: Vec<String> = found.steps.iter().map(Step::to_string).collect();
    assert!(calls.len() <= 12, "not short: {calls:#?}");
    assert!(calls.iter().any(|c| c.contains(call)), "{calls:#?}");
    let again = play(wrong, &found.steps).unwrap();
    let again = again.expect("the calls show the difference again");
    assert_eq!(again.kind, found.difference.kind);
    let differs = play(right, &found.steps).unwrap();
    assert!(differs.is_none(), "the right rules differ: {differs:?}");
}

/// Checks that the regression test passes with the right rules and fails with the wrong one.
fn check_kept(right: Policy, wrong: Policy, found: &Found) {
    let text = found.kept.as_ref().expect("the kernel answers").text();
    let kept: Regression = serde_json::from_str(&text).unwrap();
    kept.play(right).unwrap();
    let again = kept.play(wrong);
    assert!(again.is_err(), "it does not see the wrong rule:\n{text}");
}

/// Checks that the C program passes on this kernel and fails if an expected result is changed.
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

/// Returns three copies of `rules`, each with one rule made wrong, and a call that reveals it.
fn wrong_rules(rules: Rules) -> [(Rules, &'static str); 3] {
    let uncharges = Rules {
        mprotect_uncharges: !rules.mprotect_uncharges,
        ..rules
    };
    // Only a fork creates a chain with several links, so only a forked process shows this rule.
    let chains = Rules {
        one_sided: OneSided::Either,
        ..rules
    };
    let many = Rules {
        mremap_many: !rules.mremap_many,
        ..rules
    };
    [
        (uncharges, "mprotect("),
        (chains, "fork"),
        (many, "mremap("),
    ]
}

#[test]
fn calls_c_program_and_kept_test_say_what_linux_does() {
    let policy = vmarea_process::kernel::rules_by_version().policy;
    let environment = |policy| Environment::new((policy, Comparison::Exact), Surroundings::leave());
    let right = match environment(policy) {
        Ok(environment) => environment,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    for (rules, call) in wrong_rules(policy.rules) {
        let wrong = environment(Policy { rules, ..policy }).unwrap();
        let found = found(&wrong);
        check_calls(&right, &wrong, &found, call);
        check_kept(policy, wrong.policy, &found);
        check_c_program(&found);
    }
}
