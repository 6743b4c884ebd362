//! What a user reads who gives a wrong argument or file: the cause in words, and what to do.

use crate::support::{Nobody, complaint, text, vmarea};
use std::path::Path;

fn corpus(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    root.join(format!("{name}.vmtrace")).display().to_string()
}

/// Runs a command that is wrong usage, and returns what it says.
fn refused(arguments: &[&str]) -> String {
    let output = vmarea(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    said
}

#[test]
fn a_value_that_needs_an_equals_sign_is_told_so() {
    for (arguments, hint) in [
        (
            &["explain", "-p", "1", "--json", "a b.json"][..],
            "--json=a b.json",
        ),
        (&["explain", "-p", "1", "--json", "-"], "--json=-"),
        (&["run", "--json", "out", "--", "true"], "--json=out"),
        (
            &["run", "--keep-merged", "9", "--", "true"],
            "--keep-merged=9",
        ),
        (&["replay", "--json", "out", "trace"], "--json=out"),
    ] {
        let said = refused(arguments);
        let option = hint.split('=').next().unwrap();
        let tip = format!("tip: the value of '{option}' follows after '=': '{hint}'\n");
        assert!(said.contains(&tip), "{said}");
        assert_eq!(said.matches("tip:").count(), 1, "{said}");
    }
    // Otherwise, the file would be one of the traces.
    let trace = corpus("regions");
    let both = ["--policy", "linux", "--policy", "thesis"];
    let said = refused(&[&["compare", &trace, "--json", "out.json"][..], &both].concat());
    assert!(said.contains("'--json=out.json'"), "{said}");
    for arguments in [
        &["replay", "--json", "--", "out", "trace"][..],
        &["explain", "-p", "1", "--json", "--all", "out"],
        &["explain", "-p", "1", "--rss", "out"],
    ] {
        let said = refused(arguments);
        assert!(!said.contains("follows after '='"), "{said}");
    }
}

#[test]
fn a_command_without_its_dashes_is_told_of_them() {
    for command in ["explain", "run", "record", "show maps", "show graph"] {
        let words: Vec<_> = command.split(' ').chain(["ls"]).collect();
        let said = refused(&words);
        assert!(
            said.contains("tip: a command follows after '--': '-- ls'"),
            "{command}: {said}"
        );
    }
    for arguments in [
        &["top", "ls"][..],
        &["show", "ls"],
        &["explain", "ls", "--", "x"],
    ] {
        let said = refused(arguments);
        assert!(!said.contains("a command follows"), "{said}");
    }
    let said = refused(&["explain"]);
    assert!(
        said.contains("<--pid <PID>|--from <FILE|->|-- COMMAND>"),
        "{said}"
    );
}

#[test]
fn a_wrong_number_is_answered_in_words() {
    for (arguments, words) in [
        (
            &["explain", "-p", "redis"][..],
            "the number of a process is needed: pgrep redis prints it",
        ),
        (&["merge", "-p", "0"], "the number of a process is needed"),
        (&["top", "-n", "x"], "a whole number is needed"),
        (&["merge", "-p", "1", "--copy="], "a whole number is needed"),
        (
            &["merge", "-p", "1", "--copy", "99999999999999999999"],
            "the number is too large",
        ),
        (
            &["show", "graph", "-p", "1", "--limit", "0"],
            "a number from 1 to 1000 is needed",
        ),
        (
            &["run", "--checkpoint", "0", "--", "true"],
            "a number of at least 1 is needed",
        ),
    ] {
        let said = refused(arguments);
        assert!(said.contains(&format!(": {words}\n")), "{said}");
    }
}

#[test]
fn an_option_without_effect_is_refused() {
    for arguments in [
        &["record", "--for", "5s", "--", "true"][..],
        &["explain", "--record", "5s", "--", "true"],
        &["explain", "--record", "5s", "--from", "/proc/self/maps"],
        &["run", "--keep-merged", "--policy", "linux", "--", "true"],
        &["run", "--keep-merged", "--differences", "3", "--", "true"],
        &["run", "--keep-merged", "--leave-one-out", "--", "true"],
    ] {
        let said = refused(arguments);
        assert!(
            said.contains("cannot be used with"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn each_result_has_a_destination_of_its_own() {
    let said = refused(&[
        "export",
        &corpus("regions"),
        "--folded",
        "-",
        "--perfetto",
        "-",
    ]);
    assert!(
        said.contains("only one result can go to standard output"),
        "{said}"
    );
}

#[test]
fn an_error_has_the_kernels_words_without_its_number() {
    for (arguments, status) in [
        (&["replay", "/nonexistent/x"][..], 1),
        (&["export", "/nonexistent/x", "--folded", "-"], 1),
        (&["explain", "--from", "/nonexistent/x"], 1),
        (&["replay", "x", "--policy", "/nonexistent/x.toml"], 2),
        (&["run", "--json=/nonexistent/x", "--", "true"], 1),
    ] {
        let output = vmarea(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains("/nonexistent/x"), "{said}");
        assert!(said.contains(": No such file or directory\n"), "{said}");
    }
}

#[test]
fn a_file_that_is_no_trace_is_named_with_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let name = |file: &str| folder.path().join(file).display().to_string();
    let whole = std::fs::read(corpus("regions")).unwrap();
    let (header, words) = (name("header"), name("words"));
    std::fs::write(&header, &whole[..20]).unwrap();
    std::fs::write(&words, "hello\n").unwrap();
    let inside = name("");
    for (file, what) in [
        (&inside, "it is a folder: name a trace in it"),
        (&words, "this is not a vmarea trace"),
        (&header, "nothing of it is usable, so record it again"),
    ] {
        for command in [
            &["replay", file][..],
            &["trace", "info", file],
            &["trace", "dump", file],
            &["show", "maps", "--trace", file],
            &["export", file, "--folded", "-"],
            &["export", file, "--perfetto", "-"],
        ] {
            let said = complaint(&vmarea(command), 1);
            assert!(said.contains(&format!("{file}: ")), "{command:?}: {said}");
            assert!(said.contains(what), "{command:?}: {said}");
        }
    }
    let import = [
        "trace",
        "import",
        "--from",
        "strace",
        "-o",
        &name("o"),
        &words,
    ];
    let said = complaint(&vmarea(&import), 1);
    assert!(said.ends_with("was it written by another one?\n"), "{said}");
}

#[test]
fn a_folder_without_traces_is_described_in_one_line_of_some_names() {
    let folder = tempfile::tempdir().unwrap();
    for n in 10..30 {
        std::fs::write(folder.path().join(format!("f{n}")), "").unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let output = vmarea(&["compare", path, "--policy", "linux", "--policy", "thesis"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("f10, f11, f12, f13, f14, f15, f16, f17 and 12 more\n"),
        "{said}"
    );
    assert!(
        said.ends_with(&format!("there are no traces in {path}\n")),
        "{said}"
    );
}

#[test]
fn what_an_ordinary_user_lacks_is_said_once() {
    let Some(nobody) = Nobody::new() else {
        return println!("skipped: only root can become another user");
    };
    let said = text(&nobody.vmarea(&["run", "--", "true"]).stderr);
    assert!(
        said.contains("recorded without the kernel's own view"),
        "{said}"
    );
    for line in said.lines() {
        assert!(line.matches("kernel's own view").count() <= 1, "{line}");
    }
}
