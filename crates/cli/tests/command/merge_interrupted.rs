//! `vmarea merge` that a signal interrupts, and merges of a process with thousands of threads.
//!
//! If userfaultfd or tracing is not permitted, the tests say so and pass.

use crate::support::heap::may_merge;
use crate::support::target::Target;
use crate::support::{VMAREA, leash, text};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use vmarea_test_support::leash::Leashed;

impl Target {
    /// Returns a command that merges the program's mappings.
    fn merging(&self, more: &[&str]) -> Command {
        let mut command = Command::new(VMAREA);
        command.args(self.merge(more));
        command
    }

    /// Starts a merge, and sends it the signal as soon as it has mapped its scratch area. Returns `None`
    /// if the merge ended before the signal came.
    fn interrupted(&self, signal: Signal, more: &[&str]) -> Option<Output> {
        // A shell starts its background jobs with SIGINT ignored, and so it would stay.
        let mut merge = Command::new("env");
        merge
            .args(["--default-signal", VMAREA])
            .args(self.merge(more));
        let merge = merge.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut merge = Leashed::start(merge).expect("it was built");
        while self.left_by_merges() == 0 {
            if merge.try_wait().expect("a child").is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        // Not the program `kill`: on a busy machine, it would start when the merge has ended.
        let pid = Pid::from_raw(merge.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("it runs");
        let output = leash::finish(merge).expect("it ends");
        (output.status.code() != Some(0)).then_some(output)
    }
}

/// Interrupts a merge of a program, and of another one if a merge ended before the signal came, as
/// happens on a busy machine.
fn interrupt(program: &[&str], signal: Signal, more: &[&str]) -> (Target, Output) {
    for _ in 0..10 {
        let target = Target::start(program).ready();
        if let Some(output) = target.interrupted(signal, more) {
            return (target, output);
        }
    }
    panic!("ten merges ended before the signal came");
}

#[test]
fn a_signal_ends_a_merge_after_the_step_and_the_same_command_goes_on() {
    if !may_merge() {
        return;
    }
    let signals = [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
    ];
    for (name, signal) in signals {
        let program = ["hammer", "1", "20000", "2"];
        let (target, output) = interrupt(&program, signal, &["--apply", "--max-pause", "20ms"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{said}");
        let name = format!("interrupted (SIG{name})");
        assert!(said.contains(&name), "{said}");
        assert!(said.contains("mappings to merge"), "{said}");
        assert_eq!(
            said.lines()
                .filter(|line| line.contains("interrupted"))
                .count(),
            1
        );
        assert_eq!(target.left_by_merges(), 0, "nothing is left to finish");
        let rest = leash::output(&mut target.merging(&["--apply", "--max-pause", "1s"])).unwrap();
        assert_eq!(rest.status.code(), Some(0), "{rest:?}");
        assert!(target.finish().contains("joined 1"));
    }
}

#[test]
fn a_signal_ends_a_repair_and_its_json_says_what_is_left() {
    if !may_merge() {
        return;
    }
    let fix = ["--fix", "flags", "--apply", "--max-pause", "20ms"];
    let with_json = [&fix[..], &["--json"]].concat();
    let (target, output) = interrupt(&["places", "flags", "20000"], Signal::INT, &with_json);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    let left = said["fixes"][0]["left"].as_u64().unwrap();
    assert!(left > 0, "{said}");
    let more = [&fix[..3], &["--max-pause", "1s"]].concat();
    let rest = leash::output(&mut target.merging(&more)).unwrap();
    assert_eq!(rest.status.code(), Some(0), "{rest:?}");
    assert!(target.finish().contains("wrong 0"));
}

/// Each stop of 1,000 threads takes tens of milliseconds. A repair once stopped such a process
/// thousands of times although a pause of 5 ms was asked for, and had promised to take 38 ms.
#[test]
fn thousands_of_threads_are_counted_before_and_stopped_seldom() {
    if !may_merge() {
        return;
    }
    let target = Target::start(&["crowd", "1000", "3000"]).ready();
    let dry = |more: &[&str]| {
        let fix = [&["--fix", "guards"], more].concat();
        leash::output(&mut target.merging(&fix)).unwrap()
    };
    let short = dry(&["--max-pause", "2ms"]);
    assert_eq!(short.status.code(), Some(0), "{short:?}");
    let said = text(&short.stderr);
    assert!(
        said.contains("1,001 threads") && said.contains("would refuse"),
        "{said}"
    );
    let refused = dry(&["--max-pause", "2ms", "--apply"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).contains("--max-pause"), "{refused:?}");
    assert_eq!(target.left_by_merges(), 0);
    let forecast = dry(&["--max-pause", "3s", "--json"]);
    let forecast: serde_json::Value = serde_json::from_slice(&forecast.stdout).unwrap();
    assert_eq!(forecast["threads"], 1_001, "{forecast}");
    assert!(forecast["longest_pause_us"].as_u64() > forecast["stop_us"].as_u64());
    let done = dry(&["--max-pause", "3s", "--apply"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let said = text(&done.stdout);
    if said.contains("changed 0 places") {
        return eprintln!("skipped: the kernel has no guard markers");
    }
    let steps = said
        .split(" places in ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let steps: u64 = steps
        .and_then(|steps| steps.parse().ok())
        .expect("a number");
    assert!(steps < 20, "{said}");
    let told = target.finish();
    // The guard at the upper end stays a mapping unless there is memory above it.
    let few = ["after 1\n", "after 2\n"];
    let few = few.iter().any(|few| told.contains(few));
    assert!(few && told.contains("wrong 0"), "{told}");
}
