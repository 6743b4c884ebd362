//! `vmarea merge` on processes that write, fork, exec or exit during the merge, and merges that are
//! killed at each step.
//!
//! The processes run a C program that knows which value every byte of its memory must have. If
//! userfaultfd or tracing is not permitted, the tests say so and pass.

use crate::support::heap::may_merge;
use crate::support::target::Target;
use crate::support::{VMAREA, leash};
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use vmarea_test_support::leash::Leashed;

impl Target {
    /// Merges repeatedly until the program has ended. Returns the number of successful merges.
    fn merge_until_it_ends(&mut self, more: &[&str]) -> u32 {
        let mut joined = 0;
        while self.child.try_wait().expect("a child").is_none() {
            let output = vmarea(&self.merge(more));
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => joined += 1,
                Some(4) => {}
                // The program has ended, executes another program, or shares memory with another
                // process.
                Some(1) => assert!(
                    [
                        "has ended",
                        "no process",
                        "another program",
                        "its memory",
                        "not stop"
                    ]
                    .iter()
                    .any(|words| said.contains(words)),
                    "{said}"
                ),
                other => panic!("{other:?}: {said}"),
            }
        }
        joined
    }

    /// Returns the figures in the program's final output.
    fn end(self) -> HashMap<String, f64> {
        let text = self.finish();
        println!("{text}");
        let words = text.lines().filter_map(|line| line.split_once(' '));
        words
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect()
    }
}

fn vmarea(arguments: &[String]) -> Output {
    leash::output(Command::new(VMAREA).args(arguments)).expect("it was built")
}

/// Arguments with a long `--max-pause` for busy machines. These tests do not check pauses.
const APPLY: [&str; 3] = ["--apply", "--max-pause", "1s"];
const COPY: [&str; 5] = ["--apply", "--max-pause", "1s", "--copy", "10000000"];
/// Arguments for a merge that copies pages, as on a kernel that cannot move them.
const BY_COPY: [&str; 5] = ["--apply", "--max-pause", "1s", "--by", "copy"];

#[test]
fn twenty_thousand_mappings_become_one_while_threads_write() {
    if !may_merge() {
        return;
    }
    for way in [&APPLY[..], &BY_COPY] {
        let mut target = Target::start(&["hammer", "1", "20000", "2"]).ready();
        target.merge_until_it_ends(way);
        assert_eq!(target.left_by_merges(), 0);
        assert_eq!(target.end()["joined"], 1.0);
    }
}

#[test]
fn a_heap_of_many_regions_becomes_few_mappings() {
    if !may_merge() {
        return;
    }
    let mut target = Target::start(&["regions", "256", "256", "40"]).ready();
    target.merge_until_it_ends(&APPLY);
    assert!(target.end()["after"] <= 40.0);
}

#[test]
fn four_threads_lose_no_update() {
    if !may_merge() {
        return;
    }
    for (way, rounds) in [(&APPLY[..], "20"), (&BY_COPY, "10")] {
        let mut target = Target::start(&["hammer", rounds, "200", "4"]).ready();
        target.merge_until_it_ends(way);
        let told = target.end();
        assert_eq!(told["joined"].to_string(), rounds);
        assert_eq!(told["lost"], 0.0);
    }
}

#[test]
fn it_forks_all_the_time() {
    if !may_merge() {
        return;
    }
    let copied = [&COPY[..], &["--by", "copy"]].concat();
    let moved = ["fork", "vfork", "clone", "clone-forks"].map(|kind| (kind, &COPY[..]));
    for (kind, way) in moved.into_iter().chain([("fork", &copied[..])]) {
        let mut target = Target::start(&["forks", kind, "3", "500"]).ready();
        let joined = target.merge_until_it_ends(way);
        assert_eq!(target.end()["failed"], 0.0, "{kind}");
        println!("{kind}: joined {joined} times");
    }
}

#[test]
fn it_becomes_another_program_and_ends() {
    if !may_merge() {
        return;
    }
    for rounds in ["0", "0", "30"] {
        let mut target = Target::start(&["lives", "500", rounds]);
        target.merge_until_it_ends(&APPLY);
        assert_eq!(target.left_by_merges(), 0, "after {rounds} execs");
        assert_eq!(target.end()["wrong"], 0.0);
    }
}

fn is_root() -> bool {
    let own = leash::output(Command::new("id").arg("-u")).expect("id");
    own.stdout == b"0\n"
}

#[test]
fn a_sandbox_does_not_see_our_calls() {
    if !may_merge() || !is_root() {
        return;
    }
    let mut target = Target::start(&["sandboxed", "1", "300", "2"]).ready();
    target.merge_until_it_ends(&APPLY);
    assert_eq!(target.end()["joined"], 1.0);
}

#[test]
fn the_other_repairs_change_what_they_are_named_for() {
    if !may_merge() {
        return;
    }
    for (fix, after) in [("guards", 1.0), ("flags", 1.0), ("empties", 1.0)] {
        let target = Target::start(&["places", fix, "40"]).ready();
        // A repair is not done unless it is requested by name, and a dry run changes nothing.
        let dry = vmarea(&target.merge(&["--fix", fix]));
        assert!(matches!(dry.status.code(), Some(0 | 4)), "{dry:?}");
        let done = vmarea(&target.merge(&[&APPLY[..], &["--fix", fix]].concat()));
        assert!(matches!(done.status.code(), Some(0)), "{fix}: {done:?}");
        let told = target.end();
        assert!(told["before"] > 70.0, "{fix}: {told:?}");
        assert_eq!((told["after"], told["wrong"]), (after, 0.0), "{fix}");
    }
}

/// All guards were once replaced during a single stop, however long that took, and the result was
/// "moved 0 B in 0 steps".
#[test]
fn many_guards_are_replaced_in_several_stops_and_the_result_says_so() {
    if !may_merge() {
        return;
    }
    let target = Target::start(&["places", "guards", "20000"]).ready();
    let fix = ["--apply", "--fix", "guards", "--max-pause", "5ms"];
    let done = vmarea(&target.merge(&fix));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if said.contains("changed 0 places") {
        eprintln!("skipped: the kernel has no guard markers");
        return;
    }
    let steps = said
        .split(" places in ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let steps = steps.expect("it says how many").replace(',', "");
    assert!(steps.parse::<u64>().expect("a number") > 3, "{said}");
    assert!(!said.contains("moved"), "{said}");
    assert!(said.contains("longest pause"), "{said}");
    assert!(!said.contains("longest pause 0.0 ms"), "{said}");
    let told = target.end();
    assert_eq!((told["after"], told["wrong"]), (1.0, 0.0));
}

/// Returns the number of guard markers in a range; 0 before Linux 6.15, which does not show them.
fn guard_markers(pid: &str, at: u64, pages: u64) -> usize {
    const IS_MARKER: u64 = 1 << 58;
    let pagemap = std::fs::File::open(format!("/proc/{pid}/pagemap")).expect("its pages");
    let mut bytes = vec![0; pages as usize * 8];
    pagemap
        .read_exact_at(&mut bytes, at / 4096 * 8)
        .expect("words");
    let (words, _) = bytes.as_chunks::<8>();
    let is_marker = |word: &&[u8; 8]| u64::from_ne_bytes(**word) & IS_MARKER != 0;
    words.iter().filter(is_marker).count()
}

#[test]
fn a_guard_that_cannot_become_writable_is_as_it_was() {
    if !may_merge() {
        return;
    }
    let target = Target::start(&["places", "guards", "40"]).ready();
    let pid = target.pid();
    let at = u64::from_str_radix(&target.place, 16).expect("an address");
    // With this limit, the kernel refuses to make a guard accessible, because it would count as
    // data.
    let mut limit = Command::new("prlimit");
    limit.args(["--data=1:1", "--pid", &pid]);
    let limited = leash::output(&mut limit).expect("prlimit");
    assert!(limited.status.success(), "{limited:?}");
    let done = vmarea(&target.merge(&[&APPLY[..], &["--fix", "guards"]].concat()));
    assert!(matches!(done.status.code(), Some(0 | 4)), "{done:?}");
    assert_eq!(guard_markers(&pid, at, 80), 0, "{done:?}");
    let told = target.end();
    assert_eq!(told["after"], told["before"]);
    assert_eq!(told["wrong"], 0.0);
}

#[test]
fn a_primed_reservation_is_committed_in_any_order() {
    if !may_merge() {
        return;
    }
    let target = Target::start(&["reserve", "1"]).ready();
    let done = vmarea(&target.merge(&[&APPLY[..], &["--fix", "priming"]].concat()));
    assert!(matches!(done.status.code(), Some(0)), "{done:?}");
    assert_eq!(target.end()["after"], 1.0);
}

/// Kills the command before its `step`-th call among `calls`; returns false if it ended first.
fn killed_at(target: &Target, way: &[&str], calls: &str, step: u32) -> bool {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={calls}"))
        .args(["-e", &format!("inject={calls}:signal=SIGKILL:when={step}")])
        .arg(VMAREA)
        .args(target.merge(way));
    !leash::output(&mut strace).expect("strace").status.success()
}

/// Sweeps up after a merge that was killed, and waits for the target to exit successfully.
fn resume(mut target: Target, at: &str) {
    let resumed = vmarea(&target.merge(&["--resume"]));
    // By then the program may have been merged and have ended.
    let said = String::from_utf8_lossy(&resumed.stderr);
    let ended = said.contains("no process") || said.contains("has ended");
    let right = matches!(resumed.status.code(), Some(0 | 4)) || ended;
    assert!(right, "{at}: {resumed:?}");
    target.merge_until_it_ends(&APPLY);
    assert_eq!(target.left_by_merges(), 0, "{at}");
    assert_eq!(target.end()["lost"], 0.0, "{at}");
}

#[test]
fn the_tracing_process_is_killed_at_its_steps_and_the_next_merge_goes_on() {
    if !may_merge() {
        return;
    }
    // `ptrace` stops and directs the threads, `pwrite64` and `pread64` access the memory. A script in
    // the repository tests all steps; this test takes a sample.
    let kinds = [
        ("ptrace", 37),
        ("pwrite64", 7),
        ("pread64", 11),
        ("sendto", 2),
    ];
    for way in [&APPLY[..], &BY_COPY] {
        let mut killed = 0;
        for (calls, stride) in kinds {
            for step in (1..).step_by(stride).take(4) {
                let target = Target::start(&["hammer", "1", "300", "2"]).ready();
                if !killed_at(&target, way, calls, step) {
                    break;
                }
                killed += 1;
                resume(target, &format!("{way:?} {calls} {step}"));
            }
        }
        assert!(killed > 8, "it was killed {killed} times only");
    }
}

/// Nobody resumes anything: what is left of a killed command finishes its step and clears up.
#[test]
fn the_command_is_killed_and_nothing_needs_to_be_done() {
    if !may_merge() {
        return;
    }
    for delay in [0, 3, 10, 30] {
        let mut target = Target::start(&["hammer", "1", "4000", "2"]).ready();
        let mut merge = Command::new(VMAREA);
        merge.args(target.merge(&["--apply", "--max-pause", "2ms"]));
        let mut merge = Leashed::start(merge.stderr(Stdio::null())).expect("a merge");
        let until = Instant::now() + Duration::from_secs(30);
        while target.left_by_merges() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_millis(delay));
        merge.kill().expect("a child");
        merge.wait().expect("a child");
        while target.left_by_merges() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(target.left_by_merges(), 0, "killed after {delay} ms");
        target.merge_until_it_ends(&APPLY);
        assert_eq!(target.end()["lost"], 0.0, "killed after {delay} ms");
    }
}

/// Returns the processes in a process group, except zombies.
fn members(group: u32) -> Vec<String> {
    let stats = std::fs::read_dir("/proc").expect("/proc").flatten();
    let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let is_of_it = |stat: &String| {
        let mut fields = stat
            .rsplit_once(") ")
            .map_or("", |(_, rest)| rest)
            .split(' ');
        let state = fields.next();
        state != Some("Z") && fields.nth(1) == Some(group.to_string().as_str())
    };
    stats.filter(is_of_it).collect()
}

#[test]
fn a_test_that_fails_midway_leaves_no_process_behind() {
    if !may_merge() {
        return;
    }
    // One process that is stopped, and one that forks.
    let held = Target::start(&["hammer", "1", "300", "2"]).ready();
    let stopped = leash::output(Command::new("kill").args(["-STOP", &held.pid()]));
    assert!(stopped.expect("kill").status.success());
    let forks = Target::start(&["forks", "fork", "100", "500"]).ready();
    let groups = [held.child.group(), forks.child.group()];
    for group in groups {
        // The group contains the program and the shell that waits for its end.
        assert!(members(group).len() >= 2, "{:?}", members(group));
    }
    let failed = std::thread::spawn(move || {
        let _both = (held, forks);
        panic!("as an assertion would");
    });
    assert!(failed.join().is_err());
    // The killed processes may still be exiting.
    let until = Instant::now() + Duration::from_secs(20);
    while groups.iter().any(|&group| !members(group).is_empty()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    for group in groups {
        assert_eq!(members(group), [""; 0]);
    }
}

#[test]
fn what_hangs_ends_when_its_time_is_over() {
    // The script ignores all signals that can be ignored, starts a child that inherits its output,
    // and stops itself.
    let script = "trap '' TERM HUP INT; sleep 1000 & kill -STOP $$";
    let mut command = Command::new("bash");
    command.args(["-c", script]).stdout(Stdio::piped());
    let limit = Duration::from_secs(1);
    let mut program = Leashed::start_for(limit, &mut command).expect("bash");
    let mut out = program.stdout.take().expect("a pipe");
    out.read_to_string(&mut String::new()).expect("its end");
    assert!(!program.wait().expect("a child").success());
    // The shell is the last process of its group and may end a moment later.
    let pause = Duration::from_millis(10);
    let is_over = (0..1000).any(|_| {
        std::thread::sleep(pause);
        program.is_over()
    });
    assert!(is_over);
}
