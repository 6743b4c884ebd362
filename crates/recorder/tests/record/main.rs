//! Tests of the recorder on real programs.
//!
//! Each test checks the invariants of the stream and compares the stream with the program's output.

mod observed;
mod stream;
mod support;
mod unseen;

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use support::{compile, fresh, record_into, run, run_with};
use vmarea_recorder::{Options, RecordError};
use vmarea_trace::event::{
    Access, Call, Event, FileRef, Inode, Origin, SnapReason, Snapshot, Touch,
};

fn calls(events: &[Event], nr: i64) -> Vec<&Call> {
    let all = events.iter().filter_map(|event| match event {
        Event::Call(call) => Some(call),
        _ => None,
    });
    all.filter(|call| i64::from(call.nr) == nr).collect()
}

fn looks(events: &[Event], reason: SnapReason) -> Vec<&Snapshot> {
    let all = events.iter().filter_map(|event| match event {
        Event::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    all.filter(|snapshot| snapshot.reason == reason).collect()
}

/// Returns the number that follows a word in the program's output.
fn said(output: &str, word: &str) -> u64 {
    let mut words = output.split_whitespace();
    words.find(|w| *w == word);
    let number = words.next().and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| panic!("no {word} in {output:?}"))
}

#[test]
fn every_call_with_its_arguments_and_files() {
    let program = compile("counted", &[]);
    let r = run(&[program.to_str().unwrap()]);
    assert_eq!(r.exit_code(), 42);
    assert!(stream::check(&r.events) >= 1);
    let area = said(&r.output, "area");
    let inside = |call: &&&Call| (area..area + 400 * 4096).contains(&call.args[0]);
    let protects = calls(&r.events, libc::SYS_mprotect);
    assert_eq!(protects.iter().filter(inside).count(), 100);
    let unmaps = calls(&r.events, libc::SYS_munmap);
    assert_eq!(unmaps.iter().filter(inside).count(), 31);
    assert_eq!(
        unmaps.iter().find(|c| c.args[0] == area + 1).unwrap().ret,
        -22
    );

    let maps = calls(&r.events, libc::SYS_mmap);
    let [a, b, again, memfd] = maps[maps.len() - 4..] else {
        panic!("{} mappings", maps.len());
    };
    let file = |call: &Call| call.file.expect("a file");
    assert_eq!(file(a).file, file(again).file);
    assert_ne!(file(a).file, file(b).file);
    assert_eq!(file(a).inode, file(b).inode);
    assert_ne!(file(a).inode, file(memfd).inode);
    assert_eq!(file(memfd).size, 8192);
    let limits = calls(&r.events, libc::SYS_prlimit64);
    let limit = limits.last().expect("setrlimit");
    // The call's data is the new limit as two words, then the id of the process.
    let words: Vec<u8> = [1u64 << 20, 1 << 21, limit.tid.0 as u64]
        .iter()
        .flat_map(|n| n.to_ne_bytes())
        .collect();
    assert_eq!(limit.data, words);
    let names = calls(&r.events, libc::SYS_prctl);
    assert_eq!(names.last().expect("a name").data, b"a name");
}

#[test]
fn a_file_with_the_number_of_a_deleted_one_is_another() {
    let program = compile("reborn", &[]);
    let file = fresh("reborn-file");
    let r = run(&[program.to_str().unwrap(), file.to_str().unwrap()]);
    assert_eq!(r.exit_code(), 0);
    let inode = |id| {
        let all = r.events.iter().filter_map(|event| match event {
            Event::Inode(inode) => Some(inode),
            _ => None,
        });
        let mut these = all.filter(|inode| inode.id == id);
        these.next().expect("an inode that was announced")
    };
    let maps = calls(&r.events, libc::SYS_mmap);
    let files = maps.iter().filter_map(|call| call.file);
    let ours: Vec<_> = files
        .map(|file| (file, inode(file.inode)))
        .filter(|(_, inode)| inode.path.starts_with(file.to_str().unwrap()))
        .collect();
    assert_eq!(ours.len(), 20);
    for (i, (file, inode)) in ours.iter().enumerate() {
        assert_eq!((file.size, inode.size), ((i as u64 + 1) * 4096, file.size));
        let same = |other: &&(FileRef, &Inode)| other.0.inode == file.inode;
        assert_eq!(ours.iter().filter(same).count(), 1, "{inode:?}");
    }
    // A description of the first half, which is unmapped, may give its number to another.
    let files: BTreeSet<_> = ours[10..].iter().map(|(file, _)| file.file).collect();
    assert_eq!(files.len(), 10, "{files:?}");
}

#[test]
fn page_faults_where_they_are_permitted() {
    let program = compile("counted", &[]);
    let r = run(&[program.to_str().unwrap()]);
    let area = said(&r.output, "area");
    if r.outcome.counts.faults == 0 {
        assert!(
            r.outcome.notes.iter().any(|n| n.contains("page faults")),
            "{:?}",
            r.outcome
        );
        return;
    }
    let touched = |n: u64| {
        r.events.iter().any(|event| match event {
            Event::Fault(fault) => {
                fault.addr == area + n * 4 * 4096
                    && matches!(fault.access, Access::Write | Access::Unknown)
            }
            _ => false,
        })
    };
    assert!((0..50).all(touched));
    assert!(!touched(50));
    assert_eq!(r.outcome.counts.lost, 0);
}

#[test]
fn threads_in_the_order_of_their_effects() {
    let program = compile("threads", &[]);
    let r = run(&[program.to_str().unwrap(), "150"]);
    assert_eq!(r.exit_code(), 0);
    // The page model fails if two calls are in the wrong order.
    assert!(stream::check(&r.events) >= 1);
    let starts = r
        .events
        .iter()
        .filter(|e| matches!(e, Event::TaskStart { .. }))
        .count();
    // The shell, the program and its eight threads have started.
    assert_eq!(starts, 2 + 8);
    assert_eq!(looks(&r.events, SnapReason::Exit).len(), 2);
}

#[test]
fn a_thread_that_is_not_the_leader_executes_a_program() {
    let program = compile("exec_by_thread", &[]);
    let r = run(&[program.to_str().unwrap()]);
    assert_eq!(r.exit_code(), 0);
    stream::check(&r.events);
    // The shell, the program and `true` each begin and end with a snapshot.
    assert_eq!(looks(&r.events, SnapReason::Exec).len(), 3);
    assert_eq!(looks(&r.events, SnapReason::Exit).len(), 3);
}

#[test]
fn the_leader_may_end_before_the_last_thread() {
    let program = compile("leader_first", &[]);
    let r = run(&[program.to_str().unwrap()]);
    assert_eq!(r.exit_code(), 5);
    assert!(stream::check(&r.events) >= 2);
    let last = r.events.iter().rev().find_map(|event| match event {
        Event::TaskEnd { tid, status, .. } => Some((*tid, *status)),
        _ => None,
    });
    let leader = r.events.iter().find_map(|event| match event {
        Event::TaskStart { tid, .. } => Some(*tid),
        _ => None,
    });
    assert_eq!(last, leader.map(|tid| (tid, 5 << 8)));
    let ends = looks(&r.events, SnapReason::Exit);
    let begins = looks(&r.events, SnapReason::Exec);
    assert_eq!((ends.len(), begins.len()), (2, 2));
    // The kernel's view can be read either both times or not at all.
    let seen = |look: &Snapshot| look.vmas.iter().filter(|vma| vma.kernel.is_some()).count();
    for (begin, end) in begins.iter().zip(&ends) {
        assert_eq!(seen(begin) == 0, seen(end) == 0);
        assert!(seen(end) == 0 || seen(end) == end.vmas.len(), "{end:?}");
    }
}

#[test]
fn threads_that_leave_while_their_process_ends() {
    let program = compile("end_together", &[]);
    let r = run(&[program.to_str().unwrap()]);
    assert_eq!(r.exit_code(), 0);
    stream::check(&r.events);
    // The program, the shell before it and 40 children each end with a snapshot.
    let ends = looks(&r.events, SnapReason::Exit);
    assert_eq!(ends.len(), 42);
    assert!(ends.iter().all(|look| look.exact && !look.vmas.is_empty()));
}

#[test]
fn a_process_that_is_killed_while_it_forks_has_no_child_by_the_number_of_its_status() {
    let program = compile("killed_forks", &[]);
    let r = run(&[program.to_str().unwrap()]);
    assert_eq!(r.exit_code(), 0);
    stream::check(&r.events);
    let killed = r.events.iter().filter(|event| match event {
        Event::TaskStart { tid, .. } => tid.0 == libc::SIGKILL,
        _ => false,
    });
    assert_eq!(killed.count(), 0);
    let begun = |event: &&Event| matches!(event, Event::TaskStart { .. });
    let ended = |event: &&Event| matches!(event, Event::TaskEnd { .. });
    // Only the shell and the program share a process.
    assert_eq!(
        r.events.iter().filter(begun).count(),
        r.events.iter().filter(ended).count() + 1
    );
}

#[test]
fn a_tree_of_forks() {
    let script = "
import os
x = bytearray(1 << 20)
for i in range(20):
    p = os.fork()
    if p == 0:
        for j in range(0, 1 << 20, 4096): x[j] = i
        os._exit(i)
    _, s = os.waitpid(p, 0)
    assert os.waitstatus_to_exitcode(s) == i
";
    let r = run(&["python3", "-c", script]);
    assert_eq!(r.exit_code(), 0);
    stream::check(&r.events);
    // The start of each child directly follows the call that created it.
    let mut forks = 0;
    for three in r.events.windows(3) {
        if let [before, Event::MmStart(start), after] = three
            && let Origin::Fork { parent } = start.origin
        {
            let Event::Call(call) = before else {
                panic!("{before:?} before {start:?}");
            };
            let Event::TaskStart { tid, mm, .. } = after else {
                panic!("{after:?} after {start:?}");
            };
            assert_eq!(
                (call.mm, *mm, call.ret),
                (parent, start.mm, i64::from(tid.0))
            );
            forks += 1;
        }
    }
    assert!(forks >= 20, "{forks}");
}

#[test]
fn vfork_and_spawn_share_until_they_execute() {
    let script = "
import os, subprocess
for i in range(5): subprocess.run(['/bin/true'], close_fds=False, check=True)
assert os.waitstatus_to_exitcode(os.system('exit 3')) == 3
pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'kill -9 $$'], os.environ)
assert os.waitpid(pid, 0)[1] == 9
";
    let r = run(&["python3", "-c", script]);
    assert_eq!(r.exit_code(), 0);
    stream::check(&r.events);
    let of_reason = |reason| looks(&r.events, reason).len();
    let forked = r.events.iter().filter(
        |e| matches!(e, Event::MmStart(start) if matches!(start.origin, Origin::Fork { .. })),
    );
    // There are as many final snapshots as first ones, including that of the killed process.
    assert_eq!(
        of_reason(SnapReason::Exec) + forked.count(),
        of_reason(SnapReason::Exit)
    );
    assert!(of_reason(SnapReason::Exec) >= 8);
}

#[test]
fn a_pipeline_and_its_exit_status() {
    let r = run(&[
        "sh",
        "-c",
        "ls /usr/bin | sort | uniq | tac | wc -l; exit 7",
    ]);
    assert_eq!(r.exit_code(), 7);
    stream::check(&r.events);
    assert!(r.output.trim().parse::<u32>().unwrap() > 10);
}

#[test]
fn signals_pass_and_stops_last() {
    let program = compile("signals", &[]);
    let r = run(&[program.to_str().unwrap()]);
    assert_eq!(
        r.output,
        "usual 5 queued 7 stopped 1 still 1 continued 1 exit 3 alarms 1\n"
    );
    assert!(libc::WIFSIGNALED(r.outcome.status));
    assert_eq!(libc::WTERMSIG(r.outcome.status), libc::SIGTERM);
    stream::check(&r.events);
}

#[test]
fn a_killed_tree_is_whole() {
    // `setsid` creates a process group of which no member remains.
    let tree = "(sleep 100 & sleep 100 & wait) & sleep 0.1; kill -9 0";
    let r = run(&["setsid", "-w", "sh", "-c", tree]);
    stream::check(&r.events);
    let killed = r.events.iter().filter(|event| match event {
        Event::TaskEnd { status, .. } => libc::WIFSIGNALED(*status),
        _ => false,
    });
    assert_eq!(killed.count(), 4);
}

#[test]
fn checkpoints_are_as_many_as_are_asked_for() {
    let program = compile("counted", &["-static"]);
    let options = Options {
        checkpoint: NonZeroU64::new(10),
        ..Options::default()
    };
    let r = run_with(options, &[program.to_str().unwrap()]);
    let compared = stream::check(&r.events);
    let mut calls = HashMap::new();
    for event in &r.events {
        if let Event::Call(call) = event {
            *calls.entry(call.mm).or_insert(0) += 1;
        }
    }
    let checkpoints: usize = calls.values().map(|n| n / 10).sum();
    assert!(checkpoints >= 13, "{checkpoints}");
    assert_eq!(looks(&r.events, SnapReason::Checkpoint).len(), checkpoints);
    assert!(compared >= checkpoints);
}

#[test]
fn memory_that_is_reached_without_faults() {
    let program = compile("reach", &[]);
    let file = support::fresh("file");
    std::fs::write(&file, [5; 8192]).unwrap();
    let r = run(&[program.to_str().unwrap(), file.to_str().unwrap()]);
    assert_eq!(r.exit_code(), 0);
    stream::check(&r.events);
    if r.output.contains("no O_DIRECT") {
        return;
    }
    let touches: Vec<&Touch> = r
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Touch(touch) => Some(touch),
            _ => None,
        })
        .collect();
    let there = said(&r.output, "there");
    let buffer = said(&r.output, "buffer");
    let ranges: Vec<_> = touches.iter().map(|t| (t.addr, t.len, t.access)).collect();
    assert_eq!(
        ranges,
        [
            (there + 4096, 10, Access::Write),
            (there + 8192, 90, Access::Write),
            (buffer, 8192, Access::Write),
        ]
    );
    assert_ne!(touches[0].mm, touches[2].mm);
}

#[test]
fn what_cannot_be_recorded_says_why() {
    let fails = |words: &[&str]| {
        let options = Options {
            command: words.iter().map(Into::into).collect(),
            ..Options::default()
        };
        let mut events = Vec::new();
        let error = record_into(options, &mut events).expect_err("an error");
        assert!(events.is_empty());
        assert!(!error.to_string().contains('\n'));
        error
    };
    assert!(matches!(fails(&[]), RecordError::NoCommand));
    assert!(matches!(
        fails(&["no-such-command"]),
        RecordError::NotFound(_)
    ));
    assert!(matches!(
        fails(&["/no/such/file"]),
        RecordError::NotFound(_)
    ));
    assert!(matches!(
        fails(&["/etc/passwd"]),
        RecordError::NotExecutable { .. }
    ));
    assert!(matches!(fails(&["/"]), RecordError::NotExecutable { .. }));
    let script = support::fresh("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let error = fails(&[script.to_str().unwrap()]);
    assert!(error.to_string().contains("interpreter"), "{error}");
}

/// Sink that fails after a given number of events.
struct Full(usize);

impl vmarea_recorder::Sink for Full {
    fn event(&mut self, _: &Event) -> std::io::Result<()> {
        self.0 = self
            .0
            .checked_sub(1)
            .ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(())
    }
}

#[test]
fn a_full_disk_does_not_end_the_command() {
    let witness = support::fresh("witness");
    let script = format!(
        "for i in 1 2 3 4 5; do /bin/true; done; echo done > {}",
        witness.display()
    );
    let options = Options {
        command: ["sh", "-c", &script].map(Into::into).to_vec(),
        ..Options::default()
    };
    let result = vmarea_recorder::record(&options, &mut Full(10), &mut |_| {});
    assert!(matches!(result, Err(RecordError::Sink(_))), "{result:?}");
    assert_eq!(std::fs::read_to_string(witness).unwrap(), "done\n");
}
#[test]
fn a_call_may_wait_for_another_thread() {
    let program = compile("waits", &[]);
    let r = run(&[program.to_str().unwrap()]);
    if r.exit_code() == 77 {
        return;
    }
    assert_eq!(r.exit_code(), 0);
    stream::check(&r.events);
    // The mappings of the fault handler were created during the populating call.
    let populate = |call: &&&Call| call.args[2] == libc::MADV_POPULATE_WRITE as u64;
    let advised = calls(&r.events, libc::SYS_madvise);
    assert_eq!(advised.iter().find(populate).expect("the call").ret, 0);
}
