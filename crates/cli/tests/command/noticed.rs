//! What a recorded program can notice: each row of the tables in `docs/differences.md`.
//!
//! The program `noticed` prints a line for each row. Its lines while it is recorded must be those that it
//! prints alone, except for the rows in which the tables list what differs.

use crate::support::leash;
use crate::support::programs::{compile, source};
use crate::support::{Nobody, VMAREA, text};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a row of the tables says about a recorded program.
#[derive(Debug, PartialEq)]
enum Listed {
    Equal,
    Differs {
        recorded: String,
        alone: String,
        /// True if only an ordinary user's program notices it.
        equal_as_root: bool,
    },
}

/// Lines of the program, by the name of their row.
type Lines = BTreeMap<String, String>;

/// Returns the rows of the section's tables: "| `row` | what | equal, or `this`, not `that` | why |".
fn tables() -> BTreeMap<String, Listed> {
    let document = include_str!("../../../../docs/differences.md");
    let (_, section) = document
        .split_once("\n## What a recorded program can notice\n")
        .expect("the section");
    let section = section.split("\n## ").next().expect("a section");
    let mut rows = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [row, _, recorded, why] = cells[..] else {
            panic!("not four cells: {line}");
        };
        let listed = match recorded.split('`').collect::<Vec<_>>()[..] {
            ["equal"] => Listed::Equal,
            [
                "",
                recorded,
                ", not ",
                alone,
                rest @ ("" | "; as root equal"),
            ] => Listed::Differs {
                recorded: recorded.to_owned(),
                alone: alone.to_owned(),
                equal_as_root: !rest.is_empty(),
            },
            _ => panic!("neither equal nor what differs: {line}"),
        };
        assert_eq!(listed == Listed::Equal, why.is_empty(), "{line}");
        let old = rows.insert(row.trim_matches('`').to_owned(), listed);
        assert!(old.is_none(), "twice: {line}");
    }
    rows
}

fn lines(command: &mut Command) -> Lines {
    let output = leash::output(command).expect("a program that starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line = |line: &str| {
        let (row, value) = line.split_once(": ").expect("a row and its value");
        (row.to_owned(), value.to_owned())
    };
    text(&output.stdout).lines().map(line).collect()
}

/// Requires that the tables say about each row what the program has noticed.
fn compare(tables: &BTreeMap<String, Listed>, alone: &Lines, recorded: &Lines, is_root: bool) {
    let rows = |lines: &Lines| lines.keys().cloned().collect::<Vec<_>>();
    assert_eq!(rows(alone), tables.keys().cloned().collect::<Vec<_>>());
    assert_eq!(rows(recorded), rows(alone));
    let mut wrong = Vec::new();
    for (row, listed) in tables {
        let expected = match listed {
            Listed::Differs {
                recorded,
                alone,
                equal_as_root,
            } if !(is_root && *equal_as_root) => (alone, recorded),
            _ => (&alone[row], &alone[row]),
        };
        let seen = (&alone[row], &recorded[row]);
        if seen != expected {
            wrong.push(format!(
                "{row}: (alone, recorded) is {seen:?}, not {expected:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A folder in which every user can write, with the program.
fn program() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("noticed");
    let files = std::fs::read_dir(source("noticed")).unwrap();
    let sources = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "c"));
    compile(&sources.collect::<Vec<_>>(), &[], &program);
    (folder, program)
}

/// Appends the arguments that record the program by a method, or those that only run it.
fn complete(mut command: Command, by: Option<&str>, program: &Path) -> Command {
    if let Some(by) = by {
        let trace = program.with_extension("vmtrace");
        command.args(["record", "--by", by, "-o"]).arg(trace);
        command.arg("--").arg(program);
    }
    command.arg(std::process::id().to_string());
    command
}

#[test]
fn a_program_notices_only_what_is_listed() {
    let (_folder, program) = program();
    let nobody = Nobody::new();
    let is_root = nobody.is_some();
    let tables = tables();
    assert!(tables.len() >= 60, "{tables:?}");
    let alone = lines(&mut complete(Command::new(&program), None, &program));
    for by in ["observing", "tracing"] {
        if by == "observing" && !is_root {
            eprintln!("skipped: only root can observe");
            continue;
        }
        println!("by {by}");
        let recorded = lines(&mut complete(Command::new(VMAREA), Some(by), &program));
        compare(&tables, &alone, &recorded, is_root);
        std::fs::remove_file(program.with_extension("vmtrace")).unwrap();
    }
    if let Some(nobody) = nobody {
        println!("as an ordinary user");
        let alone = lines(&mut complete(nobody.command(&program), None, &program));
        let recorded = complete(nobody.command(nobody.binary()), Some("tracing"), &program);
        compare(&tables, &alone, &lines(&mut { recorded }), false);
    }
}
