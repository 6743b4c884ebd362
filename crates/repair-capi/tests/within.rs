//! Tests in which a process repairs its own mappings.
//!
//! A C program splits its memory into many mappings, merges them while its threads write to them,
//! and checks every byte.
//!
//! The program is linked with the shared object, as an allocator would be. It needs Linux 6.8 and
//! permission to use userfaultfd; without them the tests print a note and pass.

use vmarea_test_support::leash;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Returns the path of the shared object, which is in this test's folder or in its parent folder.
fn object() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("a folder");
    let places = [deps, deps.parent().expect("a folder")];
    let found = places.map(|place| place.join("libvmarea_repair_capi.so"));
    found
        .into_iter()
        .find(|path| path.is_file())
        .expect("cargo builds the object before its tests")
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("heap");
        let object = object();
        let folder = object.parent().expect("a folder");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
            .arg(&program)
            .arg("-I")
            .arg(root.join("include"))
            .arg(root.join("tests/programs/heap.c"))
            .arg(&object)
            .arg(format!("-Wl,-rpath,{}", folder.display()));
        let built = leash::output(&mut compiler).expect("a C compiler");
        assert!(built.status.success(), "{built:?}");
        program
    })
}

fn may_repair() -> bool {
    match vmarea_repair::can_repair_itself() {
        Ok(()) => true,
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}

fn run(command: &mut Command) -> HashMap<String, f64> {
    // The time limit turns a hang into a failure.
    let output: Output = leash::output(command).expect("the program was built");
    let text = String::from_utf8_lossy(&output.stdout);
    let told = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {told}", output.status);
    println!("{told}");
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

fn heap(arguments: &[&str]) -> HashMap<String, f64> {
    run(Command::new(program()).args(arguments))
}

#[test]
fn twenty_thousand_mappings_become_one_while_a_thread_writes() {
    if !may_repair() {
        return;
    }
    for pause in ["0", "5000"] {
        let told = heap(&["pages", "20000", pause, "1", "1"]);
        assert_eq!((told["before"], told["after"]), (20_000.0, 1.0));
    }
}

#[test]
fn the_flags_are_read_where_nobody_promises_them() {
    if may_repair() {
        assert_eq!(heap(&["pages", "3000", "0", "0", "0"])["after"], 1.0);
    }
}

#[test]
fn the_first_thread_has_exited() {
    if may_repair() {
        for flags in ["0", "1"] {
            assert_eq!(heap(&["alone", "3000", "0", "1", flags])["after"], 1.0);
        }
    }
}

#[test]
fn new_mappings_are_locked() {
    if may_repair() {
        for flags in ["0", "1"] {
            assert_eq!(heap(&["future", "3000", flags])["after"], 1.0);
        }
    }
}

#[test]
fn a_heap_of_many_regions_becomes_few_mappings() {
    if may_repair() {
        let told = heap(&["regions", "256", "1024", "1"]);
        assert!(told["after"] <= 40.0, "{told:?}");
    }
}

#[test]
fn four_threads_lose_no_update_over_many_merges() {
    if !may_repair() {
        return;
    }
    let told = heap(&["rounds", "100", "200", "4", "1"]);
    assert_eq!((told["lost"], told["wrong"]), (0.0, 0.0));
}

/// Other threads call `mmap`, which could return an address that the merge has briefly unmapped.
#[test]
fn threads_that_map_meanwhile_keep_what_they_are_given() {
    if !may_repair() {
        return;
    }
    let told = heap(&["mappers", "60", "400", "3"]);
    assert_eq!((told["wrong"], told["lost"]), (0.0, 0.0));
    assert!(told["mapped"] > 0.0);
}

/// For each kind of fork, runs `rounds` merges, during each of which the program forks.
fn forks(kinds: &[&str], rounds: &str, flags: &str) {
    if !may_repair() {
        return;
    }
    for kind in kinds {
        let told = heap(&["forks", kind, "3000", rounds, flags]);
        assert_eq!((told["wrong"], told["children_failed"]), (0.0, 0.0));
    }
}

#[test]
fn forks_in_the_middle_are_whole_on_both_sides() {
    forks(&["fork", "vfork"], "15", "1");
}

#[test]
fn forks_that_go_round_the_library_are_completed() {
    forks(&["clone", "clone-forks", "clone-drops-forks"], "15", "1");
}

/// The kernel reports a fork through a new descriptor; this program forks without a free number.
#[test]
fn forks_of_a_program_without_descriptors_are_completed() {
    forks(&["clone-full"], "15", "1");
}

#[test]
fn what_a_fork_is_to_wipe_stays_wiped() {
    // The caller does not guarantee that the mappings have no `madvise` flags.
    forks(&["clone-wiped"], "15", "0");
}

#[test]
fn a_child_changes_its_mappings_at_once() {
    forks(&["clone-drops", "clone-maps", "clone-moves"], "10", "1");
}

#[test]
fn the_end_of_the_process_comes_whenever_it_wants() {
    if !may_repair() {
        return;
    }
    for kind in ["exec", "exit", "kill"] {
        assert_eq!(heap(&["ends", kind, "3000", "15"])["failed"], 0.0);
    }
}
