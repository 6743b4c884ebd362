//! `vmarea run --keep-merged`: the program, its descendants, and the keeper beside them.

use crate::support::heap::{complaint, may_merge};
use crate::support::leash;
use crate::support::programs::{compile, source};
use crate::support::{Nobody, VMAREA};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Compiles the program that waits until its mappings are merged, as a static one: nothing can be
/// loaded into it.
fn program(folder: &Path) -> PathBuf {
    let program = folder.join("target");
    compile(&[source("target.c")], &["-static"], &program);
    program
}

/// On a busy machine, shorter pauses cannot be kept.
const KEEP: [&str; 5] = ["run", "--keep-merged=200", "--max-pause", "1s", "--"];

fn keep(command: &[&str]) -> Output {
    let mut vmarea = Command::new(VMAREA);
    vmarea.args(KEEP).args(command);
    leash::output(&mut vmarea).expect("the binary was built")
}

/// Returns the number of processes whose command line contains `text`.
fn processes(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap();
    let lines = processes.filter_map(|process| {
        let line = std::fs::read(process.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(text)).count()
}

fn assert_merged(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    for line in ["joined 2", "lost 0", "wrong 0"] {
        assert!(said.lines().any(|said| said == line), "{said}");
    }
}

#[test]
fn a_program_is_kept_merged_and_the_keeper_ends_with_it() {
    if !may_merge() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let program = program.to_str().unwrap();
    assert_merged(&keep(&[program, "hammer", "2", "2000", "2"]));
    let until = Instant::now() + Duration::from_secs(60);
    while processes(program) > 0 {
        assert!(Instant::now() < until, "a process is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_descendant_that_nobody_waits_for_is_kept_merged() {
    if !may_merge() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "($0 hammer 2 2000 2 >$1.new && mv $1.new $1) & exit 0";
    let (program, out) = (program(folder.path()), folder.path().join("out"));
    let [program, out] = [&program, &out].map(|path| path.to_str().unwrap());
    let output = keep(&["setsid", "sh", "-c", script, program, out]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let until = Instant::now() + Duration::from_secs(120);
    while !Path::new(out).exists() {
        assert!(Instant::now() < until, "not merged");
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = std::fs::read_to_string(out).unwrap();
    assert!(
        said.contains("joined 2") && said.contains("lost 0"),
        "{said}"
    );
}

/// Its process number, standard streams, descriptors and status are its own.
#[test]
fn the_program_takes_the_place_of_vmarea() {
    if !may_merge() {
        return;
    }
    let script = "ls -l /proc/self/fd | wc -l; echo err >&2; echo $VMAREA_KEEP_MERGED | cut -d- -f1; echo $$; exit 9";
    let output = keep(&["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let plain = leash::output(Command::new("sh").args(["-c", script])).unwrap();
    let plain = String::from_utf8_lossy(&plain.stdout).into_owned();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(Some(lines[0]), plain.lines().next(), "open files");
    assert_eq!(
        lines[1], lines[2],
        "the value begins with vmarea's process number"
    );
}

#[test]
fn another_user_may_keep_an_own_program_merged() {
    let Some(nobody) = Nobody::new().filter(|_| may_merge()) else {
        return;
    };
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if yama.is_ok_and(|scope| scope.trim() != "0") {
        eprintln!("skipped: Yama permits only parents to trace");
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), rights).unwrap();
    let program = program(folder.path());
    let command = [program.to_str().unwrap(), "hammer", "2", "2000", "2"];
    assert_merged(&nobody.vmarea(&[&KEEP[..], &command[..]].concat()));
}

#[test]
fn a_program_that_does_not_exist_is_one_line() {
    if !may_merge() {
        return;
    }
    let output = keep(&["/no/such/program"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complaint(&output).contains("cannot run /no/such/program"));
    assert_eq!(complaint(&output).lines().count(), 1);
}
