//! Properties of a program that the recorder must not change.
//!
//! The tested properties are the program's own filters, children created with `CLONE_UNTRACED`, and
//! the relative speed of the program's threads, although one tracer thread handles all their stops.

use super::support::{Recorded, compile, record_into, run, run_by};
use super::{calls, said, stream};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use vmarea_recorder::{Options, RecordBy};
use vmarea_trace::event::Event;

/// Returns the output of a program that runs without a recorder.
fn natively(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_thread_is_heard_again_and_again_before_the_others() {
    let program = compile("fair", &[]);
    let r = run(&[program.to_str().unwrap()]);
    assert_eq!(r.exit_code(), 0);
    stream::check(&r.events);
    let (most, least) = (said(&r.output, "most"), said(&r.output, "least"));
    // A starved thread differs by a factor of thousands; the scheduler's variation is smaller.
    assert!(least * 10 > most, "{}", r.output);
}

#[test]
fn a_filter_that_means_another_tracer_refuses_the_call() {
    let program = compile("ret_trace", &[]);
    let program = program.to_str().unwrap();
    for first in ["0", "0xa5c0"] {
        assert_eq!(natively(program, &[first]), "wrong 0\n");
        let r = run(&[program, first]);
        assert_eq!(r.output, "wrong 0\n", "values from {first}");
        stream::check(&r.events);
    }
}

#[test]
fn a_child_that_is_not_to_be_traced_runs_as_any_other() {
    let program = compile("untraced", &[]);
    let program = program.to_str().unwrap();
    let right = "thread 0 fork 0 clone3 0 refused 1\n";
    assert_eq!(natively(program, &[]), right);
    let r = run(&[program]);
    assert_eq!(r.output, right);
    stream::check(&r.events);
    let told = r
        .outcome
        .notes
        .iter()
        .any(|note| note.starts_with("3 tasks") && note.contains("CLONE_UNTRACED"));
    assert!(told, "{:?}", r.outcome.notes);
    // The calls of the untraced children are recorded.
    assert!(calls(&r.events, libc::SYS_mmap).len() >= 3);
}

#[test]
fn a_child_that_has_ended_can_be_waited_for_at_once() {
    let program = compile("ended", &[]);
    let program = program.to_str().unwrap();
    let native = natively(program, &["20"]);
    assert!(native.lines().count() == 23 && native.lines().all(|line| line.ends_with(" 0")));
    for by in [RecordBy::Observing, RecordBy::Tracing] {
        let Some(r) = run_by(by, &[program, "20"]) else {
            continue;
        };
        assert_eq!(r.output, native, "{by:?}");
        stream::check(&r.events);
    }
}

#[test]
fn who_wants_to_trace_is_told_about_once() {
    let source = "import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork() or signal.pause()
refused = [libc.ptrace(0, 0, 0, 0), libc.ptrace(16, child, 0, 0)]
print(refused, ctypes.get_errno())
os.kill(child, signal.SIGKILL)";
    let r = run(&["python3", "-c", source]);
    assert_eq!(r.output, "[-1, -1] 1\n");
    let told = r.outcome.notes.iter();
    assert_eq!(
        told.filter(|note| note.contains("detect_leaks=0")).count(),
        1
    );
}

#[test]
fn what_fills_pages_for_others_does_not_stop() {
    let program = compile("uffd", &[]);
    let mut events = Vec::new();
    let command = vec![program.into()];
    let options = Options {
        command,
        ..Options::default()
    };
    let outcome = record_into(options, &mut events).unwrap();
    if libc::WEXITSTATUS(outcome.status) == 77 {
        eprintln!("no userfaultfd for this user: skipped");
        return;
    }
    assert_eq!(outcome.status, 0);
    let requests: Vec<u64> = calls(&events, libc::SYS_ioctl)
        .iter()
        .map(|call| call.args[1] & 0xffff)
        .collect();
    assert_eq!(requests, [0xaa3f, 0xaa00, 0xaa01]);
}

#[test]
fn a_program_of_another_user_is_sampled_as_any_other() {
    const NOBODY: u32 = 65534;
    let program = compile("counted", &[]);
    let in_area = |r: &Recorded| {
        assert_eq!(r.exit_code(), 42);
        let area = said(&r.output, "area");
        let pages = area..area + 400 * 4096;
        let hits = |event: &&Event| matches!(event, Event::Fault(f) if pages.contains(&f.addr));
        r.events.iter().filter(hits).count()
    };
    let path = program.to_str().unwrap();
    let own = in_area(&run(&[path]));
    if chown(&program, Some(NOBODY), None).is_err() {
        eprintln!("not root: skipped");
        return;
    }
    std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    let r = run(&[path]);
    stream::check(&r.events);
    assert_eq!(in_area(&r), own);
}
